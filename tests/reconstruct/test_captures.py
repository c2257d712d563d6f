from __future__ import annotations

import json
import random
from typing import Any

import pytest

from oteval.model import Message, Trajectory
from oteval.reconstruct import explain, reconstruct

from .builders import CAPTURES, NAMES, capture, codes

GOLD = json.loads((CAPTURES / "gold.json").read_text())["messages"]
OWN_FROM = (0, 6)  # where each of gold's turns begins

CLIENTS = {
    "genai_openai_chat": "genai",
    "genai_openai_chat_eventonly": "genai",
    "v2_legacy_chat": "genai-events",
    "openinference_chat": "openinference",
    "openinference_responses": "openinference",
    "traceloop_chat": "traceloop",
    "traceloop_responses": "traceloop",
    "traceloop_old_chat": "traceloop",
}
FRAMEWORKS = {
    "pydantic_ai_v5": "pydantic-ai",
    "pydantic_ai_1_0_v1_attributes": "pydantic-ai",
    "pydantic_ai_1_0_v1_logs": "pydantic-ai",
    "langgraph_genai": "genai",
    "langgraph_openinference": "openinference",
    "openai_agents_openinference": "openinference",
}
TWO_TURNS = {**CLIENTS, **FRAMEWORKS}
HOLED = (
    "genai_openai_chat_nocontent",
    "openinference_hidden",
    "genai_truncated_250",
    "openinference_attrcount_28",
    "httpx_only",
)
TURNS_ARE_TRACES = [name for name in TWO_TURNS if name != "openai_agents_openinference"]
# Of these the results in the messages are all there is; the others' tools have spans.
WITHOUT_TOOL_SPANS = ("v2_legacy_chat", "genai_openai_responses_prev_id")


def trajectories(name: str) -> list[Trajectory]:
    return reconstruct(*capture(name))


def turns(found: list[Trajectory]) -> list[Trajectory]:
    """Return the two turns that gold has."""
    return [t for t in found if t.parent_id == "" and t.messages[-1].role == "assistant"][:2]


def fields(text: str | None) -> Any:
    try:
        return json.loads(text or "")
    except ValueError:
        return text


def assert_same_result(found: Message, gold: dict[str, Any]) -> None:
    """Hold a result against gold: each field that the capture's encoding has."""
    assert found.is_error == gold.get("is_error", False)
    wanted, actual = fields(gold["content"]), fields(found.content)
    if isinstance(wanted, dict):
        assert actual == {key: wanted[key] for key in actual}
        assert {"city", "temp_c"} <= set(actual)
    elif "An error occurred while running the tool" not in actual:
        assert "order 9999 not found" in actual


def assert_gold(messages: tuple[Message, ...], gold: list[dict[str, Any]]) -> None:
    assert [m.role for m in messages] == [m["role"] for m in gold]
    for found, wanted in zip(messages, gold, strict=True):
        calls = [c["function"] for c in wanted.get("tool_calls", ())]
        assert len(found.tool_calls) == len(calls)
        for call, function in zip(found.tool_calls, calls, strict=True):
            assert call.name in (function["name"] + end for end in ("", "_", "_tool"))
            assert call.arguments == json.loads(function["arguments"])
        if found.role == "tool":
            assert_same_result(found, wanted)
        elif found.content is None:
            assert wanted["content"] is None
        elif "{...}" in wanted["content"]:
            assert found.content.startswith("Done. Tool said: ")
        else:
            assert found.content == wanted["content"]


def assert_joined(messages: tuple[Message, ...]) -> None:
    """Hold that each result carries the id of a call of the message before it, in order."""
    waiting: list[str] = []
    for message in messages:
        if message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
            assert all(waiting)
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0)
    assert waiting == []


@pytest.mark.parametrize("name", TWO_TURNS)
def test_each_capture_holds_golds_conversation(name: str):
    """Whatever the dialect, the two turns have gold's roles, calls, arguments and results."""
    first, second = turns(trajectories(name))

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)


@pytest.mark.parametrize("name", TWO_TURNS)
def test_turns_are_numbered_and_know_where_they_begin(name: str):
    """Turn 2 follows turn 1, holds its messages by reference and begins where they end."""
    first, second = turns(trajectories(name))

    assert (first.turn, first.new_from, first.history) == (1, 0, None)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert second.own_messages == second.tail == second.messages[6:]


@pytest.mark.parametrize("name", TWO_TURNS)
def test_nothing_is_missing_where_all_was_captured(name: str):
    """A whole capture has no gap, one dialect, and the models and tokens of its two calls."""
    found = turns(trajectories(name))

    for trajectory in found:
        assert trajectory.gaps == ()
        assert trajectory.dialects == (TWO_TURNS[name],)
        assert trajectory.models == ("gpt-4o-mini-2026-01-01",)
        assert trajectory.usage.model_calls == 2
        assert trajectory.usage.input_tokens > 0
        assert trajectory.usage.output_tokens > 0


