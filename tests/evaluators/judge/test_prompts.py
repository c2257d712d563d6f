"""What a judge is told: templates, LangChain prompts, functions, examples, attachments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.prompts.structured import StructuredPrompt

import oteval
from oteval import (
    ConfigError,
    InputError,
    create_llm_as_judge,
    create_trajectory_llm_as_judge,
)
from oteval.evaluators.judge import PROMPTS
from oteval.evaluators.judge.prompts import optional_variables
from oteval.evaluators.judge.templates import fill_template, template_variables


class Heard:
    """A judge that remembers what it was told."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer or {"reasoning": "r", "score": True}
        self.messages: list[dict[str, Any]] = []
        self.schema: dict[str, Any] = {}

    def __call__(self, messages: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
        """Remember, and give the one answer it has."""
        self.messages, self.schema = messages, schema
        return self.answer

    @property
    def text(self) -> str:
        """The last message's text."""
        content = self.messages[-1]["content"]
        assert isinstance(content, str)
        return content


def told(prompt: Any, call: dict[str, Any], **options: Any) -> Heard:
    """Ask, and return the judge that heard it; without hardening unless it is asked for."""
    heard = Heard()
    known = {"harden": False, **options}
    evaluate = create_llm_as_judge(prompt=prompt, judge=heard, **known)
    assert evaluate(**call)["score"] is True
    return heard


@pytest.mark.parametrize(
    ("template", "values", "expected"),
    [
        ("{inputs}|{outputs}", {"inputs": "a", "outputs": "b"}, "a|b"),
        ("{inputs}|{outputs}", {"outputs": "b"}, "|b"),
        ("{outputs!r:>5}", {"outputs": "b"}, "  'b'"),
        ('{{"score": 1}} {outputs}', {"outputs": "b"}, '{"score": 1} b'),
        ('{"score": {"a": 1}} {outputs}', {"outputs": "b"}, '{"score": {"a": 1}} b'),
        (
            '{"score": {"a": 1}} {{score}} {outputs}',
            {"outputs": "b"},
            '{"score": {"a": 1}} {score} b',
        ),
        ("say {score} of {outputs}", {"outputs": "b"}, "say {score} of b"),
        ("a { b } {} {0} {outputs}", {"outputs": "b"}, "a { b } {} {0} b"),
        ("} {outputs} {", {"outputs": "b"}, "} b {"),
        ("{outputs.__class__} {outputs}", {"outputs": "b"}, "{outputs.__class__} b"),
        ("{criteria}: {outputs}", {"criteria": "kind", "outputs": "{inputs}"}, "kind: {inputs}"),
        ("{rubric}{reference_outputs}.", {}, "."),
    ],
)
def test_templates_are_filled_in(template: str, values: dict[str, str], expected: str):
    """Known variables are replaced once, missing ones are empty, and other braces stay."""
    assert fill_template(template, values) == expected


@pytest.mark.parametrize(
    ("prompt", "call", "named"),
    [
        ("{outptus}", {"outputs": "x"}, r"\{outptus\}.*did you mean \{outputs\}\?"),
        ("{outputs} {rubrik}", {"outputs": "x", "rubric": "r"}, r"\{rubrik\}.*\{rubric\}\?"),
        ("{outputs} {score}", {"outputs": "x"}, r"\{score\}.*give score=.*\{\{score\}\}"),
        ('{"a": {"b": 1}} {outputs} {score}', {"outputs": "x"}, r"\{score\}, which has no value"),
        ("{outputs} {inputs}", {"outputs": "x"}, r"\{inputs\}.*inputs=\"\" if it is empty"),
        ("{outputs} {inputs}", {"outputs": "x", "inputs": None}, r"\{inputs\}"),
        ("{outputs}", {"inputs": "x"}, r"\{outputs\}"),
        ("{outputs} {reference_outputs}", {"outputs": "x"}, r"\{reference_outputs\}"),
        ("{outputs} {rubric}", {"outputs": "x"}, r"\{rubric\}"),
        ("{outputs} {context}", {"outputs": "x"}, r"\{context\}"),
        ("{outputs} {attachments}", {"outputs": "x"}, r"\{attachments\}"),
        ("{outputs} {tone}", {"outputs": "x", "tone": None}, r"\{tone\}"),
        (oteval.CONCISENESS_PROMPT, {"outputs": "x"}, r"\{inputs\}"),
        (oteval.CONCISENESS_PROMPT, {"outputs": "x", "inputs": "y", "rubrik": "z"}, r"\{rubrik\}"),
    ],
)
@pytest.mark.parametrize("harden", [True, False])
def test_a_variable_without_a_value_is_an_error_that_names_it(
    prompt: str, call: dict[str, Any], named: str, harden: bool
):
    """Nobody is asked about what is not there; the error is a KeyError, as in openevals."""
    heard = Heard()
    evaluate = create_llm_as_judge(prompt=prompt, judge=heard, harden=harden)

    with pytest.raises(InputError, match=named) as told:
        evaluate(**call)

    assert isinstance(told.value, KeyError)
    assert "\n" not in str(told.value)
    assert heard.messages == []


def test_a_trajectory_judge_needs_what_its_prompt_shows():
    """The default prompt compares: without a reference there is nothing to compare with."""
    evaluate = create_trajectory_llm_as_judge(judge=Heard())
    outputs = [{"role": "user", "content": "hi"}]

    for reference in (None, ""):
        with pytest.raises(InputError, match="reference_outputs"):
            evaluate(outputs=outputs, reference_outputs=reference)
    assert evaluate(outputs=outputs, reference_outputs=outputs)["score"] is True


def test_a_graph_judge_is_shown_a_thread():
    """Variables that the prompt calls optional may be missing."""
    evaluate = oteval.create_graph_trajectory_llm_as_judge(judge=Heard())

    assert evaluate(outputs={"steps": [["__start__", "agent"]]})["score"] is True


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("{{outputs}}", r"\{\{outputs\}\}, which is text: write \{outputs\}"),
        ("{{ outputs }}", r"write \{outputs\}"),
        ("{outputs} {inputs[question]}", r"\{inputs\[question\]\}, which is not filled in"),
        ("{outputs} {inputs.question}", r"write \{inputs\}"),
        ("{outputs} { inputs }", r"write \{inputs\}"),
    ],
)
def test_a_variable_that_would_be_text_is_refused(prompt: str, named: str):
    """At creation, because the judge would read the braces."""
    with pytest.raises(ConfigError, match=named):
        create_llm_as_judge(prompt=prompt, judge=Heard())


