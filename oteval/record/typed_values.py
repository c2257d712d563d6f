"""Values with their types as text, so that a replay gives back equal ones.

The text of a value is one of these:

- ``text``: the value is a text, the one that is recorded as the tool's result.
- ``json``: the value is that of the recorded result, which is JSON.
- JSON, in which an object with one key that begins with ``$`` stands for a value that JSON lacks:
  ``{"$decimal": "1.50"}``. Other keys that begin with ``$`` have another ``$`` in front.

`value_kinds` and `class_kinds` have the table. A value of another class is recorded by the name of
its class alone (``$opaque``), and cannot be restored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..base.jsontext import dumps_exact, loads_exact
from .class_kinds import CLASS_KINDS, class_name, kind_of_class
from .delivered_values import DELIVERED_KINDS
from .value_kinds import LIBRARY_KINDS, UnrestorableValue, ValueKind

__all__ = ["TooManyParts", "UnrestorableValue", "encoded", "form_of", "restored", "typed_text"]

_AS_TEXT, _AS_JSON = "text", "json"
_OPAQUE = "$opaque"
_MOST_PARTS = 50_000
_DEEPEST = 100
_MOST_BITS = 4_096
_EXACT = LIBRARY_KINDS | DELIVERED_KINDS
_KINDS = {kind.tag: kind for kind in (*_EXACT.values(), *(kind for _, kind in CLASS_KINDS))}


class TooManyParts(ValueError):
    """A value has more parts than are recorded."""


def form_of(value: Any) -> str | None:
    """Return ``text`` or ``json`` for a value that the text of a result defines, else None.

    Raises:
        TooManyParts: The value has too many parts.
    """
    if type(value) is str:
        return _AS_TEXT if _is_encodable(value) else None
    return _AS_JSON if _is_json(value, [_MOST_PARTS], _DEEPEST) else None


def _is_json(value: Any, left: list[int], depth: int) -> bool:
    """Return whether a value and its parts have exactly the types that JSON has."""
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
    """Return whether a text has no halves of UTF-16 pairs."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encoded(value: Any) -> Any:
    """Return a value as plain JSON with its types.

    Raises:
        TooManyParts: It has too many parts.
    """
    try:
        return _Encoder().value(value)
    except UnrestorableValue as error:
        return {_OPAQUE: str(error)}


class _Encoder:
    """Encodes the parts of one value."""

    def __init__(self) -> None:
        self._left = _MOST_PARTS
        self._depth = 0

    def value(self, value: Any) -> Any:
        """Return the encoded form of a part.

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
    """Return a recorded value.

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
        return _Decoder(class_named).value(loads_exact(form))
    except UnrestorableValue:
        raise
    except RecursionError as error:
        raise UnrestorableValue("the recorded value is nested too deeply") from error
    except Exception as error:  # a damaged, redacted or forged recording
        raise UnrestorableValue(f"its recorded value is damaged: {error}") from error


class _Decoder:
    """Restores the parts of one value."""

    def __init__(self, class_named: Callable[[str], type]) -> None:
        self._class_named = class_named

    def class_named(self, name: str) -> type:
        """Return a class of the agent's process."""
        return self._class_named(name)

    def value(self, encoded: Any) -> Any:
        """Return the value of an encoded form."""
        if isinstance(encoded, list):
            return [self.value(item) for item in encoded]
        if not isinstance(encoded, dict):
            return encoded
        kind, payload = _kind_in(encoded)
        if kind is not None:
            try:
                return kind.decode(payload, self)
            except UnrestorableValue:
                raise
            except Exception as error:
                name = payload.get("class", "") if isinstance(payload, dict) else ""
                name = name or kind.tag[1:]
                raise UnrestorableValue(f"{name}: {error}") from error
        return {key.removeprefix("$"): self.value(item) for key, item in encoded.items()}


def _kind_in(encoded: dict[str, Any]) -> tuple[ValueKind | None, Any]:
    """Return the kind that an object stands for and its payload, or None.

    Raises:
        UnrestorableValue: Only the class of the value is recorded.
    """
    if len(encoded) != 1:
        return None, None
    ((tag, payload),) = encoded.items()
    if tag == _OPAQUE:
        raise UnrestorableValue(str(payload))
    if tag.startswith("$") and not tag.startswith("$$") and tag not in _KINDS:
        raise UnrestorableValue(f"{tag[1:]}: a kind of value that this version does not know")
    return _KINDS.get(tag), payload


def typed_text(value: Any) -> str:
    """Return the text of an encoded value."""
    return dumps_exact(value)
