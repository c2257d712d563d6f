"""Messages and answers of any provider in the form of OpenTelemetry's GenAI conventions.

Messages are read and written by `oteval.messages`, as dicts or as objects of the providers'
libraries. A part of an unknown kind stays as it is.

`read_answer` reads a response of OpenAI's chat completions or Responses API, of Anthropic's
Messages API, a message of LangChain, a message as a dict, or a text. `AnswerStream` builds the same
from the chunks of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base.jsontext import dumps
from ..messages import NO_SOURCE, MessageCollector, field_of, plain_data, write_messages
from ..model import NO_TOKENS, TokenCounts, normal_finish_reason, read_tokens
from .content import plain

if TYPE_CHECKING:
    from ..reconstruct import ModelApi

__all__ = [
    "AnswerStream",
    "ProviderAnswer",
    "are_messages",
    "convention_messages",
    "is_message",
    "read_answer",
    "text_message",
]

_USUAL = ("user", "system", "assistant", "developer")
_LANGCHAIN = frozenset({"human", "ai", "system", "tool"})
_ITEMS = frozenset(
    {
        *("custom_tool_call", "custom_tool_call_output", "function", "function_call"),
        *("function_call_output", "message", "reasoning", "tool_call", "tool_result", "tool_use"),
    }
)


def text_message(role: str, text: str) -> dict[str, Any]:
    """A message with one text."""
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def is_message(value: Any) -> bool:
    """Whether a value is a message, or an item of the Responses API."""
    if value is None or isinstance(value, (str, bytes, int, float, list, tuple, type)):
        return False
    role = field_of(value, "role")
    if isinstance(role, str) or _is_enum_of_text(role):
        return any(field_of(value, key) is not None for key in ("content", "parts", "tool_calls"))
    kind = field_of(value, "type")
    if not isinstance(kind, str):
        return False
    return kind in _ITEMS or (kind in _LANGCHAIN and field_of(value, "content") is not None)


def are_messages(value: Any) -> bool:
    """Whether a value is a message, or a list of messages."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(is_message, value))
    return is_message(value)


def _is_enum_of_text(value: Any) -> bool:
    return isinstance(getattr(value, "value", None), str)


def convention_messages(value: Any, role: str = "user") -> list[dict[str, Any]]:
    """Convert a message, a text, or a list of both, to the conventions' form.

    Args:
        value: The messages.
        role: The role of plain texts, and of messages without a role.
    """
    items = value if isinstance(value, (list, tuple)) else [value]
    written: list[dict[str, Any]] = []
    unwritten: list[Any] = []
    for index, item in enumerate(items):
        # Histories are mostly texts. Writing one directly is six times as fast as reading it first.
        if _is_text(item) and not _goes_on(items, index):
            if unwritten:
                written += _converted(unwritten, role)
                unwritten = []
            written.append(text_message(item["role"], item["content"]))
        else:
            unwritten.append(item)
    return written + _converted(unwritten, role)


def _converted(items: Sequence[Any], role: str) -> list[dict[str, Any]]:
    if not items:
        return []
    collector = MessageCollector(NO_SOURCE, role, is_recorded=False)
    for item in items:
        collector.add(item)
    return write_messages(collector.finish())


def _is_text(item: Any) -> bool:
    """Whether a message is one text, of a role that the conventions have."""
    if type(item) is not dict or len(item) != 2 or item.get("role") not in _USUAL:
        return False
    return type(item.get("content")) is str


def _goes_on(items: Sequence[Any], index: int) -> bool:
    """Whether the next item, which names no role, may continue an answer."""
    if items[index]["role"] != "assistant" or index + 1 == len(items):
        return False
    return field_of(items[index + 1], "role") is None


