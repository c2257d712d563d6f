"""The way from the spans of traces to their trajectories, and the account of each span."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..messages import reading_once
from ..model import LogRecord, Span, SpanRef, Trajectory, trajectory_id
from .conversation import TracedTrajectory, trajectories_of
from .detached_runs import with_lone_tools
from .duplicates import without_duplicates
from .gaps import gap
from .run_detection import runs_of
from .runs import TracedRun
from .span_accounts import Explanation, account_for
from .span_reader import attach_logs
from .tree import order

__all__ = ["explain", "failed_trajectory", "reconstruct", "reconstruct_with_runs"]


def reconstruct(spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> list[Trajectory]:
    """The trajectories of some traces.

    Args:
        spans: The spans of whole traces, in any order. Turns of one conversation are stitched
            when their traces are all among them.
        logs: The log records of the traces. If records have equal times and no order of arrival in
            a store, they keep their order here.

    Returns:
        One trajectory per agent run, in order of start. A trace without an agent and without a
        model call has none. If it has spans that look like model spans, it has one without
        messages, with the reason in its gaps.
    """
    return [traced.trajectory for traced in reconstruct_with_runs(spans, logs)]


def reconstruct_with_runs(
    spans: Iterable[Span], logs: Iterable[LogRecord] = ()
) -> list[TracedTrajectory]:
    """The trajectories of some traces, with their model calls and tool runs.

    Args:
        spans: The spans, as for `reconstruct`.
        logs: The log records of the traces.
    """
    with reading_once():
        runs = without_duplicates(_runs(_TracesById(spans, logs)))
        return trajectories_of(with_lone_tools(runs))


def explain(trace_id: str, spans: Iterable[Span], logs: Iterable[LogRecord] = ()) -> Explanation:
    """How each span of a trace was used.

    Args:
        trace_id: The trace.
        spans: Its spans, and the spans of the traces that belong to the same conversation.
        logs: The log records of these traces.
    """
    traces = _TracesById(spans, logs)
    with reading_once():
        return account_for(
            trace_id,
            traces.spans.get(trace_id, []),
            traces.logs_of(trace_id),
            _runs(traces),
        )


class _TracesById:
    """Spans and log records by trace, the records by span in order of time."""

    def __init__(self, spans: Iterable[Span], logs: Iterable[LogRecord]) -> None:
        self.spans: dict[str, list[Span]] = defaultdict(list)
        spans = list(spans)
        logs = attach_logs(spans, list(logs))
        for span in spans:
            self.spans[span.trace_id].append(span)
        self._logs: dict[str, dict[str, list[LogRecord]]] = defaultdict(lambda: defaultdict(list))
        for record in sorted(logs, key=lambda log: (log.time_ns or log.observed_ns, log.seq)):
            self._logs[record.trace_id][record.span_id].append(record)

    def logs_of(self, trace_id: str) -> Mapping[str, Sequence[LogRecord]]:
        """A trace's log records by span id."""
        return self._logs.get(trace_id, {})


def _runs(traces: _TracesById) -> list[TracedRun]:
    return [
        run
        for trace_id, members in sorted(traces.spans.items())
        for run in runs_of(members, traces.logs_of(trace_id))
    ]


def failed_trajectory(
    spans: Sequence[Span], reason: str, code: str = "internal_error"
) -> Trajectory:
    """The placeholder for a trace that could not be reconstructed.

    Args:
        spans: The trace's spans, at least one.
        reason: The error.
        code: The code of the gap.
    """
    root = min(spans, key=order)
    return Trajectory(
        id=trajectory_id(root.trace_id, root.span_id),
        root_span=SpanRef(root.trace_id, root.span_id),
        trace_ids=(root.trace_id,),
        service=root.service,
        start_ns=root.start_ns,
        end_ns=max(root.end_ns, root.start_ns),
        gaps=(gap(code, root.span_id, reason=reason),),
    )
