"""JSON text: how oteval writes it, and the one form by which it compares values.

Two values are equal when their canonical texts are: key order does not count, ``1`` equals
``1.0``, and ``1``, ``true`` and ``"1"`` all differ.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import orjson

__all__ = ["call_hash", "canonical", "dumps", "loads"]

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
# orjson writes every whole float with ".0" or an exponent; all else is canonical already.
_WHOLE_FLOAT = re.compile(r"[0-9](?:\.0|[eE])", re.ASCII)


def loads(text: str | bytes) -> Any:
    """Return the value of a JSON text; integers of any size are kept exact.

    Raises:
        ValueError: The text is not valid JSON.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def dumps(value: Any) -> str:
    """Return compact JSON text that keeps key order and non-ASCII characters."""
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def canonical(value: Any) -> str:
    """Return the one text of all equal values: keys sorted, and 1.0 written as 1."""
    try:
        text = orjson.dumps(value, str, _OPTIONS).decode()
    except (TypeError, ValueError):
        text = ""
    if text and _WHOLE_FLOAT.search(text) is None:
        return text
    return json.dumps(
        _plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def call_hash(name: str, arguments: Any) -> int:
    """Return a 63-bit hash that two tool calls share when name and arguments are equal."""
    text = f"{name}\0{canonical(arguments)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
