"""Model calls that only recorded HTTP exchanges show, and those that other spans show as well."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import LogRecord, Message, Span, ToolCall, Trajectory
from oteval.model.recording import Chunk, Exchange, RecordedModelCall, RecordedRequest, to_event
from oteval.reconstruct import explain, reconstruct
from oteval.reconstruct.apis import APIS, ModelApi

from .builders import TRACE, agent, asks, brief, chat, codes, gives, only, said, span, user

URLS = {
    "chat_completions": "https://m/v1/chat/completions",
    "responses": "https://m/v1/responses",
    "anthropic_messages": "https://m/v1/messages",
    "gemini": "https://m/v1/models/g:generateContent",
    "bedrock_converse": "https://m/model/b/converse",
}
CALL = ToolCall("look", {"x": 1}, "c1")


def http(name: str, start: int, *, parent: str = "", trace: str = TRACE, **fields: Any) -> Span:
    """Return the span of an HTTP request."""
    attributes = {"http.request.method": "POST", "url.full": "https://m"}
    return span(
        name, start, parent=parent, trace=trace, end=start + 5, attributes=attributes, **fields
    )


def exchange(
    of: Span, body: dict[str, Any], answer: bytes, *, url: str = "", **fields: Any
) -> LogRecord:
    """Return the record of an exchange that was made in a span."""
    made = Exchange(
        "POST",
        url or URLS["chat_completions"],
        request_body=json.dumps(body).encode(),
        **{"status": 200, "chunks": (Chunk(answer),), "start_ns": of.start_ns, **fields},
        end_ns=of.end_ns,
    )
    return replace(to_event(made), trace_id=of.trace_id, span_id=of.span_id)


def completion(
    content: str | None, *calls: ToolCall, api: ModelApi = APIS[0], response_id: str = "r"
) -> bytes:
    """Return the body of an answer."""
    request = RecordedRequest(api=api.name, model="m")
    message = Message("assistant", content, tool_calls=calls)
    return api.write_response(
        RecordedModelCall(request, message, response_id=f"chatcmpl-{response_id}"), request
    )


ASKED = [{"role": "user", "content": "q"}]
CALLED = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
ANSWERED = [
    *ASKED,
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c1", "content": "7"},
]
WHOLE = [("user", "q"), ("assistant", [("look", {"x": 1})]), ("tool", "7"), ("assistant", "done")]


def loop(*, parent: str = "", traces: tuple[str, str] = (TRACE, TRACE)) -> Any:
    """Return the spans and records of a loop of two requests."""
    first = http("h1", 10, parent=parent, trace=traces[0])
    second = http("h2", 30, parent=parent, trace=traces[1])
    logs = [
        exchange(first, {"messages": ASKED}, completion(None, CALL)),
        exchange(second, {"messages": ANSWERED}, completion("done", response_id="s")),
    ]
    return [first, second], logs


def test_a_loop_over_an_http_client_is_one_run() -> None:
    """Each request is a trace of its own; the messages show that they belong together."""
    spans, logs = loop(traces=("a" * 32, "b" * 32))

    (run,) = reconstruct(spans, logs)

    assert brief(run.messages) == WHOLE
    assert (codes(run), run.dialects, run.usage.model_calls) == ([], ("http",), 2)


def test_the_requests_of_an_agent_are_its_model_calls() -> None:
    """The agent's span has no other record of them."""
    spans, logs = loop(parent="g")

    run = only(agent("g", 1, end=90), *spans, logs=logs)

    assert brief(run.messages) == WHOLE
    assert codes(run) == []


@pytest.mark.parametrize("api", APIS, ids=[api.name for api in APIS])
def test_every_api_is_read(api: ModelApi) -> None:
    """The question is that of the request, the answer that of the response."""
    parts: dict[str, Any] = {
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        "bedrock_converse": {"messages": [{"role": "user", "content": [{"text": "q"}]}]},
        "responses": {"input": "q"},
    }
    of = http("h", 1)
    body = parts.get(api.name, {"messages": ASKED})
    record = exchange(of, body, completion("a", api=api), url=URLS[api.name])

    run = only(of, logs=[record])

    assert brief(run.messages) == [("user", "q"), ("assistant", "a")]


def test_a_span_around_several_requests_only_groups_them() -> None:
    """A client that calls tools by itself records the question and the last answer alone."""
    spans, logs = loop(parent="c")

    run = only(
        agent("g", 1, end=90),
        chat("c", 5, [user("q")], said("done"), end=80, parent="g", scope="framework"),
        *spans,
        logs=logs,
    )

    assert brief(run.messages) == WHOLE
    assert (codes(run), run.usage.model_calls) == ([], 2)


@pytest.mark.parametrize("status", [429, 0])
def test_attempts_below_a_call_are_not_read(status: int) -> None:
    """The span of the call has all that the one answered request has."""
    failed, sent = http("h1", 12, parent="c"), http("h2", 20, parent="c")
    error: dict[str, Any] = {"status": status, "chunks": (), "error": "" if status else "X: cut"}
    logs = [
        exchange(failed, {"messages": ASKED}, b"", **error),
        exchange(sent, {"messages": ASKED}, completion("other words")),
    ]

    run = only(
        chat("c", 10, [user("q")], said("a"), end=40, scope="framework"), failed, sent, logs=logs
    )

    assert brief(run.messages) == [("user", "q"), ("assistant", "a")]
    assert (codes(run), run.dialects) == ([], ("genai",))


