"""Traceloop's LangChain instrumentation: chains and tools in the form of LangChain's callbacks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, chat as new_chat, codes, only, span, texts, texts as texts_of

SCOPE = "opentelemetry.instrumentation.langchain"


def entity(kind: str, name: str, start: int, **fields: Any) -> Span:
    """Return a chain's or a tool's span; `sent` and `got` are what the callbacks give."""
    attributes = {"traceloop.span.kind": kind, "traceloop.entity.name": fields.pop("of", name)}
    for field, key in (("sent", "input"), ("got", "output")):
        if field in fields:
            value = fields.pop(field)
            text = value if isinstance(value, str) else json.dumps(value)
            attributes[f"traceloop.entity.{key}"] = text
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def chat(name: str, start: int, sent: list[Any], got: dict[str, Any], **fields: Any) -> Span:
    """Return a model call's span, with its messages as indexed keys."""
    attributes: dict[str, Any] = {"llm.request.type": "chat", "gen_ai.system": "Langchain"}
    for place, messages in (("prompt", sent), ("completion", [got])):
        for at, message in enumerate(messages):
            for key, value in message.items():
                attributes[f"gen_ai.{place}.{at}.{key}"] = value
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


USER = {"role": "user", "content": "weather in Paris?"}
ASKS = {
    "role": "assistant",
    "tool_calls.0.id": "k1",
    "tool_calls.0.name": "get_weather",
    "tool_calls.0.arguments": '{"city": "Paris"}',
}
INPUT = {
    "input_str": "{'city': 'Paris'}",
    "tags": ["seq:step:1"],
    "metadata": {"step": 2},
    "inputs": {"city": "Paris"},
    "kwargs": {"color": "green"},
}


def message(content: str, **fields: Any) -> dict[str, Any]:
    """Return a tool's message as LangChain dumps it."""
    path = ["langchain", "schema", "messages", "ToolMessage"]
    kwargs = {"content": content, "type": "tool", "tool_call_id": "k1", "status": "success"}
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {**kwargs, **fields}}


def a_turn(*inside: Span) -> list[Span]:
    state = {
        "inputs": {"messages": [["user", "weather in Paris?"]]},
        "tags": [],
        "metadata": {},
        "kwargs": {"name": "support_agent"},
    }
    return [
        entity("workflow", "w", 1, of="support_agent", sent=state, end=90),
        entity("task", "model", 2, parent="w", sent=state, end=9),
        chat("c1", 3, [USER], ASKS, parent="model"),
        *inside,
    ]


def ran(got: Any, **fields: Any) -> Span:
    return entity(
        "tool",
        "t",
        11,
        of="get_weather",
        parent="w",
        sent=INPUT,
        got={"output": got, "kwargs": {"tags": []}},
        end=20,
        **fields,
    )


@pytest.mark.parametrize(
    ("got", "content", "failed"),
    [
        (message("sunny"), "sunny", False),
        (json.dumps(message("sunny")), "sunny", False),
        (message("no such city", status="error"), "no such city", True),
        ("sunny", "sunny", False),
        ({"sky": "sunny"}, '{"sky":"sunny"}', False),
    ],
)
def test_a_tools_result_is_the_message_it_returned(got: Any, content: str, failed: bool):
    """Results are serialised messages, whose id and status count, or plain values."""
    found = only(*a_turn(ran(got)))

    assert brief(found.messages) == [
        ("user", "weather in Paris?"),
        ("assistant", [("get_weather", {"city": "Paris"})]),
        ("tool", content),
    ]
    assert (found.messages[2].is_error, found.messages[2].tool_call_id) == (failed, "k1")
    assert found.messages[1].tool_calls[0].span_id == "t"
    assert found.agent == "support_agent"
    assert found.gaps == ()


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        (INPUT, {"city": "Paris"}),
        ({"input_str": "{'city': 'Paris'}", "tags": None, "inputs": None}, {"city": "Paris"}),
        ({"input_str": '{"city": "Paris"}'}, {"city": "Paris"}),
        ({"input_str": "Paris", "inputs": None}, "Paris"),
        ({"input_str": "", "inputs": {}}, {}),
        ({"args": [], "kwargs": {"city": "Paris"}}, {"city": "Paris"}),
    ],
)
def test_arguments_are_the_callbacks_or_its_text(sent: Any, arguments: Any):
    """The dict counts before the text, in which a Python repr is read; functions stay as before."""
    found = only(entity("tool", "t", 1, sent=sent, got={"output": "r", "kwargs": {}}))

    assert found.messages[0].tool_calls[0].arguments == arguments


def test_a_graph_inside_a_tool_is_a_subagent():
    """A graph that a tool runs has no agent's span; its model calls are the tool's trajectory."""
    inner = [
        entity("task", "g", 12, of="weather_agent", parent="t", end=19),
        chat(
            "c2",
            13,
            [{"role": "user", "content": "in"}],
            {"role": "assistant", "content": "sunny"},
            parent="g",
        ),
    ]

    main, found = reconstruct(a_turn(ran(message("sunny")), *inner))

    assert (found.parent_id, found.parent_call_id) == (main.id, "k1")
    assert texts(found) == ["in", "sunny"]
    assert texts(main)[-1] == "sunny"


