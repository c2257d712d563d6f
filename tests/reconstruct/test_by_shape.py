"""Dialects that nobody has described: what is read by its shape, and what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oteval import create_forbidden_tools_evaluator
from oteval.model import Event, Span
from oteval.reconstruct import DIALECTS, explain, reconstruct, span_reader

from .builders import DATA, TRACE, agent, capture, chat, codes, only, said, span, user
from .test_captures import GOLD, assert_gold, turns

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "Weather in Paris and Tokyo?"}
CITIES = ("Paris", "Tokyo")
OPENAI_CALLS = [
    {
        "id": city,
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": city})},
    }
    for city in CITIES
]
OPENAI_RESULTS = [{"role": "tool", "tool_call_id": c, "content": f"{c}: sun"} for c in CITIES]
OPENAI_CALLING = {"role": "assistant", "content": None, "tool_calls": OPENAI_CALLS}
BLOCKS = [
    {"type": "tool_use", "id": city, "name": "weather", "input": {"city": city}} for city in CITIES
]
BLOCK_RESULTS = [
    {"type": "tool_result", "tool_use_id": city, "content": f"{city}: sun"} for city in CITIES
]
PARTS = [{"functionCall": {"name": "weather", "args": {"city": city}}} for city in CITIES]
PART_RESULTS = [
    {"functionResponse": {"name": "weather", "response": {"output": f"{city}: sun"}}}
    for city in CITIES
]


def completion(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "r", "object": "chat.completion", "model": "m-1", "choices": [choice]}


def model(name: str, start: int, **attributes: Any) -> Span:
    texts = {
        key.replace("__", "."): value if isinstance(value, (str, int)) else json.dumps(value)
        for key, value in attributes.items()
    }
    return span(name, start, parent="a", attributes=texts)


def openai_requests() -> list[Span]:
    first, second = [SYSTEM, ASKED], [SYSTEM, ASKED, OPENAI_CALLING, *OPENAI_RESULTS]
    answer = {"role": "assistant", "content": "Sun."}
    return [
        model(
            f"c{start}",
            start,
            acme__llm__request={"model": "m", "messages": sent},
            acme__llm__response=completion(received, "stop"),
        )
        for start, sent, received in ((2, first, OPENAI_CALLING), (6, second, answer))
    ]


def anthropic_blocks() -> list[Span]:
    calling = {"role": "assistant", "content": BLOCKS}
    results = {"role": "user", "content": BLOCK_RESULTS}
    system = {"foo__system_prompt": SYSTEM["content"], "foo__model": "m-1"}
    return [
        model("c2", 2, foo__input=[ASKED], foo__output=BLOCKS, **system),
        model(
            "c6",
            6,
            foo__input=[ASKED, calling, results],
            foo__output=[{"type": "text", "text": "Sun."}],
            **system,
        ),
    ]


def gemini_contents() -> list[Span]:
    asked = {"role": "user", "parts": [{"text": ASKED["content"]}]}
    system = {"parts": [{"text": SYSTEM["content"]}]}
    contents = [asked, {"role": "model", "parts": PARTS}, {"role": "user", "parts": PART_RESULTS}]
    answers = [PARTS, [{"text": "Sun."}]]
    return [
        model(
            f"c{start}",
            start,
            svc__kind="LLM",
            svc__prompt={"contents": contents[:count], "systemInstruction": system},
            svc__completion={"candidates": [{"content": {"role": "model", "parts": answer}}]},
        )
        for start, count, answer in ((2, 1, answers[0]), (6, 3, answers[1]))
    ]


def flat_lists() -> list[Span]:
    spans = []
    for start, sent, answer in (
        (2, [SYSTEM, ASKED], OPENAI_CALLING),
        (6, [SYSTEM, ASKED, OPENAI_CALLING, *OPENAI_RESULTS], said("Sun.")),
    ):
        fields = {**flat("x.input", sent), **flat("x.output", [answer]), "x.model": "m-1"}
        spans.append(span(f"c{start}", start, parent="a", attributes=fields))
    return spans


def flat(prefix: str, value: Any) -> dict[str, Any]:
    items = enumerate(value) if isinstance(value, list) else value.items()
    fields: dict[str, Any] = {}
    for key, item in items:
        inner = isinstance(item, (dict, list))
        fields |= flat(f"{prefix}.{key}", item) if inner else {f"{prefix}.{key}": item}
    return {key: item for key, item in fields.items() if item is not None}


def calls_beside_a_text() -> list[Span]:
    calls = [{"toolCallId": c, "toolName": "weather", "input": {"city": c}} for c in CITIES]
    usage = {"bot__usage__input_tokens": 5, "bot__usage__output_tokens": 2, "bot__model": "m-1"}
    later = [SYSTEM, ASKED, OPENAI_CALLING, *OPENAI_RESULTS]
    return [
        model("c2", 2, bot__messages=[SYSTEM, ASKED], bot__response__toolCalls=calls, **usage),
        model("c6", 6, bot__messages=later, bot__response__text="Sun.", **usage),
    ]


MODELS = [openai_requests, anthropic_blocks, gemini_contents, flat_lists, calls_beside_a_text]


@pytest.mark.parametrize("spans", MODELS)
def test_an_invented_dialect_gives_what_was_said(spans: Any):
    """Parallel calls, their results and the answer, whatever the names and the form."""
    found = only(span("a", 1, end=9), *spans())

    roles = [message.role for message in found.messages]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    calls = [(call.name, call.arguments) for call in found.messages[2].tool_calls]
    assert calls == [("weather", {"city": city}) for city in CITIES]
    assert [m.content for m in found.messages[-1:]] == ["Sun."]
    results = [m.content or "" for m in found.messages if m.role == "tool"]
    assert [city in text for city, text in zip(CITIES, results, strict=True)] == [True, True]
    assert found.dialects == ("by-shape",)
    assert set(codes(found)) == {"read_by_shape"}


def test_the_gap_names_the_attributes():
    """What was used is said, with each span."""
    found = only(span("a", 1, end=9), *anthropic_blocks())

    assert [gap.span_id for gap in found.gaps] == ["c2", "c6"]
    assert "foo.input, foo.output, foo.system_prompt" in found.gaps[0].detail


def used(name: str, start: int, **fields: Any) -> Span:
    attributes = {
        "bar.tool.name": "weather",
        "bar.args": '{"city": "Paris"}',
        "bar.tool.call_id": "Paris",
    }
    return span(name, start, parent="a", attributes=attributes, **fields)


def test_tools_are_read_with_their_errors():
    """A tool's span with a name, arguments and an exception is a failed call."""
    raised = Event("exception", 5, {"exception.type": "E", "exception.message": "no such city"})
    asks = {**OPENAI_CALLING, "tool_calls": OPENAI_CALLS[:1]}
    call = model("c2", 2, acme__input=[ASKED], acme__output=asks, acme__model="m")

    found = only(span("a", 1, end=9), call, used("t", 4, events=(raised,)))

    (result,) = (message for message in found.messages if message.role == "tool")
    assert (result.content, result.is_error) == ("Error: no such city", True)
    assert result.tool_call_id == "Paris"