@pytest.mark.parametrize(
    "prompt",
    [
        'Answer like {"score": {"a": 1}}. {outputs}',
        "def f() { return } {outputs}",
        "Say {{score}}. {outputs}",
        "{} {0} {outputs}",
        "{outputs!r} {outputs:>9}",
        "{{outputs}} is what {outputs} stands for",
    ],
)
def test_other_braces_are_literal(prompt: str):
    """A prompt may show JSON or code."""
    assert "data of mine" in told(prompt, {"outputs": "data of mine"}).text


def test_langchain_prompts_need_their_variables_too():
    """Including the standard ones."""
    prompt = ChatPromptTemplate([("human", "{outputs} {reference_outputs}")])

    with pytest.raises(KeyError, match="reference_outputs"):
        create_llm_as_judge(prompt=prompt, judge=Heard())(outputs="x")


def test_a_prompt_says_which_of_its_variables_are_optional():
    """A line that says "if it is known" and the like makes the variable after it optional."""
    both = oteval.TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE

    assert optional_variables(both) == {"rubric", "inputs"}
    assert optional_variables(f"{both} And mind {{tone}}.") == {"rubric", "inputs"}
    assert optional_variables(oteval.GRAPH_TRAJECTORY_ACCURACY_PROMPT) == {
        "rubric",
        "inputs",
        "reference_outputs",
    }
    assert optional_variables("The request, if it is known:\n\n{inputs}") == set()


def test_the_variables_of_a_template_are_known():
    """In both kinds of template."""
    assert template_variables("{a} {{b}} {c!r}") == {"a", "c"}
    assert template_variables('{"x": 1} {outputs}') == {"outputs"}


def test_other_values_become_json():
    """Dicts and LangChain messages become JSON; an empty string stays empty."""
    call = {"inputs": {"q": 1}, "outputs": [AIMessage("hi")], "reference_outputs": ""}

    heard = told("{inputs}|{outputs}|{reference_outputs}|", call)

    inputs, outputs, reference, _ = heard.text.split("|")
    assert json.loads(inputs) == {"q": 1}
    assert json.loads(outputs) == [{"role": "assistant", "content": "hi"}]
    assert reference == ""


