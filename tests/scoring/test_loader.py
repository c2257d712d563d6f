from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oteval.base.errors import InputError
from oteval.scoring import load, loader, reconstruction, refresh
from oteval.store import Store

from ..make import TRACES, told

Lines = Callable[[int], Path]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make batches so small that a file has several."""
    monkeypatch.setattr(loader, "CHUNK", 2)
    monkeypatch.setattr(loader, "BATCH", 3)


def test_the_report_counts_by_file(store: Store, chat_file: Path):
    """Spans and records, new and known, are counted by file and in total."""
    logs = TRACES / "v2_legacy_chat.logs.json"

    report = load(store, [chat_file, logs, chat_file])

    first, second, third = report.files
    assert (first.path, first.error, first.problem_count) == (str(chat_file), "", 0)
    assert first.spans == first.written.stored > 0
    assert (second.spans, second.logs) == (0, second.written.stored)
    assert (third.written.stored, third.written.duplicate) == (0, first.spans)
    assert report.read == first.spans + second.logs + third.spans
    assert (report.stored, report.duplicate) == (first.spans + second.logs, first.spans)
    assert report.bad == 0


def test_a_file_is_stored_in_batches(store: Store, lines: Lines, small: None):
    """Batches of uneven size neither lose nor duplicate spans."""
    report = load(store, [lines(20)])

    assert (report.read, report.stored, store.spans.count()) == (20, 20, (20, 0))
    spans, _ = store.spans.of_traces([f"{n:032x}" for n in range(1, 21)])
    assert sorted(item.seq for item in spans) == list(range(1, 21))


def test_the_rest_of_a_file_is_stored_in_parts(
    store: Store, lines: Lines, monkeypatch: pytest.MonkeyPatch
):
    """Parts of the last batch, each inserted by itself, count the spans that were repeated."""
    monkeypatch.setattr(loader, "_REST_BYTES", 1000)
    monkeypatch.setattr(loader, "_MAX_QUEUED_BYTES", 1000)
    file = lines(20)
    file.write_bytes(2 * file.read_bytes())

    report = load(store, [file])
    again = load(store, [file])

    assert (report.read, report.stored, report.duplicate) == (40, 20, 20)
    assert (again.stored, again.duplicate) == (0, 40)
    spans, _ = store.spans.of_traces([f"{n:032x}" for n in range(1, 21)])
    assert sorted(item.seq for item in spans) == list(range(1, 21))


def test_a_file_that_cannot_be_read_does_not_stop_the_others(
    store: Store, chat_file: Path, tmp_path: Path
):
    """The error of one file is in its report; the other files are stored."""
    paths = [TRACES / "httpx_only.json", tmp_path / "none.json", tmp_path, chat_file]

    report = load(store, paths)

    assert [bool(file.error) for file in report.files] == [False, True, True, False]
    assert report.bad == 2
    assert str(tmp_path / "none.json") in report.files[1].error
    assert store.spans.count()[0] == report.read == report.stored


def test_bad_lines_are_reported_and_the_rest_is_kept(store: Store, lines: Lines):
    """A damaged line is a problem with its number, and the lines around it are stored."""
    path = lines(4)
    good = path.read_text().splitlines()
    path.write_text("\n".join([good[0], "{broken", good[1], "null?", *good[2:]]) + "\n")

    report = load(store, [path])

    (file,) = report.files
    assert [problem.line for problem in file.problems] == [2, 4]
    assert (file.problem_count, report.bad, report.stored, file.error) == (2, 2, 4, "")


def test_a_thousand_problems_are_listed_and_all_are_counted(store: Store, lines: Lines):
    """The list of problems is limited, and their count is not."""
    path = lines(1)
    path.write_text(path.read_text() + "{broken\n" * 1500)

    (file,) = load(store, [path]).files

    assert (len(file.problems), file.problem_count) == (1000, 1500)


def test_standard_input_is_a_dash(store: Store, chat_file: Path, monkeypatch: pytest.MonkeyPatch):
    """The path "-" reads standard input, whose size is unknown."""
    stdin = SimpleNamespace(buffer=io.BytesIO(chat_file.read_bytes()))
    monkeypatch.setattr("sys.stdin", stdin)
    sizes: list[int | None] = []

    report = load(store, ["-"], lambda _done, total: sizes.append(total))

    assert report.stored == report.read > 0
    assert set(sizes) == {None}


def test_progress_counts_bytes_up_to_the_size(store: Store, lines: Lines, small: None):
    """The bytes read never decrease, and end at the file's size."""
    path = lines(20)
    seen: list[tuple[int, int | None]] = []

    load(store, [path], lambda done, total: seen.append((done, total)))

    assert len(seen) > 1
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_ctrl_c_keeps_earlier_spans(store: Store, lines: Lines, small: None):
    """Spans read before the interruption are stored, and a second load adds the others."""
    path = lines(20)
    calls: list[int] = []

    def stop(done: int, _total: int | None) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(store, [path], stop)

    kept = store.spans.count()[0]
    assert 0 < kept < 20
    report = load(store, [path])
    assert (report.stored, report.duplicate) == (20 - kept, kept)


