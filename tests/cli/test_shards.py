"""Reading commands on several databases, and the errors of the other commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.store import Store

from ..commands import Prepare, Run
from ..make import TRACES, chat

RULES = (
    "evaluators: [{name: tools, type: tool_errors}]\n"
    "gates: [{evaluator: tools, min_pass_rate: 0.1}]\n"
)


def write_shards(oteval: Run) -> None:
    """Write `all.duckdb`, and its runs into two shards."""
    Path("oteval.yaml").write_text(RULES)
    Path("shards").mkdir()
    runs = [chat(n, n, [("user", f"question {n}")], f"answer {n}") for n in range(1, 7)]
    for database, spans in (
        ("all.duckdb", runs),
        ("shards/0.duckdb", runs[::2]),
        ("shards/1.duckdb", runs[1::2]),
    ):
        with Store(database) as store:
            store.spans.write(spans)
        assert oteval("score", "--db", database).status == 0


@pytest.fixture
def shards(prepare: Prepare) -> Run:
    """Return the command in a folder with `all.duckdb` and its runs in two shards."""
    return prepare(write_shards)


def in_any_order(text: str) -> list[str]:
    """Return the lines of an output in an order that does not depend on the shards."""
    return sorted(text.splitlines())


def test_reading_commands_give_the_runs_of_all_shards(shards: Run):
    """A folder, or each database by name: the same runs as one database with all of them."""
    for command in (("trajectories", "--json"), ("variants", "--json")):
        whole = shards(*command, "--db", "all.duckdb")
        folder = shards(*command, "--db", "shards")
        named = shards(*command, "--db", "shards/0.duckdb", "--db", "shards/1.duckdb")

        assert whole.status == folder.status == named.status == 0
        assert whole.rows
        assert in_any_order(folder.out) == in_any_order(named.out) == in_any_order(whole.out)


def test_scores_and_reports_count_all_shards(shards: Run):
    """As many scores, rows of export and lines of Markdown as from one database."""
    for command in (("scores", "--json"), ("export", "--jsonl", "-")):
        whole = shards(*command, "--db", "all.duckdb")
        folder = shards(*command, "--db", "shards")
        assert len(folder.rows) == len(whole.rows) > 1
    for database, file in (("all.duckdb", "a.md"), ("shards", "b.md")):
        assert shards("report", "--md", file, "--db", database).status == 0
    assert in_any_order(Path("a.md").read_text()) == in_any_order(Path("b.md").read_text())
    assert shards("report", "--html", "r.html", "--db", "shards").status == 0
    assert shards("export", "--parquet", "out", "--db", "shards").status == 0


@pytest.mark.slow
def test_show_explain_and_diff_find_runs_of_each_shard(shards: Run):
    """Commands that take an id find it in any shard."""
    runs = shards("trajectories", "--json", "--db", "all.duckdb").rows
    for run in runs:
        name, trace = run["trajectory_id"], run["trace_ids"][0]
        (row,) = shards("show", name, "--json", "--db", "shards").rows
        assert row["messages"] == run["messages"]
        whole = shards("explain", trace, "--db", "all.duckdb")
        assert shards("explain", trace, "--db", "shards").out == whole.out
    ids = [runs[0]["trajectory_id"], runs[-1]["trajectory_id"]]
    assert shards("diff", *ids, "--db", "shards").status in (0, 1)


def test_archived_spans_of_each_shard_are_found(shards: Run):
    """The paths of an archive are relative to the folder of its shard."""
    run = shards("trajectories", "--json", "--db", "shards/1.duckdb").rows[0]
    before = shards("explain", run["trace_ids"][0], "--db", "shards").out
    moved = ("archive", "--older-than", "0s", "--to", "shards/cold", "--db", "shards/1.duckdb")
    assert shards(*moved).status == 0

    assert shards("explain", run["trace_ids"][0], "--db", "shards").out == before


def test_status_shows_each_database(shards: Run):
    """One object for each shard."""
    rows = shards("status", "--json", "--db", "shards").rows

    assert [row["database"] for row in rows] == ["shards/0.duckdb", "shards/1.duckdb"]
    assert all(row["spans"] > 0 for row in rows)


@pytest.mark.slow
def test_datasets_and_references_of_all_shards_are_listed(shards: Run):
    """Equal versions count once, and a name means the newest; adding needs one database."""
    Path("d.jsonl").write_text('{"inputs": {"q": 1}}\n{"inputs": {"q": 2}}\n')
    Path("newer.jsonl").write_text('{"inputs": {"q": 3}}\n')
    for database in ("shards/0.duckdb", "shards/1.duckdb"):
        assert shards("dataset", "add", "d", "d.jsonl", "--db", database).status == 0
    assert shards("dataset", "add", "d", "newer.jsonl", "--db", "shards/1.duckdb").status == 0
    runs = shards("trajectories", "--json", "--db", "all.duckdb").rows
    for run, database in zip(runs, ("shards/0.duckdb", "shards/1.duckdb"), strict=False):
        name = ("reference", "add", run["trajectory_id"], "--name", run["trajectory_id"][:4])
        assert shards(*name, "--db", database).status == 0

    listed = shards("dataset", "list", "--json", "--db", "shards").rows
    rows = shards("dataset", "show", f"d@{listed[0]['version']}", "--db", "shards").rows
    newest = shards("dataset", "show", "d", "--db", "shards").rows
    references = shards("reference", "list", "--json", "--db", "shards").rows
    checked = shards("reference", "check", "--db", "shards")

    assert [row["examples"] for row in listed] == [2, 1]
    assert [row["inputs"] for row in rows] == [{"q": 1}, {"q": 2}]
    assert [row["inputs"] for row in newest] == [{"q": 3}]
    assert len(references) == 2
    assert checked.status == 0
    assert len(checked.out.splitlines()) == 2
    assert shards("dataset", "add", "d", "d.jsonl", "--db", "shards").status == 2


def test_sessions_of_any_shard_are_replayed(shards: Run, monkeypatch: pytest.MonkeyPatch):
    """The recording of a run is found in its shard, and equals that of one database."""
    for run in shards("trajectories", "--json", "--db", "all.duckdb").rows[:3]:
        whole = shards(
            "replay", "cassette", run["trajectory_id"], "-o", "a.jsonl", "--db", "all.duckdb"
        )
        parts = shards(
            "replay", "cassette", run["trajectory_id"], "-o", "b.jsonl", "--db", "shards"
        )
        assert (whole.status, whole.out.replace("a.jsonl", "")) == (
            parts.status,
            parts.out.replace("b.jsonl", ""),
        )
        Path("a.jsonl").unlink(missing_ok=True)
        Path("b.jsonl").unlink(missing_ok=True)


def test_monitors_of_each_database_are_shown(shards: Run):
    """Each database has its own state, its own past, and its name."""
    Path("monitors.yaml").write_text(
        "evaluators: [{name: tools, type: tool_errors}]\nmonitors: [{evaluator: tools}]\n"
    )
    config = ("-c", "monitors.yaml")
    rows = shards("monitor", "status", "--json", *config, "--db", "shards").rows
    databases = ["shards/0.duckdb", "shards/1.duckdb"]
    assert [row["database"] for row in rows] == databases
    for command in ("backtest", "simulate"):
        past = shards("monitor", command, *config, "--db", "shards")
        alone = [shards("monitor", command, *config, "--db", database) for database in databases]
        named = [
            f"oteval: {name}:\n{output.err}" for name, output in zip(databases, alone, strict=True)
        ]
        assert (past.status, past.err) == (min(output.status for output in alone), "".join(named))
    times = ("--before", "2100-01-01", "--json")
    changes = shards("monitor", "compare", *config, *times, "--db", "shards").rows
    assert {row["database"] for row in changes} <= set(databases)


def test_marks_of_any_database_name_a_time(shards: Run):
    """A mark stored in one database names a time for all databases."""
    Path("monitors.yaml").write_text(
        "evaluators: [{name: tools, type: tool_errors}]\nmonitors: [{evaluator: tools}]\n"
    )
    assert shards("monitor", "mark", "v2", "--db", "shards/1.duckdb").status == 0
    compare = ("monitor", "compare", "-c", "monitors.yaml", "--before", "v2")
    assert shards(*compare, "--db", "shards").status == 3
    assert "no mark has this name" in shards(*compare, "--db", "shards/0.duckdb").err


def test_labels_experiments_and_the_audit_log_are_those_of_all_databases(shards: Run):
    """A judge is compared with the labels of all shards; adding labels needs one named shard."""
    runs = shards("trajectories", "--json", "--db", "all.duckdb").rows
    scored = shards("scores", "--json", "--db", "all.duckdb").rows
    verdicts = {row["trajectory_id"]: row["passed"] for row in scored if row["passed"] is not None}
    evaluator = next(row["evaluator"] for row in scored if row["passed"] is not None)
    labelled = []
    for database in ("shards/0.duckdb", "shards/1.duckdb"):
        names = {
            row["trajectory_id"] for row in shards("trajectories", "--json", "--db", database).rows
        }
        name = min(names & set(verdicts))
        label = ("judge", "label", name, "pass", "--evaluator", evaluator)
        assert shards(*label, "--db", database).status == 0
        assert shards(*label, "--db", "all.duckdb").status == 0
        labelled.append(name)
    assert len(runs) > len(labelled) == 2

    calibrate = ("judge", "calibrate", evaluator)
    whole = shards(*calibrate, "--json", "--db", "all.duckdb")
    parts = shards(*calibrate, "--json", "--db", "shards")
    written = shards(
        *calibrate, "--labels", "l.jsonl", "--db", "shards/0.duckdb", "--db", "shards/1.duckdb"
    )
    assert (parts.status, parts.rows) == (whole.status, whole.rows)
    assert (written.status, "give one --db FILE" in written.err) == (2, True)

    for database in ("shards/0.duckdb", "shards/1.duckdb"):
        name = shards("trajectories", "--json", "--db", database).rows[0]["trace_ids"][0]
        assert shards("delete", "--trace", name, "--yes", "--db", database).status == 0
    assert len(shards("audit", "--json", "--db", "shards").rows) == 2
    assert shards("experiments", "--json", "--db", "shards").rows == []


def test_writing_commands_ask_for_one_database(shards: Run):
    """Two databases or a folder: status 2, one line that names the option, and nothing written."""
    databases = shards("score", "--db", "shards/0.duckdb", "--db", "shards/1.duckdb")
    folder = shards("ingest", TRACES / "genai_openai_chat.json", "--db", "shards")

    assert databases.status == folder.status == 2
    assert "score uses one database, and 2 are given; give one --db FILE" in databases.err
    assert "ingest uses one database, and shards is a folder; give --db FILE" in folder.err


def test_a_missing_database_an_empty_folder_and_another_file_are_named(shards: Run):
    """Status 2, with the file's name; no shard is left out silently."""
    Path("empty").mkdir()
    Path("other.duckdb").write_text("no database" * 1000)

    missing = shards("trajectories", "--db", "shards", "--db", "gone.duckdb")
    empty = shards("trajectories", "--db", "empty")
    other = shards("trajectories", "--db", "shards", "--db", "other.duckdb")

    assert (missing.status, "gone.duckdb: no such database" in missing.err) == (2, True)
    assert (empty.status, "empty: no database (*.duckdb)" in empty.err) == (2, True)
    assert (other.status, "other.duckdb: not an oteval database" in other.err) == (2, True)


