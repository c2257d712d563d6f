"""Backtest: run the rules of monitors over the stored past, and list the alerts.

Baselines are learned from the first observations of the past, as by checks that had run from the
beginning. Groups, detectors and episodes are the same as in checks. Groups share the budget as they
came and went. Nothing is kept. Silence is not tested, because it needs the clock of a check.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..scoring import MonitorSettings
from ..store import Store, StoredEpisode
from .groups import LearnedSide, without_baseline
from .past import PastPeriod, Report, past_parts
from .status import group_values
from .watcher import Watcher

__all__ = ["Backtest", "PastEpisode", "backtest"]


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
