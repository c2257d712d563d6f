"""`oteval ingest` of files that `oteval export --jsonl` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oteval.model import Message
from oteval.store import Store

from ..make import TRACES, asks, call, keep, run, score
from .conftest import Run


@pytest.mark.slow
def test_runs_and_scores_come_back_as_they_were(oteval: Run, tmp_path: Path):
    """Every run of every capture is the same after an export and an ingest elsewhere."""
    paths = sorted(p for p in TRACES.glob("*.json") if p.name != "gold.json")
    paths += sorted((TRACES.parent / "retrieval").glob("*.json"))
    oteval("ingest", *paths)
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: errors, type: tool_errors}]")
    oteval("score")
    oteval("export", "--jsonl", "runs.jsonl")

    done = oteval("ingest", "runs.jsonl", "--db", "copy.duckdb")
    again = oteval("export", "--jsonl", "again.jsonl", "--db", "copy.duckdb")

    assert (done.status, done.err) == (0, "")
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    count = len(lines)
    assert done.out.splitlines() == [
        f"read {count}  stored {count}  duplicate 0  bad 0",
        f"{count} trajectories new or changed; oteval trajectories lists them",
    ]
    assert again.status == 0
    copies = (tmp_path / "again.jsonl").read_text().splitlines()
    assert sorted(map(parsed, copies), key=str) == sorted(map(parsed, lines), key=str)
    for command in ("trajectories", "scores", "variants"):
        assert oteval(command, "--db", "copy.duckdb").status == 0


def parsed(line: str) -> Any:
    """Return the value of a line."""
    return json.loads(line)


def test_loading_again_stores_nothing_twice(oteval: Run, tmp_path: Path):
    """Runs that the database has are duplicates; reconstructed runs are not replaced."""
    with Store("oteval.duckdb") as store:
        keep(store, run(1, Message("user", "q"), service="shop"))
        store.scores.write([score(1)])
    oteval("export", "--jsonl", "runs.jsonl")

    same = oteval("ingest", "runs.jsonl")
    twice = oteval("ingest", "runs.jsonl", "runs.jsonl", "--db", "copy.duckdb")

    assert same.out == "read 1  stored 0  duplicate 1  bad 0\n"
    assert "shop" in oteval("show", run(1).id).out
    assert twice.out.startswith("read 2  stored 1  duplicate 1  bad 0\n1 trajectory new")
    assert len(oteval("scores", "--json", "--db", "copy.duckdb").rows) == 1


def test_exported_runs_can_be_scored_at_once(oteval: Run, tmp_path: Path):
    """`oteval score FILE` takes a file of runs as it takes a file of traces."""
    with Store("oteval.duckdb") as store:
        answer = Message("tool", "1", tool_call_id="c")
        keep(store, run(1, Message("user", "q"), asks(call("f", {}, "c")), answer))
    oteval("export", "--jsonl", "runs.jsonl")
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: errors, type: tool_errors}]")

    (row,) = oteval("score", "runs.jsonl", "--json").rows

    assert (row["trajectory_id"], row["status"]) == (run(1).id, "ok")


def test_earlier_turns_of_a_run_are_shown(oteval: Run):
    """A run without its predecessors still shows the whole conversation with --all."""
    first = run(1, Message("user", "before"), Message("assistant", "answered"))
    with Store("oteval.duckdb") as store:
        keep(store, first, run(2, Message("user", "after"), history=first, new_from=2, turn=2))
    oteval("export", "--jsonl", "runs.jsonl", "--limit", "1")
    oteval("ingest", "runs.jsonl", "--db", "copy.duckdb")

    alone = oteval("show", run(2).id, "--db", "copy.duckdb").out
    whole = oteval("show", run(2).id, "--all", "--db", "copy.duckdb").out

    assert "before" not in alone
    assert whole.index("before") < whole.index("turn 2") < whole.index("after")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"messages": None}, "messages is null instead of a list"),
        ({"messages": [{"role": 1}]}, "messages[0].role is the value 1 instead of text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is the value 5"),
        ({"new_from": 7}, "new_from 7 is beyond the 1 messages"),
        ({"new_from": -1}, "new_from -1 is not a number"),
        ({"turn": True}, "turn is the value True instead of a whole number"),
        ({"root_span": []}, "root_span is a list instead of an object"),
        ({"trajectory_id": ""}, "trajectory_id and root_span.trace_id must not be empty"),
        ({"scores": [{"status": "great"}]}, "scores.status 'great' is not ok"),
        ({"scores": [{"status": "error", "score": 1}]}, "scores"),
        ({"scores": [{"status": "ok", "score": "1"}]}, "scores.score is text"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_loaded(
    oteval: Run, tmp_path: Path, changes: dict[str, Any], problem: str
):
    """The error names the line and its field; runs are loaded whole or not at all."""
    with Store("oteval.duckdb") as store:
        keep(store, run(1, Message("user", "q")), run(2, Message("user", "q")))
    oteval("export", "--jsonl", "runs.jsonl")
    first, second = (tmp_path / "runs.jsonl").read_text().splitlines()
    (tmp_path / "runs.jsonl").write_text(f"{json.dumps({**parsed(first), **changes})}\n{second}\n")

    done = oteval("ingest", "runs.jsonl", "--db", "copy.duckdb")

    assert done.status == 0
    assert f"runs.jsonl:1: {problem}" in done.err
    assert "read 1  stored 1  duplicate 0  bad 1" in done.out
