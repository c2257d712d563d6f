"""Attributes of modules and classes that are replaced for a time, and restored exactly."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["Patches"]

_MISSING = object()


class Patches:
    """Replaced attributes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._patches: list[tuple[Any, str, Any, Any]] = []

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
            self._patches.append((owner, name, original, replacement))

    def undo(self) -> None:
        """Restore all attributes in reverse order.

        An attribute that another library has replaced since then is left as it is.
        """
        with self._lock:
            patches, self._patches = self._patches, []
        for owner, name, original, replacement in reversed(patches):
            if vars(owner).get(name) is not replacement:
                continue
            if original is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
