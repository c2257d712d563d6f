"""Microsoft Agent Framework: the capture, and what its Python and .NET versions write otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Event, LogRecord, Message, Span
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, chat, codes, gives, only, said, span, texts, tool, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

NAME, SCOPE = "ms_agent_framework", "agent_framework"
LOOK = asks(("look", '{"x": 1}', "k1"))


def with_the_error(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages with gold's error where the framework tells the model less."""
    told = "Error: Function failed."
    return tuple(
        replace(m, content="Error: order 9999 not found") if m.content == told else m
        for m in messages
    )


def logged(of: Span, *bodies: tuple[str, Any]) -> list[LogRecord]:
    return [
        LogRecord(of.trace_id, of.span_id, i + 1, 0, f"gen_ai.{name}", body=body)
        for i, (name, body) in enumerate(bodies)
    ]


def test_the_capture_holds_golds_conversation():
    """Two turns and a third that delegates, without gaps, each message once."""
    first, second, third, inner = trajectories(NAME)

    assert_gold(first.messages, GOLD[:6])
    assert_gold(with_the_error(second.messages), GOLD)
    assert_joined(third.messages)
    assert [t.turn for t in (first, second, third)] == [1, 2, 3]
    assert (second.history, third.history) == (first, second)
    for found in (first, second, third, inner):
        assert (found.gaps, found.dialects) == ((), ("agent-framework",))
        assert found.models == ("gpt-4o-mini-2026-01-01",)
        assert found.usage.model_calls == 2
    assert first.usage.cached_tokens == 16
    assert [t["name"] for t in first.tools] == [
        "get_weather_tool",
        "lookup_order_tool",
        "ask_weather_agent",
    ]


def test_a_subagent_is_linked_to_the_call_that_started_it():
    """Turn 3 asks an agent as a tool: it is a trajectory of its own, with its own prompt."""
    *_, third, inner = trajectories(NAME)

    (call,) = third.own_messages[1].tool_calls
    assert (call.name, call.arguments) == (
        "ask_weather_agent",
        {"task": "weather in Paris and Tokyo?"},
    )
    assert (inner.parent_id, inner.parent_call_id) == (third.id, call.id)
    assert (inner.agent, inner.messages[0].content) == ("weather_agent", "Weather expert.")
    assert inner.messages[-1].content == third.own_messages[2].content


def test_the_log_records_stand_in_for_content_that_was_cut():
    """A back end that cuts attributes leaves the records whole: nothing is missing then."""
    sent = json.dumps([user("q" * 50), LOOK, gives("r", "k1")])
    cut = {
        "gen_ai.input.messages": sent[:60],
        "gen_ai.output.messages": '[{"role": "assista',
        "gen_ai.system_instructions": '[{"type": "text", "content": "s"}]',
    }
    call = {"id": "k1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    c = chat("c", 1, scope=SCOPE, attributes=cut)
    logs = logged(
        c,
        ("user.message", {"content": "q" * 50}),
        ("assistant.message", {"tool_calls": [call]}),
        ("tool.message", {"id": "k1", "content": "r"}),
        ("choice", {"index": 0, "message": {"content": "a"}}),
        ("choice", {"index": 1, "message": {"content": "b"}}),
    )

    found = only(c, logs=logs)

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q" * 50),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert found.gaps == ()
    assert set(codes(only(c))) == {"content_truncated"}


def test_log_records_in_the_form_of_parts_are_read():
    """An earlier version's records hold parts, and are read where the attributes are not there."""
    c = chat("c", 1, scope=SCOPE)
    logs = logged(c, ("system.message", {"role": "system", "parts": user("s")["parts"]}))
    logs += logged(c, ("user.message", user("q")), ("choice", json.dumps(LOOK)))

    found = only(c, logs=logs)

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
    ]
    assert codes(found) == ["missing_tool_result"]


