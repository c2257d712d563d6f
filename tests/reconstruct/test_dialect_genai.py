"""The current GenAI conventions: every kind of part, openai-agents' spans, evaluations."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import LogRecord
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, capture, chat, codes, gives, only, said, span, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

BOTH = "openai_agents_genai_plus_llm"
OTHERS = [
    {"type": "reasoning", "content": "I think"},
    {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "AA=="},
    {"type": "blob", "mime_type": "audio/wav", "modality": "audio", "content": "AA=="},
    {"type": "file", "mime_type": None, "modality": "video", "file_id": "f1"},
    {"type": "uri", "mime_type": None, "modality": "image", "uri": "https://example.invalid/x"},
    {"type": "compaction", "id": "z", "content": "before"},
]


def test_the_multimodal_capture_keeps_images_in_order():
    """Text is the message's content; an image in the request and one elsewhere are its parts."""
    (found,) = trajectories("multimodal_genai")

    assert [(m.role, m.content) for m in found.messages] == [
        ("developer", "Describe images."),
        ("user", "What is in these?"),
        ("assistant", "Hello, I am a helpful fake model."),
    ]
    blob, uri = found.messages[1].parts
    assert (blob["type"], blob["mime_type"], blob["modality"]) == ("blob", "image/png", "image")
    assert blob["content"].startswith("iVBOR")
    assert (uri["type"], uri["uri"]) == ("uri", "https://example.invalid/cat.png")
    assert (found.messages[1].name, found.gaps) == ("ann", ())


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_every_part_that_is_no_text_is_kept_as_it_came(role: str):
    """All kinds of the conventions stay in order beside the text, none of them a call."""
    first, *rest = OTHERS
    parts = [first, {"type": "text", "content": "one"}, *rest, {"type": "text", "content": "two"}]

    found = only(chat("c", 1, [{"role": role, "parts": parts}], said("a")))

    message = found.messages[0]
    assert (message.role, message.content, message.parts) == (role, "one\ntwo", tuple(OTHERS))
    assert message.tool_calls == ()


def test_parts_beside_calls_are_kept():
    """An answer may think, speak and ask at once."""
    answer = asks(("look", {"x": 1}, "k1"))
    answer["parts"] = [OTHERS[0], {"type": "text", "content": "I look."}, *answer["parts"]]

    found = only(chat("c", 1, [user("q")], answer))

    message = found.messages[1]
    assert (message.content, message.parts) == ("I look.", (OTHERS[0],))
    assert [(c.name, c.id) for c in message.tool_calls] == [("look", "k1")]


@pytest.mark.parametrize("key", ["response", "result"])
@pytest.mark.parametrize(
    ("value", "text"), [("r", "r"), ({"t": 1}, '{"t":1}'), ([1], "[1]"), (None, None), (0, "0")]
)
def test_a_result_has_either_name(key: str, value: Any, text: str | None):
    """The conventions say ``response``, their examples and some emitters ``result``."""
    part = {"type": "tool_call_response", "id": "k1", key: value}
    sent = [user("q"), asks(("look", {}, "k1")), {"role": "tool", "parts": [part]}]

    found = only(chat("c", 1, sent, said("a")))

    assert (found.messages[2].role, found.messages[2].content) == ("tool", text)
    assert found.messages[2].tool_call_id == "k1"


def test_an_image_beside_a_tools_result_belongs_to_it():
    """A tool's message with an image is one result, not two."""
    sent = [user("q"), asks(("look", {}, "k1"), ("look", {"x": 1}, "k2"))]
    both = {"role": "tool", "parts": [*gives("r", "k1")["parts"], OTHERS[1]]}

    found = only(chat("c", 1, [*sent, both, gives("z", "k2")], said("a")))

    results = [m for m in found.messages if m.role == "tool"]
    assert [(m.content, m.tool_call_id, m.parts) for m in results] == [
        ("r", "k1", (OTHERS[1],)),
        ("z", "k2", ()),
    ]


