"""The state of each group of a monitor, for people and for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..scoring import MonitorSettings
from ..store import GroupRow, Store, StoredEpisode
from .episodes import State, no_data_after, state_of
from .groups import LearnedSide

__all__ = ["MonitorStatus", "group_values", "statuses", "statuses_of"]


@dataclass(frozen=True, slots=True)
class MonitorStatus:
    """The state of a group of a monitor.

    Attributes:
        monitor: The monitor.
        measure: Its measure.
        group: The values that the monitor groups by, by name.
        state: The state.
        since_ns: The start of the state; 0 if nothing was observed.
        last_ns: The time of the last observation; 0 without one.
        observations: The number of observations.
        version: The version of the evaluator; "" for measures of runs.
        recent: An average of the newest raw values.
        evidence: How near the next alert is, from 0 to 1; None while learning.
        progress: Why the baseline is not learned yet, or "".
        detectors: The detectors by side, with their baselines, as JSON text; None while learning.
        episodes: The episodes that last.
        snoozed_until_ns: The end of its snooze; None if it notifies.
    """

    monitor: str
    measure: str
    group: Mapping[str, str]
    state: State
    since_ns: int
    last_ns: int
    observations: int
    version: str
    recent: float | None
    evidence: float | None
    progress: str
    detectors: str | None
    episodes: Sequence[StoredEpisode]
    snoozed_until_ns: int | None

    @property
    def baselines(self) -> Mapping[str, LearnedSide]:
        """The scales and baselines by side."""
        # Servers with many groups do not need them at every check.
        stored = json.loads(self.detectors or "{}")
        return {side: LearnedSide.from_dict(stored_side) for side, stored_side in stored.items()}

    @property
    def doubts(self) -> Sequence[str]:
        """Why the budget of false alarms is not promised; none if it is."""
        baselines = [
            learned.baseline for learned in self.baselines.values() if learned.baseline is not None
        ]
        return list(dict.fromkeys(doubt for baseline in baselines for doubt in baseline.doubts))

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval monitor status --json`` prints."""
        return {
            "monitor": self.monitor,
            "group": dict(self.group),
            "state": self.state,
            "measure": self.measure,
            "since_ns": self.since_ns or None,
            "last_ns": self.last_ns or None,
            "observations": self.observations,
            "version": self.version or None,
            "recent": self.recent,
            "evidence": self.evidence,
            "progress": self.progress or None,
            "baselines": {side: _baseline(learned) for side, learned in self.baselines.items()},
            "episodes": [
                {
                    "episode": episode.episode_id,
                    "side": episode.side,
                    "change_ns": episode.change_ns,
                    "change_from_ns": episode.change_from_ns,
                    "change_to_ns": episode.change_to_ns,
                    **json.loads(episode.evidence or "{}"),
                    "runs": list(episode.runs),
                    "runs_before": list(episode.runs_before),
                    "acknowledged_by": episode.acknowledged_by,
                }
                for episode in self.episodes
            ],
            "snoozed_until_ns": self.snoozed_until_ns,
        }


def _baseline(learned: LearnedSide) -> dict[str, Any]:
    fields: dict[str, Any] = {"figure": learned.scale.figure, "limit": learned.scale.limit}
    if learned.baseline is not None:
        baseline = learned.baseline
        fields |= {
            "mean": learned.scale.shown(baseline.mean),
            "floor": learned.scale.shown(baseline.floor),
            "block": baseline.block,
            "block_reason": baseline.block_reason,
            "is_promised": not baseline.doubts,
            "doubts": list(baseline.doubts),
            "autocorrelation_time": baseline.autocorrelation_time,
            "observations": baseline.size,
            "start_ns": baseline.start_ns,
            "end_ns": baseline.end_ns,
        }
    return fields


def group_values(settings: MonitorSettings, group: str) -> dict[str, str]:
    """The values of a group by the names that the monitor groups by."""
    return dict(zip(settings.group_by, json.loads(group), strict=False))


def statuses(store: Store, settings: MonitorSettings, now_ns: int) -> list[MonitorStatus]:
    """The state of each group of a monitor as it is stored.

    A monitor that has observed nothing has one status without a group.

    Args:
        store: The store.
        settings: The monitor.
        now_ns: The time (ns).
    """
    rows = store.monitors.groups(settings.title)
    return statuses_of(store, settings, rows, store.monitors.episodes(settings.title), now_ns)


def statuses_of(
    store: Store,
    settings: MonitorSettings,
    rows: Sequence[GroupRow],
    episodes: Sequence[StoredEpisode],
    now_ns: int,
) -> list[MonitorStatus]:
    """The states of the groups and episodes of a monitor that were read from the store."""
    snoozes = store.monitors.snoozes(now_ns)
    lasting: dict[str, list[StoredEpisode]] = {}
    recovered: dict[str, int] = {}
    for episode in episodes:
        if episode.ended_ns is None:
            lasting.setdefault(episode.group, []).append(episode)
        elif episode.end_reason == "recovered" and episode.side != "silent":
            recovered[episode.group] = max(recovered.get(episode.group, 0), episode.ended_ns)
    if not rows:
        rows = [GroupRow(settings.title, "[]", "", progress="no observations")]
    return [
        _status(
            settings, row, lasting.get(row.group, []), recovered.get(row.group), snoozes, now_ns
        )
        for row in rows
    ]


def _status(
    settings: MonitorSettings,
    row: GroupRow,
    lasting: Sequence[StoredEpisode],
    recovered_ns: int | None,
    snoozes: Mapping[tuple[str, str | None], int],
    now_ns: int,
) -> MonitorStatus:
    after = settings.no_data.after
    limit = no_data_after(
        None if after is None else round(after * 1e9),
        row.longest_gap_ns,
        is_learning=row.detectors is None,
    )
    alerting = [episode for episode in lasting if episode.side != "silent"]
    state = state_of(
        is_alerting=bool(alerting),
        evidence=row.evidence,
        is_silent=bool(row.observations) and now_ns - row.last_ns > limit,
        recovered_ns=recovered_ns,
        last_ns=row.last_ns,
    )
    since = {
        "alert": min((episode.change_ns for episode in alerting), default=0),
        "recovered": recovered_ns or 0,
        "no_data": row.last_ns,
    }
    until = [
        snoozes[key] for key in ((row.monitor, None), (row.monitor, row.group)) if key in snoozes
    ]
    return MonitorStatus(
        monitor=row.monitor,
        measure=settings.measure,
        group=group_values(settings, row.group),
        state=state,
        since_ns=since.get(state, row.first_ns),
        last_ns=row.last_ns,
        observations=row.observations,
        version=row.version,
        recent=row.recent,
        evidence=row.evidence,
        progress=row.progress,
        detectors=row.detectors,
        episodes=lasting,
        snoozed_until_ns=max(until, default=None),
    )
