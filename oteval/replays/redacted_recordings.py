"""Recordings without secrets, so that their files can be shared and kept in version control.

Secrets are removed from HTTP exchanges when they are recorded. Messages that instrumentations wrote
may still contain secrets, and the rules of a user may have changed since. The value of a key such
as ``password`` is removed wherever it recurs in the recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..base.jsontext import dumps_exact, restore
from ..base.redaction.secrets import SecretRedactor, request_secrets
from ..model import (
    Chunk,
    Exchange,
    Message,
    RecordedAnswer,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    ToolCall,
)
from ..record import recorded_headers

__all__ = ["redacted_recording"]


def redacted_recording(recording: Recording, redactor: SecretRedactor) -> Recording:
    """Remove the secrets from a recording.

    Args:
        recording: The recording.
        redactor: Finds the secrets.
    """
    clean = _Redaction(redactor.with_secrets(_named_secrets(recording, redactor)))
    return replace(
        recording,
        reasons=tuple(map(clean.text, recording.reasons)),
        inputs=tuple(map(clean.text, recording.inputs)),
        model_calls=tuple(map(clean.model_call, recording.model_calls)),
        tool_calls=tuple(map(clean.tool_call, recording.tool_calls)),
        exchanges=tuple(map(clean.exchange, recording.exchanges)),
        answers=tuple(map(clean.answer, recording.answers)),
    )


def _named_secrets(recording: Recording, redactor: SecretRedactor) -> frozenset[str]:
    """The values whose names show that they are secrets."""
    secrets: set[str] = set()
    exchanges = [call.exchange for call in recording.model_calls if call.exchange is not None]
    for exchange in (*exchanges, *recording.exchanges):
        kind = exchange.request_headers.get("content-type", "")
        secrets |= redactor.body_secrets(exchange.request_body, kind)
        secrets |= request_secrets(exchange.request_headers.items(), exchange.url)
    for text in _json_texts(recording):
        secrets |= redactor.body_secrets(text.encode("utf-8", "replace"))
    return frozenset(secrets)


def _json_texts(recording: Recording) -> Iterator[str]:
    """Yield the texts that may be JSON with named secrets."""
    for tool in recording.tool_calls:
        yield dumps_exact(tool.arguments)
        yield tool.result or ""
        yield tool.own_result or ""
        yield tool.returned or ""
        yield tool.raised or ""
    for answer in recording.answers:
        yield answer.question
        yield answer.answer or ""
    for call in recording.model_calls:
        for message in (*call.request.messages, *((call.answer,) if call.answer else ())):
            yield message.content or ""
            yield from (dumps_exact(call.arguments) for call in message.tool_calls)


class _Redaction:
    """Applies a redactor to the values of a recording."""

    def __init__(self, redactor: SecretRedactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        return self._redactor.text(text)

    def optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def json(self, value: Any) -> Any:
        """Remove secrets from plain JSON."""
        if value is None or isinstance(value, (bool, str)):
            return self.text(value) if isinstance(value, str) else value
        before = dumps_exact(value)
        after = self.text(before)
        if after == before:
            return value
        try:
            return restore(after)
        except ValueError:  # a rule of the user's replaced more than a value
            return self._texts(value)

    def _texts(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._texts(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._texts(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def message(self, message: Message) -> Message:
        return replace(
            message,
            content=self.optional(message.content),
            tool_calls=tuple(map(self._call, message.tool_calls)),
            parts=tuple(map(self.json, message.parts)),
        )

    def _call(self, call: ToolCall) -> ToolCall:
        return replace(call, arguments=self.json(call.arguments))

    def _request(self, request: RecordedRequest) -> RecordedRequest:
        return replace(
            request,
            messages=tuple(map(self.message, request.messages)),
            tools=tuple(map(self.json, request.tools)),
            response_format=self.json(request.response_format),
            settings=self.json(dict(request.settings)),
        )

    def model_call(self, call: RecordedModelCall) -> RecordedModelCall:
        return replace(
            call,
            request=self._request(call.request),
            answer=None if call.answer is None else self.message(call.answer),
            exchange=None if call.exchange is None else self.exchange(call.exchange),
            error=self.text(call.error),
            choices=tuple(map(self.message, call.choices)),
        )

    def tool_call(self, call: RecordedToolCall) -> RecordedToolCall:
        return replace(
            call,
            arguments=self.json(call.arguments),
            own_arguments=self.json(call.own_arguments),
            result=self.optional(call.result),
            own_result=self.optional(call.own_result),
            returned=self.optional(call.returned),
            raised=self.optional(call.raised),
        )

    def answer(self, answer: RecordedAnswer) -> RecordedAnswer:
        return replace(
            answer,
            question=self.text(answer.question),
            answer=self.optional(answer.answer),
            error=self.text(answer.error),
        )

    def exchange(self, exchange: Exchange) -> Exchange:
        """Remove secrets; keep only headers that are known to be safe."""
        redactor = self._redactor
        request_headers = recorded_headers(exchange.request_headers.items(), redactor)
        headers = redactor.headers(exchange.response_headers.items())
        pieces = redactor.pieces(
            [chunk.data for chunk in exchange.chunks], headers.get("content-type", "")
        )
        return replace(
            exchange,
            url=redactor.url(exchange.url),
            request_headers=request_headers,
            request_body=redactor.body(
                exchange.request_body, request_headers.get("content-type", "")
            ),
            response_headers=headers,
            chunks=tuple(
                Chunk(data, chunk.offset_ns)
                for data, chunk in zip(pieces, exchange.chunks, strict=True)
            ),
            error=redactor.text(exchange.error),
        )