def test_an_agents_name_and_tools_are_on_its_span():
    """The span's name holds the agent's where the attribute does not."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.tool.definitions": json.dumps([{"name": "look"}]),
    }
    found = only(
        span("a", 1, title="invoke_agent my desk", attributes=attributes),
        chat("c", 2, [user("q")], said("a"), parent="a"),
    )
    bare = only(span("a", 1, title="invoke_agent", attributes=attributes))

    assert (found.agent, found.tools) == ("my desk", ({"name": "look"},))
    assert bare.agent == ""


def test_openai_agents_with_chat_spans_hold_golds_conversation():
    """Two turns in one workflow's trace, without gaps; the workflow is no run."""
    first, second, *_ = trajectories(BOTH)

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert first.trace_ids == second.trace_ids
    for found in (first, second):
        assert (found.agent, found.conversation_id) == ("support_agent", "conv-001")
        assert (found.gaps, len(found.tools)) == ((), 3)


def test_openai_agents_hand_off_and_sub_agent():
    """The other agent goes on after the transfer; an agent as a tool is linked to its call."""
    _, _, handed, manager, inner = trajectories(BOTH)

    transfer, result = handed.messages[2:4]
    assert transfer.tool_calls[0].name == "transfer_to_weather_agent"
    assert [m.name for m in handed.messages if m.role == "assistant"] == [
        *("support_agent", "weather_agent", "weather_agent")
    ]
    assert result.tool_call_id == transfer.tool_calls[0].id
    assert (inner.parent_id, inner.agent) == (manager.id, "sub_weather")
    assert inner.parent_call_id == manager.messages[2].tool_calls[0].id
    assert inner.messages[-1].content == manager.messages[3].content
    assert {t.gaps for t in (handed, manager, inner)} == {()}


def test_openai_agents_alone_say_what_to_install():
    """Without chat spans the agents and their tools are had, and the gap names the remedy."""
    spans, logs = capture(BOTH)
    kept = [s for s in spans if s.attributes.get("gen_ai.operation.name") != "chat"]

    found = reconstruct(kept, logs)

    assert [t.agent for t in found] == [
        *("support_agent", "support_agent", "support_agent", "weather_agent"),
        *("manager", "sub_weather"),
    ]
    first, second, giver, _, manager, inner = found
    assert [(c.name, c.arguments) for m in first.messages for c in m.tool_calls] == [
        ("get_weather_tool", {"city": "Paris"}),
        ("get_weather_tool", {"city": "Tokyo"}),
    ]
    assert [m.content for m in first.messages if m.role == "tool"] == [
        g["content"] for g in GOLD[3:5]
    ]
    assert [m.is_error for m in second.own_messages if m.role == "tool"] == [True]
    assert (second.history, giver.messages) == (first, ())
    assert inner.parent_id == manager.id
    for trajectory in found:
        assert codes(trajectory) == ["no_model_spans"]
        assert "opentelemetry-instrumentation-genai-openai" in trajectory.gaps[0].detail


def test_evaluations_are_no_messages():
    """The evaluations' records say nothing that was said, and the run tells what is missing."""
    (found,) = trajectories("pydantic_evals_online")

    assert (found.messages, found.usage.model_calls) == ((), 0)
    assert codes(found) == ["no_model_spans"]


def test_evaluations_beside_a_run_change_nothing():
    """A run that was evaluated is the run that it was."""
    spans = [agent("a", 1), chat("c", 2, [user("q")], said("x"), parent="a")]
    verdict = LogRecord(
        spans[0].trace_id,
        "a",
        9,
        0,
        "gen_ai.evaluation.result",
        body="evaluation: tone='friendly'",
        attributes={"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.label": "friendly"},
    )
    of_model = replace(verdict, span_id="c")

    assert reconstruct(spans, [verdict, of_model]) == reconstruct(spans)


def test_offline_evaluations_hold_the_runs_they_make():
    """The spans of an experiment, its cases and its evaluators are no runs of an agent."""
    marks = {"scope": "pydantic-evals"}
    found = reconstruct(
        [
            span("e", 1, title="evaluate desk", **marks),
            span("k", 2, title="case: one", parent="e", **marks),
            span("x", 3, title="execute desk", parent="k", **marks),
            agent("a", 4, parent="x"),
            chat("c", 5, [user("q")], said("y"), parent="a"),
            span("v", 6, title="evaluator: Tone", parent="k", **marks),
        ]
    )

    assert [(t.agent, brief(t.messages)) for t in found] == [
        ("helper", [("user", "q"), ("assistant", "y")])
    ]
