"""Strands Agents: span events of Converse blocks, details events, and attributes alone."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, capture, codes, gives, only, said, span, texts, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories, turns

SCOPE = "strands.telemetry.tracer"
DETAILS = "gen_ai.client.inference.operation.details"
CAPTURES = ("strands_default", "strands_latest", "attributes")


def blocks(*found: dict[str, Any]) -> str:
    return json.dumps(found)


def event(name: str, **attributes: Any) -> Event:
    return Event(f"gen_ai.{name}", 1, attributes)


def chat(name: str, start: int, *events: Event, **fields: Any) -> Span:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.system": "strands-agents"}
    attributes |= fields.pop("attributes", {})
    return span(name, start, scope=SCOPE, events=events, attributes=attributes, **fields)


def tool(name: str, start: int, *events: Event, **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.system": "strands-agents",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "k1",
        **fields.pop("attributes", {}),
    }
    return span(name, start, scope=SCOPE, events=events, attributes=attributes, **fields)


def in_attributes(spans: list[Span]) -> list[Span]:
    """Return spans as with gen_ai_span_attributes_only: what details events hold, in attributes."""
    found = []
    for s in spans:
        attributes = dict(s.attributes)
        for e in s.events:
            attributes |= e.attributes if e.name == DETAILS else {}
        events = tuple(e for e in s.events if e.name != DETAILS)
        found.append(replace(s, attributes=attributes, events=events))
    return found


def form(name: str) -> list[Trajectory]:
    if name != "attributes":
        return trajectories(name)
    spans, _ = capture("strands_latest")
    return reconstruct(in_attributes(spans))


@pytest.mark.parametrize("name", CAPTURES)
def test_each_form_holds_golds_conversation(name: str):
    """The two turns have gold's messages, ids, spans, tokens and the conversation, and no gap."""
    first, second = turns(form(name))

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    for found in (first, second):
        assert (found.gaps, found.dialects, found.agent) == ((), ("strands",), "support_agent")
        assert (found.usage.model_calls, found.usage.cached_tokens) == (2, 16)
        assert [t["name"] for t in found.tools] == [
            "get_weather_tool",
            "lookup_order_tool",
            "ask_weather_agent",
        ]
        assert (found.conversation_id, found.models) == ("conv-001", ("gpt-4o-mini",))
    results = [m for m in second.messages if m.role == "tool"]
    assert [m.content for m in results] == [
        '{"city": "Paris", "temp_c": 21, "sky": "sunny"}',
        '{"city": "Tokyo", "temp_c": 17, "sky": "sunny"}',
        "Error: order 9999 not found",
    ]
    calls = [call for m in second.messages for call in m.tool_calls]
    assert all(call.span_id and call.end_ns > call.start_ns for call in calls)


@pytest.mark.parametrize("name", CAPTURES)
def test_a_sub_agent_is_linked_to_the_call_that_started_it(name: str):
    """Turn 3 asks an agent as a tool; the cycles between are no trajectories."""
    _, _, third, inner = form(name)

    (call,) = third.messages[11].tool_calls
    assert (call.name, call.arguments) == (
        "ask_weather_agent",
        {"query": "weather in Paris and Tokyo?"},
    )
    assert (inner.parent_id, inner.parent_call_id) == (third.id, call.id)
    assert (inner.agent, inner.messages[0].content) == ("weather_agent", "Weather expert.")
    assert [m.role for m in inner.messages] == [m["role"] for m in GOLD[:6]]
    assert (third.gaps, inner.gaps) == ((), ())


def test_blocks_of_every_kind():
    """Reasoning, images and guarded text are kept as parts; cache points are nothing."""
    image = {"image": {"format": "png", "source": {"bytes": "<replaced>"}}}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm"}}}
    call = {"toolUse": {"toolUseId": "k1", "name": "look", "input": {}}}
    found = only(
        chat(
            "c",
            1,
            event("user.message", content=blocks({"text": "see"}, image, {"cachePoint": {}})),
            event("assistant.message", content=blocks(thought, {"text": "wait"}, call)),
            event(
                "tool.message", content=blocks(_gives("success", {"text": "r"}), {"text": "so?"})
            ),
            event("choice", message=blocks({"text": "ok"})),
        )
    )

    assert brief(found.messages) == [
        ("user", "see"),
        ("assistant", [("look", {})]),
        ("tool", "r"),
        ("user", "so?"),
        ("assistant", "ok"),
    ]
    assert found.messages[0].parts == ({"type": "image", **image},)
    assert found.messages[1].parts == ({"type": "reasoning", **thought},)
    assert found.gaps == ()


