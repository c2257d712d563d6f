"""Spans into trajectories: which agent said what to which model, and which tools it called.

Pure: spans and log records in, trajectories out; no clock, no file, no database. The stages inside:
`dialects` read a span, `tree` and `scopes` find the runs, `merge`, `tools` and `conversation` make
the messages, `gaps` names what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..model import LogRecord, Span, SpanRef, Trajectory, trajectory_id
from .conversation import trajectories_of
from .dialects import DIALECTS
from .gaps import CODES, gap
from .scopes import Run, runs_of
from .tree import order

__all__ = ["CODES", "DIALECTS", "failed_trajectory", "reconstruct"]


def reconstruct(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> list[Trajectory]:
    """Return the trajectories of some traces.

    Args:
        spans: The spans of whole traces, in any order. Turns of one conversation are stitched
            when their traces are all among them.
        logs: The log records of those traces. Of records with equal times and no order of arrival
            in a store, the order given counts.

    Returns:
        One trajectory per agent run, in order of start. A trace without any gives one trajectory
        without messages, whose gaps say why.
    """
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    logs_of: dict[str, dict[str, list[LogRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in sorted(logs, key=lambda log: (log.time_ns or log.observed_ns, log.seq)):
        logs_of[record.trace_id][record.span_id].append(record)
    runs: list[Run] = []
    for trace_id, members in by_trace.items():
        runs.extend(runs_of(members, logs_of.get(trace_id, {})))
    return trajectories_of(runs)


def failed_trajectory(spans: Sequence[Span], reason: str) -> Trajectory:
    """Return the trajectory that stands for a trace which could not be reconstructed.

    Args:
        spans: The trace's spans, at least one.
        reason: What went wrong.
    """
    root = min(spans, key=order)
    return Trajectory(
        id=trajectory_id(root.trace_id, root.span_id),
        root_span=SpanRef(root.trace_id, root.span_id),
        trace_ids=(root.trace_id,),
        service=root.service,
        start_ns=root.start_ns,
        end_ns=max(root.end_ns, root.start_ns),
        gaps=(gap("internal_error", root.span_id, reason=reason),),
    )