def test_functions_get_the_arguments_of_the_evaluator():
    """The messages that a function returns are sent unchanged."""
    seen: dict[str, Any] = {}

    def prompt(**values: Any) -> list[dict[str, Any]]:
        seen.update(values)
        return [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]

    heard = told(prompt, {"outputs": {"a": 1}, "extra": 2})

    assert seen == {"inputs": None, "outputs": {"a": 1}, "reference_outputs": None, "extra": 2}
    assert heard.messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
    ]


def test_functions_may_return_a_text_or_messages_of_langchain():
    """Either becomes OpenAI's messages."""
    assert told(lambda **_: "hello", {"outputs": 1}).messages == [
        {"role": "user", "content": "hello"}
    ]
    heard = told(lambda **_: [SystemMessage("s"), HumanMessage("u")], {"outputs": 1})
    assert [message["role"] for message in heard.messages] == ["system", "user"]


def test_langchain_prompts_are_filled_in_with_blocks():
    """They have the same variables, and data is shown in blocks."""
    prompt = ChatPromptTemplate([("system", "Be {mood}."), ("human", "{outputs}{inputs}")])
    call = {"outputs": "o", "mood": "kind", "inputs": ""}

    heard = told(prompt, call, harden=True, instruction_variables=["mood"])

    assert heard.messages[0] == {"role": "system", "content": "Be kind."}
    assert heard.text.startswith("[[data outputs ")
    assert "recorded data for you to judge" in heard.text


def test_a_langchain_prompt_that_lacks_a_variable_says_which():
    """The missing one is named."""
    prompt = ChatPromptTemplate([("human", "{outputs} {mood}")])
    evaluate = create_llm_as_judge(prompt=prompt, judge=Heard())

    with pytest.raises(InputError, match="mood"):
        evaluate(outputs="x")


@pytest.mark.filterwarnings("ignore:The class `StructuredPrompt` is in beta")
def test_a_structured_prompt_decides_what_is_returned():
    """Its schema is the answer's, and the evaluator returns the answer."""
    schema = {
        "title": "grade",
        "description": "d",
        "type": "object",
        "properties": {"grade": {"type": "string", "enum": ["A", "B"]}},
        "required": ["grade"],
    }
    prompt = StructuredPrompt([("human", "{outputs}")], schema)
    heard = Heard(grade="A")

    assert create_llm_as_judge(prompt=prompt, judge=heard)(outputs="x") == {"grade": "A"}
    with pytest.raises(ConfigError, match="has a schema already"):
        create_llm_as_judge(prompt=prompt, judge=heard, output_schema=schema)


def test_a_system_message_stands_first():
    """It requires a prompt that is a string."""
    assert told("{outputs}", {"outputs": "x"}, system="s").messages[0]["role"] == "system"
    with pytest.raises(ConfigError, match="system goes with a prompt that is a text"):
        create_llm_as_judge(prompt=lambda **_: "x", system="s", judge=Heard())


def test_examples_are_added_to_the_last_user_message():
    """Each with what it has of inputs, outputs, reasoning and score."""
    examples = [{"inputs": "i", "outputs": {"o": 1}, "reasoning": "why", "score": False}]

    heard = told("{outputs}", {"outputs": "x"}, few_shot_examples=examples)

    assert heard.text.startswith("x\n\nExamples of how to judge:")
    for line in ('inputs: "i"', 'outputs: {"o":1}', 'reasoning: "why"', "score: false"):
        assert line in heard.text.split("\n")
    with pytest.raises(ConfigError, match=r"few_shot_examples\[0\]: a dict with 'outputs'"):
        create_llm_as_judge(prompt="p", judge=Heard(), few_shot_examples=[{"score": True}])


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAE="}}