def test_without_sensitive_data_the_switch_is_named():
    """Structure, ids and errors are had; the gap names the setting of Python and of .NET."""
    failed = {"error.type": "ValueError"}
    t = tool("t", 3, of="look", id="k1", parent="a", scope=SCOPE)
    t = replace(t, attributes={**t.attributes, **failed}, status_code=2, status_message="no")
    found = only(agent("a", 1, scope=SCOPE), chat("c", 2, parent="a", scope=SCOPE), t)

    assert brief(found.messages) == [("assistant", [("look", None)]), ("tool", "Error: no")]
    assert found.messages[1].is_error
    assert set(codes(found)) == {"content_not_captured"}
    for gap in found.gaps:
        assert "ENABLE_SENSITIVE_DATA=true" in gap.detail
        assert "EnableSensitiveData" in gap.detail


def turn(name: str, start: int, *, sent: list[Any], got: list[Any], session: str = "") -> Span:
    attributes = {
        "gen_ai.input.messages": json.dumps(sent),
        "gen_ai.output.messages": json.dumps(got),
        "gen_ai.system_instructions": '[{"type": "text", "content": "s"}]',
    }
    return agent(
        name,
        start,
        scope=SCOPE,
        trace=name * 32,
        end=start + 9,
        session=session,
        attributes=attributes,
    )


def test_an_agent_without_model_spans_tells_its_turn_by_itself():
    """The agent's span holds the turn's messages; equal turns of a conversation stay apart."""
    got = [LOOK, gives("r", "k1"), said("hello")]
    spans = [
        turn("a", 1, sent=[user("hi")], got=got, session="s"),
        tool("t", 2, id="k1", trace="a" * 32, parent="a", scope=SCOPE, args='{"x": 1}', result="r"),
        turn("b", 20, sent=[user("hi")], got=got, session="s"),
    ]

    first, second = reconstruct(spans)

    assert brief(first.messages) == [
        ("system", "s"),
        ("user", "hi"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "hello"),
    ]
    assert first.messages[2].tool_calls[0].span_id == "t"
    assert brief(second.own_messages) == brief(first.messages)[1:]
    assert (second.turn, second.history, len(second.messages)) == (2, first, 9)
    assert codes(first) == ["no_model_spans"]


def test_a_caller_that_keeps_the_conversation_passes_it_in():
    """What the agent is given up to its last answer was said before the run."""
    sent = [user("q"), said("a"), user("more")]

    (found,) = reconstruct([turn("a", 1, sent=sent, got=[said("b")])])

    assert texts(found) == ["s", "q", "a", "more", "b"]
    assert (found.turn, [m.content for m in found.own_messages]) == (2, ["more", "b"])


@pytest.mark.parametrize("key", ["gen_ai.input.messages", "gen_ai.output.messages"])
@pytest.mark.parametrize("value", [None, 7, "", "[", "__REDACTED__", "[5]", [None], {"a": 1}])
def test_malformed_content_of_an_agent_survives(key: str, value: Any):
    """Whatever stands where messages are expected, there is a trajectory."""
    a = turn("a", 1, sent=[user("q")], got=[said("b")])
    c = chat("c", 2, parent="a", trace="a" * 32, scope=SCOPE, attributes={key: value})

    found = only(replace(a, attributes={**a.attributes, key: value}), c)

    assert found.agent == "helper"
    assert found.gaps != ()


def test_what_has_no_id_or_model_is_not_called_unknown():
    """The framework's "unknown" is no call id and no model."""
    attributes = {"gen_ai.request.model": "unknown"}
    found = only(
        agent("a", 1, scope=SCOPE),
        chat("c", 2, [user("q")], LOOK, parent="a", scope=SCOPE, attributes=attributes),
        tool("t", 3, id="unknown", parent="a", scope=SCOPE, args='{"x": 1}', result="r"),
        tool("u", 4, id="unknown", parent="a", scope=SCOPE, args='{"x": 2}', result="z"),
    )

    assert found.models == ()
    assert [m.content for m in found.messages if m.role == "tool"] == ["r", "z"]
    assert {call.id for m in found.messages for call in m.tool_calls} == {"k1", ""}


