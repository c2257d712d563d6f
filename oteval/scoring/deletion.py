"""Deletion of traces with everything that was derived from them, with an entry in the audit log."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ..model import Selection
from ..store import AuditEntry, DeletedRows, Store
from .reconstruction import refresh_traces

__all__ = ["DeletionPlan", "delete_traces", "plan_deletion"]


@dataclass(frozen=True)
class DeletionPlan:
    """The traces to delete.

    Attributes:
        traces: Their ids.
        neighbours: Traces of the same conversations that stay. Their spans repeat earlier messages,
            and their trajectories are reconstructed again.
        copies: The number of references and experiment runs with copies of the trajectories. The
            copies stay.
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
    """The traces that a deletion would delete.

    Args:
        store: The store, with its trajectories up to date.
        trace_ids: Complete ids of traces.
        conversations: Conversation ids; all of their traces are deleted.
        selection: Trajectories; all of their traces are deleted. None for none.
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
    related = set(store.related.with_conversations(traces)) | set(store.related.by_runs(traces))
    neighbours = sorted(related - chosen)
    return DeletionPlan(tuple(traces), tuple(neighbours), store.deletion.copies(traces))


def delete_traces(
    store: Store,
    plan: DeletionPlan,
    *,
    actor: str,
    chosen: Mapping[str, Any],
    on_progress: Callable[[int], None] | None = None,
) -> DeletedRows:
    """Delete traces with everything that was derived from them, and note it in the audit log.

    Args:
        store: The store.
        plan: The traces.
        actor: The user who deletes, for the audit log.
        chosen: The filters that the user gave, for the audit log.
        on_progress: Called with the number of traces done.

    Returns:
        The number of rows deleted.

    Raises:
        ArchiveMissing: An archived file with some of the traces is missing.
        StoreError: The archive cannot be written.
    """
    store.judge_calls.flush()
    done = DeletedRows()
    try:
        store.deletion.delete(plan.traces, on_progress, done)
    finally:
        # Also after an error or an interruption, since rows that were deleted before stay deleted.
        if any(asdict(done).values()):
            detail = {"chosen": dict(chosen), "deleted": asdict(done)}
            store.audit.add(AuditEntry(time.time_ns(), actor, "delete", detail))
    if plan.neighbours:
        refresh_traces(store, plan.neighbours)
    return done
