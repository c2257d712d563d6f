"""A judge's prompt: templates and variables, rendered to OpenAI messages.

A prompt is a string (`templates`), a LangChain prompt, or a function that returns messages. Strings
and LangChain prompts show their variables as blocks of data (`data_blocks`), except for variables
declared as instructions. A function receives the values unchanged, and a trajectory as text. Every
variable that a prompt shows must have a value; an empty string is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...base.errors import ConfigError, VariableMissing
from ...base.jsontext import dumps
from ...messages import ROLES, field_of, role_of
from ...model import Message
from ..messages import to_messages
from .attachments import attachment_parts
from .data_blocks import OmittedData, closing_instructions, data_block, new_nonce, shorten_task
from .prompts import optional_variables
from .templates import (
    closest_name,
    fill_template,
    missing_value_message,
    template_problem,
    template_variables,
)

__all__ = [
    "FEW_SHOT_EXAMPLES",
    "INSTRUCTION_VARIABLES",
    "Prompt",
    "RenderedPrompt",
    "check_prompt",
    "given_variables",
    "to_json",
    "trajectory_text",
    "trajectory_variables",
]

INSTRUCTION_VARIABLES = frozenset({"rubric"})
"""The variables that are instructions by default; all others are data."""

FEW_SHOT_EXAMPLES = "few_shot_examples"
"""The name that declares the few-shot examples as instructions."""

ChatMessages = list[dict[str, Any]]


@dataclass(frozen=True)
class RenderedPrompt:
    """The messages for one question.

    Attributes:
        messages: Messages in OpenAI's format.
        nonce: The random part of the data's delimiters.
        left_out: The data that the messages do not show.
    """

    messages: ChatMessages
    nonce: str
    left_out: tuple[OmittedData, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """A prompt and the way its variables are shown.

    Attributes:
        template: A string, a LangChain prompt, or a function that returns messages.
        system: A system message to put first, or "".
        few_shot: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        harden: Whether to show data in blocks, followed by closing instructions.
        instructions: The variables that are instructions; `FEW_SHOT_EXAMPLES` for the examples.
        to_text: Converts data to text if no block shows it.
        optional: Variables that are empty without a value, in addition to the variables of bundled
            prompts.
    """

    template: Any
    system: str = ""
    few_shot: tuple[Mapping[str, Any], ...] = ()
    harden: bool = True
    instructions: frozenset[str] = INSTRUCTION_VARIABLES
    to_text: Callable[[Any], str] | None = None
    optional: frozenset[str] = frozenset()

    def render(self, values: Mapping[str, Any], attachments: Any = None) -> RenderedPrompt:
        """The messages for some values.

        Args:
            values: The variables' values; None means that a variable has no value.
            attachments: See `attachment_parts`.

        Raises:
            VariableMissing: A variable in the prompt has no value.
            InputError: A value, an attachment or the prompt's return value has an unknown form.
        """
        data = _DataBlocks(self, new_nonce(), [])
        texts = {name: data.lazy_text(name, value) for name, value in values.items()}
        parts = [data.attachment(part) for part in attachment_parts(attachments)]
        task = ""
        if isinstance(self.template, str):
            self._require_values(values, attachments)
            messages, task = self._render_string(values, texts, parts)
        elif _is_langchain_prompt(self.template):
            messages = self._render_langchain(values, texts)
            _append_parts(messages, parts)
        else:
            messages = self._call_function(values)
            _append_parts(messages, parts)
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        examples = data.examples()
        if examples:
            _append_parts(messages, [_text_part(examples)])
        if _contains(messages, data.nonce_mark):
            examples_name = FEW_SHOT_EXAMPLES if examples and data.are_examples_data else ""
            closing = closing_instructions(
                data.nonce, task, examples=examples_name, left_out=data.left_out
            )
            _append_parts(messages, [_text_part(closing)])
        return RenderedPrompt(messages, data.nonce, tuple(data.left_out))

    def _require_values(self, values: Mapping[str, Any], attachments: Any) -> None:
        available = self._available(values)
        if attachments is not None:
            available.add("attachments")
        problem = _variable_problem(self.template, frozenset(available))
        if problem:
            raise VariableMissing(problem)

    def _available(self, values: Mapping[str, Any]) -> set[str]:
        """The variables that have a value, or need none."""
        return {
            name for name, value in values.items() if value is not None or name in self.optional
        }

    def _render_string(
        self,
        values: Mapping[str, Any],
        texts: Mapping[str, Callable[[], str]],
        parts: list[dict[str, Any]],
    ) -> tuple[ChatMessages, str]:
        """The messages, and the task with names in place of the data."""
        references: dict[str, str | Callable[[], str]] = {
            name: text
            if name in self.instructions or values[name] is None
            else f"(the data called {name})"
            for name, text in texts.items()
        }
        task = shorten_task(fill_template(self.template, references))
        if not parts:
            return [{"role": "user", "content": fill_template(self.template, texts)}], task
        before, _, after = self.template.partition("{attachments}")
        content = [
            *([_text_part(fill_template(before, texts))] if before.strip() else []),
            *parts,
            *([_text_part(fill_template(after, texts))] if after.strip() else []),
        ]
        return [{"role": "user", "content": content}], task

    def _render_langchain(
        self, values: Mapping[str, Any], texts: Mapping[str, Callable[[], str]]
    ) -> ChatMessages:
        names = list(getattr(self.template, "input_variables", ()) or values)
        available = self._available(values)
        for name in names:
            if name not in available:
                raise VariableMissing(missing_value_message(name, available))
        try:
            rendered = self.template.invoke({name: texts[name]() for name in names})
        except KeyError as error:
            missing = " ".join(str(error).split())[:300]
            raise VariableMissing(f"the prompt needs a variable: {missing}") from error
        return _message_dicts(rendered.to_messages())

    def _call_function(self, values: Mapping[str, Any]) -> ChatMessages:
        arguments = dict.fromkeys(("inputs", "outputs", "reference_outputs"))
        for name, value in values.items():
            arguments[name] = value
            if self.to_text is not None and value is not None:
                arguments[name] = self.to_text(value)
        returned = self.template(**arguments)
        if isinstance(returned, str):
            return [{"role": "user", "content": returned}]
        return _message_dicts(returned)


@dataclass
class _DataBlocks:
    """The data of one question, rendered as blocks with the question's nonce."""

    prompt: Prompt
    nonce: str
    left_out: list[OmittedData]

    @property
    def nonce_mark(self) -> str:
        """The end of every delimiter, which shows that messages have blocks."""
        return f" {self.nonce}]]"

    def lazy_text(self, name: str, value: Any) -> Callable[[], str]:
        """A function that makes a variable's text once; most values are in no prompt."""
        cached_text: str | None = None

        def text() -> str:
            nonlocal cached_text
            if cached_text is None:
                cached_text = self._text(name, value)
            return cached_text

        return text

    def _text(self, name: str, value: Any) -> str:
        if value is None:
            return ""
        if name in self.prompt.instructions:
            return _default_text(value)
        if self.prompt.harden:
            return data_block(name, to_json(value), self.nonce, self.left_out)
        return (self.prompt.to_text or _default_text)(value)

    def attachment(self, part: dict[str, Any]) -> dict[str, Any]:
        """An attached part; text becomes a block of data."""
        is_data = self.prompt.harden and "attachments" not in self.prompt.instructions
        if part.get("type") != "text" or not is_data:
            return part
        return _text_part(data_block("attachments", part.get("text"), self.nonce, self.left_out))

    @property
    def are_examples_data(self) -> bool:
        return self.prompt.harden and FEW_SHOT_EXAMPLES not in self.prompt.instructions

    def examples(self) -> str:
        """The text of the few-shot examples, or ""."""
        if not self.prompt.few_shot:
            return ""
        ordered_examples = [_ordered_example(example) for example in self.prompt.few_shot]
        if self.are_examples_data:
            block = data_block(FEW_SHOT_EXAMPLES, ordered_examples, self.nonce, self.left_out)
            return f"Examples of how to judge:\n\n{block}"
        lines = ["Examples of how to judge:"]
        for number, example in enumerate(ordered_examples, 1):
            lines.append(f"\nExample {number}")
            lines += [f"{name}: {dumps(value)}" for name, value in example.items()]
        return "\n".join(lines)