def test_a_database_given_twice_is_read_once(shards: Run):
    """A database given by name, in its folder and by a link is read once, with a notice."""
    Path("link.duckdb").symlink_to("shards/0.duckdb")
    once = shards("trajectories", "--json", "--db", "shards")

    twice = shards(
        *("trajectories", "--json", "--db", "shards", "--db", "shards/0.duckdb"),
        *("--db", "link.duckdb"),
    )

    assert twice.out == once.out
    assert "link.duckdb: the same database as shards/0.duckdb; it is read once" in twice.err


def test_a_trace_in_two_shards_is_named_and_its_run_counted_once(oteval: Run):
    """The run is read from the shard with its latest end, and a line names both shards."""
    early, late = chat(1, 1, [("user", "hi")], "one"), chat(2, 1, [("user", "hi")], "two")
    for name, spans in (("a.duckdb", [early]), ("b.duckdb", [early, late])):
        with Store(name) as store:
            store.spans.write(spans)

    completed = oteval("trajectories", "--json", "--db", "a.duckdb", "--db", "b.duckdb")

    ids = [row["trajectory_id"] for row in completed.rows]
    assert len(ids) == len(set(ids)) == 2
    assert f"trace {early.trace_id} has spans in a.duckdb and b.duckdb" in completed.err


