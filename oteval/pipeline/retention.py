"""Retention: what is older than the configuration says goes from the store into the archive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ..config import Retention
from ..store import ArchiveReport, AuditEntry, DeletedRows, Store

__all__ = ["archive_before", "delete_expired", "retention_tick"]

_NS = 1_000_000_000
_HOUR, _DAY = 3600 * _NS, 86_400 * _NS


def archive_before(retention: Retention, now: int) -> int:
    """Return the time (ns) before which traces are to be archived.

    It is the beginning of a UTC day, so that it is done once a day and in few files; of an hour
    where traces stay for less than a day.

    Args:
        retention: The configuration.
        now: The time (ns).
    """
    hot = round(retention.hot * _NS)
    step = _DAY if hot >= _DAY else _HOUR
    return max(0, now - hot) // step * step


def retention_tick(
    store: Store,
    retention: Retention,
    now: int,
    *,
    base: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ArchiveReport | None:
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


def delete_expired(store: Store, retention: Retention, now: int) -> DeletedRows:
    """Delete the runs, scores and cached judgements that are older than a configuration says.

    Runs that a later run continues stay with it. The deletion is noted in the audit log.

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