@dataclass(slots=True)
class ProviderAnswer:
    """An answer of a model.

    Attributes:
        messages: The choices, in the conventions' form.
        finish_reasons: Why the model stopped, for each choice.
        model: The model that answered, or "".
        response_id: The provider's id of the answer, or "".
        tokens: The tokens used.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    model: str = ""
    response_id: str = ""
    tokens: TokenCounts = NO_TOKENS


def read_answer(value: Any) -> ProviderAnswer:
    """Read a response, a message or a text as an answer.

    Args:
        value: The response; a value in another form becomes the answer's text, as JSON.
    """
    if value is None or isinstance(value, str):
        return ProviderAnswer([] if value is None else [text_message("assistant", value)])
    choices = field_of(value, "choices")
    if isinstance(choices, (list, tuple)):
        return _of_choices(value, choices)
    if isinstance(field_of(value, "output"), (list, tuple)):
        return _of_items(value)
    if field_of(value, "type") == "message" and isinstance(field_of(value, "content"), list):
        return _of_blocks(value)
    if are_messages(value):
        messages = convention_messages(value, "assistant")
        return ProviderAnswer(messages, _calls_reason(messages), tokens=_tokens(value))
    return ProviderAnswer([text_message("assistant", dumps(plain(value)))])


def _of_choices(response: Any, choices: Any) -> ProviderAnswer:
    messages, reasons = [], []
    for choice in choices:
        messages += convention_messages(field_of(choice, "message"), "assistant")
        reason = field_of(choice, "finish_reason")
        if reason:
            reasons.append(normal_finish_reason(str(reason)))
    return _answer(response, messages, reasons)


def _of_items(response: Any) -> ProviderAnswer:
    messages = convention_messages(field_of(response, "output"), "assistant")
    incomplete = field_of(field_of(response, "incomplete_details"), "reason")
    reasons = (
        [normal_finish_reason(str(incomplete))]
        if incomplete
        else _calls_reason(messages) or ["stop"]
    )
    return _answer(response, messages, reasons)


def _of_blocks(response: Any) -> ProviderAnswer:
    message = {"role": "assistant", "content": field_of(response, "content")}
    reason = field_of(response, "stop_reason")
    reasons = [normal_finish_reason(str(reason))] if reason else []
    return _answer(response, convention_messages(message), reasons)


def _answer(response: Any, messages: list[dict[str, Any]], reasons: list[str]) -> ProviderAnswer:
    return ProviderAnswer(
        messages,
        reasons,
        model=str(field_of(response, "model", "")),
        response_id=str(field_of(response, "id", "")),
        tokens=_tokens(response),
    )


def _calls_reason(messages: list[dict[str, Any]]) -> list[str]:
    """The finish reason of an answer that calls tools."""
    parts = (part for message in messages for part in message["parts"])
    return ["tool_call"] if any(part.get("type") == "tool_call" for part in parts) else []


def _tokens(response: Any) -> TokenCounts:
    return read_tokens(plain(field_of(response, "usage") or field_of(response, "usage_metadata")))


class AnswerStream:
    """Builds an answer from the chunks of a stream: chunks of any of the APIs, or plain texts."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._events: list[dict[str, Any]] = []

    def add(self, chunk: Any) -> None:
        """Add a chunk.

        Args:
            chunk: A text, or a chunk or event of a provider.
        """
        if isinstance(chunk, str):
            self._texts.append(chunk)
            return
        event = plain_data(chunk)
        if isinstance(event, dict) and not _is_error(event):
            self._events.append({key: item for key, item in event.items() if item is not None})

    def answer(self) -> ProviderAnswer:
        """The answer so far. If there are events, plain texts are ignored."""
        api = next((api for event in self._events if (api := _api_of(event))), None)
        if api is not None:
            return read_answer(api.assembled(self._events))
        return read_answer("".join(self._texts)) if self._texts else ProviderAnswer()


def _is_error(event: Mapping[str, Any]) -> bool:
    """Whether an event ends a stream in place of the rest of its answer."""
    return event.get("type") == "error" or bool(event.get("error"))


def _api_of(event: Mapping[str, Any]) -> ModelApi | None:
    """The API whose stream has such an event, or None."""
    # Importing it takes as long as importing everything that records a call.
    from ..reconstruct import api_named

    kind = event.get("type")
    if isinstance(event.get("choices"), list):
        return api_named("chat_completions")
    if not isinstance(kind, str):
        return None
    if kind.startswith("response."):
        return api_named("responses")
    return api_named("anthropic_messages") if kind == "message_start" else None
