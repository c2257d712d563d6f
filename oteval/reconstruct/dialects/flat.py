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
    root: dict[str, Any] = {}
    cut = len(prefix)
    for key, value in attributes.items():
        if key.startswith(prefix):
            _put(root, key[cut:].split("."), value)
    items = _listed(root)
    return items if isinstance(items, list) else []


def _put(node: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        below = node.setdefault(step, {})
        if not isinstance(below, dict):
            return
        node = below
    node.setdefault(path[-1], value)


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    items = {key: _listed(value) for key, value in node.items()}
    if items and all(key.isdecimal() for key in items):
        return [items[key] for key in sorted(items, key=int)]
    return items
