"""Reading commands on a folder of Spark results, and the errors of the other commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oteval.store import RESULTS, UNFINISHED, Store

from ..commands import Prepare, Run
from ..make import CAPTURES, capture, chat
from ..results_folder import write_results

RULES = """
evaluators: [{name: tools, type: tool_errors}, {name: loops, type: loops}]
gates: [{evaluator: tools, min_pass_rate: 0.1}]
monitors: [{measure: latency}]
"""


def write(oteval: Run) -> None:
    """Write `all.duckdb` and its results in `out`."""
    Path("oteval.yaml").write_text(RULES)
    with Store("all.duckdb") as store:
        for name in CAPTURES:
            store.spans.write(*capture(name))
    assert oteval("score", "--db", "all.duckdb").status == 0
    with Store("all.duckdb") as store:
        write_results(store, Path("out"))


@pytest.fixture
def results(prepare: Prepare) -> Run:
    """Return the command in a folder with `all.duckdb` and its results in `out`."""
    return prepare(write)


@pytest.mark.parametrize(
    "command",
    [
        ("trajectories", "--json"),
        ("trajectories", "--json", "--where", "tool~e", "--limit", "5"),
        ("scores", "--json"),
        ("scores", "--json", "--evaluator", "tools", "--status", "fail"),
        ("variants", "--json"),
        ("export", "--jsonl", "-"),
    ],
)
@pytest.mark.slow
def test_lists_are_those_of_the_store(results: Run, command: tuple[str, ...]):
    """The same lines in the same order from the folder as from the database."""
    whole = results(*command, "--db", "all.duckdb")
    folder = results(*command, "--db", "out")

    assert whole.status == folder.status == 0
    assert whole.rows
    assert folder.out == whole.out


@pytest.mark.slow
def test_reports_and_backtests_are_those_of_the_store(results: Run):
    """The report with its gates, by agent, and the monitors on the past."""
    for option in ((), ("--by", "agent")):
        for database, file in (("all.duckdb", "a.md"), ("out", "b.md")):
            assert results("report", "--md", file, "--db", database, *option).status == 0
        assert Path("a.md").read_text() == Path("b.md").read_text()
    backtests = [results("monitor", "backtest", "--db", db) for db in ("all.duckdb", "out")]
    assert backtests[0].status == backtests[1].status == 0
    assert backtests[0].err == backtests[1].err
    assert "observations" in backtests[0].err


@pytest.mark.slow
def test_runs_are_shown_and_compared_by_their_ids(results: Run):
    """`show` prints the whole conversation and the scores of a run, `diff` compares two."""
    ids = [run["trajectory_id"] for run in results("trajectories", "--json", "--db", "out").rows]

    for command in (("show", ids[0]), ("diff", ids[0], ids[-1])):
        assert results(*command, "--db", "out").out == results(*command, "--db", "all.duckdb").out


@pytest.mark.slow
def test_a_folder_and_a_database_are_read_as_one(results: Run):
    """The runs of both are listed, and `status` shows each."""
    with Store("more.duckdb") as store:
        store.spans.write([chat(1, 1, [("user", "one more")], "yes")])

    rows = results("trajectories", "--json", "--db", "out", "--db", "more.duckdb").rows
    status_rows = results("status", "--json", "--db", "out", "--db", "more.duckdb").rows

    whole = results("trajectories", "--json", "--db", "all.duckdb").rows
    assert len(rows) == len(whole) + 1
    assert [row["database"] for row in status_rows] == ["out", "more.duckdb"]
    assert status_rows[0]["trajectories"] == len(whole)
    assert status_rows[0]["bytes"] > 0


def test_commands_that_write_refuse_a_folder_of_results(results: Run):
    """Status 2, and one line that says why."""
    done = results("score", "--db", "out")

    assert done.status == 2
    assert "score writes to its database, and out has results of Spark" in done.err


def test_the_state_of_monitors_is_refused_with_another_command(results: Run):
    """A folder of results has no state: status 2, and the command for the past."""
    done = results("monitor", "status", "--db", "out")

    assert done.status == 2
    assert "out: results of Spark, which no monitor checks; run oteval monitor backtest" in done.err


def test_an_unfinished_folder_is_not_read(results: Run):
    """Status 2 while the job runs or after it failed, though files are there."""
    Path("out", RESULTS).rename(Path("out", UNFINISHED))

    done = results("trajectories", "--db", "out")

    assert done.status == 2
    assert "out: its Spark job has not finished" in done.err


def test_a_missing_or_damaged_file_of_results_is_named(results: Run):
    """No run is left out silently."""
    files = sorted(Path("out").glob("results-1/trajectories/*/*.parquet"))
    files[0].write_bytes(b"PAR1")
    damaged = results("trajectories", "--db", "out")
    files[0].unlink()
    missing = results("trajectories", "--db", "out")
    Path("out", RESULTS).write_text(json.dumps({"format": 1}))
    broken = results("trajectories", "--db", "out")

    assert damaged.status == missing.status == broken.status == 2
    assert "trajectories cannot be read" in damaged.err
    assert f"{files[0]}: this file of results is missing" in missing.err
    assert "out/results.json: not a file of results" in broken.err
