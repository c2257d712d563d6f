"""Objects of client libraries as plain data, by their fields.

An object is recognised by its fields and never by its class, so that no library is imported.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from ..model import Message, ToolCall

__all__ = ["field_of", "plain_data"]

_PLAIN = frozenset({str, int, float, bool, type(None)})
_OWN = (Message, ToolCall)
# Deeper than any message: deeper values are the caller's own data, and stay as they are.
_MAX_DEPTH = 50


def field_of(value: Any, name: str, default: Any = None) -> Any:
    """A field of a dict or of an object; the default if it has none or it is None."""
    if type(value) is dict or isinstance(value, Mapping):
        field_value = value.get(name)
    else:
        field_value = getattr(value, name, None)
    return default if field_value is None else field_value


def plain_data(value: Any, depth: int = 0) -> Any:
    """A value as dicts, lists and scalars.

    Args:
        value: The value, which is not changed. Our own messages and calls, and values that have
            no fields, stay as they are.
        depth: How deep the value is nested.
    """
    if type(value) in _PLAIN or isinstance(value, _OWN) or depth > _MAX_DEPTH:
        return value
    if type(value) is dict and _PLAIN.issuperset(map(type, value.values())):
        return value
    if isinstance(value, Mapping):
        return {key: plain_data(item, depth + 1) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain_data(value._asdict(), depth + 1)
    if isinstance(value, (list, tuple, Set)):
        return [plain_data(item, depth + 1) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (str, int, float)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return _text_of_bytes(bytes(value))
    object_fields = {} if isinstance(value, type) or callable(value) else _fields(value)
    return plain_data(object_fields, depth + 1) if object_fields else value


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _fields(value: Any) -> dict[str, Any]:
    """The public fields of an object: of a model, a dataclass, or any other class."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
    else:
        kind = type(value)
        slots = getattr(kind, "__struct_fields__", getattr(kind, "__slots__", ()))
        extra = getattr(value, "__pydantic_extra__", None) or ()
        names = [*getattr(value, "__dict__", ()), *extra, *slots]
    public = {name: getattr(value, name, None) for name in names if not name.startswith("_")}
    to_dict = getattr(type(value), "to_dict", None)
    if public or not names or not callable(to_dict):
        return public
    converted = to_dict(value)  # such as Haystack's messages, whose fields are private
    return converted if isinstance(converted, dict) else {}
