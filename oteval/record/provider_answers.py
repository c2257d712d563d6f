"""Answers of models, as the providers' libraries return them: whole, or chunk by chunk.

`read_answer` reads a response of OpenAI's chat completions or Responses API, of Anthropic's
Messages API, a message of LangChain, a message as a dict, or a text. `AnswerStream` puts the same
together from the chunks of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..base.jsontext import dumps
from ..messages import field_of, plain_data
from ..model import NO_TOKENS, TokenCounts, normal_finish_reason, read_tokens
from .content import plain
from .provider_messages import convention_messages, is_message, text_message

if TYPE_CHECKING:
    from ..reconstruct import ModelApi

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


class AnswerStream:
    """Puts an answer together from the chunks of a stream: of any of the APIs, or plain texts."""

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
        """Return the answer so far. If there are events, plain texts do not belong to it."""
        api = next((api for event in self._events if (api := _api_of(event))), None)
        if api is not None:
            return read_answer(api.assembled(self._events))
        return read_answer("".join(self._texts)) if self._texts else ProviderAnswer()


def _is_error(event: Mapping[str, Any]) -> bool:
    """Return whether an event ends a stream in place of the rest of its answer."""
    return event.get("type") == "error" or bool(event.get("error"))


def _api_of(event: Mapping[str, Any]) -> ModelApi | None:
    """Return the API that an event of a stream is of, or None."""
    # Takes as long to import as all that records a call.
    from ..reconstruct import api_named

    kind = event.get("type")
    if isinstance(event.get("choices"), list):
        return api_named("chat_completions")
    if not isinstance(kind, str):
        return None
    if kind.startswith("response."):
        return api_named("responses")
    return api_named("anthropic_messages") if kind == "message_start" else None
