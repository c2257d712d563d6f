"""Redact requests before they are written to disk: values by their keys, text by patterns.

Rules apply to everything that a sender can write: values of any type, keys, names, trace states,
and fields that OTLP does not define. Fields that OTLP defines as ids, times, counts or enumerations
are kept if they have a valid value.
"""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ...base.redaction import CompiledRules, RedactionRule, TextRedactor
from ..otlp.from_json import KEY_ALIASES
from ..otlp.json_fields import as_span_id, as_trace_id, from_base64

__all__ = ["Redactor", "json_bytes"]

# Levels of nesting that are serialised at once. orjson refuses more than 254.
_LEVELS = 100
_MAX_CACHED_KEYS = 10_000
_MESSAGE_TYPE = FieldDescriptor.TYPE_MESSAGE
_STRING_TYPE = FieldDescriptor.TYPE_STRING
_BYTES_TYPE = FieldDescriptor.TYPE_BYTES


class Redactor:
    """Applies redaction rules to requests."""

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        """Compile the rules.

        Raises:
            PatternError: A pattern is invalid.
        """
        self._rules = CompiledRules(rules)
        self._text = TextRedactor(self._rules.matchers)
        self._keys: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether there are any rules."""
        return bool(self._rules.globs or self._text)

    def json(self, document: Any) -> Any:
        """Redact parsed OTLP/JSON in place, and return it."""
        root = [document]
        waiting: list[Any] = [root]
        # No recursion: JSON may be nested deeper than Python's stack.
        while waiting:
            node = waiting.pop()
            if isinstance(node, list):
                node[:] = [self._json_value(item, waiting) for item in node]
            else:
                self._json_object(node, waiting)
        return root[0]

    def message(self, message: Message) -> None:
        """Redact a protobuf message in place."""
        # Unknown fields have no names for rules to match.
        message.DiscardUnknownFields()
        self._message(message)

    def _json_value(self, value: Any, waiting: list[Any]) -> Any:
        """A value redacted; an object or list is appended to `waiting` instead."""
        if isinstance(value, str):
            return self._text.text(value)
        if isinstance(value, (list, dict)):
            waiting.append(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            redacted = self._text.number(value)
            return _finite(value) if redacted is None else redacted
        return value

    def _json_object(self, node: dict[str, Any], waiting: list[Any]) -> None:
        if self._json_usual_object(node, waiting):
            return
        items = list(node.items())
        key = node.get("key")
        replacement = None
        if isinstance(key, str) and "value" in node:
            replacement = self._key(key)[1]
        node.clear()
        for name, value in items:
            if name == "value" and replacement is not None:
                node[name] = {"stringValue": replacement}
            elif name == "key" and isinstance(value, str):
                node[name] = self._key(value)[0]
            elif name in _NUMBERS:
                self._json_number(node, name, value, waiting)
            elif name in ("bytesValue", "bytes_value") and isinstance(value, str):
                node[name] = self._base64(value)
            elif name in _FIELD_CHECKS and _FIELD_CHECKS[name](value):
                node[name] = value
            else:
                safe_name = name if name in _NAMES else self._text.text(name)
                node[safe_name] = self._json_value(value, waiting)

    def _json_usual_object(self, node: dict[str, Any], waiting: list[Any]) -> bool:
        """Redact an attribute or a string value, faster than `_json_object`; False for others."""
        if len(node) == 1 and type(text := node.get("stringValue")) is str:
            node["stringValue"] = self._text.text(text)
            return True
        key, value = node.get("key"), node.get("value")
        if len(node) != 2 or type(key) is not str or type(value) is not dict:
            return False
        node["key"], replacement = self._key(key)
        if replacement is None:
            waiting.append(value)
        else:
            node["value"] = {"stringValue": replacement}
        return True

    def _json_number(self, node: dict[str, Any], name: str, value: Any, waiting: list[Any]) -> None:
        redacted = self._json_value(value, waiting)
        is_text = isinstance(redacted, str) and redacted not in (value, *_INFINITE)
        node["stringValue" if is_text else name] = redacted

    def _base64(self, text: str) -> str:
        try:
            data = from_base64(text)
        except ValueError:
            return self._text.text(text)
        redacted = self._text.data(data)
        return text if redacted == data else base64.b64encode(redacted).decode()

    def _message(self, message: Message) -> None:
        for field, value in message.ListFields():
            kind = field.type
            if kind == _MESSAGE_TYPE:
                for item in [value] if isinstance(value, Message) else value:
                    self._walk(item)
            elif kind == _STRING_TYPE:
                self._string(message, field.name, value)
            # Bytes with the length of an id are not text; bytes of any other length may be.
            elif kind == _BYTES_TYPE and len(value) not in (8, 16):
                setattr(message, field.name, self._text.data(value))

    def _walk(self, message: Any) -> None:
        name = message.DESCRIPTOR.name
        if name == "KeyValue":
            sent_key = message.key
            key, replacement = self._key(sent_key)
            if key != sent_key:
                message.key = key
            if replacement is None:
                self._any_value(message.value)
            else:
                message.value.Clear()
                message.value.string_value = replacement
        elif name == "AnyValue":
            self._any_value(message)
        else:
            self._message(message)

    def _string(self, message: Message, name: str, value: Any) -> None:
        if not isinstance(value, str):
            value[:] = [self._text.text(item) for item in value]
        elif (redacted := self._text.text(value)) != value:
            setattr(message, name, redacted)

    def _any_value(self, value: Any) -> None:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            self._string(value, kind, value.string_value)
        elif kind in ("int_value", "double_value"):
            redacted = self._text.number(getattr(value, kind))
            if redacted is not None:
                value.string_value = redacted
        elif kind == "bytes_value":
            data = self._text.data(value.bytes_value)
            if data != value.bytes_value:
                value.bytes_value = data
        elif kind is not None:
            self._message(value)

    def _key(self, key: str) -> tuple[str, str | None]:
        """The redacted key, and the replacement of its value; None to keep the value."""
        redacted = self._keys.get(key)
        if redacted is None:
            redacted = self._text.text(key)
            if len(self._keys) < _MAX_CACHED_KEYS:
                self._keys[key] = redacted
        return redacted, self._rules.replacement(key)


def json_bytes(value: Any) -> bytes:
    """The JSON text of a parsed value of any depth.

    A value of more than 254 levels is consumed: parts of it are replaced by their text.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    # From the deepest level up: inner parts are text when the part around them is serialised.
    root = [value]
    level: list[tuple[Any, Any]] = [(root, 0)]
    cuts: list[list[tuple[Any, Any]]] = [level]
    for depth in itertools.count(1):
        level = [
            (holder[key], at)
            for holder, key in level
            for at, item in _children(holder[key])
            if isinstance(item, (list, dict))
        ]
        if not level:
            break
        if depth % _LEVELS == 0:
            cuts.append(level)
    for cut in reversed(cuts):
        for holder, key in cut:
            holder[key] = orjson.Fragment(orjson.dumps(holder[key]))
    return orjson.dumps(root[0])


