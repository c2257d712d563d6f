"""DSPy: a ReAct agent whose calls are text, as OpenInference writes it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span

from .builders import brief, codes, only, span

SCOPE = "openinference.instrumentation.dspy"
KIND = "openinference.span.kind"
REQUEST = "Respond with the corresponding output fields, starting with the field `[[ ## x ## ]]`."


def headers(**fields: str) -> str:
    return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items())


def elements(**fields: str) -> str:
    return "\n\n".join(f"<{name}>\n{text}\n</{name}>" for name, text in fields.items())


def as_json(**fields: str) -> str:
    return json.dumps({k: json.loads(v) if v[:1] == "{" else v for k, v in fields.items()})


def lm(name: str, start: int, sent: list[tuple[str, str]], text: str, **fields: Any) -> Span:
    attributes = {KIND: "LLM", "llm.output_messages.0.message.content": text}
    for i, (role, content) in enumerate(sent):
        attributes[f"llm.input_messages.{i}.message.role"] = role
        attributes[f"llm.input_messages.{i}.message.content"] = content
    return span(name, start, scope=SCOPE, title="LM.__call__", attributes=attributes, **fields)


def used(name: str, start: int, of: str, result: str | None, **fields: Any) -> Span:
    attributes = {KIND: "TOOL", "input.value": '{"kwargs": {"city": "Paris"}}'}
    if result is not None:
        attributes["output.value"] = json.dumps(result)
    return span(name, start, scope=SCOPE, title=f"{of}.acall", attributes=attributes, **fields)


STEP = {"thought": "t", "tool_name": "look", "tool_args": '{"city": "Paris"}'}
ASKS = {f"next_{name}": text for name, text in STEP.items()}
TOLD = {f"{name}_0": text for name, text in STEP.items()} | {"observation_0": "sunny"}


@pytest.mark.parametrize(
    ("prompt", "answer"), [(headers, headers), (headers, as_json), (elements, elements)]
)
def test_a_react_agents_texts_become_calls_and_results(prompt: Any, answer: Any):
    """The question, each step, and the last fields are messages, in every adapter's format."""
    first = f"{prompt(question='q', trajectory='')}\n\n{REQUEST}"
    second = f"{prompt(question='q')}\n\n{prompt(trajectory=prompt(**TOLD))}\n\n{REQUEST}"
    found = only(
        span("r", 1, end=9, scope=SCOPE, title="ReAct.forward", attributes={KIND: "CHAIN"}),
        lm("c", 2, [("user", first)], answer(**ASKS), parent="r"),
        used("t", 4, "look", "sunny", parent="r"),
        lm("d", 6, [("user", second)], answer(reasoning="why", answer="a"), parent="r"),
    )

    assert found.agent == "ReAct"
    assert brief(found.messages) == [
        ("user", "q"), ("assistant", [("look", {"city": "Paris"})]), ("tool", "sunny"),
        ("assistant", "a"),
    ]  # fmt: skip
    assert codes(found) == []


def test_a_failed_tool_is_an_error():
    """The observation is the error's text; it is flagged with and without the tool's span."""
    told = TOLD | {"observation_0": "Execution error in look: no such city"}
    second = f"{headers(question='q', trajectory='', **told)}\n\n{REQUEST}"

    found = only(lm("d", 6, [("user", second)], headers(answer="a")))

    assert [m.is_error for m in found.messages if m.role == "tool"] == [True]


def test_examples_and_history_are_not_part_of_the_question():
    """Only the last fields of a ReAct agent's prompt are what it was asked."""
    prompt = [
        ("user", headers(question="other")),
        ("assistant", headers(**dict.fromkeys(ASKS, "None"))),
        ("user", f"{headers(question='q', trajectory='')}\n\n{REQUEST}"),
    ]

    found = only(lm("c", 1, prompt, headers(**ASKS)))

    assert brief(found.messages) == [("user", "q"), ("assistant", [("look", {"city": "Paris"})])]


def test_other_programs_prompts_stay_as_they_are():
    """A predictor without tools is shown with the texts that the model saw."""
    prompt = f"{headers(question='q')}\n\n{REQUEST}"

    found = only(lm("c", 1, [("user", prompt)], headers(answer="a")))

    assert brief(found.messages) == [("user", prompt), ("assistant", headers(answer="a"))]


def test_a_run_without_model_spans_is_told_by_its_module():
    """The module's span has the question and the answer."""
    attributes = {
        KIND: "CHAIN",
        "input.value": '{"input_args": {"question": "q", "history": "messages=[]"}}',
        "output.value": '{"trajectory": {"thought_0": "t"}, "reasoning": "why", "answer": "a"}',
    }

    found = only(span("r", scope=SCOPE, title="Helper.aforward", attributes=attributes))

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert found.agent == "Helper"
