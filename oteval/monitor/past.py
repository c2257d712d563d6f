"""The stored past of a monitor, read from its beginning without a change of the store.

Checks would have read the same observations, in the order of storage and in parts. At its end, a
`Monitors.rehearsal` discards positions and states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from ..scoring import MonitorSettings
from ..store import ObservationSource, ReadPosition, Store
from .monitor_checks import source_of
from .observations import Observations, by_group
from .run_reader import RunReader

__all__ = ["PastPeriod", "histories", "past_parts"]

# The fewest and the most rows of a part, and about how many parts there are.
_FEWEST, _MOST, _PARTS = 5_000, 250_000, 50

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class PastPeriod:
    """The runs that began in a period.

    Attributes:
        since_ns: Its start (ns); None for all earlier runs.
        until_ns: Its end (ns), exclusive; None for all later runs.
    """

    since_ns: int | None = None
    until_ns: int | None = None


def past_parts(
    store: Store,
    settings: MonitorSettings,
    period: PastPeriod,
    now_ns: int,
    report: Report | None = None,
) -> Iterator[tuple[pa.Table, int, int]]:
    """Yield the observations of a monitor in parts, as its first checks would have read them.

    Call this in a `Monitors.rehearsal`.

    Args:
        store: The store.
        settings: The monitor.
        period: The runs to read.
        now_ns: The time (ns) that closes the last conversations.
        report: Receives the number of rows read, and of all rows.

    Yields:
        A table of observations, and the latest time of an observation before and after the part.
    """
    source = _within(source_of(settings), period)
    newest = store.observations.newest(source)
    size = min(_MOST, max(_FEWEST, newest // _PARTS))
    reader = RunReader(store, source, ReadPosition(), now_ns=now_ns)
    is_last = False
    while not is_last:
        before = reader.at.reached_ns
        upto = min(newest, reader.at.position + size)
        is_last = upto >= newest
        observations = reader.read(upto, is_last=is_last)
        if report is not None:
            report(upto, newest)
        yield observations, before, reader.at.reached_ns


def histories(
    store: Store,
    settings: MonitorSettings,
    period: PastPeriod,
    now_ns: int,
    report: Report | None = None,
) -> dict[str, Observations]:
    """The observations of each group of a monitor, of the newest version of its evaluator.

    Args:
        store: The store.
        settings: The monitor.
        period: The runs to read.
        now_ns: The time (ns).
        report: Receives the number of rows read, and of all rows.
    """
    with store.monitors.rehearsal():
        parts = past_parts(store, settings, period, now_ns, report)
        tables = [table for table, _, _ in parts]
    return {
        group: observations.of_version(observations.last_version)
        for group, observations in by_group(pa.concat_tables(tables))
    }


def _within(source: ObservationSource, period: PastPeriod) -> ObservationSource:
    """The observations of a period, within the period of the monitor."""
    chosen = source.selection
    since = [bound for bound in (chosen.since_ns, period.since_ns) if bound is not None]
    until = [bound for bound in (chosen.until_ns, period.until_ns) if bound is not None]
    return replace(
        source,
        selection=replace(
            chosen, since_ns=max(since, default=None), until_ns=min(until, default=None)
        ),
    )
