from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from oteval.ingest.otlp import decode_protobuf
from oteval.scoring import refresh
from oteval.store import Store

from ..make import ALL_WHEN_SLOW, capture
from ..otlp_endpoint import Downstream, listening
from .conftest import CHAT, Prepare, Run

CONFIG = """
evaluators:
  - {name: tools, type: tool_errors}
"""


@pytest.fixture
def endpoint() -> Iterator[Downstream]:
    """Return an endpoint that accepts everything."""
    with listening() as downstream:
        yield downstream


def stored(endpoint: Downstream, path: Path) -> Store:
    """Return a store of the accepted requests."""
    store = Store(path)
    for _, _, body in endpoint.requests:
        records = decode_protobuf(body)
        store.spans.write(records.spans, records.logs)
    refresh(store)
    return store


def score(oteval: Run) -> None:
    """Score the three runs of a capture."""
    Path("oteval.yaml").write_text(CONFIG)
    assert oteval("ingest", CHAT).status == 0
    assert oteval("score").status == 0


@pytest.fixture
def scored(prepare: Prepare) -> Run:
    """Return the command in a folder with three scored runs."""
    return prepare(score)


def named(span: Any) -> dict[str, Any]:
    """Return a span's attributes that scores add."""
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value"))
        for item in span.attributes
        if item.key.startswith("oteval.")
    }


def test_all_spans_arrive_and_the_judged_carry_their_scores(scored: Run, endpoint: Downstream):
    """Every stored span is sent once, with scores as attributes on the judged ones alone."""
    done = scored("export", "--otlp", endpoint.url, "--json")

    with Store("oteval.duckdb") as store:
        count = store.spans.count()[0]
        judged = {run.root_span.span_id for run in store.trajectories.read()}
    assert (done.status, done.rows[0]["spans"]["sent"]) == (0, count)
    assert len({span.span_id for span in endpoint.spans()}) == count == len(endpoint.spans())
    assert {span.span_id.hex() for span in endpoint.spans() if named(span)} == judged
    assert any("oteval.score.tools.passed" in named(span) for span in endpoint.spans())


def test_scores_can_stay_away(scored: Run, endpoint: Downstream):
    """With --scores none, the spans are as they were stored."""
    assert scored("export", "--otlp", endpoint.url, "--scores", "none").status == 0

    assert not [span for span in endpoint.spans() if named(span)]


def test_scores_as_events_alone(scored: Run, endpoint: Downstream):
    """With --no-spans, only evaluation events are sent, in the judged spans' contexts."""
    done = scored("export", "--otlp", endpoint.url, "--scores", "events", "--no-spans")

    assert done.status == 0
    assert endpoint.spans() == []
    assert {event.event_name for event in endpoint.log_records()} == {"gen_ai.evaluation.result"}
    with Store("oteval.duckdb") as store:
        judged = {run.root_span.span_id for run in store.trajectories.read()}
    assert {event.span_id.hex() for event in endpoint.log_records()} == judged


def test_filters_select_runs_and_headers_go_along(scored: Run, endpoint: Downstream, monkeypatch):
    """A filter sends the traces of its runs only; headers have their secrets replaced."""
    monkeypatch.setenv("SECRET", "abc")
    with Store("oteval.duckdb") as store:
        newest = list(store.trajectories.read())[-1]

    done = scored(
        *("export", "--otlp", f"{endpoint.url}/v1/traces", "--limit", "1", "--gzip"),
        *("--header", "authorization=Bearer ${SECRET}"),
    )

    assert done.status == 0
    assert {span.trace_id.hex() for span in endpoint.spans()} == set(newest.trace_ids)
    path, headers, _ = endpoint.requests[0]
    assert path == "/v1/traces"
    assert headers["authorization"] == "Bearer abc"
    assert "abc" not in done.err


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
@pytest.mark.slow
def test_a_second_store_has_the_same_trajectories(
    name: str, oteval: Run, endpoint: Downstream, tmp_path: Path
):
    """Traces of any dialect that are sent to another store give the same trajectories there."""
    with Store(tmp_path / "oteval.duckdb") as store:
        spans, logs = capture(name)
        store.spans.write(spans, logs)
        refresh(store)
        expected = [run.as_dict() for run in store.trajectories.read()]

    assert oteval("export", "--otlp", endpoint.url).status == 0

    with stored(endpoint, tmp_path / "other.duckdb") as other:
        assert [run.as_dict() for run in other.trajectories.read()] == expected
        assert other.spans.count()[0] == len({(s.trace_id, s.span_id) for s in spans})


def test_a_busy_endpoint_gets_it_later(filled: Run, endpoint: Downstream):
    """503 and 429 with Retry-After are retried without losing or repeating a span."""
    endpoint.answers = [(503, {"Retry-After": "0"}, b""), (429, {"Retry-After": "0.1"}, b"")]

    done = filled("export", "--otlp", endpoint.url)

    assert done.status == 0
    assert len(endpoint.spans()) == len({span.span_id for span in endpoint.spans()}) > 0


def test_one_bad_span_keeps_no_other_away(filled: Run, endpoint: Downstream):
    """The refused span is found, the others are delivered; the exit status is 2."""
    with Store("oteval.duckdb") as store:
        trace = next(iter(store.trajectories.read())).root_span
        count = store.spans.count()[0]
    endpoint.refuses = lambda body: (
        bytes.fromhex(trace.span_id) in body
        and (b"\x12\x08" + bytes.fromhex(trace.span_id) in body)
    )

    done = filled("export", "--otlp", endpoint.url, "--json")

    assert done.status == 2
    assert done.rows[0]["spans"]["sent"] == count - 1 == len(endpoint.spans())
    assert done.rows[0]["spans"]["failed"] == 1
    assert "400" in done.err


def test_partial_success_is_no_success(filled: Run, endpoint: Downstream):
    """Spans that the endpoint rejects count as failed, with its reason."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 2
    answer.partial_success.error_message = "too old"
    endpoint.answers = [(200, {}, answer.SerializeToString())]

    done = filled("export", "--otlp", endpoint.url, "--json")

    assert (done.status, done.rows[0]["spans"]["failed"]) == (2, 2)
    assert "too old" in done.err


def test_an_endpoint_that_is_away_is_given_up(filled: Run):
    """Without an endpoint, all requests fail after --patience, and the status is 2."""
    done = filled("export", "--otlp", "http://127.0.0.1:9", "--patience", "0", "--json")

    assert done.status == 2
    assert done.rows[0]["spans"]["sent"] == 0
    assert "no answer" in done.err


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--otlp", "localhost:4318"], "write http://HOST:PORT"),
        (["--otlp", "http://h", "--header", "novalue"], "KEY=VALUE"),
        (["--otlp", "http://h", "--header", "a=${NOT_SET_AT_ALL}"], "NOT_SET_AT_ALL"),
        (["--otlp", "http://h", "--no-spans"], "--scores events"),
        ([], "--otlp"),
    ],
)
def test_wrong_arguments_say_what_to_write(filled: Run, arguments: list[str], remedy: str):
    """Exit status 2, and one line with the remedy."""
    done = filled("export", *arguments)

    assert done.status == 2
    assert remedy in done.err
