"""LangWatch's SDK: typed values, tools, agents, and spans of other instrumentations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message, Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span

QUESTION, ANSWER = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
CHOICE, TEXT = {"message": ANSWER}, {"type": "text"}


def typed(kind: str, value: Any) -> str:
    """Return an attribute's value as LangWatch writes it."""
    return json.dumps({"type": kind, "value": value})


def spoke(name: str, start: int, kind: str, sent: str, received: str, **fields: Any) -> Span:
    """Return a span of LangWatch's."""
    attributes = {
        "langwatch.span.type": kind,
        "langwatch.input": sent,
        "langwatch.output": received,
    }
    return span(name, start, attributes=attributes, **fields)


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (typed("chat_messages", [QUESTION]), typed("chat_messages", [ANSWER])),
        (typed("text", "q"), typed("text", "a")),
        (typed("json", {"messages": [QUESTION]}), typed("json", {"choices": [CHOICE]})),
        (typed("list", [TEXT | {"value": "q"}]), typed("list", [TEXT | {"value": "a"}])),
        (json.dumps([QUESTION]), "a"),
    ],
)  # fmt: skip
def test_values_are_read_by_their_types(sent: str, received: str):
    """Messages, texts and the client's own request and response are all read."""
    found = only(spoke("c", 1, "llm", sent, received))

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert (found.dialects, found.gaps) == (("langwatch",), ())


def test_tools_complete_the_calls_of_an_agent():
    """The agent's span holds the run, the tool's span the result."""
    call = {"id": "k", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}

    found = only(
        spoke("helper", 1, "agent", typed("text", "q"), typed("text", "a"), end=20),
        spoke("c", 2, "llm", typed("chat_messages", [QUESTION]), typed("chat_messages", [asked]),
              parent="helper"),
        spoke("look", 4, "tool", typed("json", {"x": 1}), typed("text", "r"), parent="helper"),
        spoke("d", 6, "llm", "[]", typed("text", "a"), parent="helper"),
    )  # fmt: skip

    assert (found.agent, [m.role for m in found.messages]) == (
        "helper",
        ["user", "assistant", "tool", "assistant"],
    )
    assert (found.messages[2].content, found.messages[3].content) == ("r", "a")


def test_a_model_call_without_content_is_a_gap():
    """What was not captured is named."""
    attributes = {"langwatch.span.type": "llm"}

    found = only(span("c", attributes=attributes))

    assert codes(found) == ["content_not_captured"]


COMPLETIONS = [
    {"gen_ai.operation.name": "text_completion", "gen_ai.prompt": "q", "gen_ai.completion": "a"},
    {"gen_ai.system": "openai", "gen_ai.operation.name": "text_completion",
     "gen_ai.prompt": "q", "gen_ai.completion": "a"},
    {"openinference.span.kind": "LLM", "llm.prompts.0.prompt.text": "q",
     "llm.choices.0.completion.text": "a"},
    {"openinference.span.kind": "LLM", "input.value": '{"prompt": "q"}',
     "output.value": '{"object": "text_completion", "choices": [{"index": 0, "text": "a"}]}'},
    {"llm.request.type": "completion", "gen_ai.prompt.0.content": "q",
     "gen_ai.completion.0.content": "a", "gen_ai.system": "OpenAI"},
]  # fmt: skip


@pytest.mark.parametrize("attributes", COMPLETIONS, ids=lambda a: next(iter(a)))
def test_completions_before_messages(attributes: dict[str, Any]):
    """A prompt and the text that completes it are a question and an answer, in every dialect."""
    found = only(span("c", attributes=attributes, scope="opentelemetry.instrumentation.x"))

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert found.gaps == ()


GOOGLE = {"gen_ai.system": "gemini", "gen_ai.operation.name": "generate_content"}


@pytest.mark.parametrize(
    "events",
    [
        [{"event.name": "gen_ai.user.message", "content": "q"},
         {"event.name": "gen_ai.choice", "index": 0, "message": {"content": "a"}}],
        [{"name": "gen_ai.user.message", "body": {"content": {"parts": [{"text": "q"}]}}},
         {"name": "gen_ai.choice",
          "body": {"index": 0, "content": {"parts": [{"text": "a"}], "role": "model"}}}],
        [{"role": "user", "content": "q"},
         {"index": 0, "message": {"role": "assistant", "content": ["a"]}}],
    ],
)  # fmt: skip
def test_events_in_an_attribute_of_googles_client(events: list[dict[str, Any]]):
    """The events stand in one attribute, with or without their names, in Gemini's form or not."""
    attributes = {**GOOGLE, "events": json.dumps(events)}

    found: list[Message] = [m for run in reconstruct([span("c", attributes=attributes)])
                            for m in run.messages]  # fmt: skip

    assert brief(found) == [("user", "q"), ("assistant", "a")]
