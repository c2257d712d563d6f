"""Deletion of traces with everything that was made of them, noted in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..selection import Selection
from ..store import AuditEntry, DeletedRows, Store
from .reconstructing import refresh_traces

__all__ = ["DeletionPlan", "delete_traces", "plan_deletion"]


@dataclass(frozen=True)
class DeletionPlan:
    """The traces to delete.

    Attributes:
        traces: Their ids.
        neighbours: Traces of the same conversations that stay. Their spans repeat what was said
            before, and their runs are reconstructed anew.
        copies: How many references and experiment runs hold copies of the runs; they stay.
    """

    traces: tuple[str, ...]
    neighbours: tuple[str, ...] = ()
    copies: Mapping[str, int] = field(default_factory=dict)


def plan_deletion(
    store: Store,
    *,
    trace_ids: Sequence[str] = (),
    conversations: Sequence[str] = (),
    selection: Selection | None = None,
) -> DeletionPlan:
    """Return which traces a deletion would delete.

    Args:
        store: The store, its trajectories up to date.
        trace_ids: Whole ids of traces.
        conversations: Conversation ids, of which all traces are meant.
        selection: Runs of which all traces are meant; None for none.
    """
    chosen = set(trace_ids)
    if conversations:
        chosen.update(store.deletion.traces_of_conversations(conversations))
    if selection is not None:
        for run in store.trajectories.read(selection):
            chosen.update(run.trace_ids or (run.root_span.trace_id,))
    traces = sorted(chosen)
    if not traces:
        return DeletionPlan(())
    together = set(store.related.with_conversations(traces)) | set(store.related.by_runs(traces))
    neighbours = sorted(together - chosen)
    return DeletionPlan(tuple(traces), tuple(neighbours), store.deletion.copies(traces))


def delete_traces(
    store: Store,
    plan: DeletionPlan,
    *,
    actor: str,
    chosen: Mapping[str, Any],
    on_progress: Callable[[int], None] | None = None,
) -> DeletedRows:
    """Delete traces with everything that was made of them, and note it in the audit log.

    Args:
        store: The store.
        plan: The traces.
        actor: Who deletes, for the audit log.
        chosen: What was asked for, for the audit log.
        on_progress: Called with the number of traces done.

    Returns:
        The number of rows deleted.

    Raises:
        ArchiveMissing: A file of the archive that holds some of the traces is missing.
        StoreError: The archive cannot be written.
    """
    store.judge_calls.flush()
    done = DeletedRows()
    try:
        store.deletion.delete(plan.traces, on_progress, done)
    finally:
        # Also when it fails or is interrupted: what was deleted until then stays deleted.
        if any(asdict(done).values()):
            detail = {"chosen": dict(chosen), "deleted": asdict(done)}
            store.audit.add(AuditEntry(time.time_ns(), actor, "delete", detail))
    if plan.neighbours:
        refresh_traces(store, plan.neighbours)
    return done
