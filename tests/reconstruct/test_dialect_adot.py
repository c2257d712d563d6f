"""AWS's distribution: content in log records, its order rebuilt."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from oteval.model import LogRecord, Span
from oteval.reconstruct import reconstruct

from .builders import agent, brief, capture, codes, only, span, texts
from .test_captures import GOLD, assert_gold, assert_joined, trajectories, turns

NAME = "adot_agentcore_strands"
SCOPE = "strands.telemetry.tracer"


def operation(name: str, start: int, of: str = "chat", **fields: Any) -> Span:
    attributes = {"gen_ai.operation.name": of, "gen_ai.system": "strands-agents"}
    scope = fields.pop("scope", SCOPE)
    attributes |= fields.pop("attributes", {})
    return span(name, start, scope=scope, attributes=attributes, **fields)


def record(of: Span, sent: Any, got: Any) -> LogRecord:
    body = {"input": {"messages": sent}, "output": {"messages": got}}
    return LogRecord(of.trace_id, of.span_id, of.start_ns, 0, of.scope, body=body)


def message(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "content": {"content": json.dumps(blocks)}}


def answer(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"message": json.dumps(blocks), "finish_reason": "x"}}


def text(said: str) -> dict[str, Any]:
    return {"text": said}


def use(id_: str, n: int) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": id_, "name": "look", "input": {"n": n}}}


def result(id_: str, said: str) -> dict[str, Any]:
    content = [{"text": said}]
    return {"toolResult": {"toolUseId": id_, "status": "success", "content": content}}


def test_the_capture_holds_golds_conversation():
    """The two turns have gold's messages in order, with ids, spans and tokens, and no gap."""
    first, second = turns(trajectories(NAME))

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    for found in (first, second):
        assert (found.gaps, found.dialects, found.agent) == ((), ("adot",), "support_agent")
        assert (found.usage.model_calls, found.usage.cached_tokens) == (2, 16)
        assert (found.conversation_id, len(found.tools)) == ("conv-001", 3)
    calls = [call for m in second.messages for call in m.tool_calls]
    assert all(call.span_id and call.end_ns > call.start_ns for call in calls)


def test_a_sub_agent_is_linked_to_the_call_that_started_it():
    """Turn 3 asks an agent as a tool, whose history is its own."""
    _, _, third, inner = trajectories(NAME)

    (call,) = third.messages[11].tool_calls
    assert (inner.parent_id, inner.parent_call_id) == (third.id, call.id)
    assert (inner.agent, inner.messages[0].content) == ("weather_agent", "Weather expert.")
    assert [m.role for m in inner.messages] == [m["role"] for m in GOLD[:6]]
    assert (third.gaps, inner.gaps) == ((), ())


def test_a_later_turn_that_arrives_alone_has_what_the_records_keep():
    """Of what was said before, only the last answer is in the records; the turn itself is whole."""
    spans, logs = capture(NAME)
    whole = turns(trajectories(NAME))[1]

    alone = reconstruct([s for s in spans if s.trace_id in whole.trace_ids], logs)[0]

    assert [m.role for m in alone.messages[:2]] == ["system", "assistant"]
    assert (alone.own_messages, alone.gaps) == (whole.own_messages, ())


def test_without_the_records_the_structure_is_had():
    """Spans alone keep calls, ids and errors, and the gap says to load the log records."""
    spans, _ = capture(NAME)

    _, second = turns(reconstruct(spans))

    calls = [call for m in second.messages for call in m.tool_calls]
    assert [(c.name, c.arguments) for c in calls] == [
        ("get_weather_tool", None),
        ("get_weather_tool", None),
        ("lookup_order_tool", None),
    ]
    assert [m.is_error for m in second.messages if m.role == "tool"] == [False, False, True]
    assert set(codes(second)) == {"content_not_captured"}
    assert "load the log records" in second.gaps[0].detail


def test_several_rounds_of_tools_in_one_turn_are_one_conversation():
    """Each record keeps the last call and result only; the calls before them are not lost."""
    a = agent("a", 1, scope=SCOPE, end=99)
    first, second, third = (operation(f"c{i}", i * 10, parent="a") for i in (1, 2, 3))
    asked = message("user", text("q"))
    logs = [
        record(first, [asked], [answer(use("k1", 1))]),
        record(
            second,
            [asked, message("tool", result("k1", "r1"))],
            [message("assistant", use("k1", 1)), answer(use("k2", 2))],
        ),
        record(
            third,
            [asked, message("tool", result("k2", "r2"))],
            [message("assistant", use("k2", 2)), answer(text("done"))],
        ),
    ]

    found = only(a, first, second, third, logs=logs)

    assert brief(found.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"n": 1})]),
        ("tool", "r1"),
        ("assistant", [("look", {"n": 2})]),
        ("tool", "r2"),
        ("assistant", "done"),
    ]
    assert (found.gaps, found.rewrites) == ((), ())