def test_a_request_beside_the_span_of_its_stream_is_not_read() -> None:
    """Where that span is not the current one, the request begins in its time."""
    sent = http("h", 12, parent="g")

    run = only(
        agent("g", 1, end=90),
        chat("c", 10, [user("q")], said("a"), end=40, parent="g", scope="framework"),
        sent,
        logs=[exchange(sent, {"messages": ASKED}, completion("a", response_id="x"))],
    )

    assert brief(run.messages) == [("user", "q"), ("assistant", "a")]
    assert (codes(run), run.usage.model_calls) == ([], 1)


def test_a_request_that_failed_is_a_failed_call() -> None:
    """The question is known, and why there is no answer."""
    of = http("h", 1)
    body = b'{"error": {"message": "slow down"}}'

    run = only(of, logs=[exchange(of, {"messages": ASKED}, body, status=429)])

    assert brief(run.messages) == [("user", "q")]
    assert [(gap.code, gap.detail) for gap in run.gaps] == [
        ("model_call_failed", "the model call failed: slow down")
    ]


def test_a_damaged_exchange_is_a_gap() -> None:
    """It is not taken for a request without messages."""
    of = http("h", 1)
    record = exchange(of, {"messages": ASKED}, completion("a"))
    record.body["omitted"] = "too large"

    run = only(of, logs=[record])

    assert "content_unreadable" in codes(run)


def test_other_requests_are_no_runs() -> None:
    """A trace of a request to anything but a model has no agent."""
    of = http("h", 1)

    assert reconstruct([of], [exchange(of, {}, b"{}", url="https://shop/orders")]) == []


def test_explain_names_the_second_record_of_a_call() -> None:
    """It is no gap."""
    sent = http("h", 12, parent="c")
    outer = chat("c", 10, [user("q")], said("a"), end=40, scope="framework")
    logs = [exchange(sent, {"messages": ASKED}, completion("a"))]

    account = explain(TRACE, [outer, sent], logs).accounts[1]

    assert account.kind == "model call"
    assert account.note == "another span records the same call; it is counted once"


LEFT = {"error.type": "_OTHER"}


def failed_chat(reasons: Any, key: str = "gen_ai.response.finish_reasons") -> Trajectory:
    """Return the run of a call whose span has an error."""
    return only(
        chat(
            "c", 1, [user("q")], said("a"), end=9, status_code=2, attributes={**LEFT, key: reasons}
        )
    )


@pytest.mark.parametrize(
    ("reasons", "key"),
    [
        (["stop"], "gen_ai.response.finish_reasons"),
        (["tool_calls"], "gen_ai.response.finish_reasons"),
        ("STOP", "llm.finish_reason"),
        ("end_turn", "gen_ai.completion.0.finish_reason"),
    ],
)
def test_a_stream_that_is_left_at_its_reason_has_not_failed(reasons: Any, key: str) -> None:
    """Clients leave it there; instrumentations call that an error."""
    run = failed_chat(reasons, key)

    assert codes(run) == []
    assert brief(run.messages) == [("user", "q"), ("assistant", "a")]


def test_an_answer_that_an_error_cut_is_asked_for_again() -> None:
    """The piece that arrived is in no later request, and its call has no result."""
    cut = chat(
        "c1",
        20,
        [user("q"), asks(("look", {"x": 1}, "c1")), gives("7", "c1")],
        asks(("pay", None, "c2")),
        end=25,
        status_code=2,
        trace="b" * 32,
        attributes={"gen_ai.response.finish_reasons": ["error"]},
    )
    spans = [
        chat("c0", 1, [user("q")], asks(("look", {"x": 1}, "c1")), end=9),
        cut,
        chat(
            "c2",
            30,
            [user("q"), asks(("look", {"x": 1}, "c1")), gives("7", "c1")],
            said("done"),
            end=39,
            trace="c" * 32,
        ),
    ]

    (run,) = reconstruct(spans)

    assert brief(run.messages) == WHOLE
    assert codes(run) == ["model_call_failed"]


@pytest.mark.parametrize("reasons", [["error"], [], ["stop", "error"], None])
def test_a_stream_that_breaks_off_has_failed(reasons: Any) -> None:
    """Nothing says that the model finished."""
    assert codes(failed_chat(reasons)) == ["model_call_failed"]


def test_a_call_with_tools_beside_an_exchange_is_read_once() -> None:
    """The ids of calls tell that the two are the same."""
    sent = http("h", 12, parent="c")

    run = only(
        chat("c", 10, [user("q")], asks(("look", {"x": 1}, "c1")), end=40, scope="framework"),
        sent,
        logs=[exchange(sent, {"messages": ASKED}, completion(None, CALL))],
    )

    assert run.usage.model_calls == 1