@pytest.mark.parametrize("name", [*TWO_TURNS, "genai_openai_responses_prev_id"])
def test_results_carry_the_ids_of_their_calls(name: str):
    """A call and its result share an id in every capture that has ids."""
    assert_joined(turns(trajectories(name))[-1].messages)


@pytest.mark.parametrize("name", NAMES)
def test_every_message_knows_its_span(name: str):
    """Each message names a span of the capture, and that span's trace."""
    spans, logs = capture(name)
    known = {(s.trace_id, s.span_id) for s in spans}

    found = [m for t in reconstruct(spans, logs) for m in t.messages]

    assert {(m.trace_id, m.span_id) for m in found} <= known


@pytest.mark.parametrize("name", [n for n in TWO_TURNS if n not in WITHOUT_TOOL_SPANS])
def test_calls_carry_the_times_of_their_tools_spans(name: str):
    """Every call names a tool's span of the capture, with that span's times, and its result too."""
    spans, logs = capture(name)
    by_id = {s.span_id: s for s in spans}

    messages = turns(reconstruct(spans, logs))[-1].messages

    calls = [call for m in messages for call in m.tool_calls]
    assert len({call.span_id for call in calls}) == 3
    for call in calls:
        ran = by_id[call.span_id]
        assert (call.start_ns, call.end_ns) == (ran.start_ns, ran.end_ns)
    assert [m.span_id for m in messages if m.role == "tool"] == [c.span_id for c in calls]


def test_a_provider_that_keeps_the_history_gives_one_conversation():
    """Calls that send only what is new still join into the whole conversation."""
    (found,) = trajectories("genai_openai_responses_prev_id")

    assert_gold(found.messages[:9], GOLD[:9])
    assert found.messages[9].content == "Done. Tool said: Error: order 9999 not found"
    assert found.usage.model_calls == 4


@pytest.mark.parametrize("name", CLIENTS)
def test_a_failing_model_call_says_so(name: str):
    """The last call, whose connection fails, keeps its question and names the reason."""
    last = trajectories(name)[-1]

    assert (last.own_messages[0].role, last.own_messages[0].content) == ("user", "hi")
    assert len(last.own_messages) == 1
    assert codes(last) == ["model_call_failed"]
    assert last.gaps[0].detail == "the model call failed: Connection error."


@pytest.mark.parametrize("name", ["traceloop_chat", "traceloop_responses", "traceloop_old_chat"])
def test_a_failing_call_with_a_conversation_id_is_its_next_turn(name: str):
    """Traceloop's association reaches the failing call, so that it is the third turn."""
    last = trajectories(name)[-1]

    assert (last.turn, last.new_from, len(last.messages)) == (3, 10, 11)


def test_a_pydantic_ai_subagent_is_linked_to_the_call_that_started_it():
    """Turn 2 delegates: the sub-agent is a trajectory of its own in another conversation."""
    first, second, inner = trajectories("pydantic_ai_v5_subagent")

    assert_gold(first.messages, GOLD[:6])
    (call,) = second.messages[7].tool_calls
    assert [m.role for m in second.own_messages] == ["user", "assistant", "tool", "assistant"]
    assert (call.name, call.arguments) == (
        "delegate_to_weather_agent",
        {"input": "weather in Paris and Tokyo?"},
    )
    assert (inner.parent_id, inner.parent_call_id) == (second.id, call.id)
    assert (inner.agent, inner.turn, inner.history) == ("weather_agent", 1, None)
    assert inner.conversation_id != second.conversation_id
    assert [m.role for m in inner.messages] == [m["role"] for m in GOLD[:6]]
    assert inner.messages[-1].content == second.messages[8].content


@pytest.mark.parametrize("name", ["langgraph_genai", "langgraph_openinference"])
def test_a_langgraph_subagent_is_linked_to_the_call_that_started_it(name: str):
    """Turn 3 asks another graph, whose run names its parent and the call."""
    _, second, third, inner = trajectories(name)

    (call,) = third.messages[11].tool_calls
    assert (third.turn, third.new_from, third.history) == (3, 10, second)
    assert (call.name, call.arguments) == (
        "ask_weather_agent",
        {"query": "weather in Paris and Tokyo?"},
    )
    assert (inner.parent_id, inner.parent_call_id) == (third.id, call.id)
    assert (inner.agent, inner.messages[0].content) == ("weather_agent", "Weather expert.")
    assert inner.messages[-1].content == third.messages[12].content
    assert inner.own_messages == inner.messages


