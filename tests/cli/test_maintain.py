from __future__ import annotations

import json
from pathlib import Path

from oteval.store import Store

from .conftest import Run


def test_archive_moves_and_the_commands_still_find_all(filled: Run):
    """After `oteval archive`, trajectories, show and explain print the same as before."""
    before = filled("trajectories", "--json")
    trace = before.rows[0]["trace_ids"][0]
    explained = filled("explain", trace)

    done = filled("archive", "--older-than", "0s", "--to", "cold", "--json")

    (moved,) = done.rows
    assert done.status == 0
    assert moved["spans"] > 0
    assert len(list(Path("cold").rglob("spans-*.parquet"))) > 0
    assert filled("trajectories", "--json").out == before.out
    assert filled("explain", trace).out == explained.out
    assert (
        filled("archive", "--older-than", "0s", "--to", "cold").out
        == "nothing is old enough to archive\n"
    )


def test_the_archive_can_be_loaded_again(filled: Run, tmp_path: Path):
    """`oteval ingest` reads the archive's files into another database."""
    before = filled("trajectories", "--json")
    filled("archive", "--older-than", "0s", "--to", "cold")

    files = sorted(Path("cold").rglob("*.parquet"))
    assert filled("ingest", *files, "--db", "other.duckdb").status == 0

    assert filled("trajectories", "--json", "--db", "other.duckdb").out == before.out


def test_the_configuration_says_what_is_old_and_where_it_goes(filled: Run):
    """`oteval archive` goes by `retention`; the folder is relative to the file's."""
    Path("conf").mkdir()
    Path("conf/oteval.yaml").write_text(
        "evaluators: [{name: t, type: tool_errors}]\nretention: {hot: 0s, archive: old}\n"
    )

    done = filled("archive", "-c", "conf/oteval.yaml")

    assert done.status == 0
    assert "spans" in done.out
    assert list(Path("conf/old").rglob("*.parquet"))


def test_a_wrong_age_says_what_to_write(filled: Run):
    """Status 2; the option and the form are named."""
    done = filled("archive", "--older-than", "old")

    assert done.status == 2
    assert "--older-than: 'old' is not a duration; write for instance 5s or 2m" in done.err


def test_compact_and_backup(filled: Run):
    """Both leave a database with the same trajectories; a backup does not overwrite."""
    before = filled("trajectories", "--json").out

    compacted = filled("compact", "--json")
    backed = filled("backup", "copy.duckdb", "--json")
    again = filled("backup", "copy.duckdb")

    assert compacted.status == backed.status == 0
    assert json.loads(compacted.out)["after_bytes"] > 0
    assert backed.rows[0]["rows"]["spans"] > 0
    assert filled("trajectories", "--json").out == before
    assert filled("trajectories", "--json", "--db", "copy.duckdb").out == before
    assert (again.status, "exists already" in again.err) == (2, True)


def test_status_counts_what_the_database_contains(filled: Run):
    """The counts are those of the other commands, and the space is that of the file."""
    runs = filled("trajectories", "--json").rows

    (found,) = filled("status", "--json").rows
    shown = filled("status").out

    assert (found["trajectories"], found["pending_traces"]) == (len(runs), 0)
    assert found["agents"] == len({run["agent"] for run in runs if run["agent"]})
    assert found["bytes_per_span"] == found["bytes"] / found["spans"] > 0
    assert f"{found['spans']:,}" in shown
    assert "archive" not in shown

    filled("archive", "--older-than", "0s", "--to", "cold")
    (after,) = filled("status", "--json").rows
    assert after["archived_spans"] == found["spans"]
    assert (after["spans"], after["bytes_per_span"]) == (0, None)
    assert "archive" in filled("status").out


def test_status_of_an_empty_database_is_zeros(oteval: Run):
    """A database without rows has no times and no bytes per span."""
    Store("oteval.duckdb").close()

    done = oteval("status", "--json")

    (found,) = done.rows
    assert done.status == 0
    assert (found["spans"], found["trajectories"], found["first_ns"]) == (0, 0, None)
    assert oteval("status").status == 0


def test_nothing_is_made_where_there_is_no_database(oteval: Run):
    """The four commands refuse a missing database, and do not create one."""
    for arguments in (["status"], ["archive"], ["compact"], ["backup", "copy.duckdb"]):
        done = oteval(*arguments)
        assert (done.status, "no such database" in done.err) == (2, True)
    assert not Path("oteval.duckdb").exists()