@pytest.mark.parametrize(
    "attributes",
    [
        {"q.kind": "LLM", "q.question": "How are you?", "q.answer": "Fine."},
        {
            "q.model": "m",
            "q.prompt": "How are you?",
            "q.completion": "Fine.",
            "q.usage.prompt_tokens": 3,
            "q.usage.completion_tokens": 1,
        },
        {"q.span_type": "agent", "q.input": "How are you?", "q.output": "Fine."},
    ],
)
def test_a_plain_question_and_answer_need_the_kind_or_model_and_tokens(attributes: dict[str, Any]):
    """Texts alone may be anybody's; with a kind, or a model and tokens, they are a model's."""
    found = only(span("a", attributes=attributes))

    assert [(m.role, m.content) for m in found.messages] == [
        ("user", "How are you?"),
        ("assistant", "Fine."),
    ]
    assert "read_by_shape" in codes(found)


MESSAGES = json.dumps([ASKED])
ANSWER = json.dumps(completion({"role": "assistant", "content": "Sun."}, "stop"))


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param({"http.request.body": MESSAGES, "http.response.body": ANSWER}, id="http"),
        pytest.param(
            {"http.method": "POST", "app.input": MESSAGES, "app.output": ANSWER}, id="in a request"
        ),
        pytest.param({"db.query": "SELECT 1", "db.response": "1", "db.type": "llm"}, id="sql"),
        pytest.param(
            {"sql.query": "SELECT 1", "sql.result": "[1]", "x.model": "m"}, id="statement"
        ),
        pytest.param({"graphql.query": MESSAGES, "graphql.response": ANSWER}, id="graphql"),
        pytest.param({"log.message": "Fine.", "log.input": "How?", "log.model": "m"}, id="log"),
        pytest.param({"app.config.prompt": "Be brief.", "app.output": "x"}, id="config"),
        pytest.param({"prompt.template": MESSAGES, "app.response": ANSWER}, id="template"),
        pytest.param({"app.input": "a", "app.output": "b"}, id="texts"),
        pytest.param({"car.model": "T", "app.request": "a", "app.response": "b"}, id="a car"),
        pytest.param({"app.input": MESSAGES, "app.output": "b"}, id="agent or model"),
        pytest.param({"app.function.name": "f", "app.args": "{}", "app.result": "1"}, id="code"),
        pytest.param(
            {"app.tool.name": "f", "app.model": "m", "app.args": "{}"}, id="tool or model"
        ),
        pytest.param({"x.kind": "LLM", "y.kind": "tool", "x.input": "a", "x.output": "b"}, id="2"),
        pytest.param({"x.kind": "chain", "x.model": "m", "x.input": MESSAGES, "x.output": ANSWER}),
        pytest.param({"room.type": "chat", "room.input": "a", "room.output": "b"}, id="a room"),
        pytest.param(
            {"ticket.type": "agent", "ticket.question": "a", "ticket.answer": "b"}, id="a ticket"
        ),
        pytest.param({"x.kind": "agent", "x.version": "7.1"}, id="monitoring agent"),
        pytest.param({"user.agent.name": "curl", "x.type": "agent", "x.output": "ok"}, id="answer"),
        pytest.param({"x.model": "m", "x.input": MESSAGES}, id="one side"),
        pytest.param(
            {
                "x.kind": "agent",
                "x.input": "a",
                "x.output": json.dumps([{"role": "assistant", "content": "b"}, ASKED]),
            },
            id="a transcript without its answer",
        ),
        pytest.param(
            {"x.kind": "tool", "x.tool.name": "f", "x.parameters": '{"a": {"type": "string"}}'},
            id="what a tool accepts",
        ),
        pytest.param({"x.model": "m", "x.input": MESSAGES[:-9], "x.output": ANSWER}, id="cut"),
        pytest.param({"x.model": "m", "x.input": MESSAGES, "x.output": "<REDACTED>"}, id="hidden"),
        pytest.param(
            {"x.model": "m", "x.input": MESSAGES, "x.output": '{"say": "a", "actions": []}'},
            id="unknown form",
        ),
        pytest.param(
            {
                "x.model": "m",
                "x.input": MESSAGES,
                "x.output": json.dumps([{"role": "assistant", "content": "a", "actions": ["b"]}]),
            },
            id="unknown field",
        ),
        pytest.param(
            {
                "x.model": "m",
                "x.input": MESSAGES,
                "x.output": json.dumps({"choices": [{"message": {"content": "a", "acts": [1]}}]}),
            },
            id="unknown field inside",
        ),
        pytest.param(
            {"x.model": "m", "x.input": MESSAGES, "x.output": "one", "x.response": "two"},
            id="two answers",
        ),
        pytest.param(
            {"x.kind": "LLM", "x.model": "m", "x.input": "AIMessage(content='a')", "x.output": "b"},
            id="a repr",
        ),
    ],
)
def test_what_is_ambiguous_or_not_known_is_not_read(attributes: dict[str, Any]):
    """Requests, queries, settings, texts without a kind, and values with unknown fields."""
    found = reconstruct([span("a", attributes=attributes)])

    assert all(trajectory.messages == () for trajectory in found)
    assert "read_by_shape" not in {code for trajectory in found for code in codes(trajectory)}


