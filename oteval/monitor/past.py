"""The stored past of a monitor: read without a change of the store, and tested against rules.

Checks would have read the same observations, in the order of storage and in parts. At its end, a
`Monitors.rehearsal` discards positions and states.

A *backtest* runs the rules of monitors over it, and lists the alerts. Baselines are learned from
the first observations of the past, as by checks that had run from the beginning. Groups, detectors
and episodes are the same as in checks. Groups share the budget as they came and went. Nothing is
kept. Silence is not tested, because it needs the clock of a check.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ..scoring import MonitorSettings
from ..store import ObservationSource, ReadPosition, Store, StoredEpisode
from .groups import LearnedSide, without_baseline
from .monitor_checks import source_of
from .observations import Observations, by_group
from .run_reader import RunReader
from .status import group_values
from .watcher import Watcher

__all__ = [
    "Backtest",
    "PastEpisode",
    "PastPeriod",
    "backtest",
    "histories",
    "past_parts",
]

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


@dataclass(frozen=True, slots=True)
class PastEpisode:
    """An episode that a monitor would have had.

    Attributes:
        monitor: The monitor.
        group: The values that the monitor groups by, by name.
        figure: The name of the figure.
        before: The figure before the change.
        after: The figure since the change.
        episode: The episode.
    """

    monitor: str
    group: dict[str, str]
    figure: str
    before: float | None
    after: float | None
    episode: StoredEpisode

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval monitor backtest --json`` prints."""
        episode = self.episode
        return {
            "monitor": self.monitor,
            "group": self.group,
            "episode": episode.episode_id,
            "side": episode.side,
            "figure": self.figure,
            "alarm_ns": episode.alarm_ns,
            "ended_ns": episode.ended_ns,
            "end_reason": episode.end_reason,
            "change_ns": episode.change_ns,
            "change_from_ns": episode.change_from_ns,
            "change_to_ns": episode.change_to_ns,
            "before": self.before,
            "after": self.after,
            "observations": episode.observations,
            "runs": list(episode.runs),
        }


@dataclass(frozen=True, slots=True)
class Backtest:
    """The outcome of a backtest of one monitor.

    Attributes:
        episodes: The episodes it would have had, the oldest first.
        groups: The number of groups that were observed.
        learning: The groups that never had a baseline, with the reason.
        observations: The number of observations.
    """

    episodes: Sequence[PastEpisode]
    groups: int
    learning: Sequence[tuple[dict[str, str], str]]
    observations: int


def backtest(
    store: Store,
    settings: MonitorSettings,
    *,
    now_ns: int,
    period: PastPeriod | None = None,
    report: Report | None = None,
) -> Backtest:
    """Run a monitor over the stored past; the store does not change.

    Args:
        store: The store.
        settings: The monitor.
        now_ns: The time (ns).
        period: The runs to use; all by default.
        report: Receives how many rows were read, of how many.
    """
    quiet = settings.no_data.model_copy(update={"notify": False})
    tested = settings.model_copy(update={"no_data": quiet})
    state = store.monitors
    with state.rehearsal():
        parts = past_parts(store, tested, period or PastPeriod(), now_ns, report)
        for table, before_ns, reached_ns in parts:
            if not table.num_rows:
                continue
            watcher = Watcher(store, tested, before_ns or reached_ns)
            watcher.advance(reached_ns)
            watcher.consume(table, reached_ns)
            watcher.write()
            watcher.end_check()
        rows = state.groups(settings.title)
        return Backtest(
            episodes=_episodes(store, settings),
            groups=len(rows),
            learning=[
                (group_values(settings, row.group), row.progress or "too few observations")
                for row in rows
                if row.detectors is None
            ],
            observations=sum(row.observations for row in rows),
        )


def _episodes(store: Store, settings: MonitorSettings) -> list[PastEpisode]:
    """The episodes in the store, in the terms of the monitor's figure."""
    learned = {
        (row.group, row.version): json.loads(row.detectors)
        for row in store.monitors.groups(settings.title)
        if row.detectors is not None
    }
    for key, text in store.monitors.baselines(settings.title).items():
        learned.setdefault(key, json.loads(text))
    plain = without_baseline(settings) or {}
    past_episodes = []
    for episode in store.monitors.episodes(settings.title):
        stored = learned.get((episode.group, episode.version), {}).get(episode.side)
        learned_side = LearnedSide.from_dict(stored) if stored else next(iter(plain.values()), None)
        past_episodes.append(
            PastEpisode(
                monitor=settings.title,
                group=group_values(settings, episode.group),
                figure=learned_side.scale.figure if learned_side else settings.measure,
                before=learned_side.scale.shown(episode.before) if learned_side else episode.before,
                after=learned_side.scale.shown(episode.after) if learned_side else episode.after,
                episode=episode,
            )
        )
    return past_episodes
