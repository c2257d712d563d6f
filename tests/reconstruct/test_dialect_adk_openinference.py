"""ADK, as OpenInference writes it: each model call's attributes over those of the one before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span

from .builders import brief, only, span

KIND = "openinference.span.kind"
OWN = "openinference.instrumentation.google_adk"


def content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


CALL = content("model", {"function_call": {"name": "look", "args": {"city": "Paris"}}})
ASKED = content("user", {"text": "q"})


def overwritten(name: str, contents: list[Any], answer: str, **fields: Any) -> Span:
    """Return an agent's span: the last call's values, and flat calls left of an earlier one."""
    stale = "llm.output_messages.0.message"
    attributes = {
        KIND: "LLM",
        "gen_ai.agent.name": "desk",
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "s",
        "input.value": json.dumps({"model": "m", "contents": contents}),
        "output.value": json.dumps({"content": content("model", {"text": answer})}),
        f"{stale}.role": "model",
        f"{stale}.contents.0.message_content.text": answer,
        f"{stale}.tool_calls.0.tool_call.function.name": "look",
        f"{stale}.tool_calls.0.tool_call.function.arguments": '{"city": "Paris"}',
    }
    title = "invoke_agent desk"
    return span(name, 1, title=title, scope="gcp.vertex.agent", attributes=attributes, **fields)


def used(response: dict[str, Any]) -> Span:
    output = {"id": "k1", "name": "look", "response": response}
    attributes = {
        KIND: "TOOL",
        "tool.name": "look",
        "tool.id": "k1",
        "input.value": '{"city": "Paris"}',
        "output.value": json.dumps(output),
    }
    return span("t", 3, parent="a", scope=OWN, attributes=attributes)


@pytest.mark.parametrize(
    ("response", "result", "failed"),
    [
        ({"result": "sunny"}, '{"result":"sunny"}', False),
        ({"error": "no"}, '{"error":"no"}', True),
    ],
)
def test_an_overwritten_agents_span_is_its_transcript(
    response: dict[str, Any], result: str, failed: bool
):
    """The last call repeats the run's steps; no call of an earlier one is shown twice."""
    told = content("user", {"function_response": {"name": "look", "response": response}})

    found = only(overwritten("a", [ASKED, CALL, told], "a", end=9), used(response))

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"city": "Paris"})]),
        ("tool", result),
        ("assistant", "a"),
    ]
    assert (found.agent, found.new_from, found.messages[3].is_error) == ("desk", 0, failed)
    assert found.messages[3].tool_call_id == "k1"


def test_a_later_run_begins_with_what_was_asked_last():
    """The turns before it are history."""
    before = [content("user", {"text": "p"}), content("model", {"text": "o"})]

    found = only(overwritten("a", [*before, ASKED], "a", end=9))

    assert brief(found.messages)[found.new_from :] == [("user", "q"), ("assistant", "a")]


def test_a_tools_output_is_the_response_in_it():
    """Gemini's envelope around a result is taken off."""
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "desk",
        KIND: "AGENT",
    }
    root = span("a", 1, end=9, scope="gcp.vertex.agent", attributes=attributes)

    found = only(root, used({"result": "sunny"}))

    assert [m.content for m in found.messages if m.role == "tool"] == ["sunny"]
