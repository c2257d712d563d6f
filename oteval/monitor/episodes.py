"""Episodes and states of groups, as pure functions.

An *episode* lasts from an alert to its end. It is notified once when it starts and once when it
ends. It is not notified while it is snoozed. If a person acknowledges it before its notification,
it is never notified. Times of episodes are times of runs, never of this machine's clock. So a clock
that steps back can neither start nor end an episode.

States of a group: ``learning`` until it has a baseline; ``ok``; ``warn`` if the evidence is more
than half way to an alert; ``alert`` during an episode; ``recovered`` for a day after one;
``no_data`` if nothing was observed for long, unless an episode lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from ..store import StoredEpisode
from .detector import Alarm
from .scales import Side

__all__ = [
    "Event",
    "State",
    "due_event",
    "end",
    "no_data_after",
    "opened",
    "silence",
    "state_of",
]

State = Literal["learning", "ok", "warn", "alert", "recovered", "no_data"]
Event = Literal["alert", "resolved"]

_HOUR_NS = 3600 * 10**9
_DAY_NS = 24 * _HOUR_NS
_WARN = 0.5


def opened(
    monitor: str,
    group: str,
    version: str,
    side: Side,
    alarm: Alarm,
    *,
    now_ns: int,
    runs: Sequence[str] = (),
) -> StoredEpisode:
    """The episode that an alarm starts.

    Args:
        monitor: The monitor.
        group: The group.
        version: The version of the evaluator.
        side: The side that alerted.
        alarm: The alarm.
        now_ns: The time of the check (ns).
        runs: Ids of runs that show it.
    """
    return StoredEpisode(
        episode_id=_id(monitor, group, version, side, alarm.time_ns, alarm.index),
        monitor=monitor,
        group=group,
        version=version,
        side=side,
        alarm_ns=alarm.time_ns,
        change_ns=alarm.change_ns,
        change_from_ns=alarm.change_from_ns,
        change_to_ns=alarm.change_to_ns,
        before=alarm.before,
        after=alarm.after,
        observations=alarm.observations,
        opened_ns=now_ns,
        runs=list(runs),
    )


def silence(monitor: str, group: str, version: str, last_ns: int, now_ns: int) -> StoredEpisode:
    """The episode of a group that has fallen silent."""
    return StoredEpisode(
        episode_id=_id(monitor, group, version, "silent", last_ns, 0),
        monitor=monitor,
        group=group,
        version=version,
        side="silent",
        alarm_ns=last_ns,
        change_ns=last_ns,
        change_from_ns=last_ns,
        change_to_ns=last_ns,
        before=None,
        after=None,
        observations=0,
        opened_ns=now_ns,
    )


def _id(*parts: str | int) -> str:
    text = "\0".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def end(episode: StoredEpisode, reason: str, ended_ns: int, now_ns: int) -> StoredEpisode:
    """An episode that has ended.

    Args:
        episode: The episode.
        reason: Why: ``recovered``, or that the monitor or its baseline changed.
        ended_ns: The time (ns) of the observation that ended it.
        now_ns: The time of the check (ns).
    """
    # An observation that came late may be older than the alarm.
    ended_ns = max(ended_ns, episode.alarm_ns)
    return replace(episode, ended_ns=ended_ns, closed_ns=now_ns, end_reason=reason)


def due_event(
    episode: StoredEpisode, snoozes: Mapping[tuple[str, str | None], int]
) -> tuple[Event | None, StoredEpisode]:
    """The notification that is due for an episode, and the episode with it noted.

    Args:
        episode: The episode.
        snoozes: Monitors, and groups of them, that are snoozed now.
    """
    if episode.ended_ns is not None:
        event: Event | None = None
        if episode.is_notified and not episode.is_end_notified:
            event = "resolved"
        return event, replace(episode, is_notified=True, is_end_notified=True)
    if episode.is_notified:
        return None, episode
    if episode.acknowledged_ns is not None:
        return None, episode
    if {(episode.monitor, None), (episode.monitor, episode.group)} & set(snoozes):
        return None, episode
    return "alert", replace(episode, is_notified=True)


def state_of(
    *,
    is_alerting: bool,
    evidence: float | None,
    is_silent: bool,
    recovered_ns: int | None,
    last_ns: int,
) -> State:
    """The state of a group.

    Args:
        is_alerting: Whether an episode lasts.
        evidence: How near the next alarm is, from 0 to 1; None without a baseline.
        is_silent: Whether nothing was observed for long.
        recovered_ns: When the last episode ended, if one did.
        last_ns: The time of the last observation.
    """
    if is_alerting:
        return "alert"
    if is_silent:
        return "no_data"
    if evidence is None:
        return "learning"
    if evidence >= _WARN:
        return "warn"
    if recovered_ns is not None and last_ns - recovered_ns < _DAY_NS:
        return "recovered"
    return "ok"


def no_data_after(after_ns: int | None, longest_gap_ns: int, *, is_learning: bool) -> int:
    """After which silence (ns) a group has no data.

    Args:
        after_ns: The monitor's setting; None for a time that follows from the observations.
        longest_gap_ns: The longest silence while the group was learning.
        is_learning: Whether it still is.
    """
    if after_ns is not None:
        return after_ns
    return max(_DAY_NS if is_learning else _HOUR_NS, 2 * longest_gap_ns)