def test_tools_without_ids_have_none():
    """Calls that are known by their tools' spans alone do not share the id "unknown"."""
    found = only(
        agent("a", 1, scope=SCOPE),
        tool("t", 2, id="unknown", parent="a", scope=SCOPE, args="{}", result="r"),
    )

    assert (found.messages[0].tool_calls[0].id, found.messages[1].tool_call_id) == ("", "")


def test_an_agents_account_that_was_cut_is_no_transcript():
    """Without model spans, messages that are not all there are not taken for all."""
    whole = turn("a", 1, sent=[user("q")], got=[LOOK, gives("r", "k1"), said("done")])
    text = whole.attributes["gen_ai.output.messages"]

    found = only(
        replace(whole, attributes={**whole.attributes, "gen_ai.output.messages": text[:-5]})
    )

    assert brief(found.messages) == [("system", "s"), ("user", "q")]
    assert "no_model_spans" in codes(found)


def test_a_workflow_holds_its_agents():
    """The spans of a workflow and its executors are no agents; the build of one is no run."""
    marks: dict[str, Any] = {"scope": SCOPE}
    runs = reconstruct(
        [
            span("w", 1, title="workflow.run", attributes={"workflow.id": "w"}, **marks),
            span("e", 2, title="executor.process writer", parent="w", **marks),
            agent("a", 3, of="writer", parent="e", **marks),
            chat("c", 4, [user("q")], said("x"), parent="a", **marks),
            span("m", 5, title="message.send", parent="w", events=(Event("sent", 5, {}),), **marks),
            agent("b", 6, of="editor", parent="w", **marks),
            chat("d", 7, [user("x")], said("y"), parent="b", **marks),
        ]
    )
    built = reconstruct([span("w", 1, title="workflow.build", **marks)])

    assert [(t.agent, t.parent_id) for t in runs] == [("writer", ""), ("editor", "")]
    assert built == []


def test_dotnet_is_read_alike():
    """The .NET agents' source follows the same conventions."""
    scope = "Experimental.Microsoft.Agents.AI"
    found = only(
        agent("a", 1, scope=scope), chat("c", 2, [user("q")], said("x"), parent="a", scope=scope)
    )

    assert (texts(found), found.dialects) == (["q", "x"], ("agent-framework",))


def test_an_answers_id_is_no_conversation():
    """With a client that stores responses, the conversation's id is that of the last answer."""
    said_a = {"role": "assistant", "parts": [{"type": "text", "content": "a"}]}
    first = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    spans = [
        chat(
            name,
            start,
            sent,
            said_a,
            session=f"resp-{name}",
            scope="agent_framework",
            trace=name * 32,
            attributes={"gen_ai.response.id": f"resp-{name}"},
        )
        for name, start, sent in (("a", 1, first), ("b", 5, [*first, said_a, *first]))
    ]
    found = reconstruct(spans[::-1])

    assert [(t.turn, t.conversation_id) for t in found] == [(1, ""), (2, "")]


def test_a_conversation_may_be_named_by_its_first_answer():
    """An id that spans without that answer have as well is the conversation's, in every turn."""
    spans = []
    for number, trace in ((1, "a" * 32), (2, "b" * 32)):
        start, named = number * 10, {"session": "resp-1", "trace": trace}
        answered = {"gen_ai.response.id": f"resp-{number}"}
        spans += [
            agent(f"{trace[0]}1", start, **named),
            chat(
                f"{trace[0]}2", start + 1, [user("q")], said("a"),
                parent=f"{trace[0]}1", attributes=answered, **named,
            ),
        ]  # fmt: skip

    assert [one.conversation_id for one in reconstruct(spans)] == ["resp-1", "resp-1"]
