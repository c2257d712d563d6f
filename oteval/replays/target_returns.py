"""The results of a replay's target as plain JSON that a written test can assert."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..base.serialization import to_jsonable
from ..record import TooManyParts, encoded, form_of, typed_text

__all__ = ["ReturnedJson", "returned_json"]

# Kinds of values whose JSON says nothing of them, or varies.
_VAGUE = ('"$opaque"', '"$instance"', '"$set"', '"$frozenset"', '"$float"')


@dataclass(frozen=True, slots=True)
class ReturnedJson:
    """The result of a target for a turn.

    Attributes:
        value: The value as plain JSON.
        is_exact: Whether it equals the value; otherwise it is the JSON form of the value.
        is_known: Whether the value has a JSON form with all of its content.
    """

    value: Any = None
    is_exact: bool = False
    is_known: bool = True


def returned_json(values: Iterable[Any]) -> tuple[ReturnedJson, ...]:
    """The values that a target returned as plain JSON."""
    return tuple(map(_returned_json, values))


def _returned_json(value: Any) -> ReturnedJson:
    try:
        if form_of(value) is not None:
            return ReturnedJson(value, is_exact=True)
        text = typed_text(encoded(value))
        if not any(tag in text for tag in _VAGUE):
            return ReturnedJson(to_jsonable(value))
    except (TooManyParts, RecursionError, ValueError):
        pass
    return ReturnedJson(is_known=False)
