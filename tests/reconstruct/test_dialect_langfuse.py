"""Langfuse's SDK: observations by type, in the client's, LangChain's and the decorator's forms."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from oteval.model import Span, Usage
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span, texts
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

PREFIX = "langfuse.observation."


def seen(kind: str, name: str, start: int = 1, **fields: Any) -> Span:
    """Return an observation; `sent` and `got` are its input and output, `told` other fields."""
    attributes = {f"{PREFIX}type": kind}
    for field, key in (("sent", "input"), ("got", "output")):
        if field in fields:
            value = fields.pop(field)
            attributes[PREFIX + key] = value if isinstance(value, str) else json.dumps(value)
    attributes |= {PREFIX + key: value for key, value in fields.pop("told", {}).items()}
    return span(name, start, scope="langfuse-sdk", attributes=attributes, **fields)


ASKED = {"messages": [{"role": "user", "content": "q"}]}


def test_the_capture_holds_golds_conversation():
    """Generations, decorated tools and a decorated agent, joined by the session."""
    first, second = trajectories("langfuse_sdk")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    for found in (first, second):
        assert (found.agent, found.gaps, found.dialects) == ("support_agent", (), ("langfuse",))
        assert (found.conversation_id, found.models) == ("conv-001", ("gpt-4o-mini-2026-01-01",))
        assert [tool["function"]["name"] for tool in found.tools] == ["get_weather", "lookup_order"]
    assert first.usage == Usage(170, 34, 16, 2)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert len({call.span_id for m in second.messages for call in m.tool_calls}) == 3


def test_langchains_messages_end_with_the_tools():
    """The callback handler appends each tool's definition as if it were a message."""
    definition = {"type": "function", "function": {"name": "look", "parameters": {}}}
    sent = [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "look", "args": {"x": 1}, "id": "k", "type": "tool_call"}],
        },
        {"role": "tool", "content": "r", "tool_call_id": "k"},
        {"role": "tool", "content": definition},
    ]

    found = only(
        seen("generation", "ChatOpenAI", sent=sent, got={"role": "assistant", "content": "a"})
    )

    assert brief(found.messages) == [
        ("system", "be kind"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert found.tools == (definition,)
    assert found.gaps == ()


@pytest.mark.parametrize(
    ("tokens", "usage"),
    [
        ({"input": 5, "output": 2, "total": 7, "input_cache_read": 3}, Usage(5, 2, 3, 1)),
        (
            {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
            Usage(5, 2, 4, 1),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": None},
            Usage(5, 2, 0, 1),
        ),
        ([], Usage(0, 0, 0, 1)),
    ],
)
def test_tokens_are_counted_by_each_of_their_names(tokens: Any, usage: Usage):
    """Langfuse's own names and the clients' are known; what is missing counts nothing."""
    told = {"usage_details": json.dumps(tokens), "model.name": "m"}

    found = only(seen("generation", "g", sent=ASKED, got="a", told=told))

    assert (found.usage, found.models) == (usage, ("m",))
    assert texts(found) == ["q", "a"]


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ({"args": [], "kwargs": {"x": 1}}, {"x": 1}),
        ({"args": [1], "kwargs": {}}, [1]),
        ({"args": [1], "kwargs": {"y": 2}}, {"y": 2, "args": [1]}),
        ({"args": [], "kwargs": {}}, {}),
        ({"x": 1}, {"x": 1}),
        ("{'x': 1}", {"x": 1}),
        ("Paris", "Paris"),
    ],
)
def test_a_tools_arguments_are_the_functions_or_the_text(sent: Any, arguments: Any):
    """Decorated functions have positional and named arguments, LangChain's tools a text."""
    found = only(seen("tool", "look", sent=sent, got="r"))

    assert found.messages[0].tool_calls[0].arguments == arguments


def test_an_error_is_told_by_the_level_alone():
    """A tool or model call of level ERROR failed, whatever the span's status."""
    told = {"level": "ERROR", "status_message": "gone"}
    tool = only(seen("tool", "look", 2, sent={"x": 1}, told=told))
    call = only(seen("generation", "g", 4, sent=ASKED, told=told))

    assert (tool.messages[-1].content, tool.messages[-1].is_error) == ("Error: gone", True)
    assert [gap.detail for gap in call.gaps] == ["the model call failed: gone"]


def test_a_graphs_steps_are_no_agents():
    """LangGraph's node `agent` is of type agent; the run around it is the only one."""
    step = {"metadata.langgraph_node": "agent"}
    found = only(
        seen("chain", "LangGraph", 1, sent=ASKED, got={"messages": []}, end=90),
        seen("agent", "agent", 2, parent="LangGraph", sent=ASKED, end=9, told=step),
        seen("generation", "g", 3, parent="agent", sent=ASKED, got="a"),
    )

    assert texts(found) == ["q", "a"]
    assert found.parent_id == ""


def test_an_agent_that_langchain_names_is_one():
    """A graph is of type chain; the agent's name in its metadata tells what it is."""
    told = {"metadata.lc_agent_name": "helper"}
    found = only(
        seen("chain", "helper", 1, sent=ASKED, got={"messages": []}, end=90, told=told),
        seen("chain", "model", 2, parent="helper", end=9, told=told),
        seen("generation", "g", 3, parent="model", sent=ASKED, got="a"),
    )

    assert (found.agent, texts(found)) == ("helper", ["q", "a"])


def test_an_agent_below_a_tool_is_linked_to_its_call():
    """A tool that runs a decorated agent has its trajectory below the call."""
    asks = {
        "role": "assistant",
        "tool_calls": [{"id": "k", "function": {"name": "ask", "arguments": "{}"}}],
    }
    main, inner = reconstruct(
        [
            seen("agent", "a", 1, end=90),
            seen("generation", "g", 2, parent="a", sent=ASKED, got=asks),
            seen("tool", "ask", 4, parent="a", sent={"args": [], "kwargs": {}}, got="r", end=50),
            seen(
                "agent", "b", 5, parent="ask", sent={"args": ["in"], "kwargs": {}}, got="r", end=40
            ),
            seen(
                "generation", "h", 6, parent="b", sent=[{"role": "user", "content": "in"}], got="r"
            ),
        ]
    )

    assert (inner.parent_id, inner.parent_call_id, inner.agent) == (main.id, "k", "b")
    assert texts(inner) == ["in", "r"]


def test_an_agents_words_stand_in_where_no_model_call_tells():
    """An agent without generations shows what it was asked and what it answered."""
    found = only(seen("agent", "a", 1, sent={"args": ["[hi]"], "kwargs": {}}, got="ho"))

    assert texts(found) == ["[hi]", "ho"]
    assert codes(found) == ["no_model_spans"]


def test_content_that_is_not_there_names_the_switch():
    """Without input and output, the setting that captures them is named."""
    found = only(
        seen("agent", "a", 1, end=9),
        seen("generation", "g", 2, parent="a"),
        seen("tool", "look", 4, parent="a"),
    )

    assert found.messages[0].tool_calls[0].arguments is None
    assert set(codes(found)) == {"content_not_captured"}
    assert all("LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED" in g.detail for g in found.gaps)


def test_its_type_on_another_dialects_span_is_not_its_own():
    """A type set by hand on a span of the current conventions leaves the content theirs."""
    attributes = {
        f"{PREFIX}type": "generation",
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": '[{"role":"assistant","content":"a"}]',
    }

    found = only(span("c", 1, attributes=attributes))

    assert (texts(found), found.dialects) == (["a"], ("genai",))


def test_a_failed_tool_of_langchain_has_its_calls_id_as_metadata():
    """There is no message that names the call; metadata is JSON."""
    attributes = {
        f"{PREFIX}type": "tool",
        f"{PREFIX}input": '{"x": 1}',
        f"{PREFIX}level": "ERROR",
        f"{PREFIX}metadata.tool_call_id": '"k1"',
    }
    found = only(span("look", 1, scope="langfuse-sdk", attributes=attributes))

    assert [m.tool_call_id for m in found.messages if m.role == "tool"] == ["k1"]


KEYS = [
    "type",
    "input",
    "output",
    "level",
    "status_message",
    "usage_details",
    "model.name",
    "metadata.langgraph_node",
]
VALUES: list[Any] = [
    None,
    7,
    True,
    [],
    ["x"],
    "",
    "{",
    "null",
    "[null]",
    '{"messages":{}}',
    '{"messages":[[7]]}',
    '{"args":7,"kwargs":7}',
    '[{"role":7}]',
    '[{"role":"tool","content":{"function":7}}]',
    "__REDACTED__",
    '{"prompt_tokens_details":7,"input":-1}',
    '{"output":{"output":{}}}',
]


@pytest.mark.parametrize("kind", ["generation", "tool", "agent", "span", "event"])
def test_no_value_makes_it_fail(kind: str):
    """Whatever an attribute holds, a span is the root of no other trajectory than its own."""
    for key, value in product(KEYS, VALUES):
        attributes = {f"{PREFIX}type": kind, f"{PREFIX}{key}": value}

        runs = reconstruct([span("c", 1, scope="langfuse-sdk", attributes=attributes)])

        assert {t.root_span.span_id for t in runs} <= {"c"}, (key, value)