def _gives(status: str, *content: Any) -> dict[str, Any]:
    return {"toolResult": {"toolUseId": "k1", "status": status, "content": list(content)}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"text": "a"}, {"text": "b"}], "a\nb"),
        ([{"json": {"x": 1}}], '{"x":1}'),
        ([{"text": "a"}, {"json": [1]}], "a\n[1]"),
        ([{"text": "a"}, {"image": {}}], "a"),
        ([], "[]"),
        ([5], "[5]"),
        (None, None),
    ],
)
def test_results_are_texts_where_they_are_only_that(content: Any, text: str | None):
    """One text or value stands for itself, several are joined, and an image is a part."""
    result = {"toolResult": {"toolUseId": "k1", "status": "error", "content": content}}
    call = {"toolUse": {"toolUseId": "k1", "name": "look", "input": {"x": 1}}}

    found = only(
        chat(
            "c",
            1,
            event("user.message", content="q"),
            event("assistant.message", content=blocks(call)),
            event("tool.message", content=blocks(result)),
            event("choice", message=blocks({"text": "ok"})),
        )
    )

    assert brief(found.messages)[0] == ("user", "q")
    assert (found.messages[2].content, found.messages[2].is_error) == (text, True)


@pytest.mark.parametrize("key", ["gen_ai.tool.status", "tool.status"])
def test_a_tools_status_tells_its_error(key: str):
    """A run whose status attribute says error is one, whatever the span's own status."""
    _, result = only(
        tool(
            "t",
            1,
            event("tool.message", content='{"x": 1}', id="k1"),
            event("choice", message=blocks({"text": "no"}), id="k1"),
            attributes={key: "error"},
        )
    ).messages

    assert (result.content, result.is_error) == ("no", True)


def test_a_failure_under_the_latest_conventions_has_its_text():
    """The result attribute is left out of a failed run; the details event has what it said."""
    output = json.dumps([gives([{"text": "no"}], "k1")])
    attributes = {
        "gen_ai.tool.call.arguments": '{"x": 1}',
        "gen_ai.provider.name": "strands-agents",
    }
    details = Event(DETAILS, 1, {"gen_ai.output.messages": output})

    call, result = only(tool("t", 1, details, status_code=2, attributes=attributes)).messages
    _, bare = only(tool("t", 1, status_code=2, attributes=attributes)).messages

    assert call.tool_calls[0].arguments == {"x": 1}
    assert (result.content, result.is_error) == ("no", True)
    assert (bare.content, bare.is_error) == ("Error: no reason is given", True)


def test_without_events_the_settings_are_named():
    """A backend that drops span events leaves the structure, and the gap says what to set."""
    spans, _ = capture("strands_default")

    first, second = turns(reconstruct([replace(s, events=()) for s in spans]))

    calls = [call for m in second.messages for call in m.tool_calls]
    assert [(c.name, c.arguments) for c in calls] == [
        ("get_weather_tool", None),
        ("get_weather_tool", None),
        ("lookup_order_tool", None),
    ]
    assert [m.is_error for m in second.messages if m.role == "tool"] == [False, False, True]
    for found in (first, second):
        assert set(codes(found)) == {"content_not_captured"}
        assert "gen_ai_span_attributes_only" in found.gaps[0].detail


def test_redacted_content_names_the_token():
    """Placeholders in events, attributes and a tool's arguments are gaps, never texts."""
    hidden = "[REDACTED]"
    found = only(
        agent("a", 1, scope=SCOPE, end=9),
        chat(
            "c",
            2,
            event("user.message", content=hidden),
            event("choice", message=blocks({"toolUse": {"toolUseId": "k1", "name": "look"}})),
            parent="a",
        ),
        tool(
            "t",
            4,
            event("tool.message", content=hidden, id="k1"),
            event("choice", message=hidden, id="k1"),
            parent="a",
        ),
    )

    assert texts(found) == [None, None, None]
    assert set(codes(found)) == {"redacted"}
    assert {gap.span_id for gap in found.gaps} == {"c", "t"}
    assert "gen_ai_unredacted_attributes" in found.gaps[0].detail


def test_dropped_events_are_told():
    """A span that lost events holds only the end of its history, and says so."""
    found = only(
        chat(
            "c",
            1,
            event("user.message", content=blocks({"text": "q"})),
            event("choice", message=blocks({"text": "a"})),
            dropped_events=3,
        )
    )

    assert texts(found) == ["q", "a"]
    assert codes(found) == ["content_unreadable"]
    assert "OTEL_SPAN_EVENT_COUNT_LIMIT" in found.gaps[0].detail


def test_cut_events_are_told():
    """An event whose JSON was cut is a gap, and what precedes the cut is kept."""
    content = blocks({"text": "q"}, {"text": "rest"})

    found = only(
        chat(
            "c",
            1,
            event("user.message", content=content[:-6]),
            event("choice", message=blocks({"text": "a"})),
        )
    )

    assert texts(found) == ["q", "a"]
    assert codes(found) == ["content_truncated"]


