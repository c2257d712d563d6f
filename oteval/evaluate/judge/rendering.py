"""What a judge is told: a prompt, filled in with what is to be judged, as OpenAI messages.

A prompt is a text (`templates`), a LangChain prompt, or a callable that returns messages. Texts and
LangChain prompts get the variables that hold data as blocks (`transcript`); a callable gets the
values as they were given, and a trajectory as its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError, InputError
from ...jsontext import dumps
from ...model import Message
from ..messages import ROLES, convert, field, to_messages
from .attachments import parts_of
from .templates import STANDARD, fields_of, fill
from .transcript import block, frame, new_nonce, task_again

__all__ = ["DATA_VARIABLES", "Prompt", "Rendered", "check_prompt", "plain"]

DATA_VARIABLES = frozenset({"inputs", "outputs", "reference_outputs", "thread", "context"})
"""The variables whose values come from what is judged and not from whoever sets the task."""

ChatMessages = list[dict[str, Any]]


@dataclass(frozen=True)
class Rendered:
    """What a judge is told.

    Attributes:
        messages: OpenAI's form.
        nonce: What the delimiters of the data carry, or "".
    """

    messages: ChatMessages
    nonce: str


@dataclass(frozen=True)
class Prompt:
    """How what a judge is told is made.

    Attributes:
        template: A text, a LangChain prompt, or a callable that returns messages.
        system: A system message to put first, or "".
        few_shot: Examples with ``inputs``, ``outputs``, ``reasoning`` and ``score``.
        harden: Whether data stands in blocks, with a frame after them.
        data_variables: The variables that hold data.
        as_text: Makes the text of a value that holds data where it does not stand in a block.
    """

    template: Any
    system: str = ""
    few_shot: tuple[Mapping[str, Any], ...] = ()
    harden: bool = True
    data_variables: frozenset[str] = DATA_VARIABLES
    as_text: Callable[[Any], str] | None = None

    def render(self, values: Mapping[str, Any], attachments: Any = None) -> Rendered:
        """Return what a judge is told about some values.

        Args:
            values: The variables' values, None where there is none.
            attachments: What `attachments.parts_of` takes.

        Raises:
            InputError: A value, an attachment or what the prompt returns is of no known form.
        """
        nonce = new_nonce()
        parts = parts_of(attachments)
        if isinstance(self.template, str):
            messages, task = self._of_text(values, parts, nonce)
        elif _is_langchain(self.template):
            messages, task = self._of_langchain(values, nonce), ""
            _append(messages, parts)
        else:
            messages, task = self._of_callable(values), ""
            _append(messages, parts)
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        if self.few_shot:
            _append(messages, [_text_part(_examples(self.few_shot))])
        if f" {nonce}]]" in dumps(messages):
            _append(messages, [_text_part(frame(nonce, task))])
        return Rendered(messages, nonce)

    def _of_text(
        self, values: Mapping[str, Any], parts: list[dict[str, Any]], nonce: str
    ) -> tuple[ChatMessages, str]:
        texts = {name: self._late(name, value, nonce) for name, value in values.items()}
        task = fill(self.template, {**_named(values, self.data_variables, texts)})
        if not parts:
            content: Any = fill(self.template, texts)
            return [{"role": "user", "content": content}], task_again(task)
        before, _, after = self.template.partition("{attachments}")
        filled = [
            _text_part(fill(text, texts)) if text.strip() else None for text in (before, after)
        ]
        content = [part for part in (filled[0], *parts, filled[1]) if part]
        return [{"role": "user", "content": content}], task_again(task)

    def _late(self, name: str, value: Any, nonce: str) -> str | Callable[[], str]:
        """Return what makes a variable's text; most values are in no prompt."""
        if value is None or value == "":
            return ""
        if name not in self.data_variables:
            return lambda: value if isinstance(value, str) else dumps(plain(value))
        if self.harden:
            return lambda: block(name, plain(value), nonce)
        return lambda: (self.as_text or _as_text)(value)

    def _of_langchain(self, values: Mapping[str, Any], nonce: str) -> ChatMessages:
        wanted = set(getattr(self.template, "input_variables", ()) or values)
        texts = {name: self._late(name, value, nonce) for name, value in values.items()}
        given = {
            name: text if isinstance(text, str) else text()
            for name, text in texts.items()
            if name in wanted
        }
        given.update({name: "" for name in wanted if name in STANDARD and name not in given})
        try:
            prompted = self.template.invoke(given)
        except KeyError as error:
            raise InputError(f"the prompt needs a variable: {_line(error)}") from error
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
    for index, example in enumerate(few_shot or ()):
        if not isinstance(example, Mapping) or "outputs" not in example:
            raise ConfigError(f"few_shot_examples[{index}]: a dict with 'outputs' is needed")


def shown(prompt: Any) -> set[str] | None:
    """Return the variables that a prompt shows; None where it cannot be told."""
    return fields_of(prompt) if isinstance(prompt, str) else None


def _is_langchain(prompt: Any) -> bool:
    return not isinstance(prompt, str) and hasattr(prompt, "invoke") and hasattr(prompt, "ainvoke")


def _named(
    values: Mapping[str, Any],
    data: frozenset[str],
    texts: Mapping[str, str | Callable[[], str]],
) -> dict[str, str | Callable[[], str]]:
    """Return the variables' texts with the names of data in place of the data."""
    empty = {name for name, value in values.items() if value is None or value == ""}
    return {
        name: text if name not in data or name in empty else f"(the data called {name})"
        for name, text in texts.items()
    }


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


def _examples(examples: Sequence[Mapping[str, Any]]) -> str:
    """Return examples of verdicts, each on lines of JSON."""
    lines = ["Examples of how to judge:"]
    for number, example in enumerate(examples, 1):
        lines.append(f"\nExample {number}")
        for name in ("inputs", "outputs", "reference_outputs", "reasoning", "score"):
            if example.get(name) is not None:
                lines.append(f"{name}: {dumps(plain(example[name]))}")
    return "\n".join(lines)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
