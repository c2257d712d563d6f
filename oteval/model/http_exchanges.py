"""Exchanges as OpenTelemetry log events, so that they travel on every path of export.

The event's **body** is a map with everything that a replay needs. Its attributes serve searches;
an SDK's limits may cut them off, but not the body. Payloads that are
text stay readable; others are base64. The body also contains the payloads' sizes, so a payload that
was cut off or changed on its way is noticed: `from_log` raises `UnreadableExchange` then.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ..base.errors import InputError
from .recording import Chunk, Exchange
from .telemetry import LogRecord

__all__ = ["EVENT_NAME", "ExchangeEvent", "UnreadableExchange", "from_log", "to_event"]

EVENT_NAME = "oteval.http.exchange"
"""The name of the events."""

_VERSION = 1


class UnreadableExchange(InputError):
    """The event of an exchange cannot be used for a replay; the message has the reason."""


@dataclass(frozen=True)
class ExchangeEvent:
    """The content of a log event.

    Attributes:
        time_ns: The time at which the request was sent.
        attributes: Attributes to find an exchange by.
        body: The whole exchange.
        name: The event's name.
    """

    time_ns: int
    attributes: Mapping[str, str | int | bool]
    body: Mapping[str, Any] = field(repr=False)
    name: str = EVENT_NAME


def to_event(exchange: Exchange, omitted: str = "") -> ExchangeEvent:
    """The log event of an exchange.

    Args:
        exchange: The exchange, without secrets.
        omitted: Why parts of it were not kept, such as a body that is too large; "" if it is
            whole.
    """
    attributes: dict[str, str | int | bool] = {
        "http.request.method": exchange.method,
        "url.full": exchange.url,
        "server.address": _host(exchange.url),
    }
    if exchange.status:
        attributes["http.response.status_code"] = exchange.status
    if exchange.error:
        attributes["error.type"] = exchange.error.partition(":")[0]
    body: dict[str, Any] = {
        "version": _VERSION,
        "method": exchange.method,
        "url": exchange.url,
        "request": {
            "headers": dict(exchange.request_headers),
            **({"all_headers": True} if exchange.has_all_headers else {}),
            **_payload(exchange.request_body),
        },
        "start_ns": exchange.start_ns,
        "end_ns": exchange.end_ns,
        "complete": exchange.is_complete,
    }
    if exchange.thread:
        body["thread"] = exchange.thread
    if exchange.status:
        body["response"] = {
            "status": exchange.status,
            "headers": dict(exchange.response_headers),
            **_payload(exchange.response_body),
            # Two lists of equal length: the sizes of the pieces, and when they arrived.
            "chunk_sizes": [len(chunk.data) for chunk in exchange.chunks],
            "chunk_offsets_ns": [chunk.offset_ns for chunk in exchange.chunks],
        }
    if exchange.error:
        body["error"] = exchange.error
    if omitted:
        body["omitted"] = omitted
    return ExchangeEvent(exchange.start_ns, attributes, body)


def from_log(record: LogRecord) -> Exchange | None:
    """The exchange of a log record; None for a record of another kind.

    Raises:
        UnreadableExchange: The record is of an exchange, but damaged, incomplete, or written by a
            newer version of oteval.
    """
    if record.event_name != EVENT_NAME:
        return None
    if not isinstance(record.body, Mapping):
        raise UnreadableExchange("a recorded HTTP exchange has no body: record it again")
    reader = _Reader(record.body)
    version = reader.get("version", int)
    if version != _VERSION:
        raise UnreadableExchange(
            f"a recorded HTTP exchange has version {version}: upgrade oteval to read it"
        )
    if "omitted" in record.body:
        raise UnreadableExchange(f"{reader.subject()}: {reader.get('omitted', str)}")
    request = reader.inner("request")
    response = reader.inner("response") if "response" in record.body else None
    return Exchange(
        method=reader.get("method", str),
        url=reader.get("url", str),
        request_headers=request.headers(),
        has_all_headers=request.flag("all_headers"),
        request_body=request.payload(),
        status=response.get("status", int) if response else 0,
        response_headers=response.headers() if response else {},
        chunks=response.chunks() if response else (),
        error=reader.get("error", str) if "error" in record.body else "",
        is_complete=reader.get("complete", bool),
        start_ns=reader.get("start_ns", int),
        end_ns=reader.get("end_ns", int),
        trace_id=record.trace_id,
        span_id=record.span_id,
        thread=reader.get("thread", str) if "thread" in record.body else "",
    )


class _Reader:
    """Reads the fields of an event's body, and names missing or wrong fields."""

    def __init__(self, fields: Mapping[str, Any], path: str = "", subject: str = "") -> None:
        self._fields = fields
        self._path = path
        self._subject = subject

    def subject(self) -> str:
        """The name of the exchange for messages."""
        if self._subject:
            return self._subject
        method, url = self._fields.get("method"), self._fields.get("url")
        is_request = isinstance(method, str) and isinstance(url, str)
        return f"{method} {url}" if is_request else "a recorded HTTP exchange"

    def get(self, name: str, kind: type[Any]) -> Any:
        value = self._fields.get(name)
        if type(value) is not kind:
            raise self._error(name, "is missing or damaged")
        return value

    def inner(self, name: str) -> _Reader:
        value = self._fields.get(name)
        if not isinstance(value, Mapping):
            raise self._error(name, "is missing or damaged")
        return _Reader(value, f"{self._path}{name}.", self.subject())

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def headers(self) -> dict[str, str]:
        value = self._fields.get("headers") or {}
        if not isinstance(value, Mapping):
            raise self._error("headers", "are damaged")
        return {str(name): str(text) for name, text in value.items()}

    def payload(self) -> bytes:
        """The body.

        Raises:
            UnreadableExchange: Its size differs from the recorded size.
        """
        text = self._fields.get("body")
        # An empty text may arrive as no value at all.
        text = "" if text is None else text
        if not isinstance(text, str):
            raise self._error("body", "is damaged")
        try:
            is_text = self._fields.get("encoding") != "base64"
            data = text.encode() if is_text else base64.b64decode(text, validate=True)
        except ValueError:
            raise self._error("body", "is damaged") from None
        size = self.get("size", int)
        if len(data) != size:
            raise self._error(
                "body", f"has {len(data)} bytes in place of {size}: it was cut off or redacted"
            )
        return data

    def chunks(self) -> tuple[Chunk, ...]:
        data = self.payload()
        sizes, offsets = self._numbers("chunk_sizes"), self._numbers("chunk_offsets_ns")
        if len(sizes) != len(offsets) or sum(sizes) != len(data) or min(sizes, default=0) < 0:
            raise self._error("chunk_sizes", "are damaged")
        out, at = [], 0
        for size, offset in zip(sizes, offsets, strict=True):
            out.append(Chunk(data[at : at + size], offset))
            at += size
        return tuple(out)

    def _numbers(self, name: str) -> list[int]:
        value = self._fields.get(name)
        value = [] if value is None else value
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self._error(name, "are damaged")
        return value

    def _error(self, name: str, problem: str) -> UnreadableExchange:
        return UnreadableExchange(
            f"{self.subject()}: {self._path}{name} {problem}; record it again"
        )


def _payload(data: bytes) -> dict[str, Any]:
    """A body as fields: text as it is, other data as base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    # Some databases refuse text with NUL.
    if data and (not text or "\0" in text):
        encoded = base64.b64encode(data).decode()
        return {"body": encoded, "encoding": "base64", "size": len(data)}
    return {"body": text, "encoding": "text", "size": len(data)}


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