def test_an_error_in_the_middle_keeps_earlier_spans(
    store: Store, monkeypatch: pytest.MonkeyPatch, lines: Lines, small: None
):
    """An error during reading is reported for the file, and the spans before it are counted."""
    read = loader.read

    def failing(path: str, **options: Any):
        for number, batch in enumerate(read(path, **options)):
            if number == 3:
                raise InputError(f"{path}: cannot be read (gone)")
            yield batch

    monkeypatch.setattr(loader, "read", failing)

    (file,) = load(store, [lines(20)]).files

    assert file.error.endswith("cannot be read (gone)")
    assert file.spans == file.written.stored == store.spans.count()[0] == 6


def test_the_first_error_is_raised(store: Store, monkeypatch: pytest.MonkeyPatch, lines: Lines):
    """The first exception is raised, not one from the cleanup after it."""

    def broken(*_: object) -> None:
        raise RuntimeError("the first")

    monkeypatch.setattr("oteval.store.spans.span_table", broken)

    with pytest.raises(RuntimeError, match="the first"):
        load(store, [lines(2)])


def test_a_second_refresh_does_nothing(store: Store, chat_file: Path):
    """The second refresh has nothing to do and changes no revision."""
    load(store, [chat_file])

    assert refresh(store) == 3
    assert refresh(store) == 0
    assert {t.rev for t in store.trajectories.read()} == {1}


def test_refresh_reports_progress(store: Store, lines: Lines):
    """The number of completed traces ends at their total."""
    load(store, [lines(5)])
    seen: list[tuple[int, int]] = []

    refresh(store, lambda done, total: seen.append((done, total)))

    assert seen == [(5, 5)]


def test_loading_a_file_twice_changes_no_trajectory(store: Store, chat_file: Path):
    """After loading a file again, its traces are neither pending nor different."""
    load(store, [chat_file])
    refresh(store)
    before = [told(t) for t in store.trajectories.read()]

    load(store, [chat_file])

    assert store.pending.count() == 0
    assert [told(t) for t in store.trajectories.read()] == before


@pytest.mark.parametrize(
    "value", ['{"a":' * 600 + "1" + "}" * 600, "[" * 90_000 + "]" * 90_000, '"\\ud83d"', "1" * 5000]
)
def test_hostile_arguments_are_reconstructed(store: Store, tmp_path: Path, value: str):
    """Deeply nested arguments, truncated characters and huge numbers give a trajectory."""
    call = f'{{"type": "tool_call", "id": "1", "name": "f", "arguments": {value}}}'
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": f'[{{"role": "assistant", "parts": [{call}]}}]',
    }
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "attributes": [{"key": k, "value": {"stringValue": v}} for k, v in attributes.items()],
    }
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))

    report = load(store, [path])

    assert (report.stored, report.bad, refresh(store)) == (1, 0, 1)
    assert len(list(store.trajectories.read())) == 1


def test_a_failed_reconstruction_does_not_affect_other_traces(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """A trace on which oteval itself fails has a gap; the others are complete."""
    load(store, [TRACES / "genai_openai_chat.json", TRACES / "httpx_only.json"])
    real = reconstruction.reconstruct
    bad = next(iter(store.spans.export().read_all()["trace_id"].to_pylist()))

    def fails(spans: Any, logs: Any = ()) -> Any:
        if any(span.trace_id == bad for span in spans):
            raise KeyError("surprise")
        return real(spans, logs)

    monkeypatch.setattr(reconstruction, "reconstruct", fails)
    refresh(store)

    found = {t.root_span.trace_id: t for t in store.trajectories.read()}
    assert [gap.code for gap in found[bad].gaps] == ["internal_error"]
    assert "KeyError: 'surprise'" in found[bad].gaps[0].detail
    assert len(found) == 3  # the traces of nothing but requests give none
    assert not any(
        t.gaps[0].code == "internal_error" for n, t in found.items() if n != bad and t.gaps
    )
