"""Answers of models, as the providers' libraries return them: whole, or chunk by chunk.

`read_answer` reads a response of OpenAI's chat completions or Responses API, of Anthropic's
Messages API, a message of LangChain, a message as a dict, or a text. `AnswerStream` puts the same
together from the chunks of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..jsontext import dumps
from ..model import NO_TOKENS, TokenCounts, normal_finish_reason, read_tokens
from .content import plain
from .provider_messages import convention_messages, field_of, is_message, text_message

__all__ = ["AnswerStream", "ProviderAnswer", "read_answer"]


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
    """Return the answer that a response, a message or a text is.

    Args:
        value: The response; JSON of a value in another form becomes the answer's text.
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
    if is_message(value) or _is_list_of_messages(value):
        messages = convention_messages(value, "assistant")
        return ProviderAnswer(messages, _calls_reason(messages), tokens=_tokens(value))
    return ProviderAnswer([text_message("assistant", dumps(plain(value)))])


def _is_list_of_messages(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(map(is_message, value))


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
    """Return the reason of an answer that calls tools."""
    parts = (part for message in messages for part in message["parts"])
    return ["tool_call"] if any(part.get("type") == "tool_call" for part in parts) else []


def _tokens(response: Any) -> TokenCounts:
    return read_tokens(plain(field_of(response, "usage") or field_of(response, "usage_metadata")))


@dataclass(slots=True)
class _CallPieces:
    """A tool call of which pieces have come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    def as_call(self) -> dict[str, Any]:
        """Return the call in the form of OpenAI's chat messages."""
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


class AnswerStream:
    """Puts an answer together from the chunks of a stream: of any of the APIs, or plain texts."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._calls: dict[Any, _CallPieces] = {}
        self._model = ""
        self._id = ""
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._final: Any = None

    def add(self, chunk: Any) -> None:
        """Add a chunk.

        Args:
            chunk: A text, or a chunk or event of a provider.
        """
        if isinstance(chunk, str):
            self._texts.append(chunk)
            return
        kind = field_of(chunk, "type", "")
        if isinstance(field_of(chunk, "choices"), (list, tuple)):
            self._add_chat(chunk)
        elif isinstance(kind, str) and kind.startswith("response."):
            self._add_event(chunk, kind)
        elif isinstance(kind, str):
            self._add_block_event(chunk, kind)

    def _add_chat(self, chunk: Any) -> None:
        self._take_head(chunk)
        for choice in field_of(chunk, "choices")[:1]:
            delta = field_of(choice, "delta")
            self._add_text(field_of(delta, "content"))
            for piece in field_of(delta, "tool_calls", ()):
                function = field_of(piece, "function")
                call = self._call(field_of(piece, "index", 0))
                call.id = call.id or str(field_of(piece, "id", ""))
                call.name = call.name or str(field_of(function, "name", ""))
                call.arguments.append(str(field_of(function, "arguments", "")))
            self._reason = normal_finish_reason(
                str(field_of(choice, "finish_reason", self._reason))
            )

    def _add_event(self, event: Any, kind: str) -> None:
        """Add an event of the Responses API; its last one has the whole response."""
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._final = field_of(event, "response")
        elif kind == "response.output_text.delta":
            self._add_text(field_of(event, "delta"))
        elif kind == "response.output_item.added":
            item = field_of(event, "item")
            if field_of(item, "type") == "function_call":
                call = self._call(field_of(event, "output_index", 0))
                call.id, call.name = str(field_of(item, "call_id")), str(field_of(item, "name"))
        elif kind == "response.function_call_arguments.delta":
            call = self._call(field_of(event, "output_index", 0))
            call.arguments.append(str(field_of(event, "delta", "")))
        elif kind == "response.created":
            self._take_head(field_of(event, "response"))

    def _add_block_event(self, event: Any, kind: str) -> None:
        """Add an event of Anthropic's Messages API."""
        index = field_of(event, "index", 0)
        if kind == "message_start":
            self._take_head(field_of(event, "message"))
        elif kind == "content_block_start":
            block = field_of(event, "content_block")
            if field_of(block, "type") == "tool_use":
                call = self._call(index)
                call.id, call.name = str(field_of(block, "id")), str(field_of(block, "name"))
        elif kind == "content_block_delta":
            delta = field_of(event, "delta")
            self._add_text(field_of(delta, "text"))
            piece = field_of(delta, "partial_json")
            if isinstance(piece, str):
                self._call(index).arguments.append(piece)
        elif kind == "message_delta":
            reason = str(field_of(field_of(event, "delta"), "stop_reason", ""))
            self._reason = normal_finish_reason(reason) or self._reason
            self._take_usage(field_of(event, "usage"))

    def _take_head(self, response: Any) -> None:
        self._model = self._model or str(field_of(response, "model", ""))
        self._id = self._id or str(field_of(response, "id", ""))
        self._take_usage(field_of(response, "usage"))

    def _take_usage(self, used: Any) -> None:
        found = plain(used)
        if isinstance(found, Mapping):
            self._usage |= {key: value for key, value in found.items() if value is not None}

    def _add_text(self, text: Any) -> None:
        if isinstance(text, str):
            self._texts.append(text)

    def _call(self, index: Any) -> _CallPieces:
        return self._calls.setdefault(index, _CallPieces())

    def answer(self) -> ProviderAnswer:
        """Return the answer so far."""
        if self._final is not None:
            return read_answer(self._final)
        calls = [call.as_call() for call in self._calls.values()]
        message = {"role": "assistant", "content": "".join(self._texts), "tool_calls": calls}
        is_empty = not (self._texts or calls)
        return ProviderAnswer(
            [] if is_empty else convention_messages(message),
            [self._reason] if self._reason else [],
            self._model,
            self._id,
            read_tokens(self._usage),
        )