def test_an_agent_alone_tells_what_it_was_asked_and_answered():
    """Without model calls, an agent's events are its conversation."""
    attributes = {"gen_ai.system": "strands-agents", "gen_ai.agent.tools": '["a", 5]'}
    found = only(
        agent(
            "a",
            1,
            attributes=attributes,
            events=(
                event("system.message", content=blocks({"text": "s"})),
                event("user.message", content=blocks({"text": "q"})),
                event("choice", message="plain text\n"),
            ),
        )
    )

    assert texts(found) == ["s", "q", "plain text\n"]
    assert found.tools == ({"type": "function", "name": "a"},)
    assert (found.dialects, codes(found)) == (("strands",), ["no_model_spans"])


@pytest.mark.parametrize("kind", ["span", "agent", "generation"])
def test_marks_for_langfuse_do_not_change_the_reading(kind: str):
    """With Langfuse as its backend, Strands marks its spans; they are still its own."""
    marked = chat(
        "c",
        1,
        event("user.message", content=blocks({"text": "q"})),
        event("choice", message=blocks({"text": "a"})),
        attributes={"langfuse.observation.type": kind},
    )

    assert (only(marked).dialects, texts(only(marked))) == (("strands",), ["q", "a"])


def test_the_typescript_sdk_is_known_by_its_times():
    """Where scope and provider are the service's name, the times of a span's events tell."""
    attributes = {"gen_ai.system": "shop", "gen_ai.event.start_time": "2026-01-01T00:00:00.000Z"}
    events = (
        event("user.message", content=blocks({"text": "q"})),
        event("choice", message=blocks({"text": "a"})),
    )

    found = only(replace(chat("c", 1, *events, attributes=attributes), scope="shop"))

    assert (found.dialects, texts(found)) == (("strands",), ["q", "a"])


def test_spans_rewritten_for_openinference_are_left_to_it():
    """Spans that a processor gave OpenInference's attributes are read as such."""
    moved = {"openinference.span.kind": "LLM", "input.value": "q"}
    rewritten = chat("c", 1, attributes=moved)

    assert only(rewritten).dialects == ("openinference",)


def test_swarms_and_graphs_only_hold_agents():
    """The span of a multi-agent is no trajectory."""
    swarm = span("s", 1, scope=SCOPE, end=9, attributes={"gen_ai.operation.name": "invoke_swarm"})
    calls = [
        (
            agent(f"a{i}", i, of=f"agent{i}", scope=SCOPE, parent="s"),
            chat(
                f"c{i}",
                i,
                event("user.message", content=blocks({"text": f"q{i}"})),
                event("choice", message=blocks({"text": f"a{i}"})),
                parent=f"a{i}",
            ),
        )
        for i in (2, 4)
    ]

    found = reconstruct([swarm, *(s for pair in calls for s in pair)])

    assert [(t.agent, texts(t)) for t in found] == [
        ("agent2", ["q2", "a2"]),
        ("agent4", ["q4", "a4"]),
    ]


@pytest.mark.parametrize("odd", [None, 5, "", "[", "[5]", "{}", '[{"text": null}]', [1], {"a": 1}])
def test_odd_values_never_raise(odd: Any):
    """Whatever the events and attributes hold, the spans are read."""
    names = ("system.message", "user.message", "assistant.message", "tool.message", "choice")
    events = tuple(event(name, content=odd, message=odd) for name in names)
    odd_blocks = tuple(
        event(name, content=[{key: odd}], message=[{key: odd}])
        for name in names
        for key in ("toolUse", "toolResult", "text", "json")
    )
    keys = ("gen_ai.input.messages", "gen_ai.tool.definitions", "gen_ai.agent.tools")
    attributes = dict.fromkeys(keys, odd)
    for operation in ("chat", "execute_tool", "invoke_agent", "execute_event_loop_cycle"):
        for some in (events, odd_blocks, ()):
            fields = {**attributes, "gen_ai.operation.name": operation}

            for found in reconstruct([chat("c", 1, *some, attributes=fields)]):
                assert not any(gap.code == "internal_error" for gap in found.gaps)


def test_the_latest_form_and_the_default_tell_the_same():
    """One conversation in both forms gives equal messages."""
    call = {"toolUse": {"toolUseId": "k1", "name": "look", "input": {"x": 1}}}
    old = chat(
        "c",
        1,
        event("user.message", content=blocks({"text": "q"})),
        event("assistant.message", content=blocks(call)),
        event("tool.message", content=blocks(_gives("success", {"text": "r"}))),
        event("choice", message=blocks({"text": "a"})),
    )
    sent = [user("q"), asks(("look", {"x": 1}, "k1")), gives([{"text": "r"}], "k1")]
    new = chat(
        "c",
        1,
        Event(DETAILS, 1, {"gen_ai.input.messages": json.dumps(sent)}),
        Event(DETAILS, 1, {"gen_ai.output.messages": json.dumps([said("a")])}),
    )

    assert only(old).messages == only(new).messages
