"""Tools that run in a later trace than the request for them, as after an interrupt and a resume."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Recording, Span
from oteval.reconstruct import reconstruct
from oteval.replays.http_answers import HttpRequest
from oteval.replays.player import Player
from oteval.replays.recordings import recording_of
from oteval.store import StoredSession

from ..make import span

QUESTION = {"role": "user", "parts": [{"type": "text", "content": "Refund 17"}]}
REQUEST = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"order": 17}}],
}
RESULT = {
    "role": "tool",
    "parts": [{"type": "tool_call_response", "id": "c1", "response": "refunded"}],
}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}
# The same messages as the agent sends them.
SENT: list[dict[str, Any]] = [
    {"role": "user", "content": "Refund 17"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "refund", "arguments": '{"order": 17}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "refunded"},
]


def step(trace: int, number: int, operation: str, parent: int = 0, **attributes: Any) -> Span:
    """Return a span of the conversation that takes five nanoseconds."""
    common = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": "talk"}
    new_span = span(trace, number, attributes={**common, **attributes})
    return replace(
        new_span,
        end_ns=number + 5,
        parent_id=f"{parent:016x}" if parent else "",
        resource={"service.name": "shop"},
    )


def asked(trace: int, number: int, messages: list[Any], answer: Any, parent: int) -> Span:
    """Return the span of a model call."""
    content = {"input": messages, "output": [answer]}
    texts = {f"gen_ai.{name}.messages": json.dumps(value) for name, value in content.items()}
    return step(trace, number, "chat", parent, **texts)


def interrupted(*, is_same_trace: bool) -> Recording:
    """Return the recording of an agent that stopped before its tool, and ran it when it resumed."""
    resumed = 1 if is_same_trace else 2
    tool = {
        "gen_ai.tool.name": "refund",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"order": 17}',
        "gen_ai.tool.call.result": "refunded",
    }
    spans = [
        replace(step(1, 1, "invoke_agent"), end_ns=30 if not is_same_trace else 90),
        asked(1, 10, [QUESTION], REQUEST, 1),
        step(resumed, 50, "execute_tool", 1 if is_same_trace else 40, **tool),
        asked(resumed, 60, [QUESTION, REQUEST, RESULT], ANSWER, 1 if is_same_trace else 40),
    ]
    if not is_same_trace:
        spans.insert(2, replace(step(2, 40, "invoke_agent"), end_ns=90))
    members = tuple(trajectory.id for trajectory in reconstruct(spans))
    traces = tuple(dict.fromkeys(member.trace_id for member in spans))
    return recording_of(StoredSession("talk", "conversation", members, traces), spans, [])


@pytest.mark.parametrize("is_same_trace", [True, False], ids=["same trace", "later trace"])
def test_a_tool_has_one_execution(is_same_trace: bool) -> None:
    """Whether it ran in the trace of its request or in a later one, with its result."""
    calls = interrupted(is_same_trace=is_same_trace).tool_calls

    assert [(call.name, call.arguments, call.result) for call in calls] == [
        ("refund", {"order": 17}, "refunded")
    ]


@pytest.mark.parametrize("is_same_trace", [True, False], ids=["same trace", "later trace"])
def test_an_agent_that_was_interrupted_passes_unchanged(is_same_trace: bool) -> None:
    """The request, the tool after the interrupt and the last answer are served, each once."""
    player = Player(interrupted(is_same_trace=is_same_trace))

    def ask(messages: list[Any]) -> None:
        body = json.dumps({"model": "m", "messages": messages}).encode()
        player.answer(HttpRequest("POST", "http://models.example/v1/chat/completions", {}, body))

    ask(SENT[:1])
    answer = player.answer_tool("refund", {"order": 17})
    ask(SENT)
    result = player.finish()

    assert answer is not None
    assert answer.result == "refunded"
    assert result.divergences == ()
    assert (result.served, result.served_tools) == (2, 1)
