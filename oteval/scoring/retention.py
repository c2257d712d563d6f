"""Retention: old traces move to the archive, and old trajectories, scores and calls are deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ..store import ArchiveReport, AuditEntry, DeletedRows, Store
from .config import Retention

__all__ = ["archive_before", "archive_due", "delete_expired"]

_NS = 1_000_000_000
_HOUR, _DAY = 3600 * _NS, 86_400 * _NS


def archive_before(retention: Retention, now: int) -> int:
    """The time (ns) before which traces are to be archived.

    It is the beginning of a UTC day, so that the archive grows once a day and by few files. If
    traces stay in the database for less than a day, it is the beginning of an hour.

    Args:
        retention: The configuration.
        now: The time (ns).
    """
    hot = round(retention.hot * _NS)
    step = _DAY if hot >= _DAY else _HOUR
    return max(0, now - hot) // step * step


def archive_due(
    store: Store,
    retention: Retention,
    now: int,
    *,
    base: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ArchiveReport | None:
    """Archive the traces that have become due since the last time.

    Args:
        store: The store, preferably a `Store.sibling` in a separate thread, since archiving a day
            takes a while.
        retention: The configuration.
        now: The time (ns).
        base: The folder for a relative archive path; by default the database's folder.
        should_stop: Called between parts of a few thousand rows; a true result ends archiving.

    Returns:
        The counts of archived rows, or None if nothing was due.

    Raises:
        StoreError: Archiving failed. Rows archived before stay archived.
    """
    before = archive_before(retention, now)
    if before <= store.archive.done_before:
        return None
    folder = (base or Path(store.path).absolute().parent) / retention.archive
    moved = store.archive.move(folder, before, should_stop=should_stop)
    if not should_stop():
        store.archive.done_before = before
    return moved


def delete_expired(store: Store, retention: Retention, now: int) -> DeletedRows:
    """Delete trajectories, scores and judge calls that are older than the configuration allows.

    Trajectories that a later trajectory continues stay with it. The audit log gets an entry.

    Args:
        store: The store.
        retention: The configuration.
        now: The time (ns).

    Returns:
        The number of rows deleted.
    """

    def before(age: float) -> int:
        return max(0, now - round(age * _NS))

    done = DeletedRows()
    if retention.trajectories is not None:
        done = store.deletion.delete_runs_before(before(retention.trajectories))
    if retention.scores is not None:
        done.scores += store.deletion.delete_scores_before(before(retention.scores))
    if retention.judge_calls is not None:
        store.judge_calls.flush()
        count = store.deletion.delete_judge_calls_before(before(retention.judge_calls))
        done.judge_calls += count
    if any(asdict(done).values()):
        detail = {"chosen": retention.model_dump(), "deleted": asdict(done)}
        store.audit.add(AuditEntry(now, "retention", "retention", detail))
    return done