def check_prompt(prompt: Any, system: Any, few_shot: Any) -> None:
    """Check the parts of a prompt.

    Raises:
        ConfigError: The prompt has an unknown form, is empty, or does not accept a system message;
            or an example has no outputs.
    """
    if not (isinstance(prompt, str) or callable(prompt) or _is_langchain_prompt(prompt)):
        raise ConfigError(
            f"prompt is a {type(prompt).__name__}; expected a text, a LangChain prompt, or a "
            "function that returns messages"
        )
    if isinstance(prompt, str) and not prompt.strip():
        raise ConfigError("prompt is empty; describe the task and the criteria")
    if system is not None and not isinstance(prompt, str):
        raise ConfigError("system goes with a prompt that is a text; put it among the messages")
    if isinstance(prompt, str):
        problem = template_problem(prompt, template_variables(prompt))
        if problem:
            raise ConfigError(problem)
    for index, example in enumerate(few_shot or ()):
        if not isinstance(example, Mapping) or "outputs" not in example:
            raise ConfigError(f"few_shot_examples[{index}]: a dict with 'outputs' is needed")


@lru_cache
def _variable_problem(template: str, available: frozenset[str]) -> str:
    """A message about a missing or misspelt variable, or "".

    Args:
        template: The prompt.
        available: The variables that have a value.
    """
    optional = optional_variables(template)
    problem = template_problem(template, available, optional)
    if problem:
        return problem
    # A misspelt keyword for an optional variable would be ignored silently.
    variables = template_variables(template)
    for name in sorted(available - variables):
        meant = closest_name(name, (optional & variables) - available)
        if meant:
            return f"the prompt does not show {{{name}}}: did you mean {{{meant}}}?"
    return ""


