"""Mastra: spans by hand, as its OpenTelemetry exporter writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span


def made(name: str, start: int, kind: str, parent: str = "", **fields: Any) -> Span:
    """Return a span of a type, with an input and an output."""
    attributes: dict[str, Any] = {"mastra.span.type": kind, **fields.pop("attributes", {})}
    for side in ("input", "output"):
        value = fields.pop(side, None)
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            attributes[f"mastra.{kind}.{side}"] = text
    fields.setdefault("end", start + 1)
    return span(name, start, parent=parent, attributes=attributes, **fields)


def tool(name: str, start: int, parent: str, **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": name,
        "gen_ai.tool.call.arguments": '{"x": 1}',
        **fields.pop("attributes", {}),
    }
    return made(name, start, "tool_call", parent, attributes=attributes, **fields)


CALL = {"toolCallId": "k", "toolName": "look", "args": {"x": 1}}
SHORT = [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "[tool: look]"},
    {"role": "tool", "content": "[tool-result: look]"},
]
AGENT = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "desk",
    "gen_ai.conversation.id": "thread",
}


def turn(history: list[Any]) -> list[Span]:
    """Return an agent's turn: one step that asks for a tool, and one that answers."""
    sent = {"messages": [*history, {"role": "user", "content": [{"type": "text", "text": "q"}]}]}
    used = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.output.messages": '[{"role":"assistant","parts":[{"type":"text","content":""}]}]',
    }
    return [
        made("a", 1, "agent_run", attributes=AGENT, input="q", output={"text": "a"}, end=99),
        made("g", 2, "model_generation", "a", input=sent, output={"text": "a"}, end=98),
        made(
            "s1",
            3,
            "model_step",
            "g",
            input=SHORT[:1],
            output={"text": "", "toolCalls": [CALL]},
            end=40,
        ),
        made("i", 4, "model_inference", "s1", attributes=used, end=10),
        tool("k", 20, "s1", attributes={"gen_ai.tool.call.result": "r"}),
        made(
            "s2", 50, "model_step", "g", input=SHORT, output={"text": "a", "toolCalls": []}, end=60
        ),
    ]


def test_a_turn_is_told_by_its_generation_its_steps_and_its_tools():
    """Shortened history is not taken for what was said; tokens come from the inference."""
    found = only(*turn([]))

    assert brief(found.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert (found.agent, found.conversation_id, found.gaps) == ("desk", "thread", ())
    assert (found.models, found.usage.input_tokens, found.usage.model_calls) == (("m",), 7, 2)


def test_earlier_turns_are_whole():
    """A generation's input holds earlier calls and results in full."""
    history = [
        {"role": "user", "content": "before"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool-call", "toolCallId": "o", "toolName": "look", "input": {"x": 0}}
            ],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "o",
                    "toolName": "look",
                    "output": {"type": "error-text", "value": "bad"},
                }
            ],
        },
        {"role": "assistant", "content": "no"},
    ]
    found = only(*turn(history))

    assert brief(found.messages)[:4] == [
        ("user", "before"),
        ("assistant", [("look", {"x": 0})]),
        ("tool", "bad"),
        ("assistant", "no"),
    ]
    assert (found.messages[2].is_error, found.new_from) == (True, 4)


def test_a_generation_without_steps_is_the_model_call():
    """Older versions have no spans of steps."""
    found = only(
        made("a", 1, "agent_run", attributes=AGENT, input="q", output={"text": "a"}, end=99),
        made("g", 2, "llm_generation", "a", input={"messages": SHORT[:1]}, output={"text": "a"}),
    )

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert found.gaps == ()


def test_a_failed_tool_is_an_error():
    """A tool's span with an error status gives a result with the exception's text."""
    spans = turn([])
    spans[4] = tool("k", 20, "s1", status_code=2, status_message="order not found")
    found = only(*spans)

    assert (found.messages[2].content, found.messages[2].is_error) == (
        "Error: order not found",
        True,
    )


@pytest.mark.parametrize("hidden", [("s1", "output"), ("g", "input")])
def test_hidden_content_is_a_gap(hidden: tuple[str, str]):
    """With `hideInput` or `hideOutput`, what is missing is named."""
    name, side = hidden
    spans = []
    for one in turn([]):
        lost = [key for key in one.attributes if key.endswith(f".{side}")]
        attributes = {
            k: v for k, v in one.attributes.items() if one.span_id != name or k not in lost
        }
        if name == "g" and one.span_id == "s1":
            attributes.pop("mastra.model_step.input")
        spans.append(
            span(
                one.span_id,
                one.start_ns,
                parent=one.parent_id,
                end=one.end_ns,
                attributes=attributes,
            )
        )

    assert "content_not_captured" in codes(only(*spans))


def test_the_order_of_arrival_does_not_matter():
    """Steps are paired with their generation whatever comes first."""
    assert reconstruct(turn([])[::-1]) == reconstruct(turn([]))