def test_openai_agents_hand_off_and_sub_agent():
    """A hand-off is one turn, whose messages name their agents; an agent as a tool is linked."""
    _, _, handed, manager, inner = trajectories("openai_agents_openinference")

    assert (handed.agent, handed.gaps, handed.parent_id) == ("support_agent", (), "")
    assert [(m.role, m.name) for m in handed.messages if m.role != "tool"] == [
        ("system", ""),
        ("user", ""),
        ("assistant", "support_agent"),
        ("system", ""),
        ("assistant", "weather_agent"),
        ("assistant", "weather_agent"),
    ]
    assert handed.messages[3].tool_call_id == handed.messages[2].tool_calls[0].id
    assert (inner.parent_id, inner.agent) == (manager.id, "sub_weather")
    assert inner.parent_call_id == manager.messages[2].tool_calls[0].id


@pytest.mark.parametrize("name", TURNS_ARE_TRACES)
def test_a_turn_that_arrives_alone_knows_its_own_messages(name: str):
    """Without turn 1's trace, turn 2 still shows the conversation and where its own part begins."""
    spans, logs = capture(name)
    whole = turns(reconstruct(spans, logs))[1]

    alone = reconstruct([s for s in spans if s.trace_id in whole.trace_ids], logs)[0]

    assert alone.history is None
    assert (alone.id, alone.turn, alone.new_from) == (whole.id, 2, 6)
    assert_gold(alone.messages, GOLD)
    assert alone.own_messages == whole.own_messages


def test_without_content_the_structure_is_had():
    """With content off, tools, their ids, times and errors are known, and the switch is named."""
    first, second, failed = trajectories("genai_openai_chat_nocontent")

    assert [m.role for m in second.messages] == [
        *("assistant", "tool", "tool", "assistant"),
        *("assistant", "tool", "assistant"),
    ]
    calls = [call for m in second.messages for call in m.tool_calls]
    assert [call.name for call in calls] == ["get_weather", "get_weather", "lookup_order"]
    assert [call.arguments for call in calls] == [None] * 3
    assert all(call.id and call.span_id and call.end_ns > call.start_ns for call in calls)
    results = [m for m in second.messages if m.role == "tool"]
    assert [m.content for m in results] == [None, None, "Error: order 9999 not found"]
    assert [m.is_error for m in results] == [False, False, True]
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.usage.model_calls) == (2, 4, 2)
    assert set(codes(first)) == set(codes(second)) == {"content_not_captured"}
    assert codes(failed) == ["model_call_failed", "content_not_captured"]
    for trajectory in (first, second):
        for gap in trajectory.gaps:
            assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY" in gap.detail


def test_hidden_content_names_the_switch():
    """Placeholders are taken for missing content, and the settings that hide it are named."""
    first, second, failed = trajectories("openinference_hidden")

    contents = [m.content for m in second.messages]
    calls = [call for m in second.messages for call in m.tool_calls]
    assert contents == [None] * 5 + ["Error: order 9999 not found", None]
    assert [(c.name, c.arguments) for c in calls] == [
        ("get_weather", None),
        ("get_weather", None),
        ("lookup_order", None),
    ]
    assert set(codes(first)) == set(codes(second)) == {"redacted"}
    assert sorted(codes(failed)) == ["model_call_failed", "redacted"]
    assert all("OPENINFERENCE_HIDE_INPUTS" in gap.detail for gap in first.gaps)


def test_cut_values_are_made_up_for_by_the_spans_that_are_whole():
    """Values cut at 250 characters lose nothing that the tools' spans and outputs still tell."""
    first, second, _ = trajectories("genai_truncated_250")

    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert set(codes(first)) == set(codes(second)) == {"content_truncated"}
    assert all("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT" in gap.detail for gap in second.gaps)


def test_dropped_attributes_are_counted():
    """Where the oldest attributes were dropped, the calls before make up for them."""
    first, second, _ = trajectories("openinference_attrcount_28")

    assert_gold(second.messages, GOLD)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert set(codes(first)) == set(codes(second)) == {"attributes_dropped"}
    assert "dropped 12 attributes" in first.gaps[1].detail
    assert all("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in gap.detail for gap in first.gaps)


def test_traces_without_model_spans_say_what_to_instrument():
    """HTTP spans alone give no trajectory, and the explanation of each trace has the reason."""
    spans, _ = capture("httpx_only")

    assert trajectories("httpx_only") == []
    for trace_id in {span.trace_id for span in spans}:
        told = explain(trace_id, spans)
        [(code, detail)] = told.gaps
        assert (code, told.trajectories) == ("no_model_spans", ())
        assert "opentelemetry-instrumentation-genai-openai" in detail


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_arrival_does_not_matter(name: str):
    """Spans and log records in any order give equal trajectories."""
    spans, logs = capture(name)
    whole = reconstruct(spans, logs)

    for seed in range(3):
        shuffle = random.Random(seed).shuffle
        shuffle(spans)
        shuffle(logs)
        assert reconstruct(spans, logs) == whole, f"seed {seed}"
