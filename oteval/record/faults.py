"""Faults of the instrumentation itself: counted, and logged once per step, never raised.

An agent must not notice that its spans cannot be written. Each step that records runs inside of
`guarded`, and `fault_counts` returns the number of failures of each step.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from types import TracebackType

__all__ = ["FaultCounter", "fault_counts", "guarded", "note_fault"]

_log = logging.getLogger("oteval.record")
_lock = threading.RLock()
_counts: Counter[str] = Counter()


def note_fault(step: str, error: BaseException) -> None:
    """Count a fault, and log the first one of its step.

    Args:
        step: The step, such as "recording the arguments of a tool".
        error: The exception.
    """
    with _lock:
        _counts[step] += 1
        is_first = _counts[step] == 1
    if is_first:
        text = "%s failed; the agent goes on, and further failures are only counted"
        _log.warning(text, step, exc_info=error)


def fault_counts() -> dict[str, int]:
    """The number of failures since the start of the process, by step."""
    with _lock:
        return dict(_counts)


class guarded:  # noqa: N801
    """A ``with`` block whose exceptions are counted instead of raised.

    Args:
        step: The step, for the count and the log.
    """

    __slots__ = ("step",)

    def __init__(self, step: str) -> None:
        self.step = step

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
        note_fault(self.step, error)
        return True


class FaultCounter:
    """Counts the errors of one part of the recording.

    The first error is logged without its text, because the text may quote a body.

    Args:
        log: The logger.
        message: The consequence, for the warning.

    Attributes:
        count: The number of errors so far.
    """

    def __init__(self, log: logging.Logger, message: str) -> None:
        self._log, self._message = log, message
        self._lock = threading.RLock()
        self.count = 0

    def add(self, error: Exception) -> None:
        """Count an error."""
        with self._lock:
            self.count += 1
            is_first = self.count == 1
        if is_first:
            reason = type(error).__name__
            self._log.warning("%s (%s); more are only counted", self._message, reason)
        self._log.debug("%s", self._message, exc_info=error)
