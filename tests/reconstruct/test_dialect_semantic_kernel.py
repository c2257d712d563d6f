"""Semantic Kernel: the capture, and the formats of earlier versions and .NET."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, LogRecord, Message, Span
from oteval.reconstruct import reconstruct

from .builders import agent, brief, capture, codes, only, span, texts, tool
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

NAME = "semantic_kernel"
SCOPE = "semantic_kernel.utils.telemetry.model_diagnostics.decorators"
CALL = {"id": "k1", "type": "function", "function": {"name": "P-look", "arguments": '{"x":1}'}}


def without_plugin(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(
        replace(
            m, tool_calls=tuple(replace(c, name=c.name.removeprefix("P-")) for c in m.tool_calls)
        )
        for m in messages
    )


def model(name: str, start: int, operation: str = "chat", **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.system": "openai",
        "gen_ai.request.model": "m",
        **fields.pop("attributes", {}),
    }
    return span(name, start, scope=fields.pop("scope", SCOPE), attributes=attributes, **fields)


def told(of: Span, *messages: tuple[str, Any], time_ns: int = 5) -> list[LogRecord]:
    """Return one record a message, all of one time, with the index that tells their order."""
    return [
        LogRecord(
            of.trace_id,
            of.span_id,
            time_ns,
            0,
            f"gen_ai.{name}",
            body=body if isinstance(body, str) else json.dumps(body),
            attributes={} if name == "choice" else {"CHAT_MESSAGE_INDEX": i},
        )
        for i, (name, body) in enumerate(messages)
    ]


CONVERSATION = (
    ("system.message", {"role": "system", "content": "s", "name": "desk"}),
    ("user.message", {"role": "user", "content": "q"}),
    ("assistant.message", {"role": "assistant", "tool_calls": [CALL]}),
    ("tool.message", {"role": "tool", "content": "r", "tool_call_id": "k1"}),
    ("choice", {"message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}),
)
SAID = [
    ("system", "s"),
    ("user", "q"),
    ("assistant", [("P-look", {"x": 1})]),
    ("tool", "r"),
    ("assistant", "a"),
]


def test_the_capture_holds_golds_conversation():
    """Two turns out of log records alone, without gaps, with the agent's tools."""
    first, second = trajectories(NAME)

    assert_gold(without_plugin(first.messages), GOLD[:6])
    assert_gold(without_plugin(second.messages), GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    for trajectory in (first, second):
        assert (trajectory.agent, trajectory.gaps) == ("support_agent", ())
        assert (trajectory.dialects, trajectory.models) == (("semantic-kernel",), ("gpt-4o-mini",))
        assert trajectory.usage.model_calls == 2
        assert [t["function"]["name"] for t in trajectory.tools] == [
            "P-get_weather_tool",
            "P-lookup_order_tool",
        ]
    assert (first.usage.input_tokens, first.usage.output_tokens) == (170, 34)


def test_without_the_log_records_the_gap_says_to_load_them():
    """The spans alone give the tools' part and the agent's answer."""
    spans, _ = capture(NAME)

    first, second = reconstruct(spans)

    calls = [c for m in first.messages for c in m.tool_calls]
    assert [(c.name, c.arguments) for c in calls] == [
        ("P-get_weather_tool", {"city": "Paris"}),
        ("P-get_weather_tool", {"city": "Tokyo"}),
    ]
    assert (second.messages[-1].role, second.messages[-1].content) == (
        "assistant",
        GOLD[-1]["content"],
    )
    assert set(codes(first)) == set(codes(second)) == {"content_not_captured"}
    assert "load the log records" in first.gaps[0].detail
    assert "DIAGNOSTICS_SENSITIVE=true" in first.gaps[0].detail


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_in_the_order_of_their_index(seed: int):
    """Records with equal times are sorted by their index, the choice last."""
    c = model("c", 1)
    logs = told(c, *CONVERSATION)
    random.Random(seed).shuffle(logs)

    trajectory = only(c, logs=logs)

    assert brief(trajectory.messages) == SAID
    assert trajectory.gaps == ()


def test_more_than_ten_messages_sort_as_numbers():
    """Index 10 comes after index 9."""
    c = model("c", 1)
    logs = told(c, *(("user.message", {"content": f"q{i}"}) for i in range(12)))

    assert texts(only(c, logs=logs[::-1])) == [f"q{i}" for i in range(12)]


def test_dotnet_writes_span_events():
    """In .NET the same JSON is an attribute of span events; a count of -1 is not known."""
    events = tuple(
        Event(f"gen_ai.{name}", i, {"gen_ai.event.content": json.dumps(body)})
        for i, (name, body) in enumerate(CONVERSATION)
    )
    c = model(
        "c",
        1,
        "chat.completions",
        scope="Microsoft.SemanticKernel.Diagnostics",
        events=events,
        attributes={
            "gen_ai.response.prompt_tokens": 7,
            "gen_ai.response.completion_tokens": -1,
        },
    )

    trajectory = only(c)

    assert brief(trajectory.messages) == SAID
    assert (trajectory.usage.input_tokens, trajectory.usage.output_tokens) == (7, 0)
    assert (trajectory.dialects, trajectory.gaps) == (("semantic-kernel",), ())


def test_the_two_old_events_are_read():
    """Before there were events for messages, a prompt and a completion held them all."""
    prompt = json.dumps([body for name, body in CONVERSATION if name != "choice"])
    events = (
        Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": prompt}),
        Event(
            "gen_ai.content.completion",
            2,
            {"gen_ai.completion": '[{"message": 1, "role": "assistant", "content": "a"}]'},
        ),
    )

    trajectory = only(model("c", 1, "chat.completions", events=events))

    assert brief(trajectory.messages) == SAID
    assert trajectory.gaps == ()


def test_an_old_text_completion_has_a_text():
    """The prompt of a text completion is the user's message."""
    events = (Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": "once upon"}),)

    assert brief(only(model("c", 1, "text.completions", events=events)).messages) == [
        ("user", "once upon")
    ]


@pytest.mark.parametrize("value", ['[{"role:" user, "content:" hi}]', 7, "[]", [None]])
def test_an_old_event_that_cannot_be_read_is_a_gap(value: Any):
    """.NET's old format is not JSON, so it does not become a message."""
    events = (Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": value}),)

    trajectory = only(model("c", 1, "chat.completions", events=events))

    assert (texts(trajectory), codes(trajectory)) == ([None], ["content_unreadable"])


def test_an_old_event_without_its_text_is_content_that_was_not_captured():
    """The gap names the switch that makes Semantic Kernel write it."""
    events = (Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": None}),)

    trajectory = only(model("c", 1, "chat.completions", events=events))

    assert codes(trajectory) == ["content_not_captured"]
    assert "ENABLE_OTEL_DIAGNOSTICS_SENSITIVE" in trajectory.gaps[0].detail


def test_an_old_call_that_failed_says_why():
    """Either form of a call reports the failure."""
    events = (Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": "q"}),)

    trajectory = only(
        model("c", 1, "chat.completions", events=events, status_code=2, status_message="no route")
    )

    assert (texts(trajectory), codes(trajectory)) == (["q"], ["model_call_failed"])


@pytest.mark.parametrize("body", ["", "[", "null", "7", '{"content": 7}', '{"content": null}'])
def test_malformed_bodies_survive(body: str):
    """Whatever a record's body holds, the answer after it is read."""
    c = model("c", 1)

    trajectory = only(c, logs=told(c, ("user.message", body), CONVERSATION[-1]))

    assert trajectory.messages[-1].content == "a"


def test_a_function_without_attributes_is_a_tool():
    """An earlier version's function spans hold a name and whether it failed."""
    c, d = model("c", 2, parent="a"), model("d", 5, parent="a")
    asks = ("choice", {"message": {"tool_calls": [CALL]}})
    scope = "semantic_kernel.functions.kernel_function"
    t = span("t", 4, title="P-look", parent="a", scope=scope, status_code=2, status_message="no")
    logs = told(c, CONVERSATION[1], asks) + told(d, *CONVERSATION[1:])

    trajectory = only(agent("a", 1, scope=SCOPE), c, t, d, logs=logs)

    assert brief(trajectory.messages) == SAID[1:]
    assert trajectory.messages[1].tool_calls[0].span_id == "t"
    assert trajectory.messages[2].is_error
    assert trajectory.gaps == ()


def test_a_failed_call_says_why():
    """A call without an answer keeps its question and names the reason."""
    c = model("c", 1, status_code=2, status_message="no route")

    trajectory = only(c, logs=told(c, CONVERSATION[1]))

    assert (texts(trajectory), codes(trajectory)) == (["q"], ["model_call_failed"])
    assert trajectory.gaps[0].detail.endswith("no route")


def test_an_agent_as_a_function_is_linked():
    """An agent that another calls as a plugin's function runs inside the function's span."""
    c, d = model("c", 2, parent="a"), model("d", 5, parent="b")
    t = tool("t", 3, of="P-look", id="k1", args='{"x":1}', result="a", parent="a", scope=SCOPE)
    inner = agent("b", 4, of="expert", parent="t", scope=SCOPE)
    asks = ("choice", {"message": {"tool_calls": [CALL]}})
    logs = told(c, CONVERSATION[1], asks) + told(d, CONVERSATION[1], CONVERSATION[-1])

    outer, sub = reconstruct([agent("a", 1, scope=SCOPE), c, t, inner, d], logs)

    assert (sub.agent, sub.parent_id, sub.parent_call_id) == ("expert", outer.id, "k1")
