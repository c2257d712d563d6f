"""Preview traces that just ended: reconstruct them before they are complete, and store nothing.

A preview reads only the recent rows of the trace. It therefore lacks rows that arrive later, the
earlier turns of the conversation, and the number of the turn in it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..base.errors import OtevalError
from ..model import LogRecord, Span, Trajectory
from ..reconstruct import reconstruct
from ..store import EVERYWHERE, JustEnded, Range, ReadLimit, Store

__all__ = ["preview"]

# The most spans of a trace, and the most bytes of all of them, for which it is reconstructed.
_MOST_SPANS, _MAX_BYTES = 500, 16 << 20
_log = logging.getLogger(__name__)


def preview(store: Store, traces: Sequence[JustEnded]) -> Mapping[str, Trajectory | None]:
    """The run of each of some traces as far as it is stored.

    Args:
        store: The store.
        traces: The traces.

    Returns:
        The first run of each trace that no other run called, by trace; None for a trace without an
        agent. A trace that is too large, or cannot be reconstructed, is left out.
    """
    small = [trace for trace in traces if trace.spans <= _MOST_SPANS]
    spans, logs = _read(store, small)
    runs_by_trace: dict[str, Trajectory | None] = {}
    for trace in small:
        name = trace.trace_id
        if not spans.get(name):
            continue
        try:
            runs = reconstruct(spans[name], logs.get(name, ()))
        except Exception:
            # The reconstructor will meet the same failure, and report it.
            _log.debug("no preview of trace %s", name, exc_info=True)
            continue
        runs_by_trace[name] = next((run for run in runs if not run.parent_id), None)
    return runs_by_trace


def _read(
    store: Store, traces: Sequence[JustEnded]
) -> tuple[dict[str, list[Span]], dict[str, list[LogRecord]]]:
    """The recent rows of traces, by trace. A trace with too many bytes has none."""
    if not traces:
        return {}, {}
    names = [trace.trace_id for trace in traces]
    recent = [Range(min(trace.first for trace in traces), EVERYWHERE.last)]
    try:
        telemetry = store.spans.of_traces(
            names, row_ranges=recent, archived=[], limit=ReadLimit(_MAX_BYTES)
        )
    except OtevalError:
        if len(traces) == 1:
            return {}, {}
        parts = [_read(store, [trace]) for trace in traces]
        return (
            {name: rows for spans, _ in parts for name, rows in spans.items()},
            {name: rows for _, logs in parts for name, rows in logs.items()},
        )
    spans: dict[str, list[Span]] = {}
    logs: dict[str, list[LogRecord]] = {}
    for span in telemetry[0]:
        spans.setdefault(span.trace_id, []).append(span)
    for record in telemetry[1]:
        logs.setdefault(record.trace_id, []).append(record)
    return spans, logs
