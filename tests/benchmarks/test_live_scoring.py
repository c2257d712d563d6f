"""The measurement of live scoring at a constant rate."""

from __future__ import annotations

import pytest

from benchmarks import live_scoring
from benchmarks.otlp_load import requests
from oteval.ingest import decode_protobuf_traces


def test_repeated_requests_have_other_ids_and_other_texts():
    """A request that is sent again is a new set of runs of the same shape."""
    (load,) = requests(4, 8, batch=32, seed=1)
    template = live_scoring.Template(load)

    first, second = (decode_protobuf_traces(template.request(n)).spans for n in (1, 2))

    assert len(first) == len(second) == 32
    assert not {(s.trace_id, s.span_id) for s in first} & {(s.trace_id, s.span_id) for s in second}
    assert len({s.trace_id for s in first}) == 4
    known = {s.span_id for s in first}
    assert all(s.parent_id in known for s in first if s.parent_id)
    assert all(a.attributes != b.attributes for a, b in zip(first, second, strict=True))


@pytest.mark.slow
def test_each_run_is_scored_while_spans_are_sent():
    """All runs are scored, and time, CPU and memory are measured."""
    found = live_scoring.measure(spans=2048, rate=1000.0)

    assert found["unscored"] == 0
    assert found["server_us"] > 0
    assert found["scored"] > 0
    assert len(found["thirds"]) == 3
    assert len(live_scoring.rows(found)) == 8