def test_a_shard_with_an_older_schema_is_migrated_first(shards: Run):
    """Opening several databases migrates each, as opening one does."""
    before = shards("trajectories", "--json", "--db", "shards")
    with Store("shards/1.duckdb") as store:
        for column in ("agents", "user_id", "agent_version", "documents"):
            store._connection.execute(f"ALTER TABLE trajectories DROP COLUMN {column}")
        store._connection.execute("ALTER TABLE runs DROP COLUMN facts")
        store._connection.execute("DELETE FROM migrations WHERE number >= 16")

    assert shards("trajectories", "--json", "--db", "shards").out == before.out


def test_a_database_that_is_open_in_a_server_is_read_as_a_copy(shards: Run):
    """The runs of a served shard are read as well, and no copy is left behind."""
    with Store("shards/0.duckdb", served=False) as store:
        server = store.serve(lambda _: b"", {})
        try:
            served = shards("trajectories", "--json", "--db", "shards")
        finally:
            server.close()

    assert in_any_order(served.out) == in_any_order(
        shards("trajectories", "--json", "--db", "all.duckdb").out
    )
    assert sorted(path.name for path in Path("shards").iterdir()) == ["0.duckdb", "1.duckdb"]


def test_oteval_db_may_name_several_databases(shards: Run, monkeypatch: pytest.MonkeyPatch):
    """OTEVAL_DB is split at colons, as PATH is."""
    monkeypatch.setenv("OTEVAL_DB", "shards/0.duckdb:shards/1.duckdb")

    assert len(shards("status", "--json").rows) == 2
