"""Faults of the instrumentation itself: counted, and logged once per place, never raised.

An agent must not notice that its spans cannot be written. Each place that records runs inside of
`guarded`, and `fault_counts` says afterwards how often something went wrong.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from types import TracebackType

__all__ = ["fault_counts", "guarded", "note_fault"]

_log = logging.getLogger("oteval.record")
_lock = threading.RLock()
_counts: Counter[str] = Counter()


def note_fault(place: str, error: BaseException) -> None:
    """Count a fault, and log the first one of its place.

    Args:
        place: The step, such as "recording the arguments of a tool".
        error: The exception.
    """
    with _lock:
        _counts[place] += 1
        is_first = _counts[place] == 1
    if is_first:
        text = "%s failed; the agent goes on, and further failures are only counted"
        _log.warning(text, place, exc_info=error)


def fault_counts() -> dict[str, int]:
    """Return how often each place failed since the start of the process."""
    with _lock:
        return dict(_counts)


class guarded:  # noqa: N801
    """A ``with`` block whose exceptions are counted instead of raised.

    Args:
        place: The step, for the count and the log.
    """

    __slots__ = ("place",)

    def __init__(self, place: str) -> None:
        self.place = place

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Count an `Exception`; interrupts and the like pass through."""
        if not isinstance(error, Exception):
            return False
        note_fault(self.place, error)
        return True