def test_dropped_attributes_are_not_guessed():
    """A span without some of its attributes may lack half of its messages."""
    whole = openai_requests()[0]
    dropped = span("a", attributes=dict(whole.attributes), dropped_attributes=3)

    assert reconstruct([dropped]) == []


def test_a_trace_with_a_known_model_call_is_not_read_by_shape():
    """An application's own spans around an agent would tell the same twice."""
    own = {"app.kind": "agent", "app.input": "hi", "app.output": "ho"}
    found = only(
        span("o", 1, end=9, attributes=own),
        agent("a", 2, parent="o", end=8),
        chat("c", 3, [user("hi")], said("ho"), parent="a"),
    )

    assert codes(found) == []
    assert "by-shape" not in found.dialects


def test_a_call_around_others_is_not_one():
    """Messages with a model on a span around model calls are an agent's; the calls inside count."""
    around = {
        "acme.model": "m",
        "acme.input": MESSAGES,
        "acme.output": json.dumps([{"role": "assistant", "content": "Sun."}]),
    }
    found = only(span("a", 1, end=9, attributes=around), *openai_requests())

    assert found.usage.model_calls == 2
    assert len(found.messages) == 6


def test_an_unread_span_that_counts_tokens_keeps_its_trace_in_sight():
    """A model span of an unknown dialect without content is not silently no run."""
    counts = {"zed.usage.input_tokens": 3, "zed.usage.output_tokens": 1}
    found = only(span("a", attributes=counts))

    assert codes(found) == ["unknown_dialect"]
    assert "zed.usage.input_tokens" in found.gaps[0].detail


