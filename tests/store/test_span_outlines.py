"""Outlines of spans: the tree of a trace without the content of its spans."""

from __future__ import annotations

from oteval.model import Span
from oteval.store import Store

A, B = "a" * 32, "b" * 32


def test_outlines_have_ids_times_and_status_alone(store: Store):
    """The spans of other traces are left out, and attributes are not read."""
    root = Span(A, "1" * 16, name="root", kind=2, start_ns=5, end_ns=9, status_code=2)
    below = Span(A, "2" * 16, "1" * 16, "below", start_ns=6, end_ns=7, attributes={"big": "x"})
    store.spans.write([root, below, Span(B, "1" * 16)])
    found = {span.span_id: span for span in store.span_outlines.of(A)}
    assert store.span_outlines.count(A) == len(found) == 2
    assert (found["1" * 16].name, found["1" * 16].is_error) == ("root", True)
    assert found["2" * 16].parent_id == "1" * 16
    assert found["2" * 16].attributes == {}


def test_single_spans_are_read_whole(store: Store):
    """By their numbers or by their id, and only in their trace."""
    store.spans.write([Span(t, "1" * 16, attributes={"trace": t}) for t in (A, B)])
    [outline] = store.span_outlines.of(B)
    assert store.span_outlines.whole(B, [outline.seq])["1" * 16].attributes == {"trace": B}
    assert store.span_outlines.whole(A, [outline.seq]) == {}
    assert store.span_outlines.whole(A, []) == {}
    found = store.span_outlines.one(A, "1" * 16)
    assert found is not None
    assert found.attributes == {"trace": A}
    assert store.span_outlines.one(A, "3" * 16) is None
