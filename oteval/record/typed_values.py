"""Values with their types as text, so that a replay returns equal values.

The text of a value is one of these:

- ``text``: the value is the text of the tool's recorded result.
- ``json``: the value is the JSON of the recorded result.
- JSON: an object with one key that begins with ``$`` stands for a value that JSON lacks:
  ``{"$decimal": "1.50"}``. Other keys that begin with ``$`` have another ``$`` in front.

`value_kinds` and `class_kinds` contain the table. A value of another class is recorded by the name
of its class alone (``$opaque``), and cannot be restored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..base.jsontext import dumps_exact, loads_exact
from .class_kinds import CLASS_KINDS, class_name, kind_of_class
from .value_kinds import DELIVERED_KINDS, LIBRARY_KINDS, OPAQUE, Decoder, UnrestorableValue

__all__ = ["TooManyParts", "UnrestorableValue", "encoded", "form_of", "restored", "typed_text"]

_AS_TEXT, _AS_JSON = "text", "json"
_MOST_PARTS = 50_000
_DEEPEST = 100
_MOST_BITS = 4_096
_EXACT = LIBRARY_KINDS | DELIVERED_KINDS
_KINDS = {kind.tag: kind for kind in (*_EXACT.values(), *(kind for _, kind in CLASS_KINDS))}


class TooManyParts(ValueError):
    """A value has more parts than are recorded."""


def form_of(value: Any) -> str | None:
    """The form ``text`` or ``json`` if the text of a result defines the value, else None.

    Raises:
        TooManyParts: The value has too many parts.
    """
    if type(value) is str:
        return _AS_TEXT if _is_encodable(value) else None
    return _AS_JSON if _is_json(value, [_MOST_PARTS], _DEEPEST) else None


def _is_json(value: Any, left: list[int], depth: int) -> bool:
    """Whether a value and its parts have exactly the types that JSON has."""
    cls = type(value)
    if value is None or cls is bool:
        return True
    if cls is str:
        return _is_encodable(value)
    if cls is int:
        return value.bit_length() <= _MOST_BITS  # type: ignore[no-any-return]
    if cls is float:
        return math.isfinite(value)
    if cls is not list and cls is not dict:
        return False
    left[0] -= len(value)
    if left[0] < 0 or depth == 0:
        raise TooManyParts
    if cls is list:
        return all(_is_json(item, left, depth - 1) for item in value)
    return all(
        type(key) is str and _is_encodable(key) and _is_json(item, left, depth - 1)
        for key, item in value.items()
    )


def _is_encodable(text: str) -> bool:
    """Whether a text has no halves of UTF-16 pairs."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encoded(value: Any) -> Any:
    """Encode a value as plain JSON with its types.

    Raises:
        TooManyParts: It has too many parts.
    """
    try:
        return _Encoder().value(value)
    except UnrestorableValue as error:
        return {OPAQUE: str(error)}


class _Encoder:
    """Encodes the parts of one value."""

    def __init__(self) -> None:
        self._left = _MOST_PARTS
        self._depth = 0

    def value(self, value: Any) -> Any:
        """Encode a part.

        Raises:
            TooManyParts: The whole has too many parts.
            UnrestorableValue: It is of no kind in the table.
        """
        cls = type(value)
        self._left -= 1
        if self._left < 0 or self._depth > _DEEPEST:
            raise TooManyParts
        self._depth += 1
        try:
            if cls is list:
                return [self.value(item) for item in value]
            if cls is dict and all(type(key) is str and _is_encodable(key) for key in value):
                return {
                    f"${key}" if key.startswith("$") else key: self.value(item)
                    for key, item in value.items()
                }
            if cls is not dict and _is_json(value, [0], 0):
                return value
            kind = _EXACT.get(cls) or kind_of_class(cls)
            if kind is None:
                raise UnrestorableValue(f"{class_name(cls)}: values of this class are not recorded")
            return {kind.tag: kind.encode(value, self.value)}
        finally:
            self._depth -= 1


def restored(form: str, text: str, class_named: Callable[[str], type]) -> Any:
    """Restore a recorded value.

    Args:
        form: Its form, see the module.
        text: The text of the recorded result.
        class_named: Returns a class of the agent's process by its name, ``module:Class``.

    Raises:
        UnrestorableValue: The value cannot be restored; the message names its type.
    """
    if form == _AS_TEXT:
        return text
    try:
        if form == _AS_JSON:
            return loads_exact(text)
        return Decoder(class_named, _KINDS).value(loads_exact(form))
    except UnrestorableValue:
        raise
    except RecursionError as error:
        raise UnrestorableValue("the recorded value is nested too deeply") from error
    except Exception as error:  # a damaged, redacted or forged recording
        raise UnrestorableValue(f"its recorded value is damaged: {error}") from error


def typed_text(value: Any) -> str:
    """Write an encoded value as text."""
    return dumps_exact(value)
