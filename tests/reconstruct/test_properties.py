"""What holds of any spans at all, and of any conversation."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given, settings, strategies as st

from oteval.base.jsontext import dumps
from oteval.messages.reader import EVENT_ROLES
from oteval.model import Event, LogRecord, Span
from oteval.reconstruct import CODES, reconstruct

from .builders import agent, asks, brief, chat, gives, only, said, system, user
from .odd_spans import examples, few_or_many

KEYS = [
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system", "gen_ai.agent.name"),
    *("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
    *("gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.tool.definitions"),
    *("gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.input.messages_ref"),
    *("gen_ai.conversation.id", "session.id", "gen_ai.usage.input_tokens", "error.type"),
    *("gen_ai.request.previous_response.id", "gen_ai.response.model", "gen_ai.is_streaming"),
    *("gen_ai.prompt.0.role", "gen_ai.prompt.0.content", "gen_ai.prompt.0.tool_calls.0.name"),
    *("gen_ai.completion.0.role", "gen_ai.completion.0.content", "llm.request.functions.0.name"),
    *("openinference.span.kind", "input.value", "output.value", "tool.name", "metadata"),
    *("llm.input_messages.0.message.role", "llm.input_messages.0.message.content"),
    *("llm.input_messages.0.message", "llm.output_messages.0.message.contents.0"),
    *("llm.output_messages.0.message.tool_calls.0.tool_call", "llm.output_messages.x"),
    *("llm.tools.0.tool", "llm.tools.0.tool.json_schema", "llm.invocation_parameters"),
    *("llm.output_messages.0.message.role", "llm.request.type", "graph.node.id"),
    *("traceloop.span.kind", "traceloop.entity.name"),
    *("traceloop.entity.input", "traceloop.entity.output"),
    *("agent_name", "all_messages_events", "pydantic_ai.all_messages", "events"),
    *("pydantic_ai.new_message_index", "tool_arguments", "tool_response"),
    *("model_request_parameters", "ai.operationId", "llm.input_messages." + "0." * 400 + "role"),
    "llm.input_messages." + "9" * 5000 + ".message.role",
]
WORDS = [
    *("chat", "invoke_agent", "execute_tool", "LLM", "TOOL", "AGENT", "workflow", "tool", "agent"),
    *("user", "assistant", "system", "", "null", "<elided>", "__REDACTED__", "\ud800", "\0"),
    *("[", "{", '"', "{'a': (1, 2)}", "{'a', 'b'}", "[" * 400),
    *('[{"role": "user", "parts": [{"t', "9" * 40),
    *('{"args": 5, "kwargs": [1]}', '{"a": "\\ud800"}', "[1e999]"),
    '{"messages": 5, "choices": [5]}',
]  # fmt: skip
FIELDS = [
    *("role", "content", "parts", "type", "text", "tool_calls", "tool_call_id", "id", "name"),
    *("arguments", "args", "function", "response", "result", "message", "event.name", "kwargs"),
    *("data", "status", "is_error", "index", "messages", "choices", "tool", "json_schema"),
    *("previous_response_id", "function_tools", "lc_agent_name"),
]
TYPES = ["text", "tool_call", "tool_call_response", "tool", "reasoning", *EVENT_ROLES]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.sampled_from(WORDS),
    st.sampled_from(TYPES),
    st.text(max_size=3),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    ),
    max_leaves=8,
)
attribute = st.one_of(values, values.map(dumps), values.map(dumps).map(dumps), values.map(repr))
attributes = st.dictionaries(st.sampled_from(KEYS), attribute, max_size=5)
ids = st.sampled_from(["", *"abcdef"])
times = st.sampled_from([0, 1, 2, 3, 2**63])
spans = st.builds(
    Span,
    trace_id=st.sampled_from(["t1", "t2"]),
    span_id=ids,
    parent_id=ids,
    name=st.sampled_from(["n", "handoff to x", "execute_tool y"]),
    start_ns=times,
    end_ns=times,
    status_code=st.integers(0, 3),
    status_message=st.sampled_from(WORDS),
    attributes=attributes,
    events=st.lists(
        st.builds(
            Event,
            st.sampled_from(
                [*EVENT_ROLES, "exception", "gen_ai.client.inference.operation.details"]
            ),
            times,
            attributes | st.dictionaries(st.sampled_from(FIELDS), values, max_size=3),
        ),
        max_size=1,
    ).map(tuple),
    scope=st.sampled_from(["", "pydantic-ai", "traceloop.x", "opentelemetry.instrumentation.x"]),
    resource=st.dictionaries(st.just("service.name"), values, max_size=1),
    dropped_attributes=st.integers(0, 1),
)
logs = st.builds(
    LogRecord,
    trace_id=st.sampled_from(["t1", "t2", ""]),
    span_id=ids,
    time_ns=times,
    event_name=st.sampled_from([*EVENT_ROLES, "gen_ai.client.inference.operation.details", "x"]),
    body=attribute,
    attributes=attributes,
)


@examples(400)
def test_any_spans_give_trajectories(count: int):
    """Hostile spans never raise; what they give are whole trajectories with known gaps."""

    @few_or_many(count)
    @given(st.lists(spans, max_size=8), st.lists(logs, max_size=3))
    def check(found_spans: list[Span], found_logs: list[LogRecord]) -> None:
        before = repr((found_spans, found_logs))

        found = reconstruct(found_spans, found_logs)

        roots = [t.root_span for t in found]
        assert len(set(roots)) == len(roots)
        assert {name for t in found for name in t.trace_ids} <= {s.trace_id for s in found_spans}
        for trajectory in found:
            assert {gap.code for gap in trajectory.gaps} <= set(CODES)
            assert 0 <= trajectory.new_from <= len(trajectory.messages)
            assert trajectory.messages[trajectory.new_from :] == trajectory.own_messages
            assert trajectory.start_ns <= trajectory.end_ns
            assert trajectory.turn >= 1
            assert trajectory.messages or trajectory.gaps
            assert {m.trace_id for m in trajectory.messages} <= {"t1", "t2"}
            json.loads(dumps(trajectory.as_dict()))
        assert repr((found_spans, found_logs)) == before

    check()


@examples(400)
def test_the_order_of_any_spans_does_not_matter(count: int):
    """Any spans in any order give equal trajectories, duplicates and equal times included."""

    @few_or_many(count)
    @given(st.lists(spans, max_size=8), st.randoms(use_true_random=False))
    def check(found: list[Span], chance: random.Random) -> None:
        shuffled = list(found)
        chance.shuffle(shuffled)

        assert repr(reconstruct(shuffled)) == repr(reconstruct(found))

    check()


def _conversation(turns: list[tuple[bool, list[int]]]) -> list[list[dict[str, Any]]]:
    """Return the steps of a conversation: what is sent anew before each answer, then the answer."""
    steps: list[list[dict[str, Any]]] = []
    number = 0
    for i, (has_prompt, rounds) in enumerate(turns):
        new = [user(f"question {i}" if has_prompt else "again")]
        for count in rounds:
            calls = [("look", {"n": number + j}, f"k{number + j}") for j in range(count)]
            steps.append([*new, asks(*calls)])
            new = [gives(f"result {number + j}", f"k{number + j}") for j in range(count)]
            number += count
        steps.append([*new, said(f"answer {i}")])
    return steps


conversations = st.lists(
    st.tuples(st.booleans(), st.lists(st.integers(1, 3), max_size=2)), min_size=1, max_size=4
).map(_conversation)


def _told(steps: list[list[dict[str, Any]]]) -> list[Any]:
    """Return a conversation as `brief` tells it."""
    (told,) = [only(chat("c", 1, [m for step in steps for m in step][:-1], steps[-1][-1])).messages]
    return brief(told)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(conversations, st.booleans())
def test_full_histories_merge_to_the_conversation(
    steps: list[list[dict[str, Any]]], prompted: bool
):
    """Replayed as calls that each repeat all before, a conversation comes out as it was."""
    prompt = [system("s")] if prompted else []
    spans = [agent("a", 1)]
    history: list[dict[str, Any]] = []
    for i, (*new, answer) in enumerate(steps):
        spans.append(chat(f"c{i}", i + 2, [*prompt, *history, *new], answer, parent="a"))
        history += [*new, answer]

    found = only(*spans)

    assert brief(found.messages) == [("system", "s")] * prompted + _told(steps)
    assert (found.gaps, found.rewrites) == ((), ())


@settings(max_examples=100, deadline=None, derandomize=True)
@given(conversations, st.booleans())
def test_new_messages_merge_to_the_conversation(steps: list[list[dict[str, Any]]], retried: bool):
    """Replayed as calls that each send only what is new, failed ones made again, likewise."""
    spans = [agent("a", 1)]
    for i, (*new, answer) in enumerate(steps):
        if retried:
            failed = {"status_code": 2, "status_message": "busy"}
            spans.append(chat(f"f{i}", 2 * i + 2, new, parent="a", delta=True, **failed))
        spans.append(chat(f"c{i}", 2 * i + 3, new, answer, parent="a", delta=True))

    found = only(*spans)

    assert brief(found.messages) == _told(steps)
    assert {gap.code for gap in found.gaps} == ({"model_call_failed"} if retried else set())
    assert found.rewrites == ()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(conversations, st.booleans(), st.randoms(use_true_random=False))
def test_steps_in_traces_of_their_own_merge_to_the_conversation(
    steps: list[list[dict[str, Any]]], named: bool, chance: random.Random
):
    """Model calls without any agent, each a trace, become turns whose messages are the whole."""
    spans = []
    history: list[dict[str, Any]] = []
    for i, (*new, answer) in enumerate(steps):
        session = {"session": "s"} if named else {}
        trace = f"{i + 1:032x}"
        spans.append(chat(f"c{i}", 10 * i + 2, [*history, *new], answer, trace=trace, **session))
        history += [*new, answer]
    chance.shuffle(spans)

    found = reconstruct(spans)

    questions = sum(m["role"] == "user" for m in history)
    assert [t.turn for t in found] == list(range(1, questions + 1))
    assert brief(found[-1].messages) == _told(steps)
    assert [m for t in found for m in t.own_messages] == list(found[-1].messages)
    assert [t.gaps for t in found] == [()] * questions
