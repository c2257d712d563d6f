"""Calls that an instrumentation wrongly joined when it read a stream: several became one.

Some servers stream parallel calls without an index. Two calls of ``get_weather`` are then recorded
as the call ``get_weatherget_weather`` with ``{"city": "Paris"}{"city": "Tokyo"}`` as its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ..model import ToolCall

__all__ = ["is_glued", "separated"]

_DECODER = json.JSONDecoder()
_ID_PREFIX = 4


def is_glued(call: ToolCall) -> bool:
    """Whether a call's arguments are the arguments of several calls, one after another."""
    arguments = call.arguments
    if not isinstance(arguments, str) or not arguments.startswith("{"):
        return False
    return len(_objects(arguments)) > 1


def _objects(text: str) -> list[Any]:
    """The objects that a text consists of; none if it contains anything else."""
    objects = []
    position = 0
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        objects.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return objects


def separated(call: ToolCall, names: Collection[str]) -> list[ToolCall]:
    """The calls that a glued call consists of; none if its name does not separate them.

    Args:
        call: The call.
        names: The names of the tools that the model was offered.
    """
    arguments = _objects(call.arguments)
    count = len(arguments)
    tools = _pieces(call.name, count, names)
    if not tools:
        return []
    ids = _equal_pieces(call.id, count)
    heads = {piece[:_ID_PREFIX] for piece in ids}
    ids = ids if len(heads) == 1 else [call.id, *[""] * (count - 1)]
    triples = zip(tools, arguments, ids, strict=True)
    return [ToolCall(name, values, call_id) for name, values, call_id in triples]


def _equal_pieces(text: str, count: int) -> list[str]:
    """A text in equal pieces; none if it cannot be divided so."""
    size, remainder = divmod(len(text), count)
    return [] if remainder or not size else [text[i : i + size] for i in range(0, len(text), size)]


def _pieces(name: str, count: int, names: Collection[str]) -> Sequence[str]:
    """The names of tools that a glued name consists of."""
    if count == 1:
        return [name] if name in names else []
    equal = _equal_pieces(name, count)
    if equal and len(set(equal)) == 1:
        return equal
    for first in names:
        remainder = name.removeprefix(first)
        if remainder != name and (further := _pieces(remainder, count - 1, names)):
            return [first, *further]
    return []
