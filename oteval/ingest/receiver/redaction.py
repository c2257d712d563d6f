"""Redact requests before they are written to disk: values by key, text by patterns.

Rules apply to everything a sender can write: values of any type, keys, names, trace states, and
fields that OTLP does not define. OTLP's own fields (ids, times, counts, enumerations) stay, as
long as they hold what OTLP says they hold.
"""

from __future__ import annotations

import base64
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ...patterns import Pattern, PatternError
from ..otlp.from_json import KEY_ALIASES
from ..otlp.json_fields import as_span_id, as_trace_id
from ..otlp.json_values import from_base64
from .text_redaction import TextRedactor

__all__ = ["RedactionRule", "Redactor", "json_bytes"]

# orjson writes 254 levels at most; what is deeper is written in pieces of so many.
_LEVELS = 100
_CACHED_KEYS = 10_000
# A set in a glob that `re.escape` has been over.
_SET = re.compile(r"\\\[((?:[^\[\]\\]|\\[-.^])+)\\\]")


class RedactionRule(NamedTuple):
    """What goes.

    Attributes:
        keys: Names of attributes whose values go; "*" stands for any text.
        pattern: A regular expression; what it matches goes.
        replace: What stands there instead.
    """

    keys: tuple[str, ...] = ()
    pattern: str | None = None
    replace: str = "[redacted]"


class Redactor:
    """Applies rules to whole requests."""

    def __init__(self, rules: Iterable[RedactionRule]) -> None:
        """Compile the rules.

        Raises:
            PatternError: A pattern cannot be used.
        """
        self._globs: list[tuple[Pattern, str]] = []
        patterns: list[tuple[Pattern, str]] = []
        for rule in rules:
            self._globs += [(_glob(key), rule.replace) for key in rule.keys]
            if rule.pattern is not None:
                patterns.append((Pattern(rule.pattern), rule.replace))
        self._text = TextRedactor(patterns)
        self._keys: dict[str, tuple[str, str | None]] = {}

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        return bool(self._globs or self._text)

    def json(self, document: Any) -> Any:
        """Return parsed OTLP/JSON without what must go; the document itself is changed."""
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
        """Take what must go out of a protobuf message, in place."""
        # Rules cannot be applied to fields without a name.
        message.DiscardUnknownFields()
        self._message(message)

    def _json_value(self, value: Any, waiting: list[Any]) -> Any:
        """Return a value redacted; a container is put on the list of those that wait for it."""
        if isinstance(value, str):
            return self._text.text(value)
        if isinstance(value, (list, dict)):
            waiting.append(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            redacted = self._text.number(value)
            return _finite(value) if redacted is None else redacted
        return value

    def _json_object(self, node: dict[str, Any], waiting: list[Any]) -> None:
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
            elif name in _OWN and _OWN[name](value):
                node[name] = value
            else:
                known = name if name in _NAMES else self._text.text(name)
                node[known] = self._json_value(value, waiting)

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
            if field.type == FieldDescriptor.TYPE_STRING:
                self._string(message, field.name, value)
            elif field.type == FieldDescriptor.TYPE_BYTES:
                # An id of the right length is no text; any other may be.
                if len(value) not in (8, 16):
                    setattr(message, field.name, self._text.data(value))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                for item in [value] if isinstance(value, Message) else value:
                    self._walk(item)

    def _walk(self, message: Any) -> None:
        name = message.DESCRIPTOR.name
        if name == "KeyValue":
            key, replacement = self._key(message.key)
            if key != message.key:
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
        if kind in ("int_value", "double_value"):
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
        """Return a key redacted, and what its value is to be; None where the value may stay."""
        known = self._keys.get(key)
        if known is None:
            found = next((text for glob, text in self._globs if glob.fullmatch(key)), None)
            known = self._text.text(key), found
            if len(self._keys) < _CACHED_KEYS:
                self._keys[key] = known
        return known


def _glob(text: str) -> Pattern:
    """Return a glob such as ``*.password`` as a pattern for whole keys.

    Brackets may be a set of characters or stand for themselves: both match.
    """
    literal = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    try:
        return Pattern(f"(?s)(?:{literal}|{_SET.sub(_set, literal)})")
    except PatternError:
        return Pattern(f"(?s){literal}")


def _set(found: re.Match[str]) -> str:
    members = found[1].replace(r"\-", "-")
    sign = "^" if members.startswith("!") else ""
    return f"[{sign}{members[len(sign) :]}]"


def json_bytes(value: Any) -> bytes:
    """Return the JSON text of a parsed value, however deep it is.

    A deep value is used up: pieces of it become text, which nothing redacts any more.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    # From the deepest up: each piece is text already when the one around it is written.
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
    """Return a number as JSON can hold it; OTLP writes infinite ones as text."""
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


def _own() -> Mapping[str, Callable[[Any], bool]]:
    """Return how OTLP's own fields are told from text that only stands in them."""
    numbers = (
        *("start_time_unix_nano", "end_time_unix_nano", "time_unix_nano"),
        *("observed_time_unix_nano", "dropped_attributes_count", "dropped_events_count"),
        *("dropped_links_count", "flags"),
    )
    own: dict[str, Callable[[Any], bool]] = dict.fromkeys(numbers, _is_number)
    own["trace_id"] = lambda value: as_trace_id(value) is not None
    own["span_id"] = own["parent_span_id"] = lambda value: as_span_id(value) is not None
    own["kind"] = own["code"] = own["severity_number"] = _is_enum
    return own | {_camel(name): check for name, check in own.items()}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return "".join([first, *(other.title() for other in others)])


def _names(descriptor: Descriptor, seen: set[str]) -> set[str]:
    """Return the names of a message's fields and of those below, in both spellings."""
    found: set[str] = set()
    if descriptor.full_name in seen:
        return found
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        found |= {field.name, field.json_name}
        if field.message_type is not None:
            found |= _names(field.message_type, seen)
    return found


_OWN = _own()
_NAMES = frozenset(
    _names(ExportTraceServiceRequest.DESCRIPTOR, set())
    | _names(ExportLogsServiceRequest.DESCRIPTOR, set())
    | set(KEY_ALIASES)
)
