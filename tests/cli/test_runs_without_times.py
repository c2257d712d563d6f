"""Runs whose times are unknown do not hide those of others, on any surface."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.model import Trajectory
from oteval.store import Store

from ..commands import Run
from ..make import keep, run
from ..test_current_verdict import START, client_of

FIELDS = {"agent": "shop", "conversation_id": "c1", "attributes": {"service.version": "v1"}}
TIMED = run(1, start_ns=START, end_ns=START + 10**9, **FIELDS)
UNTIMED = run(2, start_ns=0, end_ns=0, **FIELDS)


def store_of(path: Path, *runs: Trajectory) -> Path:
    """Write runs to a store."""
    with Store(path) as store:
        keep(store, *runs)
    return path


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        ((TIMED, UNTIMED), "2 of 1 agent in 1 service, 2026-09-21 "),
        ((UNTIMED,), "1 of 1 agent in 1 service, without times"),
        ((), "0"),
    ],
)
def test_the_status_tells_from_when_to_when_runs_are(
    tmp_path: Path, oteval: Run, runs: tuple[Trajectory, ...], text: str
):
    """A run without a time does not make the store's first run unknown, and is a run."""
    path = store_of(tmp_path / "runs.duckdb", *runs)

    (line,) = [
        line for line in oteval("status", "--db", path).out.splitlines() if line[:4] == "runs"
    ]

    assert line.removeprefix("runs").strip().startswith(text)


def test_the_first_time_of_a_variant_and_a_conversation_is_known(tmp_path: Path, oteval: Run):
    """It is that of the first run that has one."""
    path = store_of(tmp_path / "runs.duckdb", TIMED, UNTIMED)

    (row,) = oteval("variants", "--db", path, "--json").rows
    with Store(path) as store, client_of(store) as client:
        conversations = store.run_list.of_conversations(["c1"], 5)
        page = client.get("/conversations").text

    assert row["first_seen_ns"] == START
    assert conversations["c1"].first_ns == START
    assert "c1" in page


def test_a_run_without_a_time_marks_no_deployment():
    """The first run of a version with a time does; it was at the beginning of 1970."""
    with Store() as store:
        keep(store, UNTIMED)
        assert store.monitors.note_versions(0, 10, START) == []
        keep(store, run(3, start_ns=START, end_ns=START + 1, **FIELDS))
        store.monitors.note_versions(0, 10, START)

        versions = store._connection.execute("SELECT first_ns FROM monitor_versions").fetchall()

    assert versions == [(START,)]
