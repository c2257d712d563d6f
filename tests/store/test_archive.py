from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from oteval.base.errors import ArchiveMissing, StoreError
from oteval.model import LogRecord, Span
from oteval.scoring import archive_due, explain, refresh, refresh_traces
from oteval.scoring.config import Retention
from oteval.store import Store

from ..make import ROOT, capture, chat

DAY = 86_400 * 10**9
NOW = 1_000 * DAY

# Archives a store in a process that is killed at the Nth time it comes to a step.
KILLED = """
import os, signal, sys
from oteval.store import Store
path, folder, before, step, times = sys.argv[1:]
left = int(times)
store = Store(path, create=False)
def on_step(name):
    global left
    left -= name == step
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
store.archive.on_step = on_step
store.archive.move(folder, int(before))
"""


def spans_of(trace: int, day: int, count: int = 3, conversation: str = "") -> list[Span]:
    """Return a chat of some model calls on a day."""
    more = {"gen_ai.conversation.id": conversation} if conversation else {}
    spans = [
        chat(trace, number, [("user", f"question {trace}-{number}")], "an answer", **more)
        for number in range(1, count + 1)
    ]
    return [
        _at(span, day * DAY + trace * 1000 + 10 * number, spans[0])
        for number, span in enumerate(spans)
    ]


def _at(template: Span, start: int, root: Span) -> Span:
    parent = "" if template is root else root.span_id
    return Span(
        template.trace_id, template.span_id, parent, "chat", 3, start, start + 5,
        attributes=template.attributes, resource=template.resource,
    )  # fmt: skip


def log_of(trace: int, day: int, text: str) -> LogRecord:
    """Return a log record, with or without a trace."""
    return LogRecord(f"{trace:032x}" if trace else "", time_ns=day * DAY + 7, body=text)


def fill(store: Store, days: range, traces: int = 20) -> None:
    """Fill a store with some traces per day, and reconstruct them."""
    traces_by_day = [(day, day * 1000 + number) for day in days for number in range(1, traces + 1)]
    store.spans.write(
        [span for day, trace in traces_by_day for span in spans_of(trace, day)],
        [
            record
            for day, trace in traces_by_day
            for record in (log_of(trace, day, f"of {trace}"), log_of(0, day, f"loose {trace}"))
        ],
    )
    refresh(store)


def whole(store: Store) -> tuple[Counter[str], Counter[str], list[str]]:
    """Return all spans and log records, archived or not, and the trajectories."""
    spans = Counter(
        f"{trace}/{name}"
        for batch in store.spans.export()
        for trace, name in zip(
            batch["trace_id"].to_pylist(), batch["span_id"].to_pylist(), strict=True
        )
    )
    logs = Counter(
        name for batch in store.spans.export_logs() for name in batch["fingerprint"].to_pylist()
    )
    return spans, logs, [repr(run) for run in store.trajectories.read()]


def hot(store: Store) -> int:
    """Return the number of spans in the database itself."""
    return store.spans.count()[0] - sum(p.metadata.num_rows for p in _files(store, "spans"))


def _files(store: Store, kind: str) -> list[pq.ParquetFile]:
    folder = Path(store.path).parent / "archive"
    return [pq.ParquetFile(path) for path in sorted(folder.rglob(f"{kind}-*.parquet"))]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of a database with traces of three days, which the tests copy."""
    path = tmp_path_factory.mktemp("archive") / "x.duckdb"
    with Store(path) as store:
        fill(store, range(10, 13))
    return path


@pytest.fixture
def path(filled: Path, tmp_path: Path) -> Path:
    """Return the path of a database with traces of three days."""
    return shutil.copy(filled, tmp_path / "x.duckdb")


@pytest.mark.slow
def test_old_days_move_and_stay_readable(path: Path):
    """Days before the time move completely; spans, logs and trajectories read as before."""
    with Store(path) as store:
        before = whole(store)
        trace = f"{10_001:032x}"
        spans = store.spans.of_traces([trace])

        moved = store.archive.move(path.parent / "archive", 12 * DAY)

        assert (moved.traces, moved.spans, moved.logs) == (40, 120, 80)
        assert whole(store) == before
        assert hot(store) == 60
        assert store.spans.of_traces([trace]) == spans
        assert store.spans.find_traces(trace) == [trace]
        assert len(explain(store, trace).accounts) == 3


def test_files_are_in_folders_by_day_and_bucket(path: Path):
    """The path has the day and the bucket; rows are sorted by trace and compressed with zstd."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 12 * DAY)
        files = _files(store, "spans")

    folders = {file.relative_to(path.parent / "archive").parts[0] for file in
               (path.parent / "archive").rglob("*.parquet")}  # fmt: skip
    assert folders == {"date=1970-01-11", "date=1970-01-12"}
    for file in files:
        traces = file.read(["trace_id"])["trace_id"].to_pylist()
        assert traces == sorted(traces)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_archiving_again_moves_nothing(path: Path):
    """A second run moves nothing and leaves the files as they are."""
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 12 * DAY)
        files = sorted((path.parent / "archive").rglob("*"))

        again = store.archive.move(path.parent / "archive", 12 * DAY)

    assert (again.spans, again.logs, again.files) == (0, 0, 0)
    assert sorted((path.parent / "archive").rglob("*")) == files


