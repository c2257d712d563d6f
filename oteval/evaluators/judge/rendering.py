"""What a judge is told: a prompt, filled in with what is to be judged, as OpenAI messages.

A prompt is a text (`templates`), a LangChain prompt, or a callable that returns messages. Texts and
LangChain prompts get variables as blocks of data (`transcript`), but for those that are declared as
instructions; a callable gets the values as they were given, and a trajectory as its text.

A variable that a prompt shows must have a value, and an empty text is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...errors import ConfigError, VariableMissing
from ...jsontext import dumps
from ...model import Message
from ..messages import ROLES, convert, field, to_messages
from .attachments import parts_of
from .prompts import optional_of
from .templates import closest, fields_of, fill, missing, problem_of
from .transcript import LeftOut, block, frame, new_nonce, task_again

__all__ = ["EXAMPLES", "INSTRUCTIONS", "Prompt", "Rendered", "check_prompt", "plain"]

INSTRUCTIONS = frozenset({"rubric"})
"""The variables that are instructions of whoever sets the task, unless said otherwise."""

EXAMPLES = "few_shot_examples"
"""The name by which examples of verdicts are declared as instructions."""

ChatMessages = list[dict[str, Any]]


@dataclass(frozen=True)
class Rendered:
    """What a judge is told.

    Attributes:
        messages: OpenAI's form.
        nonce: What the delimiters of the data carry, or "".
        left_out: What the data does not show.
    """

    messages: ChatMessages
    nonce: str
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """How what a judge is told is made.

    Attributes:
        template: A text, a LangChain prompt, or a callable that returns messages.
        system: A system message to put first, or "".
        few_shot: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        harden: Whether data stands in blocks, with a frame after them.
        instructions: The variables that are instructions, and `EXAMPLES` if the examples are.
        as_text: Makes the text of a value that holds data where it does not stand in a block.
    """

    template: Any
    system: str = ""
    few_shot: tuple[Mapping[str, Any], ...] = ()
    harden: bool = True
    instructions: frozenset[str] = INSTRUCTIONS
    as_text: Callable[[Any], str] | None = None

    def render(self, values: Mapping[str, Any], attachments: Any = None) -> Rendered:
        """Return what a judge is told about some values.

        Args:
            values: The variables' values, None where there is none.
            attachments: What `attachments.parts_of` takes.

        Raises:
            VariableMissing: The prompt shows a variable that has no value.
            InputError: A value, an attachment or what the prompt returns is of no known form.
        """
        nonce, left_out = new_nonce(), list[LeftOut]()
        texts = {name: self._text(name, value, nonce, left_out) for name, value in values.items()}
        parts = [self._attached(part, nonce, left_out) for part in parts_of(attachments)]
        task = ""
        if isinstance(self.template, str):
            self._refuse_missing(values, attachments)
            messages, task = self._of_text(values, texts, parts)
        elif _is_langchain(self.template):
            messages = self._of_langchain(values, texts)
            _append(messages, parts)
        else:
            messages = self._of_callable(values)
            _append(messages, parts)
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        examples_are_data = self.harden and EXAMPLES not in self.instructions
        if self.few_shot:
            shown = [_example(example) for example in self.few_shot]
            text = (
                f"Examples of how to judge:\n\n{block(EXAMPLES, shown, nonce, left_out)}"
                if examples_are_data
                else _examples(shown)
            )
            _append(messages, [_text_part(text)])
        if f" {nonce}]]" in dumps(messages):
            named = EXAMPLES if self.few_shot and examples_are_data else ""
            closing = frame(nonce, task, examples=named, left_out=left_out)
            _append(messages, [_text_part(closing)])
        return Rendered(messages, nonce, tuple(left_out))

    def _refuse_missing(self, values: Mapping[str, Any], attachments: Any) -> None:
        given = {name for name, value in values.items() if value is not None}
        if attachments is not None:
            given.add("attachments")
        optional = optional_of(self.template)
        problem = problem_of(self.template, given, optional)
        if problem:
            raise VariableMissing(problem)
        # A misspelt keyword for a variable that may be empty would be lost without a word.
        shown = fields_of(self.template)
        for name in sorted(given - shown):
            meant = closest(name, (optional & shown) - given)
            if meant:
                raise VariableMissing(
                    f"the prompt does not show {{{name}}}: did you mean {{{meant}}}?"
                )

    def _of_text(
        self,
        values: Mapping[str, Any],
        texts: Mapping[str, Callable[[], str]],
        parts: list[dict[str, Any]],
    ) -> tuple[ChatMessages, str]:
        named: dict[str, str | Callable[[], str]] = {
            name: text
            if name in self.instructions or values[name] is None
            else f"(the data called {name})"
            for name, text in texts.items()
        }
        task = task_again(fill(self.template, named))
        if not parts:
            content: Any = fill(self.template, texts)
            return [{"role": "user", "content": content}], task
        before, _, after = self.template.partition("{attachments}")
        filled = [
            _text_part(fill(text, texts)) if text.strip() else None for text in (before, after)
        ]
        content = [part for part in (filled[0], *parts, filled[1]) if part]
        return [{"role": "user", "content": content}], task

    def _text(
        self, name: str, value: Any, nonce: str, left_out: list[LeftOut]
    ) -> Callable[[], str]:
        """Return what makes a variable's text, once: most values are in no prompt."""

        def make() -> str:
            if value is None:
                return ""
            if name in self.instructions:
                return value if isinstance(value, str) else dumps(plain(value))
            if self.harden:
                return block(name, plain(value), nonce, left_out)
            return (self.as_text or _as_text)(value)

        return cache(make)

    def _attached(
        self, part: dict[str, Any], nonce: str, left_out: list[LeftOut]
    ) -> dict[str, Any]:
        """Return a part that is attached; a text is data, as any other variable."""
        is_data = self.harden and "attachments" not in self.instructions
        if part.get("type") != "text" or not is_data:
            return part
        return _text_part(block("attachments", part.get("text"), nonce, left_out))

    def _of_langchain(
        self, values: Mapping[str, Any], texts: Mapping[str, Callable[[], str]]
    ) -> ChatMessages:
        wanted = list(getattr(self.template, "input_variables", ()) or values)
        given = {name for name, value in values.items() if value is not None}
        for name in wanted:
            if name not in given:
                raise VariableMissing(missing(name, given))
        try:
            prompted = self.template.invoke({name: texts[name]() for name in wanted})
        except KeyError as error:
            raise VariableMissing(f"the prompt needs a variable: {_line(error)}") from error
        return _as_dicts(prompted.to_messages(), "the prompt's messages")

    def _of_callable(self, values: Mapping[str, Any]) -> ChatMessages:
        known = {name: self._for_callable(value) for name, value in values.items()}
        for name in ("inputs", "outputs", "reference_outputs"):
            known.setdefault(name, None)
        returned = self.template(**known)
        if isinstance(returned, str):
            return [{"role": "user", "content": returned}]
        return _as_dicts(returned, "the prompt's messages")

    def _for_callable(self, value: Any) -> Any:
        return value if self.as_text is None or value is None else self.as_text(value)