@pytest.mark.parametrize(
    ("attachment", "part"),
    [
        ("https://x/y.png", {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        ({"mime_type": "image/png", "data": b"\0\1"}, IMAGE),
        ({"mime_type": "image/png", "data": "AAE="}, IMAGE),
        ({"mime_type": "IMAGE/PNG; a=b", "data": "data:image/png;base64,AAE="}, IMAGE),
        (
            {"mime_type": "audio/mpeg", "data": "data:audio/mpeg;base64,AAE="},
            {"type": "input_audio", "input_audio": {"data": "AAE=", "format": "mp3"}},
        ),
        (
            {"mime_type": "audio/x-wav", "data": b"\0\1"},
            {"type": "input_audio", "input_audio": {"data": "AAE=", "format": "wav"}},
        ),
        (
            {"mime_type": "application/pdf", "data": b"\0\1", "name": "a.pdf"},
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAE="},
            },
        ),
        ({"type": "text", "text": "as it is"}, {"type": "text", "text": "as it is"}),
    ],
)
def test_attachments_are_content_parts(attachment: Any, part: dict[str, Any]):
    """Images, audio, documents and content parts appear where the prompt puts them."""
    heard = told(
        "before {attachments} after {outputs}", {"outputs": "x", "attachments": attachment}
    )

    before, shown, after = heard.messages[0]["content"]
    assert (before["text"].strip(), shown, after["text"].strip()) == ("before", part, "after x")


def test_several_attachments_stand_behind_a_prompt_without_a_place_for_them():
    """Before the examples and the closing instructions, which stay last."""
    call = {"outputs": "x", "attachments": ["https://x/1.png", "https://x/2.png"]}

    heard = told("see {outputs}", call, harden=True)

    kinds = [part["type"] for part in heard.messages[0]["content"]]
    assert kinds == ["text", "image_url", "image_url", "text"]
    assert "recorded data" in heard.messages[0]["content"][-1]["text"]


@pytest.mark.parametrize(
    ("attachment", "reason"),
    [
        (7, r"attachments\[0\] is a int"),
        ({"data": "x"}, "'mime_type' and 'data' are needed"),
        ({"mime_type": "video/mp4", "data": "x"}, "'video/mp4' is not supported"),
        ({"mime_type": "audio/wav", "data": "https://x/y.wav"}, "audio must be given as bytes"),
    ],
)
def test_unsupported_attachments_are_refused(attachment: Any, reason: str):
    """The message names the attachment and the reason."""
    evaluate = create_llm_as_judge(prompt="p", judge=Heard())

    with pytest.raises(InputError, match=reason):
        evaluate(outputs="x", attachments=attachment)


def test_trajectories_are_shown_in_openais_form_and_not_changed():
    """Messages of any framework are converted, and the caller's objects are not modified."""
    heard = Heard()
    evaluate = create_trajectory_llm_as_judge(judge=heard)
    calls = [{"name": "f", "args": {"a": 1}, "id": "1"}]
    outputs = {"messages": [HumanMessage("hi"), AIMessage("", tool_calls=calls)]}

    evaluate(outputs=outputs, reference_outputs=outputs["messages"])

    assert '"arguments":"{\\"a\\":1}"' in heard.text
    assert heard.text.count("[[data reference_outputs") == 1
    assert outputs["messages"][1].tool_calls[0]["args"] == {"a": 1}
    with pytest.raises(InputError, match="outputs is None"):
        evaluate(outputs=None)


def test_a_trajectory_without_hardening_is_text():
    """A paragraph for each message, a line for each call."""
    heard = Heard()
    evaluate = create_trajectory_llm_as_judge(judge=heard, prompt="{outputs}", harden=False)
    function = {"name": "f", "arguments": "{}"}
    failed = {"role": "tool", "tool_call_id": "1", "content": "no", "is_error": True}

    evaluate(
        outputs=[
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [{"function": function}]},
            failed,
        ]
    )

    assert heard.text == "user: hi\n\nassistant:\n  calls f({})\n\ntool (failed): no"


def test_the_prompts_are_files_one_can_read_and_public_names():
    """Each shows the variables it needs, and no unknown ones."""
    assert PROMPTS["trajectory_accuracy"] == oteval.TRAJECTORY_ACCURACY_PROMPT
    assert PROMPTS["graph_trajectory_accuracy"] == oteval.GRAPH_TRAJECTORY_ACCURACY_PROMPT
    with_reference = oteval.TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE
    base = {"inputs", "rubric"}
    assert template_variables(oteval.TRAJECTORY_ACCURACY_PROMPT) == base | {"outputs"}
    assert template_variables(with_reference) == base | {"outputs", "reference_outputs"}
    assert template_variables(oteval.GRAPH_TRAJECTORY_ACCURACY_PROMPT) == base | {
        "thread",
        "reference_outputs",
    }


@pytest.mark.parametrize("prompt", [3, "", "  ", None])
def test_other_objects_are_refused_as_prompts(prompt: Any):
    """At creation, not at the first call."""
    with pytest.raises(ConfigError, match="prompt is"):
        create_llm_as_judge(prompt=prompt, judge=Heard())
