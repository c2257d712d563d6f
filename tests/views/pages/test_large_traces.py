"""The page of a trace with many spans reads what it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oteval.model import Gap, Message, Span, SpanRef, Trajectory
from oteval.store import Store
from oteval.views.pages.spans import large_trace

from .conftest import START, run

TRACE = f"{1:032x}"
SPANS = 450


def traced(store: Store) -> Trajectory:
    """Store the spans of a trace, and return its run with two messages and a gap for each span."""
    names = [f"{at:016x}" for at in range(1, SPANS + 1)]
    store.spans.write(
        [
            Span(TRACE, name, "" if at == 0 else names[0], name, start_ns=START + at)
            for at, name in enumerate(names)
        ]
    )
    messages = [
        Message("assistant", text, trace_id=TRACE, span_id=name)
        for name in names
        for text in ("one", "two")
    ]
    gaps = tuple(Gap("redacted", "set KEEP=1", name) for name in names for _ in range(2))
    return replace(run(1, messages=messages, gaps=gaps), root_span=SpanRef(TRACE, names[0]))


def test_each_span_has_its_messages_and_gaps_on_every_part(store: Store):
    """A gap that is noted twice is shown once, and only shown spans are read with content."""
    one = traced(store)
    for first in (0, 200, 400):
        shown = large_trace(store, one, SPANS, first)
        for at, item in enumerate(shown.items, first):
            assert item.messages == (2 * at, 2 * at + 1)
            assert item.gaps == (("redacted", "set KEEP=1"),)
            assert item.is_of_run
        assert len(shown.items) == min(200, SPANS - first)
        assert shown.count == SPANS


def test_the_messages_of_a_run_are_read_once_for_all_spans(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """However many spans a part shows, the run's messages are gone through a single time."""
    one = traced(store)
    real, reads = Trajectory.own_messages, []

    def counted(trajectory: Trajectory) -> tuple[Message, ...]:
        reads.append(trajectory.id)
        return real.fget(trajectory)  # type: ignore[misc, no-any-return]

    monkeypatch.setattr(Trajectory, "own_messages", property(counted))
    assert len(large_trace(store, one, SPANS).items) == 200
    assert reads == [one.id]


def test_spans_without_messages_belong_to_no_run(store: Store):
    """Only the root span belongs to a run that has no messages."""
    one = replace(traced(store), tail=())
    items = large_trace(store, one, SPANS).items
    assert [item.run for item in items[:2]] == [one.id, ""]
    assert not any(item.messages for item in items)