def test_rows_that_are_not_reconstructed_stay(tmp_path: Path):
    """Spans that arrived after the last reconstruction stay, however old they are."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans_of(1, 10))

        moved = store.archive.move(tmp_path / "archive", NOW)

        assert (moved.spans, hot(store)) == (0, 3)


def test_a_trace_with_a_later_span_stays_whole(tmp_path: Path):
    """A trace with one span after the time is not split."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write([*spans_of(1, 10), spans_of(1, 12, 4)[3]])
        refresh(store)

        assert store.archive.move(tmp_path / "archive", 12 * DAY).spans == 0
        assert store.archive.move(tmp_path / "archive", 13 * DAY).spans == 4


def test_a_late_span_joins_its_archived_trace(tmp_path: Path):
    """A span that arrives after its trace moved gives a new revision of the complete run."""
    with Store(tmp_path / "x.duckdb") as store:
        early, late = spans_of(1, 10, 3)[:2], spans_of(1, 10, 3)[2:]
        store.spans.write(early)
        refresh(store)
        store.archive.move(tmp_path / "archive", NOW)

        store.spans.write(late)
        refresh(store)
        runs = list(store.trajectories.read())

        assert [run.rev for run in runs] == [2]
        assert "question 1-1" in repr(runs[0].messages)
        assert "question 1-3" in repr(runs[0].messages)


def test_an_archived_conversation_continues(tmp_path: Path):
    """The next turn of an archived conversation has the first turn as its history."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans_of(1, 10, 1, "talk"))
        refresh(store)
        store.archive.move(tmp_path / "archive", NOW)

        store.spans.write(spans_of(2, 11, 1, "talk"))
        refresh_traces(store, [f"{2:032x}"])

        assert [run.turn for run in store.trajectories.read()] == [1, 2]


def test_numbers_continue_after_everything_was_archived(tmp_path: Path):
    """A reopened store without spans gives new ones higher numbers than the archived ones."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans_of(1, 10))
        refresh(store)
        store.archive.move(tmp_path / "archive", NOW)

    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans_of(2, 11))
        refresh(store)

        assert store.trajectories.count() == 2