def _children(node: Any) -> Iterable[tuple[Any, Any]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _finite(number: float) -> Any:
    """A number in a form that JSON can represent; OTLP writes non-finite numbers as text."""
    if isinstance(number, int) or math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= 20 and value.isascii() and value.isdigit()
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_enum(value: Any) -> bool:
    return _is_number(value) or (
        isinstance(value, str)
        and value.startswith(("SPAN_KIND_", "STATUS_CODE_", "SEVERITY_N"))
        and len(value) <= 40
        and value.isascii()
        and value.replace("_", "").isalnum()
        and value.isupper()
    )


_INFINITE = ("NaN", "Infinity", "-Infinity")
_NUMBERS = frozenset({"intValue", "int_value", "doubleValue", "double_value"})


def _field_checks() -> Mapping[str, Callable[[Any], bool]]:
    """Return checks that a field defined by OTLP has a valid value rather than arbitrary text."""
    numbers = (
        *("start_time_unix_nano", "end_time_unix_nano", "time_unix_nano"),
        *("observed_time_unix_nano", "dropped_attributes_count", "dropped_events_count"),
        *("dropped_links_count", "flags"),
    )
    checks: dict[str, Callable[[Any], bool]] = dict.fromkeys(numbers, _is_number)
    checks["trace_id"] = lambda value: as_trace_id(value) is not None
    checks["span_id"] = checks["parent_span_id"] = lambda value: as_span_id(value) is not None
    checks["kind"] = checks["code"] = checks["severity_number"] = _is_enum
    return checks | {_camel(name): check for name, check in checks.items()}


def _camel(name: str) -> str:
    first, *further_words = name.split("_")
    return "".join([first, *(word.title() for word in further_words)])


def _names(descriptor: Descriptor, visited: set[str]) -> set[str]:
    """The names of the fields of a message and its submessages, in both spellings."""
    names: set[str] = set()
    if descriptor.full_name in visited:
        return names
    visited.add(descriptor.full_name)
    for field in descriptor.fields:
        names |= {field.name, field.json_name}
        if field.message_type is not None:
            names |= _names(field.message_type, visited)
    return names


_FIELD_CHECKS = _field_checks()
_NAMES = frozenset(
    _names(ExportTraceServiceRequest.DESCRIPTOR, set())
    | _names(ExportLogsServiceRequest.DESCRIPTOR, set())
    | set(KEY_ALIASES)
)