def test_verdicts_on_all_calls_are_not_passed():
    """A forbidden call that was read fails; without one the check is not evaluated."""
    found = only(span("a", 1, end=9), *openai_requests(), used("t", 4))

    failed = create_forbidden_tools_evaluator(forbidden=["weather"])(outputs=found)
    unsure = create_forbidden_tools_evaluator(forbidden=["refund"])(outputs=found)

    assert failed["score"] is False
    assert unsure["score"] is None
    assert "read_by_shape" in unsure["comment"]


def test_explain_names_the_reading():
    """Each span that was read by its shape says so."""
    accounts = explain(TRACE, [span("a", 1, end=9), *openai_requests()]).accounts

    assert [account.dialect for account in accounts] == ["", "by-shape", "by-shape"]


@contextmanager
def without(name: str) -> Iterator[None]:
    """Switch a dialect off."""
    left = tuple(dialect for dialect in DIALECTS if dialect.name != name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_reader, "DIALECTS", left)
        patch.setattr(span_reader, "_MARKS", span_reader._Marks(left))
        yield


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("genai_openai_chat", "genai"),
        ("langgraph_genai", "genai"),
        ("openinference_chat", "openinference"),
        ("openinference_responses", "openinference"),
        ("langgraph_openinference", "openinference"),
    ],
)
def test_a_capture_without_its_dialect_gives_what_was_said(name: str, dialect: str):
    """Real spans whose dialect is switched off are read right, and say that they were guessed."""
    with without(dialect):
        found = reconstruct(*capture(name))

    first, second = turns(found)
    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert all("read_by_shape" in codes(trajectory) for trajectory in (first, second))


CAPTURES = sorted(
    path.stem for path in (DATA / "traces").glob("*.json") if not path.stem.endswith(".logs")
)


@pytest.mark.parametrize("name", [name for name in CAPTURES if name != "gold"])
def test_nothing_is_read_by_shape_without_the_gap(name: str):
    """With any of its dialects switched off, what was read by shape is never silent."""
    signals = capture(name)
    for dialect in {dialect for run in reconstruct(*signals) for dialect in run.dialects}:
        with without(dialect):
            for run in reconstruct(*signals):
                assert ("by-shape" in run.dialects) <= ("read_by_shape" in codes(run))