def test_a_repeated_span_is_archived_once(tmp_path: Path):
    """Spans that arrive again after they moved are found once and not archived again."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans_of(1, 10), [log_of(1, 10, "said")])
        refresh(store)
        store.archive.move(tmp_path / "archive", NOW)
        before = whole(store)

        store.spans.write(spans_of(1, 10), [log_of(1, 10, "said")])
        refresh(store)
        assert len(store.spans.of_traces([f"{1:032x}"])[0]) == 3
        again = store.archive.move(tmp_path / "archive", NOW)

        assert (again.spans, again.duplicates, again.files) == (3, 4, 0)
        assert whole(store) == before


def test_captures_survive_the_archive(tmp_path: Path):
    """Spans and log records of captures are read from the archive unchanged."""
    for name in ("genai_openai_chat", "adot_agentcore_strands", "langgraph_openinference"):
        with Store(tmp_path / f"{name}.duckdb") as store:
            spans, logs = capture(name)
            store.spans.write(spans, logs)
            refresh(store)
            traces = sorted({span.trace_id for span in spans})
            before = store.spans.of_traces(traces)

            store.archive.move(tmp_path / name, 2**62)

            after = store.spans.of_traces(traces)
            assert hot_rows(store) == 0
            assert sorted(map(repr, after[0])) == sorted(map(repr, before[0]))
            assert sorted(map(repr, after[1])) == sorted(map(repr, before[1]))


def hot_rows(store: Store) -> int:
    """Return the number of spans and logs in the database itself."""
    spans, logs = store.spans.count()
    return spans + logs - store.spans.archived()


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("step", ["announced", "written", "verified", "committing", "committed"])
def test_a_kill_at_any_step_loses_and_duplicates_nothing(path: Path, step: str, times: int):
    """After SIGKILL every row is there once, and the next run completes the archive."""
    with Store(path) as store:
        before = whole(store)
    folder = path.parent / "archive"
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, path, folder, str(12 * DAY), step, str(times)],
        cwd=ROOT, check=False,
    )  # fmt: skip

    assert ended.returncode == -signal.SIGKILL
    with Store(path) as store:
        assert whole(store) == before
        store.archive.move(folder, 12 * DAY)

        assert whole(store) == before
        assert hot(store) == 60
        assert sum(file.metadata.num_rows for file in _files(store, "spans")) == 120
        assert not list(folder.rglob("*.partial"))


def test_an_archive_that_cannot_be_written_changes_nothing(path: Path):
    """A file in place of the archive's folder is an error of one line, and nothing is deleted."""
    (path.parent / "archive").write_text("no folder")

    with Store(path) as store:
        with pytest.raises(StoreError, match="cannot be written"):
            store.archive.move(path.parent / "archive", 12 * DAY)

        assert store.spans.count()[0] == 180


def test_a_file_with_other_content_deletes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch):
    """If other rows are read back than were written, the database keeps its rows."""
    write = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda table, *a, **k: write(table.slice(1), *a, **k))

    with Store(path) as store:
        with pytest.raises(StoreError, match="nothing was deleted"):
            store.archive.move(path.parent / "archive", 12 * DAY)

        assert store.spans.count()[0] == 180
        assert store.spans.archived() == 0


def test_a_missing_file_is_named_and_its_trajectories_stay(path: Path):
    """Reading the spans of a missing file fails and names it; a late span changes no trajectory."""
    trace = 10_001
    with Store(path) as store:
        store.archive.move(path.parent / "archive", 12 * DAY)
        for file in (path.parent / "archive").rglob("*.parquet"):
            file.unlink()
        before = [repr(run) for run in store.trajectories.read()]

        with pytest.raises(ArchiveMissing, match=r"spans-.*put the archive back"):
            store.spans.of_traces([f"{trace:032x}"])
        store.spans.write(spans_of(trace, 10, 4)[3:])
        refresh(store)

        assert [repr(run) for run in store.trajectories.read()] == before


def test_two_processes_cannot_archive_at_once(path: Path):
    """While one process archives into a folder, another one is refused."""
    with Store(path) as store, Store(path.parent / "y.duckdb") as other:

        def on_step(_step: str) -> None:
            with pytest.raises(StoreError, match="another process is archiving"):
                other.archive.move(path.parent / "archive", NOW)

        store.archive.on_step = on_step
        assert store.archive.move(path.parent / "archive", 11 * DAY).spans == 60


def test_retention_archives_once_a_day(path: Path):
    """When a new day begins, retention moves the days that are older than configured."""
    retention = Retention(hot=2 * 86400.0, archive="archive")
    with Store(path) as store:
        first = archive_due(store, retention, 13 * DAY + 5)
        second = archive_due(store, retention, 13 * DAY + 6)
        third = archive_due(store, retention, 14 * DAY + 5)

    assert first is not None
    assert (first.traces, second) == (20, None)
    assert third is not None
    assert third.traces == 20


@pytest.mark.slow
def test_spans_arrive_while_rows_are_archived(path: Path):
    """Spans that another connection writes concurrently are stored once each."""
    with Store(path) as store:
        before = whole(store)[0]
        other = store.sibling()
        come = iter(range(50_001, 50_200))
        store.archive.on_step = lambda _step: other.spans.write(spans_of(next(come), 12)) and None

        store.archive.move(path.parent / "archive", 12 * DAY)
        other.close()

        after = whole(store)[0]
        assert hot(store) == after.total() - 120
        assert after & before == before
        assert set(after.values()) == {1}
