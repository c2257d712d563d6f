from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from oteval.ingest.otlp import decode_protobuf_logs, decode_protobuf_traces
from oteval.model import Event, Link, LogRecord, Span
from oteval.scoring.otlp_requests import log_request, span_request

from ...make import CAPTURES, capture

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(
        [{"bytesValue": "AAEC"}, {"doubleValue": "NaN"}, {"doubleValue": "Infinity"}]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT.map("k".__add__), inner),
    max_leaves=6,
)
ATTRIBUTES = st.dictionaries(TEXT.map("a.".__add__), VALUE, max_size=4)
TIME = st.integers(0, 2**62)


def ids(digits: int) -> st.SearchStrategy[str]:
    """Return ids of the given number of hex digits, never all zeros."""
    return st.integers(1, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


SPAN = st.builds(
    Span,
    ids(32),
    ids(16),
    parent_id=st.just("") | ids(16),
    name=TEXT,
    kind=st.integers(0, 5),
    start_ns=TIME,
    end_ns=TIME,
    status_code=st.integers(0, 2),
    status_message=TEXT,
    attributes=ATTRIBUTES,
    events=st.lists(st.builds(Event, TEXT, TIME, ATTRIBUTES, st.integers(0, 9)), max_size=2).map(
        tuple
    ),
    links=st.lists(st.builds(Link, ids(32), ids(16), ATTRIBUTES), max_size=2).map(tuple),
    scope=TEXT,
    scope_version=TEXT,
    scope_attributes=ATTRIBUTES,
    resource=ATTRIBUTES,
    trace_state=TEXT,
    flags=st.integers(0, 2**32 - 1),
    dropped_attributes=st.integers(0, 9),
    dropped_events=st.integers(0, 9),
    dropped_links=st.integers(0, 9),
)


@settings(max_examples=60)
@given(st.lists(SPAN, max_size=4))
@pytest.mark.slow
def test_spans_come_back_as_they_were(spans: list[Span]):
    """Decoding an encoded request gives the same spans, ordered by resource and scope."""
    decoded = decode_protobuf_traces(span_request(spans).SerializeToString())

    assert sorted(map(repr, decoded.spans)) == sorted(map(repr, spans))
    assert not decoded.problems


@pytest.mark.parametrize("name", CAPTURES)
def test_log_records_of_captures_come_back_as_they_were(name: str):
    """Log records of all dialects survive encoding and decoding."""
    _, logs = capture(name)

    decoded_logs = decode_protobuf_logs(log_request(logs).SerializeToString()).logs

    assert sorted(map(repr, decoded_logs)) == sorted(map(repr, logs))


def test_what_a_span_gets_replaces_what_has_the_same_name():
    """A span that was scored before carries the newer score once."""
    scored_span = Span(f"{1:032x}", f"{1:016x}", attributes={"oteval.score.q": 0.1, "kept": 1})

    request = span_request(
        [scored_span], {(scored_span.trace_id, scored_span.span_id): {"oteval.score.q": 0.9}}
    )

    (span,) = decode_protobuf_traces(request.SerializeToString()).spans
    assert span == replace(scored_span, attributes={"oteval.score.q": 0.9, "kept": 1})


def test_what_protobuf_cannot_hold_is_shortened_not_fatal():
    """Integers beyond 64 bits become text, lone surrogates the replacement character."""
    oversized_span = Span(f"{1:032x}", f"{1:016x}", name="a\ud800", attributes={"big": 2**70})
    record = LogRecord(body="x\udfff")

    (span,) = decode_protobuf_traces(span_request([oversized_span]).SerializeToString()).spans
    (log,) = decode_protobuf_logs(log_request([record]).SerializeToString()).logs

    assert (span.name, span.attributes) == ("a\ufffd", {"big": str(2**70)})
    assert log.body == "x\ufffd"
