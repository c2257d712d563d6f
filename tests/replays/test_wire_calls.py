"""Recorded HTTP exchanges become the model calls of a recording, joined with those of the spans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from oteval.model import LogRecord, Span
from oteval.model.recording import Chunk, Exchange, Recording, to_event
from oteval.reconstruct import reconstruct
from oteval.reconstruct.apis.model_api import event
from oteval.replays.recordings import read_recording, recording_of
from oteval.scoring import refresh
from oteval.store import Store, StoredSession
from tests.make import chat, span

URL = "https://model/v1/chat/completions"
TRACE = f"{1:032x}"


def exchange(number: int, answer: str = "", span_id: int = 0, **fields: Any) -> Exchange:
    """Return the exchange of a chat completion that was sent at a time."""
    body = {"model": "m", "messages": [{"role": "user", "content": f"Question {number}"}]}
    message = {"role": "assistant", "content": answer}
    response = {
        "id": f"chatcmpl-{number}",
        "model": "m-1",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }
    common: dict[str, Any] = {
        "method": "POST",
        "url": URL,
        "request_body": json.dumps(body).encode(),
        "status": 200,
        "chunks": (Chunk(json.dumps(response).encode()),),
        "start_ns": number,
        "end_ns": number,
        "trace_id": TRACE,
        "span_id": f"{span_id or number:016x}",
    }
    return Exchange(**{**common, **fields})


def log(recorded: Exchange, **body: Any) -> LogRecord:
    """Return the log record of an exchange, as it is stored."""
    event = to_event(recorded)
    ids = {"trace_id": recorded.trace_id, "span_id": recorded.span_id}
    return replace(event, **ids, body={**event.body, **body})


def call(number: int, answer: str) -> Span:
    """Return the span of a model call with its question and answer."""
    return replace(
        chat(1, number, [("user", f"Question {number}")], answer),
        parent_id=f"{1:016x}",
        end_ns=number + 5,
    )


AGENT = replace(span(1, 1), end_ns=100, attributes={"gen_ai.operation.name": "invoke_agent"})
SPANS = [AGENT, call(10, "one"), call(20, "two")]


def recorded(spans: list[Span], logs: list[LogRecord]) -> Recording:
    """Return the recording of the only trace."""
    names = tuple(trajectory.id for trajectory in reconstruct(spans))
    return recording_of(StoredSession(TRACE, "trace", names, (TRACE,)), spans, logs)


def test_the_store_keeps_exchanges(store: Store) -> None:
    """A recording is read from the stored spans and log records."""
    store.spans.write(SPANS, [log(exchange(10, "one")), log(exchange(20, "two"))])
    refresh(store)
    assert read_recording(store, TRACE).fidelity == "wire"


def test_whole_exchanges_are_wire_fidelity() -> None:
    """Requests and answers are those of the exchanges; other requests are kept apart."""
    weather = exchange(15, method="GET", url="https://api/weather", span_id=1)
    logs = [log(exchange(20, "two")), log(exchange(10, "one")), log(weather)]

    recording = recorded(SPANS, logs)

    assert (recording.fidelity, recording.reasons) == ("wire", ())
    first, second = recording.model_calls
    assert (first.request.api, first.request.model, first.model) == ("chat_completions", "m", "m-1")
    assert first.request.messages[0].content == "Question 10"
    assert (first.answer.content, second.answer.content) == ("one", "two")
    assert (first.usage.input_tokens, first.response_id, first.finish_reason) == (
        3,
        "chatcmpl-10",
        "stop",
    )
    assert recording.exchanges == (replace(weather, is_in_agent=True),)


def test_attempts_of_one_call_are_kept_in_order() -> None:
    """A refused request, a timeout and the answer are three exchanges of one span."""
    error = {"error": {"message": "Slow down."}}
    logs = [
        log(exchange(10, span_id=10, status=429, chunks=(Chunk(json.dumps(error).encode()),))),
        log(exchange(11, span_id=10, status=0, chunks=(), error="ReadTimeout: too slow")),
        log(exchange(12, "one", span_id=10)),
        log(exchange(20, "two")),
    ]

    recording = recorded(SPANS, logs)

    assert recording.fidelity == "wire"
    assert [call.error for call in recording.model_calls] == [
        *("Slow down.", "ReadTimeout: too slow", "", "")
    ]
    assert [call.status for call in recording.model_calls] == [429, 0, 0, 0]
    assert [bool(call.answer) for call in recording.model_calls] == [False, False, True, True]


def test_a_call_without_an_exchange_is_rebuilt() -> None:
    """The fidelity says so, with the reason."""
    recording = recorded(SPANS, [log(exchange(20, "two"))])

    assert recording.fidelity == "semconv"
    assert recording.reasons[0].startswith("1 of 2 model calls are rebuilt from spans (genai)")
    assert [call.exchange is None for call in recording.model_calls] == [True, False]
    assert [call.answer.content for call in recording.model_calls] == ["one", "two"]


def test_exchanges_of_spans_below_beside_and_above() -> None:
    """An HTTP client's span below the call, or the agent's span with the same answer, will do."""
    http = replace(span(1, 11), parent_id=f"{10:016x}", name="POST")
    logs = [log(exchange(12, "one", span_id=11)), log(exchange(21, "two", span_id=1))]

    recording = recorded([*SPANS, http], logs)

    assert (recording.fidelity, len(recording.model_calls)) == ("wire", 2)


def test_an_exchange_that_was_sent_twice_counts_once() -> None:
    """Two exporters may write the same exchange, with different times of collection."""
    record = log(exchange(10, "one"))
    logs = [record, replace(record, observed_ns=99), log(exchange(20, "two"))]
    assert len(recorded(SPANS, logs).model_calls) == 2


def test_damaged_and_unfinished_exchanges_are_named() -> None:
    """Such a recording is not whole, and says why."""
    unfinished = exchange(20, "two", is_complete=False, chunks=(Chunk(b'{"choices": ['),))
    logs = [log(exchange(10, "one"), omitted="the body is too large"), log(unfinished)]

    recording = recorded(SPANS, logs)

    assert recording.fidelity == "semconv"
    reasons = "\n".join(recording.reasons)
    assert "the body is too large" in reasons
    assert "1 of 2 model calls are rebuilt from spans" in reasons
    assert "no HTTP exchange was recorded" not in reasons
    assert "model call 2 (m, span 0000000000000014): the agent did not read" in reasons


def test_requests_that_failed_are_whole() -> None:
    """A timeout or a broken connection is recorded and given back like an answer."""
    failed = exchange(10, error="ReadTimeout: timed out", is_complete=False)
    recording = recorded(SPANS, [log(failed), log(exchange(20, "two"))])
    assert (recording.fidelity, recording.reasons) == ("wire", ())


def test_a_stream_that_the_agent_stopped_is_no_rebuilt_call() -> None:
    """The request is compared as a whole; a reason says that the answer ends early."""
    piece = {"choices": [{"index": 0, "delta": {"content": "one"}}]}
    stopped = exchange(10, is_complete=False, chunks=(Chunk(event(piece)),))
    recording = recorded(SPANS, [log(stopped), log(exchange(20, "two"))])
    assert recording.fidelity == "wire"
    assert "the agent did not read the response to its end" in recording.reasons[0]


def test_a_stream_that_the_agent_left_at_its_reason_is_whole() -> None:
    """The answer is complete there; only the stream's last events were not read."""
    last = {"choices": [{"index": 0, "delta": {"content": "one"}, "finish_reason": "stop"}]}
    left = exchange(10, is_complete=False, chunks=(Chunk(event(last)),))
    recording = recorded(SPANS, [log(left), log(exchange(20, "two"))])
    assert (recording.fidelity, recording.reasons) == ("wire", ())


def test_calls_of_an_unknown_api_are_kept_as_exchanges() -> None:
    """They are answered by their URL, so the call of the span is not expected again."""
    unknown = exchange(10, url="https://model/invoke")
    recording = recorded(SPANS, [log(unknown), log(exchange(20, "two"))])
    assert [call.answer.content for call in recording.model_calls] == ["two"]
    assert recording.exchanges == (replace(unknown, is_in_agent=True),)


def test_responses_that_cannot_be_read_are_named() -> None:
    """A page of a proxy is an answer with an error, or none at all."""
    page = (Chunk(b"<html>"),)
    logs = [log(exchange(10, chunks=page)), log(exchange(20, chunks=page, status=502))]
    recording = recorded(SPANS, logs)
    assert [call.error for call in recording.model_calls] == ["", "HTTP 502"]
    assert "its response cannot be read" in recording.reasons[0]
    assert all(call.exchange for call in recording.model_calls)
