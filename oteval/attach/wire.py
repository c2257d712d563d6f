"""Requests taken apart and put together again on the wire, without reading what is inside.

A span keeps the very bytes that it came with, unknown fields and the order of all fields
included: protobuf messages are cut at their fields' borders. To add an attribute to a span is to
append one more field to it. Requests in JSON are values; a span stays the value that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..jsontext import dumps, loads

__all__ = ["JsonRequest", "Request", "SpanKey", "WireRequest", "own_removed", "parse"]

OWN_SCOPE = "oteval"
_DELIMITED = 2
_WIDTHS = {1: 8, 5: 4}


class SpanKey(NamedTuple):
    """What tells a span from others: the same span sent again has the same.

    Attributes:
        trace_id: Its trace, in hex.
        span_id: Its id, in hex.
        times: Its start and end.
    """

    trace_id: str
    span_id: str
    times: tuple[Any, Any]


Wanted = Callable[[SpanKey], bool]
Extra = Mapping[str, Any]


class Field(NamedTuple):
    """A field of a message: its number, where it begins, and where its content is."""

    number: int
    wire: int
    start: int
    at: int
    end: int


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends.

    Raises:
        ValueError: There is none.
    """
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is cut or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        ValueError: It is no message.
    """
    while at < end:
        start = at
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == _DELIMITED:
            size, at = varint(data, at)
            stop = at + size
        elif wire == 0:
            _, stop = varint(data, at)
        elif wire in _WIDTHS:
            stop = at + _WIDTHS[wire]
        else:
            raise ValueError(f"a field of the wire type {wire}")
        if stop > end:
            raise ValueError("a field is cut")
        yield Field(tag >> 3, wire, start, at, stop)
        at = stop


def delimited(number: int, content: bytes) -> bytes:
    """Return a field with a message or text in it."""
    return _number(number << 3 | _DELIMITED) + _number(len(content)) + content


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class _Span:
    key: SpanKey
    data: bytes


@dataclass(frozen=True, slots=True)
class _Group:
    """A message on the way to spans: its fields in order, other groups and spans among them."""

    number: int
    parts: list[bytes | _Group | _Span]


def _key(data: bytes, at: int, end: int) -> SpanKey:
    """Return a span's key; the fields of it come first, so the rest is seldom looked at."""
    found: dict[int, bytes] = {}
    for field in fields(data, at, end):
        if field.number in (1, 2, 7, 8):
            found[field.number] = data[field.at : field.end]
            if len(found) == 4:
                break
    ids = found.get(1, b"").hex(), found.get(2, b"").hex()
    return SpanKey(*ids, (found.get(7, b""), found.get(8, b"")))


class WireRequest:
    """A request for traces in protobuf.

    Raises:
        ValueError: The bytes are no such request.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._groups = _groups(payload, 0, len(payload), 2)
        self._spans = list(_spans(self._groups))

    @property
    def keys(self) -> list[SpanKey]:
        """The keys of its spans, in order."""
        return [span.key for span in self._spans]

    def pick(self, wanted: Wanted, extra: Extra | None = None) -> bytes:
        """Return a request of those spans that are wanted, each as it came.

        Args:
            wanted: Whether a span is.
            extra: By span id, what is appended to a span: fields as bytes.
        """
        more = extra or {}
        if not any(span.key.span_id in more for span in self._spans) and all(
            wanted(span.key) for span in self._spans
        ):
            return self._payload
        return _written(self._groups, wanted, more)


def _groups(data: bytes, at: int, end: int, depth: int) -> list[bytes | _Group | _Span]:
    """Return a message's fields: at depth 2 its resources, at 1 their scopes, at 0 the spans."""
    number = 1 if depth == 2 else 2
    found: list[bytes | _Group | _Span] = []
    for field in fields(data, at, end):
        if field.number != number or field.wire != _DELIMITED:
            found.append(data[field.start : field.end])
        elif depth:
            inner = _groups(data, field.at, field.end, depth - 1)
            found.append(_Group(number, inner))
        else:
            content = data[field.at : field.end]
            found.append(_Span(_key(content, 0, len(content)), content))
    return found


def _spans(parts: list[bytes | _Group | _Span]) -> Iterator[_Span]:
    for part in parts:
        if isinstance(part, _Group):
            yield from _spans(part.parts)
        elif isinstance(part, _Span):
            yield part


def _written(parts: list[bytes | _Group | _Span], wanted: Wanted, extra: Extra) -> bytes:
    out = []
    for part in parts:
        if isinstance(part, bytes):
            out.append(part)
        elif isinstance(part, _Span):
            if wanted(part.key):
                out.append(delimited(2, part.data + extra.get(part.key.span_id, b"")))
        elif any(wanted(span.key) for span in _spans(part.parts)):
            out.append(delimited(part.number, _written(part.parts, wanted, extra)))
    return b"".join(out)


