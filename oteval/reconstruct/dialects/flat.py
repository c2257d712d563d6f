"""Attributes that spell a nested value out as indexed keys, such as ``prefix.0.role``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["nested"]


def nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the list that the keys under a prefix spell out.

    Args:
        attributes: The span's attributes.
        prefix: What the keys begin with, the last dot included.

    Returns:
        The items in the order of their indices as numbers; a missing index leaves no hole.
        Inside an item, keys that are all numbers become a list likewise.
    """
    root = _Branch()
    cut = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            path = key[cut:].split(".", _MAX_STEPS)
            if len(path) <= _MAX_STEPS:
                _put(root, path, value)
    items = _listed(root)
    return items if isinstance(items, list) else []


# No dialect nests as deeply, nor holds as many digits in an index.
_MAX_STEPS = 32
_MAX_DIGITS = 9


class _Branch(dict[str, Any]):
    """What several keys share; told from an attribute's own value, which may be a dict too."""


def _put(node: _Branch, path: list[str], value: Any) -> None:
    for step in path[:-1]:
        below = node.setdefault(step, _Branch())
        if not isinstance(below, _Branch):
            return
        node = below
    node.setdefault(path[-1], value)


def _listed(node: Any) -> Any:
    if not isinstance(node, _Branch):
        return node
    items = {key: _listed(value) for key, value in node.items()}
    if items and all(key.isdecimal() and len(key) <= _MAX_DIGITS for key in items):
        return [items[key] for key in sorted(items, key=int)]
    return items