def check_prompt(prompt: Any, system: Any, few_shot: Any) -> None:
    """Refuse a prompt that cannot be one.

    Raises:
        ConfigError: It is of no known form, or goes with no system message.
    """
    if not (isinstance(prompt, str) or callable(prompt) or _is_langchain(prompt)):
        raise ConfigError(
            f"prompt is a {type(prompt).__name__}; expected a text, a LangChain prompt, or a "
            "function that returns messages"
        )
    if isinstance(prompt, str) and not prompt.strip():
        raise ConfigError("prompt is empty; say what to judge and by what")
    if system is not None and not isinstance(prompt, str):
        raise ConfigError("system goes with a prompt that is a text; put it among the messages")
    if isinstance(prompt, str):
        # Names that are known now, whatever the evaluator is called with.
        problem = problem_of(prompt, fields_of(prompt))
        if problem:
            raise ConfigError(problem)
    for index, example in enumerate(few_shot or ()):
        if not isinstance(example, Mapping) or "outputs" not in example:
            raise ConfigError(f"few_shot_examples[{index}]: a dict with 'outputs' is needed")


def shown(prompt: Any) -> set[str] | None:
    """Return the variables that a prompt shows; None where it cannot be told."""
    return fields_of(prompt) if isinstance(prompt, str) else None


def _is_langchain(prompt: Any) -> bool:
    return not isinstance(prompt, str) and hasattr(prompt, "invoke") and hasattr(prompt, "ainvoke")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: messages of any framework become OpenAI's dicts."""
    if isinstance(value, Message):
        return value.as_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    name = field(value, "role") or field(value, "type")
    if isinstance(name, str) and name in ROLES and hasattr(value, "content"):
        found = [message.as_dict() for message in convert(value, "a message")]
        return found[0] if len(found) == 1 else found
    return plain(value.model_dump()) if hasattr(value, "model_dump") else value


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(plain(value))


def _as_dicts(value: Any, place: str) -> ChatMessages:
    if isinstance(value, (list, tuple)) and all(
        isinstance(item, Mapping) and isinstance(item.get("role"), str) for item in value
    ):
        return [dict(item) for item in value]
    return [message.as_dict() for message in to_messages(value, place)]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _append(messages: ChatMessages, parts: Sequence[dict[str, Any]]) -> None:
    """Add parts to the last user message; to one of their own where there is none."""
    if not parts:
        return
    last = next((m for m in reversed(messages) if m.get("role") in ("user", "human")), None)
    if last is None:
        last = {"role": "user", "content": ""}
        messages.append(last)
    content = last.get("content") or ""
    if isinstance(content, str) and all(part.get("type") == "text" for part in parts):
        last["content"] = "\n\n".join(
            [t for t in (content.rstrip(),) if t] + [p["text"] for p in parts]
        )
        return
    before = [_text_part(content)] if isinstance(content, str) and content else content or []
    last["content"] = [*before, *parts]


def _example(example: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a judge is shown of an example, in the order in which verdicts are made."""
    names = ("inputs", "outputs", "reference_outputs", "reasoning", "score")
    return {name: plain(example[name]) for name in names if example.get(name) is not None}


def _examples(examples: Sequence[Mapping[str, Any]]) -> str:
    """Return examples of verdicts, each on lines of JSON."""
    lines = ["Examples of how to judge:"]
    for number, example in enumerate(examples, 1):
        lines.append(f"\nExample {number}")
        lines += [f"{name}: {dumps(value)}" for name, value in example.items()]
    return "\n".join(lines)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
