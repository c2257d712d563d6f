"""Agents that work one after another in a workflow: what each of them said and did is its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, chat, codes, gives, said, span, tool, user

ASKED, RESULT = asks(("look", {"x": 1}, "k1")), gives("r", "k1")
FIRST = [user("q"), ASKED, RESULT, said("found")]


def workflow(inherited: list[dict[str, Any]], scope: str, *, told: bool) -> list[Any]:
    """Return the spans of two agents; the second begins with messages of the first.

    Args:
        inherited: What the second agent is sent.
        scope: The scope of the spans.
        told: Whether the agents' spans hold their input and output too.
    """

    def content(sent: list[Any], got: list[Any]) -> dict[str, Any]:
        keys = ("gen_ai.input.messages", "gen_ai.output.messages")
        return dict(zip(keys, map(json.dumps, (sent, got)), strict=True)) if told else {}

    mark: dict[str, Any] = {"scope": scope}
    first, second = content(FIRST[:1], FIRST[1:]), content(inherited, [said("written")])
    return [
        span("w", 1, end=90, **mark),
        agent("a", 2, of="worker", parent="w", end=40, attributes=first, **mark),
        chat("c", 3, FIRST[:1], ASKED, parent="a", end=5, **mark),
        tool("t", 6, parent="a", id="k1", args='{"x": 1}', result="r", **mark),
        chat("d", 8, FIRST[:3], said("found"), parent="a", end=10, **mark),
        agent("b", 50, of="writer", parent="w", end=80, attributes=second, **mark),
        chat("e", 51, inherited, said("written"), parent="b", end=60, **mark),
    ]


@pytest.mark.parametrize("scope", ["agent_framework", "app", "strands.telemetry.tracer"])
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "inherited",
    [FIRST, [user("q"), said("found")], [user("found")]],
    ids=["all messages", "question and answer", "the answer"],
)
def test_the_second_agent_of_a_workflow_has_not_made_the_calls_of_the_first(
    inherited: list[dict[str, Any]], scope: str, told: bool
):
    """What it was sent is its input, once; only its answer is its own."""
    worker, writer = reconstruct(workflow(inherited, scope, told=told))

    assert [t.agent for t in (worker, writer)] == ["worker", "writer"]
    assert [call.name for m in worker.own_messages for call in m.tool_calls] == ["look"]
    assert [call.name for m in writer.own_messages for call in m.tool_calls] == []
    assert brief(writer.messages)[-1] == ("assistant", "written")
    assert [m.content for m in writer.messages].count("q") <= 1
    assert codes(writer) == []
