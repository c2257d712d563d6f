"""Deletion: no row of a deleted trace stays in the database or the archive."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oteval.base.errors import ArchiveMissing
from oteval.evaluators.judge import JudgeCall
from oteval.model import Label, LogRecord
from oteval.scoring import delete_expired, delete_traces, plan_deletion, refresh
from oteval.scoring.config import Retention
from oteval.store import Store

from ..make import ROOT, score
from .test_archive import DAY, spans_of

# Deletes a trace in a process that is killed at a step.
KILLED = """
import os, signal, sys
from oteval.store import Store
path, trace, step = sys.argv[1:]
store = Store(path, create=False)
store.archive.on_step = lambda name: name == step and os.kill(os.getpid(), signal.SIGKILL)
store.deletion.delete([trace])
"""
# In one bucket of the archive, and so in one file.
NUMBERS = {1: 1, 2: 9, 3: 19}
TRACES = {name: spans_of(number, 1)[0].trace_id for name, number in NUMBERS.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with three traces on one day, with runs, scores and labels."""
    file = tmp_path / "s.duckdb"
    with Store(file) as store:
        for name, number in NUMBERS.items():
            spans = spans_of(number, 1, conversation="chat" if name < 3 else "other")
            log = LogRecord(spans[0].trace_id, spans[0].span_id, DAY + 1, event_name="e", body="b")
            store.spans.write(spans, [log])
        refresh(store)
        runs = list(store.trajectories.read())
        store.scores.write(
            [
                replace(score(1), trajectory_id=run.id, trace_id=run.root_span.trace_id, time_ns=1)
                for run in runs
            ]
        )
        store.labels.add([Label(run.id, True, "e", "ann") for run in runs], 1)
        calls = store.judge_calls.of("e", JudgeCall)
        for run in runs:
            key = run.root_span.trace_id
            calls.put(JudgeCall(key, "m", answer={"score": True}, time_ns=1))
            calls.link(key, run.id)
    return file


def held(store: Store, trace_id: str) -> set[str]:
    """Return the tables and archived files in which a trace's id occurs."""
    tables = store._connection.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = 'store' AND data_type IN ('VARCHAR', 'VARCHAR[]') "
        "AND table_name IN (SELECT table_name FROM duckdb_tables())"
    ).fetchall()
    found = set()
    for table, column, kind in tables:
        condition = f'"{column}" = ?' if kind == "VARCHAR" else f'list_contains("{column}", ?)'
        query = f'SELECT count(*) FROM "{table}" WHERE {condition}'
        if store._connection.execute(query, [trace_id]).fetchall() != [(0,)]:
            found.add(table)
    folder = Path(store.path).parent
    for file in folder.rglob("*.parquet"):
        if trace_id in pq.read_table(file)["trace_id"].to_pylist():
            found.add(file.name)
    return found


def delete(store: Store, *traces: str) -> dict[str, int]:
    plan = plan_deletion(store, trace_ids=traces)
    return asdict(delete_traces(store, plan, actor="ann", chosen={"trace": list(traces)}))


def test_no_row_of_a_deleted_trace_stays(path: Path):
    """Spans, logs, runs, scores, labels and judge calls are deleted; those of other traces stay."""
    with Store(path) as store:
        before = {number: held(store, trace) for number, trace in TRACES.items()}
        done = delete(store, TRACES[3])

        assert before[3] >= {"spans", "logs", "trajectories"}
        assert held(store, TRACES[3]) == set()
        assert held(store, TRACES[1]) == before[1]
        assert {name: count for name, count in done.items() if count} == {
            "traces": 1,
            "spans": 3,
            "logs": 1,
            "trajectories": 1,
            "scores": 1,
            "labels": 1,
            "judge_calls": 1,
        }
        assert len(list(store.trajectories.read())) == 2
        assert [entry.actor for entry in store.audit.entries()] == ["ann"]
        assert store.audit.entries()[0].detail["deleted"] == done


def test_archived_rows_are_deleted(path: Path):
    """Files are replaced by ones without the trace, or removed if they would be empty."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 2 * DAY)
        files = sorted((path.parent / "archive").rglob("*.parquet"))
        assert [file.name.partition("-")[0] for file in files] == ["logs", "spans"]

        done = delete(store, *TRACES.values())

        assert (done["archived_spans"], done["archived_logs"]) == (9, 3)
        assert not list((path.parent / "archive").rglob("*.parquet"))
        assert store.spans.count() == (0, 0)


def test_other_traces_in_the_same_file_stay_readable(path: Path):
    """A trace in the same file as a deleted one keeps all of its spans."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 2 * DAY)
        delete(store, TRACES[1])

        assert held(store, TRACES[1]) == set()
        for number in (2, 3):
            spans, logs = store.spans.of_traces([TRACES[number]])
            assert (len(spans), len(logs)) == (3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["announced", "written", "verified", "committing", "committed"])
