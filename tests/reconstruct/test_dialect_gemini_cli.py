"""Gemini CLI: spans by hand, in both generations of its tracing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span

from .builders import brief, codes, only, span

USER = {"role": "user", "parts": [{"text": "q"}]}
CALL = {"role": "model", "parts": [{"functionCall": {"id": "k", "name": "look", "args": {"x": 1}}}]}
RESULT = {
    "role": "user",
    "parts": [{"functionResponse": {"id": "k", "name": "look", "response": {"output": "r"}}}],
}


def made(name: str, start: int, operation: str, given: Any, got: Any, **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": "gemini-cli",
        "gen_ai.conversation.id": "session",
        "gen_ai.input.messages": json.dumps(given),
        "gen_ai.output.messages": json.dumps(got),
        **fields.pop("attributes", {}),
    }
    return span(name, start, scope="gemini-cli", attributes=attributes, **fields)


def test_a_turn_with_a_tool_in_pieces():
    """A streamed answer is a list of pieces; a tool's span completes its call."""
    pieces = [{"role": "model", "parts": [{"text": text}]} for text in ("it ", "is ", "r")]
    system = {"gen_ai.system_instructions": '{"parts": [{"text": "s"}]}'}
    declared = '[{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"a": 1}}]}]'
    request = {"request": {"callId": "k", "name": "look", "args": {"x": 1}}}
    found = only(
        span(
            "r", 1, scope="gemini-cli", attributes={"gen_ai.operation.name": "agent_call"}, end=99
        ),
        made(
            "c",
            2,
            "llm_call",
            [USER],
            [CALL],
            parent="r",
            attributes={**system, "gen_ai.tool.definitions": declared},
        ),
        made(
            "t",
            4,
            "tool_call",
            request,
            {"status": "success", "response": {"responseParts": RESULT["parts"]}},
            parent="r",
            attributes={"gen_ai.tool.name": "look", "gen_ai.tool.call_id": "k"},
        ),
        made("d", 6, "llm_call", [USER, CALL, RESULT], pieces, parent="r", attributes=system),
    )

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", '{"output":"r"}'),
        ("assistant", "it is r"),
    ]
    assert (found.gaps, found.conversation_id) == ((), "session")
    assert found.messages[2].tool_calls[0].span_id == "t"
    assert found.tools[0]["parameters"] == {"a": 1}


def test_a_failed_tool_is_an_error():
    """The status of a tool's output says so."""
    output = {"status": "error", "response": {"responseParts": [], "error": {"message": "bad"}}}
    found = only(
        made("c", 1, "llm_call", [USER], [CALL], end=2),
        made(
            "t",
            3,
            "tool_call",
            {"callId": "k", "name": "look", "args": {"x": 1}},
            output,
            parent="c",
        ),
    )

    assert found.messages[-1].is_error


@pytest.mark.parametrize(
    "output",
    [
        {"response": {"candidates": [{"content": {"role": "model", "parts": [{"text": "a"}]}}]}},
        {
            "streamChunks": [
                {"content": {"role": "model", "parts": [{"text": "a"}]}},
                {"content": None},
            ]
        },
    ],
)
def test_the_older_tracing_is_read(output: dict[str, Any]):
    """Before, the attributes were `input-json` and `output-json`."""
    request = {"request": {"model": "m", "contents": [USER], "config": {"systemInstruction": "s"}}}
    attributes = {"input-json": json.dumps(request), "output-json": json.dumps(output)}
    found = only(span("c", 1, title="generateContent", scope="gemini-cli", attributes=attributes))

    assert brief(found.messages) == [("system", "s"), ("user", "q"), ("assistant", "a")]
    assert (found.models, found.gaps) == (("m",), ())


def test_prompts_that_are_not_logged_are_a_gap():
    """Without content, the model call counts and says what is missing."""
    attributes = {"gen_ai.operation.name": "llm_call", "gen_ai.request.model": "m"}
    found = only(span("c", 1, scope="gemini-cli", attributes=attributes))

    assert codes(found) == ["content_not_captured"]
