from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oteval.model import Event, LogRecord
from oteval.store import Store
from oteval.store.telemetry_rows import span_table

from ..make import capture, span


def test_a_reopened_store_finds_duplicates(tmp_path: Path):
    """Duplicates are looked up in the file, not only among the rows of this process."""
    spans, records = capture("v2_legacy_chat")
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write(spans, records)

    with Store(tmp_path / "x.duckdb") as store:
        again = store.spans.write(spans, records)

    assert (again.stored, again.duplicate) == (0, len(spans) + len(records))


def test_numbers_continue_in_a_reopened_store(tmp_path: Path):
    """A later span has a higher number than all earlier ones, across processes."""
    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write([span(1, 1)], [LogRecord(f"{1:032x}", body="x")])

    with Store(tmp_path / "x.duckdb") as store:
        store.spans.write([span(1, 2)])
        spans, records = store.spans.of_traces([f"{1:032x}"])

    assert sorted(item.seq for item in [*spans, *records]) == [1, 2, 3]
    assert max(spans, key=lambda item: item.seq).span_id == f"{2:016x}"


def test_the_first_of_a_batch_counts(store: Store):
    """Of spans with the same ids in one batch, the first is stored and the others are counted."""
    first, other = span(1, 1, name="first"), span(1, 1, name="other")

    written = store.spans.write([first, first, other, span(1, 2)])

    spans, _ = store.spans.of_traces([first.trace_id])
    assert (written.stored, written.duplicate) == (2, 2)
    assert {item.name for item in spans} == {"first", ""}


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"attributes": {"a": 2}},
        {"status_message": "other"},
        {"resource": {"service.name": "t"}},
        {"parent_id": "f" * 16},
        {"flags": 1},
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_duplicates_with_other_content_are_named(
    store: Store, change: dict[str, object], together: bool
):
    """A difference in any field is a conflict, within a batch and across batches."""
    original = span(1, 1, attributes={"a": 1}, name="n")
    other = replace(original, **change)

    if together:
        written = store.spans.write([original, original, other])
    else:
        store.spans.write([original, span(1, 2)])
        written = store.spans.write([other, span(1, 2)])

    assert written.conflicts == [f"{original.trace_id}/{original.span_id}"]
    spans, _ = store.spans.of_traces([original.trace_id])
    assert [replace(item, seq=0) for item in spans if item.span_id == original.span_id] == [
        original
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": {"a": 1, "input.value": "x"}},
        {"events": (Event("e"),)},
        {"end_ns": 99, "status_code": 2},
    ],
)
@pytest.mark.parametrize("is_unfinished", [True, False])
@pytest.mark.parametrize("loads", [1, 2])
@pytest.mark.parametrize("as_table", [True, False])
@pytest.mark.slow
def test_of_a_span_exported_twice_the_complete_one_counts(
    store: Store, change: dict[str, object], is_unfinished: bool, loads: int, as_table: bool
):
    """The more complete version counts, whichever came first, in one batch and in two."""
    whole = replace(span(1, 1, attributes={"a": 1}, name="n"), **change)
    early = span(1, 1, attributes={"a": 1}, name="n")
    if is_unfinished:
        early = replace(early, end_ns=0)
    for number, versions in enumerate([[early, whole], [whole, early]], 1):
        versions = [replace(version, trace_id=f"{number:032x}") for version in versions]
        for part in [versions] if loads == 1 else [[version] for version in versions]:
            batch = store.spans.batch()
            if as_table:
                batch.add_table(span_table(part, 1))
            else:
                batch.add(part)
            assert store.spans.insert(batch).conflicts == []

        spans, _ = store.spans.of_traces([f"{number:032x}"])
        assert [replace(span, seq=0, trace_id=whole.trace_id) for span in spans] == [whole]
    assert store.spans.count() == (2, 0)


def test_no_more_than_twenty_conflicts_are_named(store: Store):
    """The list of conflicts is limited, and the count of duplicates is complete."""
    store.spans.write([span(1, number, 5) for number in range(50)])

    written = store.spans.write([span(1, number, 5, name="x") for number in range(50)])

    assert written.duplicate == 50
    assert len(written.conflicts) == 20


def test_a_batch_of_duplicates_alone_stores_nothing(store: Store):
    """A batch without new spans is counted and leaves the store unchanged."""
    store.spans.write([span(1, 1)])
    batch = store.spans.batch()
    batch.add([span(1, 1), span(1, 1)])

    written = store.spans.insert(batch)

    assert (written.stored, written.duplicate, len(batch)) == (0, 2, 1)
    assert store.spans.insert(store.spans.batch()).stored == 0


def test_equal_log_records_are_stored_once(store: Store):
    """A record is a duplicate only if every field is equal."""
    record = LogRecord("a" * 32, observed_ns=5, body={"x": 1})
    others = [replace(record, body={"x": 2}), replace(record, event_name="e")]

    first = store.spans.write([], [record, record, *others])
    again = store.spans.write([], [*others, record])

    assert (first.stored, first.duplicate) == (3, 1)
    assert (again.stored, again.duplicate) == (0, 3)