def test_a_graphs_own_messages_stand_in_for_its_model_calls():
    """Without model spans, what the graph was asked and answered last is shown."""
    said = {
        "lc": 1,
        "type": "constructor",
        "id": ["AIMessage"],
        "kwargs": {"content": "sunny", "type": "ai"},
    }
    spans = a_turn()[:1]
    given = json.loads(spans[0].attributes["traceloop.entity.input"])
    root = entity(
        "workflow",
        "w",
        1,
        of="support_agent",
        sent=given,
        got={"outputs": {"messages": [["user", "q"], said]}, "kwargs": {}},
    )

    found = only(root)

    assert texts(found) == ["weather in Paris?", "sunny"]
    assert codes(found) == ["no_model_spans"]


def test_chains_inside_are_no_agents():
    """Graph nodes and sequences are tasks, and leave one trajectory."""
    found = reconstruct(a_turn(entity("task", "RunnableSequence", 30, parent="w", end=40)))

    assert len(found) == 1


@pytest.mark.parametrize("kind", ["tool", "workflow", "task", "agent"])
@pytest.mark.parametrize(
    "value",
    [
        "",
        "{",
        "7",
        "null",
        "[]",
        '{"input_str":7}',
        '{"input_str":null,"inputs":7}',
        '{"inputs":7}',
        '{"inputs":{"messages":7}}',
        '{"inputs":{"messages":[7,[],null]}}',
        '{"output":{"lc":1,"type":"constructor","kwargs":7},"kwargs":{}}',
        '{"outputs":[7]}',
        '{"output":null,"kwargs":null}',
        '{"args":7,"kwargs":[]}',
        "{'input_str': ",
    ],
)
def test_no_value_makes_it_fail(kind: str, value: str):
    """Whatever an attribute holds, a span is the root of no other trajectory than its own."""
    runs = reconstruct([entity(kind, "e", 1, sent=value, got=value)])

    assert {t.root_span.span_id for t in runs} <= {"e"}


def test_a_failed_tool_is_known_by_the_id_that_its_callback_has():
    """LangChain's current spans have GenAI's keys beside, with the same envelope."""
    sent = {"input_str": "{'x': 1}", "inputs": {"x": 1}, "kwargs": {"tool_call_id": "k1"}}
    found = only(
        span(
            "t",
            1,
            scope=SCOPE,
            status_code=2,
            attributes={
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "look",
                "traceloop.entity.input": json.dumps(sent),
                "gen_ai.tool.call.arguments": json.dumps(sent),
            },
        )
    )
    asked, failed = found.messages

    assert [(c.name, c.arguments, c.id) for c in asked.tool_calls] == [("look", {"x": 1}, "k1")]
    assert (failed.tool_call_id, failed.is_error) == ("k1", True)


@pytest.mark.parametrize(
    ("printed", "content", "is_error"),
    [
        ("status='success' result='it\\'s 21 C' error=None images=None", "it's 21 C", False),
        (
            "status='failure' result=None error='order 9 not found'",
            "Error: order 9 not found",
            True,
        ),
    ],
)
def test_tools_of_agno_return_a_printed_result(printed: str, content: str, is_error: bool):
    """The result is the tool's, and a failure is an error though the span's status is fine."""
    attributes = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "look",
        "traceloop.entity.input": '{"x": 1}',
        "traceloop.entity.output": printed,
    }
    scope = "opentelemetry.instrumentation.agno"
    found = only(span("t", 1, scope=scope, status_code=1, attributes=attributes))

    assert [(m.content, m.is_error) for m in found.messages[1:]] == [(content, is_error)]


def test_a_call_written_again_as_text_is_no_text():
    """Of Anthropic's blocks, the history has the JSON of each call beside the call itself."""
    block = '{"id": "k1", "input": {}, "name": "look", "type": "tool_use", "index": 1}'
    call = {"type": "tool_call", "id": "k1", "name": "look", "arguments": {"x": 1}}
    texts = [{"type": "text", "content": text} for text in ("Let me look.", block)]
    sent = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    asks = {"role": "assistant", "parts": [texts[0], call]}
    echo = [
        {"role": "assistant", "parts": [*texts, call]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "k1", "response": "r"}]},
    ]
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "a"}]}
    found = only(
        span("t", 1, end=9),
        new_chat("c", 2, sent, asks, scope=SCOPE, parent="t"),
        new_chat("d", 4, [*sent, *echo], answer, scope=SCOPE, parent="t"),
    )

    assert texts_of(found) == ["q", "Let me look.", "r", "a"]
    assert (found.gaps, found.rewrites) == ((), ())