def test_a_whole_history_is_put_in_order_by_the_tools_ids():
    """Where a record keeps all messages, results go to their calls and users after answers."""
    c = operation("c", 1)
    sent = [
        message("system", text("s")),
        message("user", text("q1")),
        message("tool", result("k", "r1")),
        message("user", text("q2")),
        message("tool", result("k", "r2")),
    ]
    got = [
        message("assistant", use("k", 1)),
        message("assistant", text("a1")),
        message("assistant", use("k", 2)),
        answer(text("a2")),
    ]

    found = only(c, logs=[record(c, sent, got)])

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q1"),
        ("assistant", [("look", {"n": 1})]),
        ("tool", "r1"),
        ("assistant", "a1"),
        ("user", "q2"),
        ("assistant", [("look", {"n": 2})]),
        ("tool", "r2"),
        ("assistant", "a2"),
    ]


def test_a_stale_result_of_a_turn_before_is_left_out():
    """A result that answers no call beside it is from before the window, and is no message."""
    c = operation("c", 1)
    sent = [message("user", text("q2")), message("tool", result("k0", "old"))]
    got = [message("assistant", text("a1")), answer(text("a2"))]

    found = only(c, logs=[record(c, sent, got)])

    assert brief(found.messages) == [("assistant", "a1"), ("user", "q2"), ("assistant", "a2")]


def test_other_instrumentations_leave_calls_to_the_tools_spans():
    """Plain texts are read; calls that no record holds come from the tools' spans."""
    kind = "openinference.span.kind"
    scope = "openinference.instrumentation.langchain"
    a = span("a", 1, scope=scope, attributes={kind: "AGENT", "agent.name": "x"}, end=99)
    c = span("c", 2, scope=scope, attributes={kind: "LLM"}, parent="a")
    t = span("t", 5, scope=scope, attributes={kind: "TOOL", "tool.name": "look"}, parent="a")
    d = span("d", 8, scope=scope, attributes={kind: "LLM"}, parent="a")
    chain = span("e", 7, scope=scope, attributes={kind: "CHAIN"}, parent="a")
    asked = [{"role": "user", "content": "q"}]
    logs = [
        record(c, asked, [{"role": "assistant", "content": ""}]),
        record(
            t, [{"role": "user", "content": '{"x": 1}'}], [{"role": "assistant", "content": "r"}]
        ),
        record(d, asked, [{"role": "assistant", "content": "done"}]),
        record(chain, asked, []),
    ]

    found = only(a, c, t, chain, d, logs=logs)

    assert (found.agent, found.dialects) == ("x", ("openinference", "adot"))
    assert brief(found.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "done"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_arrival_does_not_matter(seed: int):
    """Spans and log records in any order give equal trajectories."""
    spans, logs = capture(NAME)
    whole = reconstruct(spans, logs)

    random.Random(seed).shuffle(spans)
    random.Random(seed).shuffle(logs)

    assert reconstruct(spans, logs) == whole


def test_a_span_that_no_operation_tells_of_is_left_to_others():
    """A record beside a span of an unknown kind does not hide what the span itself holds."""
    request = {"contents": [{"role": "user", "parts": [{"text": "q"}]}]}
    attributes = {"gcp.vertex.agent.llm_request": json.dumps(request)}
    c = span("c", 1, scope="gcp.vertex.agent", title="call_llm", attributes=attributes)

    found = only(c, logs=[record(c, [message("user", text("other"))], [])])

    assert (found.dialects, texts(found)) == (("google-adk",), ["q"])


def test_placeholders_and_cuts_are_gaps():
    """Redacted values are never texts, and a body that was cut says so."""
    hidden = {"role": "tool", "content": {"content": "[REDACTED]", "id": "k1"}}
    t = operation("t", 1, "execute_tool", attributes={"gen_ai.tool.name": "look"})
    c = operation("c", 1)
    cut = {"role": "user", "content": {"content": '[{"text": "q"}, {"text": "re'}}

    redacted = only(t, logs=[record(t, [hidden], [])])
    truncated = only(c, logs=[record(c, [cut], [answer(text("a"))])])

    assert redacted.messages[0].tool_calls[0].arguments is None
    assert "redacted" in codes(redacted)
    assert texts(truncated) == ["q", "a"]
    assert codes(truncated) == ["content_truncated"]


def test_a_record_without_messages_is_unreadable():
    """A record that is there and tells nothing is a gap, not an empty conversation."""
    c = operation("c", 1)

    found = only(c, logs=[record(c, [{"role": "user", "content": {"other": 1}}], [])])

    assert codes(found) == ["content_unreadable"]


@pytest.mark.parametrize("odd", [None, 5, "", "[", [5], [[]], {}, {"role": 5}, [{"content": [5]}]])
def test_odd_records_never_raise(odd: Any):
    """Whatever a record's body holds, the spans are read."""
    for of in ("chat", "execute_tool", "invoke_agent", "execute_event_loop_cycle"):
        s = operation("s", 1, of)
        bodies = [
            {"input": odd, "output": {"messages": odd}},
            {"input": {"messages": odd}},
            {"input": {"messages": [{"role": odd, "content": odd}]}},
            {"output": {"messages": [{"role": odd, "content": {"message": odd}}]}},
            odd,
        ]
        logs = [LogRecord(s.trace_id, s.span_id, i, body=body) for i, body in enumerate(bodies)]

        for found in reconstruct([s], logs):
            assert not any(gap.code == "internal_error" for gap in found.gaps)