def test_a_kill_at_any_step_leaves_the_trace_or_nothing(path: Path, step: str):
    """After SIGKILL the trace is complete or deleted, and deleting it again leaves no row."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 2 * DAY)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path, TRACES[1], step], cwd=ROOT, check=False, timeout=120
    )

    with Store(path) as store:
        spans, _ = store.spans.of_traces([TRACES[1]])
        assert done.returncode in (0, -signal.SIGKILL)
        assert len(spans) in (0, 3)
        delete(store, TRACES[1])
        assert held(store, TRACES[1]) == set()
        assert len(store.spans.of_traces([TRACES[2]])[0]) == 3


def test_a_missing_archive_deletes_nothing(path: Path):
    """A missing archive is an error that names the file, and no row is deleted."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 2 * DAY)
        (path.parent / "archive").rename(path.parent / "elsewhere")

        with pytest.raises(ArchiveMissing, match="put the archive back"):
            delete(store, TRACES[1])

        assert len(list(store.trajectories.read())) == 3


def test_a_conversation_is_deleted_whole(path: Path):
    """All traces of a conversation are deleted, archived or not."""
    with Store(path) as store:
        plan = plan_deletion(store, conversations=["chat"])

        assert set(plan.traces) == {TRACES[1], TRACES[2]}
        assert plan.neighbours == ()


def test_neighbours_are_reconstructed_without_the_deleted_turn(path: Path):
    """A turn whose history is deleted begins with its own messages."""
    with Store(path) as store:
        before = {run.root_span.trace_id: run for run in store.trajectories.read()}
        assert before[TRACES[2]].history is not None

        plan = plan_deletion(store, trace_ids=[TRACES[1]])
        delete_traces(store, plan, actor="ann", chosen={})

        [second] = [r for r in store.trajectories.read() if r.root_span.trace_id == TRACES[2]]
        assert plan.neighbours == (TRACES[2],)
        assert second.history is None
        assert "question 1-1" not in str(second.messages)


def test_retention_deletes_old_runs(path: Path):
    """Old runs are deleted with their scores; one that a newer run continues stays."""
    with Store(path) as store:
        later = spans_of(4, 5, conversation="chat")
        store.spans.write(later, [])
        refresh(store)

        done = delete_expired(store, Retention(trajectories=2 * 86400.0), now=5 * DAY)

        left = {run.root_span.trace_id for run in store.trajectories.read()}
        assert left == {TRACES[1], TRACES[2], later[0].trace_id}
        assert (done.trajectories, done.scores) == (1, 1)
        assert store.audit.entries()[-1].action == "retention"


def test_retention_of_scores_and_judge_calls(path: Path):
    """Each has a separate age; without one nothing is deleted."""
    with Store(path) as store:
        assert delete_expired(store, Retention(), now=100 * DAY).scores == 0

        done = delete_expired(store, Retention(scores="1d", judge_calls="1d"), now=100 * DAY)

        assert (done.scores, done.judge_calls) == (3, 3)
        assert len(list(store.trajectories.read())) == 3


@pytest.mark.parametrize("step", ["announced", "written", "committing"])
def test_a_deletion_keeps_files_that_are_being_written(path: Path, step: str):
    """Deleting a trace removes no file that another process is writing to the archive."""
    with Store(path) as store, store.sibling() as other:
        deleted: list[str] = []

        def delete_meanwhile(name: str) -> None:
            if name == step and not deleted:
                deleted.append(name)
                other.deletion.delete(["f" * 32])

        store.archive.on_step = delete_meanwhile
        store.archive.move(path.parent / "archive", 2 * DAY)

        assert deleted
        assert store.spans.count() == (9, 3)
        assert {batch.num_rows for batch in store.spans.export()} == {9}


def test_a_trace_that_is_archived_meanwhile_is_deleted(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A trace that is archived after the archive was searched is deleted there as well."""
    with Store(path) as store, store.sibling() as other:
        remove, moved = other.archive.remove, []

        def remove_then_move(trace_ids: Sequence[str]) -> dict[str, int]:
            found = remove(trace_ids)
            if not moved:
                moved.append(store.archive.move(path.parent / "archive", 2 * DAY))
            return found

        monkeypatch.setattr(other.archive, "remove", remove_then_move)
        done = other.deletion.delete([TRACES[3]])

        assert (done.traces, done.archived_spans, done.archived_logs) == (1, 3, 1)
        assert held(store, TRACES[3]) == set()
        assert len(list(store.trajectories.read())) == 2


def test_a_deletion_that_fails_is_in_the_audit_log(path: Path, monkeypatch: pytest.MonkeyPatch):
    """If a later part fails, the log has the rows deleted before, and the user."""
    monkeypatch.setattr("oteval.store.deletion._CHUNK", 1)
    with Store(path) as store:

        def interrupt(done: int) -> None:
            raise KeyboardInterrupt

        plan = plan_deletion(store, trace_ids=list(TRACES.values()))
        with pytest.raises(KeyboardInterrupt):
            delete_traces(store, plan, actor="ann", chosen={}, on_progress=interrupt)

        (entry,) = store.audit.entries()
        assert entry.actor == "ann"
        assert entry.detail["deleted"]["traces"] == 1
        assert store.spans.count() == (6, 2)


def test_retention_deletes_runs_that_are_no_longer_current(path: Path):
    """A superseded run that is part of another one by now is deleted."""
    with Store(path) as store:
        store._connection.execute(
            "INSERT INTO superseded SELECT trajectory_id, rev FROM trajectories WHERE trace_id = ?",
            [TRACES[3]],
        )

        done = store.deletion.delete_runs_before(2 * DAY)

        assert done.trajectories == 3
        assert store._connection.execute("SELECT * FROM trajectories").fetchall() == []
