"""Attributes of modules and classes that are replaced for a time, and restored exactly."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

__all__ = ["Patches"]

_MISSING = object()


@dataclass(frozen=True, slots=True)
class _Patch:
    owner: Any
    name: str
    original: Any
    replacement: Any


class Patches:
    """Replaced attributes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patches: list[_Patch] = []

    def set(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute.

        Args:
            owner: The module or class.
            name: The attribute's name; the class may inherit the attribute.
            replacement: The new value.
        """
        with self._lock:
            original = vars(owner).get(name, _MISSING)
            setattr(owner, name, replacement)
            self._patches.append(_Patch(owner, name, original, replacement))

    def undo(self) -> None:
        """Restore all attributes, the last one first.

        An attribute that another library has replaced since then is left as it is.
        """
        with self._lock:
            patches, self._patches = self._patches, []
        for patch in reversed(patches):
            if vars(patch.owner).get(patch.name) is not patch.replacement:
                continue
            if patch.original is _MISSING:
                delattr(patch.owner, patch.name)
            else:
                setattr(patch.owner, patch.name, patch.original)
