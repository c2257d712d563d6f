"""Retention: what is older than the configuration says goes from the store into the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..config import Retention
from ..store import Archived, Store

__all__ = ["archive_before", "retention_tick"]

_NS = 1_000_000_000
_DAY = 86_400 * _NS


def archive_before(retention: Retention, now: int) -> int:
    """Return the time (ns) before which traces are to be archived: the beginning of a UTC day.

    Args:
        retention: The configuration.
        now: The time (ns).
    """
    return max(0, now - round(retention.hot * _NS)) // _DAY * _DAY


def retention_tick(
    store: Store,
    retention: Retention,
    now: int,
    *,
    base: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Archived | None:
    """Archive what is due, if the day has turned since it was last done.

    Args:
        store: The store; best a `Store.sibling` in a thread of its own, since a day of spans takes
            a while.
        retention: The configuration.
        now: The time (ns).
        base: The folder that the archive's is relative to; the database's where it is not given.
        should_stop: Asked between parts of some thousand rows.

    Returns:
        What was moved; None when it was not due.

    Raises:
        StoreError: It cannot be; what was moved before stays moved.
    """
    before = archive_before(retention, now)
    if before <= store.archive.done_before:
        return None
    folder = (base or Path(store.path).absolute().parent) / retention.archive
    moved = store.archive.move(folder, before, should_stop=should_stop)
    if not should_stop():
        store.archive.done_before = before
    return moved