class JsonRequest:
    """A request for traces in JSON.

    Raises:
        ValueError: The text is no such request.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._value = loads(payload)
        if not isinstance(self._value, dict):
            raise ValueError("no request for traces")
        try:
            self._spans = [_json_key(span) for _, _, spans in self._scopes() for span in spans]
        except (AttributeError, TypeError):
            raise ValueError("no request for traces") from None

    def _scopes(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Any]]]:
        for resource in _under(self._value, "resourceSpans", "resource_spans"):
            for scope in _under(resource, "scopeSpans", "scope_spans"):
                yield resource, scope, _under(scope, "spans")

    @property
    def keys(self) -> list[SpanKey]:
        """The keys of its spans, in order."""
        return self._spans

    def pick(self, wanted: Wanted, extra: Extra | None = None) -> bytes:
        """Return a request of those spans that are wanted, each the value that it was.

        Args:
            wanted: Whether a span is.
            extra: By span id, the attributes that a span gets beside its own.
        """
        more = extra or {}
        if not any(key.span_id in more for key in self._spans) and all(map(wanted, self._spans)):
            return self._payload
        keys = iter(self._spans)
        resources: list[dict[str, Any]] = []
        last = None
        for resource, scope, spans in self._scopes():
            kept = [
                _with(span, more.get(key.span_id))
                for span, key in zip(spans, keys, strict=False)
                if wanted(key)
            ]
            if not kept:
                continue
            if resource is not last:
                last = resource
                resources.append(
                    {**_without(resource, "scopeSpans", "scope_spans"), "scopeSpans": []}
                )
            resources[-1]["scopeSpans"].append({**scope, "spans": kept})
        rest = _without(self._value, "resourceSpans", "resource_spans")
        return dumps({**rest, "resourceSpans": resources}).encode()


Request = WireRequest | JsonRequest


def _under(value: Any, *names: str) -> list[Any]:
    for name in names:
        found = value.get(name)
        if found:
            return list(found)
    return []


def _without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in names}


def _with(span: dict[str, Any], attributes: list[Any] | None) -> dict[str, Any]:
    if not attributes:
        return span
    return {**span, "attributes": [*(span.get("attributes") or ()), *attributes]}


def _json_key(span: Any) -> SpanKey:
    def one(*names: str) -> str:
        found = next((span[name] for name in names if span.get(name) is not None), "")
        return str(found)

    times = (
        one("startTimeUnixNano", "start_time_unix_nano"),
        one("endTimeUnixNano", "end_time_unix_nano"),
    )
    ids = one("traceId", "trace_id").lower(), one("spanId", "span_id").lower()
    return SpanKey(*ids, times)


def parse(payload: bytes, encoding: str) -> Request:
    """Return a request for traces, taken apart.

    Args:
        payload: The request's body, decompressed.
        encoding: ``protobuf`` or ``json``.

    Raises:
        ValueError: It is no such request.
    """
    return JsonRequest(payload) if encoding == "json" else WireRequest(payload)


def own_removed(payload: bytes, encoding: str) -> bytes:
    """Return a request for logs without the records that oteval itself emitted.

    Returns:
        The request; the very same bytes where nothing is oteval's, b"" where everything is.

    Raises:
        ValueError: It is no such request.
    """
    if b"gen_ai.evaluation.result" not in payload:
        return payload
    return _own_json_removed(payload) if encoding == "json" else _own_wire_removed(payload)


def _own_wire_removed(payload: bytes) -> bytes:
    out, removed = [], False
    for resource in fields(payload, 0, len(payload)):
        if resource.number != 1 or resource.wire != _DELIMITED:
            out.append(payload[resource.start : resource.end])
            continue
        inner = list(fields(payload, resource.at, resource.end))
        others = [f for f in inner if not (f.number == 2 and _is_own(payload, f))]
        if len(others) == len(inner):
            out.append(payload[resource.start : resource.end])
            continue
        removed = True
        if any(f.number == 2 for f in others):
            out.append(delimited(1, b"".join(payload[f.start : f.end] for f in others)))
    return b"".join(out) if removed else payload


def _is_own(payload: bytes, scope_logs: Field) -> bool:
    for field in fields(payload, scope_logs.at, scope_logs.end):
        if field.number == 1:
            return any(
                inner.number == 1 and payload[inner.at : inner.end] == OWN_SCOPE.encode()
                for inner in fields(payload, field.at, field.end)
            )
    return False


def _own_json_removed(payload: bytes) -> bytes:
    value = loads(payload)
    resources, removed = [], False
    try:
        for resource in _under(value, "resourceLogs", "resource_logs"):
            scopes = _under(resource, "scopeLogs", "scope_logs")
            kept = [s for s in scopes if (s.get("scope") or {}).get("name") != OWN_SCOPE]
            removed |= len(kept) < len(scopes)
            if kept:
                bare = _without(resource, "scopeLogs", "scope_logs")
                resources.append({**bare, "scopeLogs": kept})
    except AttributeError:
        raise ValueError("no request for logs") from None
    if not removed:
        return payload
    if not resources:
        return b""
    bare = _without(value, "resourceLogs", "resource_logs")
    return dumps({**bare, "resourceLogs": resources}).encode()
