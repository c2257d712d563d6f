"""Notices: the notifications of episodes, written to the outbox of the store.

A notice is queued once for the start of an episode and once for its end, in the transaction of the
check that noted it: the start for each destination of the monitor, the end for those that were
notified of the start. Delivery is separate.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any

from ..config import MonitorSettings
from ..jsontext import dumps
from ..store import Notification, Store, StoredEpisode, StoredMark
from .episodes import Event, due_event
from .evidence import shortened
from .status import group_values

__all__ = ["notice", "queue_events", "queue_removals"]

_SHORTLY_NS = 600 * 10**9
_LONGEST_VALUE = 300
# The most marks near a change that are named.
_MARKS = 10


def queue_events(
    store: Store, settings: MonitorSettings, existing: Collection[str], now_ns: int
) -> None:
    """Queue the notifications that are due for a monitor's episodes.

    The caller has begun a transaction.

    Args:
        store: The store.
        settings: The monitor.
        existing: The names of the destinations that exist.
        now_ns: The time of the check (ns).
    """
    snoozes = store.monitors.snoozes(now_ns)
    changed, queued = [], []
    for episode in store.monitors.episodes(settings.title, open_only=True):
        event, noted = due_event(episode, snoozes)
        if noted != episode:
            changed.append(noted)
        if event is None:
            continue
        destinations: Sequence[str] = settings.notify
        if event == "resolved":
            destinations = _notified(store, episode, existing)
        if destinations:
            payload = notice(settings, episode, event, store.monitors.marks())
            queued += _notifications(episode, payload, destinations, now_ns)
    store.monitors.put_episodes(changed)
    store.monitors.queue(queued)


def queue_removals(
    store: Store, ended: Sequence[StoredEpisode], existing: Collection[str], now_ns: int
) -> None:
    """Queue the resolutions of the episodes of monitors that were removed, and write these.

    The settings of a monitor are gone with it, so the rest of a payload is that of the alert.

    Args:
        store: The store.
        ended: The episodes, ended.
        existing: The names of the destinations that exist.
        now_ns: The time of the check (ns).
    """
    changed, queued = [], []
    for episode in ended:
        event, noted = due_event(episode, {})
        changed.append(noted)
        alert = store.monitors.payload(f"{episode.episode_id}-alert")
        if event != "resolved" or alert is None:
            continue
        payload = {
            **json.loads(alert),
            "event": "resolved",
            "state": "recovered",
            "ended_ns": episode.ended_ns,
            "end_reason": episode.end_reason,
        }
        destinations = _notified(store, episode, existing)
        queued += _notifications(episode, payload, destinations, now_ns)
    store.monitors.put_episodes(changed)
    store.monitors.queue(queued)


def _notified(store: Store, episode: StoredEpisode, existing: Collection[str]) -> list[str]:
    """Return the destinations of the alert of an episode that still exist."""
    found = store.monitors.destinations(f"{episode.episode_id}-alert")
    return [name for name in found if name in existing]


def _notifications(
    episode: StoredEpisode, payload: dict[str, Any], destinations: Sequence[str], now_ns: int
) -> list[Notification]:
    """Return the notification of an event for each destination."""
    event, text = payload["event"], dumps(payload)
    return [
        Notification(
            notification_id=f"{episode.episode_id}-{event}",
            destination=destination,
            episode_id=episode.episode_id,
            event=event,
            payload=text,
            runs=[*episode.runs, *episode.runs_before],
            created_ns=now_ns,
            next_ns=now_ns,
        )
        for destination in destinations
    ]


def notice(
    settings: MonitorSettings,
    episode: StoredEpisode,
    event: Event,
    marks: Sequence[StoredMark] = (),
) -> dict[str, Any]:
    """Return the payload of a notification.

    Args:
        settings: The monitor.
        episode: The episode, with its evidence.
        event: Whether it starts or ends.
        marks: Marks on the timeline; those in the interval of the change, or shortly before it, are
            named.
    """
    width = max(episode.change_to_ns - episode.change_from_ns, _SHORTLY_NS)
    figures = {"figure": settings.measure, "before": episode.before, "after": episode.after}
    group = group_values(settings, episode.group)
    return {
        "event": event,
        "episode": episode.episode_id,
        "monitor": episode.monitor,
        "measure": settings.measure,
        "evaluator": settings.evaluator,
        "version": episode.version or None,
        "group": {name: _distinct(value) for name, value in group.items()},
        "state": "alert" if event == "alert" else "recovered",
        "side": episode.side,
        "since_ns": episode.change_ns,
        "since_from_ns": episode.change_from_ns,
        "since_to_ns": episode.change_to_ns,
        **figures,
        **json.loads(episode.evidence or "{}"),
        "observations": episode.observations,
        "alarm_ns": episode.alarm_ns,
        "ended_ns": episode.ended_ns,
        "end_reason": episode.end_reason,
        "runs": list(episode.runs),
        "runs_before": list(episode.runs_before),
        "marks": [
            {"time_ns": mark.time_ns, "kind": mark.kind, "name": shortened(mark.name)}
            for mark in _nearest(
                [
                    mark
                    for mark in marks
                    if episode.change_from_ns - width <= mark.time_ns <= episode.change_to_ns
                ],
                episode.change_ns,
            )
        ],
    }


def _nearest(marks: Sequence[StoredMark], change_ns: int) -> list[StoredMark]:
    """Return the marks that are nearest to a change, by time."""
    order = sorted(marks, key=lambda mark: abs(mark.time_ns - change_ns))
    return sorted(order[:_MARKS], key=lambda mark: mark.time_ns)


def _distinct(value: str) -> str:
    """Return a value of a group, cut to a length at which different values stay different."""
    if len(value) <= _LONGEST_VALUE:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{shortened(value, _LONGEST_VALUE)} ({digest})"
