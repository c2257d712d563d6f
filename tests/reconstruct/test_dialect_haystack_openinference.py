"""Haystack, as OpenInference writes it: messages as the reprs of Python objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span

SCOPE = "openinference.instrumentation.haystack"
KIND = "openinference.span.kind"


def message(role: str, *parts: str) -> str:
    content = ", ".join(parts)
    return (
        f"ChatMessage(_role=<ChatRole.{role.upper()}: {role!r}>, _content=[{content}], "
        "_name=None, _meta={'index': 0})"
    )


def said(text: str) -> str:
    return f"TextContent(text={text!r})"


CALL = "ToolCall(tool_name='look', arguments={'city': 'Paris'}, id='k1', extra=None)"
RESULT = f"ToolCallResult(result='it\\'s \"no\"', origin={CALL}, error=True)"
ASKED = [message("user", said("q"))]
TOLD = [message("assistant", CALL), message("tool", RESULT), message("assistant", said("a"))]
MESSAGES = [
    ("user", "q"),
    ("assistant", [("look", {"city": "Paris"})]),
    ("tool", 'it\'s "no"'),
    ("assistant", "a"),
]


def component(title: str, kind: str, given: Any, output: Any, **fields: Any) -> Span:
    attributes = {
        KIND: kind,
        "input.value": json.dumps(given),
        "output.value": json.dumps(output),
        **fields.pop("attributes", {}),
    }
    return span("a", scope=SCOPE, title=title, attributes=attributes, **fields)


def test_an_agents_reprs_are_its_transcript():
    """Questions, calls with their ids, results with their flag, and the answer are read."""
    given, output = {"messages": ASKED}, {"messages": ASKED + TOLD, "last_message": TOLD[-1]}

    found = only(component("Agent.run", "CHAIN", given, output))

    assert brief(found.messages) == MESSAGES
    assert (found.agent, found.messages[2].tool_call_id) == ("Agent", "k1")
    assert found.messages[2].is_error


def test_what_was_said_before_the_run_is_not_new():
    """A run that was given a history begins with what it was asked last."""
    before = [message("user", said("p")), message("assistant", said("o"))]
    given, output = {"messages": before + ASKED}, {"messages": before + ASKED + TOLD}

    found = only(component("Agent.run_async", "CHAIN", given, output))

    assert brief(found.messages)[found.new_from :] == MESSAGES


def test_a_generators_calls_and_results_are_those_of_its_raw_values():
    """Its flat messages hold texts only, which would lose what was called and returned."""
    flat = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "q",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "a",
    }
    given = {"messages": [*ASKED, *TOLD[:2]]}

    found = only(
        component("OpenAIChatGenerator.run", "LLM", given, {"replies": TOLD[2:]}, attributes=flat)
    )

    assert brief(found.messages) == MESSAGES


def test_a_prompt_builder_is_no_model_call():
    """It is of kind LLM, but only makes the text of a prompt."""
    builder = component("PromptBuilder.run", "LLM", {"template": "t"}, {"prompt": "q"})

    assert reconstruct([builder]) == []


@pytest.mark.parametrize("text", ["ChatMessage(open", "ChatMessage(__import__('os'))", "no repr"])
def test_what_is_no_repr_is_not_evaluated(text: str):
    """A text that cannot be read gives no message, and runs nothing."""
    chain = component("Agent.run", "CHAIN", {"messages": [text]}, {"messages": [text]})

    assert {code for found in reconstruct([chain]) for code in codes(found)} <= {"no_model_spans"}
