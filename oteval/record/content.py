"""Content of spans: arguments, results and messages as bounded text.

Content is recorded unless ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` turns it off.
A value that cannot be serialised becomes a short description of its type. Text above `MAX_TEXT` is
cut: JSON at the end, so that the reconstruction reports the gap ``content_truncated``, and plain
text with a note of its whole length.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any

import orjson

from ..base.jsontext import dumps, to_jsonable
from ..base.redaction import RedactionRule, ValueRedactor
from .typed_values import TooManyParts, encoded, form_of, typed_text

__all__ = [
    "HIDDEN",
    "MAX_TEXT",
    "is_captured",
    "is_plain_json",
    "json_text",
    "plain",
    "redact_content",
    "shortened",
    "turn_off_content",
    "typed_form",
]

MAX_TEXT = 1 << 20
"""The most characters that one attribute has."""
HIDDEN = "[redacted]"
"""The replacement of an argument that the agent's code hides."""

_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_OFF = frozenset({"false", "no_content", "event_only", "0", "off", "none"})
# A value with more containers and objects is not walked to its end: the agent would wait for it.
_MAX_NODES = 50_000
_OPTIONS = orjson.OPT_NON_STR_KEYS


_is_off = False
_rules: tuple[RedactionRule, ...] = ()
_redactor: ValueRedactor | None = None


def redact_content(rules: Iterable[RedactionRule]) -> None:
    """Apply the keys of rules inside of arguments, results and messages, from now on.

    On export this content is JSON text, and only the patterns of rules apply to it.

    Args:
        rules: The rules. They are added to the rules of earlier calls.
    """
    global _rules, _redactor
    _rules += tuple(RedactionRule(rule.keys, None, rule.replace) for rule in rules if rule.keys)
    _redactor = ValueRedactor(_rules) if _rules else None


def turn_off_content() -> None:
    """Keep content out of the spans of this process, whatever the environment specifies."""
    global _is_off
    _is_off = True


def is_captured() -> bool:
    """Whether the environment lets spans have content; by default it does."""
    return not _is_off and os.environ.get(_SWITCH, "").strip().lower() not in _OFF


def plain(value: Any) -> Any:
    """Convert a value to plain JSON; a value that cannot be serialised becomes a text about it."""
    if value is None or isinstance(value, (bool, int, float)) or type(value) is str:
        return value
    left = _MAX_NODES

    def convert(item: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooManyParts
        return _special(item)

    try:
        return to_jsonable(value, convert)
    except TooManyParts:
        return f"<{type(value).__name__} with more than {_MAX_NODES:,} parts>"
    except Exception as error:
        return f"<{type(value).__name__} that cannot be serialised: {type(error).__name__}>"


def _special(value: Any) -> Any:
    """Convert a value that is neither a container nor a model to a value that JSON has."""
    if isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value[:MAX_TEXT])).decode()
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    attributes = [vars(kind).keys() for kind in type(value).__mro__[:-1]]
    if not any("__str__" in names or "__repr__" in names for names in attributes):
        fields = getattr(value, "__dict__", None)
        is_plain = not callable(value) and not hasattr(type(value), "model_dump")
        if is_plain and fields and isinstance(fields, dict):
            return {key: item for key, item in fields.items() if not key.startswith("_")}
    return value


def json_text(value: Any) -> str:
    """Write a value as JSON text of at most `MAX_TEXT` characters."""
    if _redactor is not None:
        return dumps(_redactor.value(plain(value)))[:MAX_TEXT]
    try:
        # The usual values: several times as fast as converting them first.
        text = orjson.dumps(value, default=_json_form, option=_OPTIONS).decode()
    except Exception:
        text = dumps(plain(value))
    return text[:MAX_TEXT]


def is_plain_json(value: Any) -> bool:
    """Whether the JSON text of a value preserves its types."""
    try:
        return form_of(value) is not None
    except (TooManyParts, RecursionError):
        return False


def typed_form(value: Any) -> str | None:
    """The typed form of a value, see `typed_values`.

    Returns:
        The form; None if it is longer than `MAX_TEXT`, or the value has too many parts.
    """
    try:
        form = form_of(value)
        if form is not None:
            return form
        plain_form = encoded(value)
        text = typed_text(plain_form if _redactor is None else _redactor.value(plain_form))
    except (TooManyParts, RecursionError):
        return None
    return text if len(text) <= MAX_TEXT else None


def _json_form(value: Any) -> Any:
    """Convert a value that orjson cannot write.

    Raises:
        TypeError: The value needs more than a simple conversion.
    """
    if isinstance(value, (set, frozenset)):
        return list(value)
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump(mode="json")
    raise TypeError


def shortened(text: str) -> str:
    """Cut plain text to `MAX_TEXT` characters, and note its whole length."""
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}... [cut: {len(text):,} characters in all]"
