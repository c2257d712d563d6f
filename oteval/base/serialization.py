"""Plain JSON of any Python value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from .jsontext import dumps_exact, restore

__all__ = ["to_jsonable"]


def to_jsonable(value: Any, convert: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON values: pydantic models and dataclasses as dicts, tuples as lists.

    A value without a JSON form becomes its text.

    Args:
        value: The value. It is copied, so that the result shares nothing with it.
        convert: Called first with each value that is not a scalar, to replace values that need a
            special form. It returns all others unchanged.
    """
    return restore(dumps_exact(_plain(value, convert)))


def _plain(value: Any, convert: Callable[[Any], Any] | None) -> Any:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if convert is not None:
        value = convert(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, convert) for item in value]
    # Looked up on the class: mocks and lazy proxies have attributes of any name.
    if callable(getattr(type(value), "model_dump", None)):
        return _plain(value.model_dump(mode="json"), convert)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value), convert)
    return value