def _is_langchain_prompt(prompt: Any) -> bool:
    return not isinstance(prompt, str) and hasattr(prompt, "invoke") and hasattr(prompt, "ainvoke")


def given_variables(
    outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an evaluator as variables, unchanged."""
    return {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, **extra}


def trajectory_variables(
    outputs: Any, reference_outputs: Any, inputs: Any, extra: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of an evaluator as variables, trajectories as OpenAI messages."""
    has_reference = reference_outputs is not None and reference_outputs != ""
    return {
        **extra,
        "inputs": inputs,
        "outputs": _trajectory_messages(outputs, "outputs"),
        "reference_outputs": (
            _trajectory_messages(reference_outputs, "reference_outputs") if has_reference else None
        ),
    }


def _trajectory_messages(value: Any, name: str) -> list[dict[str, Any]]:
    return [message.as_dict() for message in to_messages(value, name)]


def trajectory_text(value: Any) -> str:
    """A trajectory as text: a paragraph for each message, a line for each tool call."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return dumps(value)
    return "\n\n".join(_message_text(message) for message in value)


def _message_text(message: Any) -> str:
    if not isinstance(message, Mapping) or "role" not in message:
        return dumps(message)
    content = message.get("content")
    text = content if isinstance(content, str) else dumps(content) if content else ""
    name = f" {message['name']}" if message.get("name") else ""
    failed = " (failed)" if message.get("is_error") else ""
    lines = [f"{message['role']}{name}{failed}: {text}".rstrip()]
    for call in message.get("tool_calls") or ():
        function = call.get("function", {})
        lines.append(f"  calls {function.get('name')}({function.get('arguments')})")
    return "\n".join(lines)


def to_json(value: Any) -> Any:
    """A value as JSON values; messages of any framework become OpenAI's dicts."""
    # The common types come first.
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (dict, Mapping)):
        return {
            str(key): item if type(item) is str else to_json(item) for key, item in value.items()
        }
    if isinstance(value, Message):
        return value.as_dict()
    name = field_of(value, "role") or field_of(value, "type")
    if role_of(name) in ROLES and hasattr(value, "content"):
        trajectory_messages = _trajectory_messages([value], "a message")
        return trajectory_messages[0] if len(trajectory_messages) == 1 else trajectory_messages
    return to_json(value.model_dump()) if hasattr(value, "model_dump") else value


def _default_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(to_json(value))


def _message_dicts(value: Any) -> ChatMessages:
    """A prompt's messages as OpenAI's dicts."""
    if isinstance(value, (list, tuple)) and all(
        isinstance(item, Mapping) and isinstance(item.get("role"), str) for item in value
    ):
        return [dict(item) for item in value]
    return [message.as_dict() for message in to_messages(value, "the prompt's messages")]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _contains(messages: ChatMessages, mark: str) -> bool:
    """Whether a text in some messages contains a mark."""
    for message in messages:
        content = message.get("content")
        if isinstance(content, str) and mark in content:
            return True
    return mark in dumps(messages)


def _append_parts(messages: ChatMessages, parts: Sequence[dict[str, Any]]) -> None:
    """Append content parts to the last user message, or to a new message if there is none."""
    if not parts:
        return
    last = next((m for m in reversed(messages) if m.get("role") in ("user", "human")), None)
    if last is None:
        last = {"role": "user", "content": ""}
        messages.append(last)
    content = last.get("content") or ""
    if isinstance(content, str) and all(part.get("type") == "text" for part in parts):
        before = [content.rstrip()] if content.rstrip() else []
        last["content"] = "\n\n".join([*before, *(part["text"] for part in parts)])
        return
    before_parts = [_text_part(content)] if isinstance(content, str) and content else content or []
    last["content"] = [*before_parts, *parts]


def _ordered_example(example: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a few-shot example in the order of a verdict."""
    names = ("inputs", "outputs", "reference_outputs", "reasoning", "score")
    return {name: to_json(example[name]) for name in names if example.get(name) is not None}
