"""Notices: the notifications of episodes, written to the outbox of the store.

A notice is queued once for the start of an episode and once for its end, for each destination of
the monitor, in the transaction of the check that noted it. Delivery is separate.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..config import MonitorSettings
from ..jsontext import dumps
from ..store import Notification, Store, StoredEpisode, StoredMark
from .episodes import Event, due_event
from .groups import LearnedSide
from .status import group_values

__all__ = ["notice", "queue_events"]

_SHORTLY_NS = 600 * 10**9


def queue_events(store: Store, settings: MonitorSettings, now_ns: int) -> None:
    """Queue the notifications that are due for a monitor's episodes.

    The caller has begun a transaction.

    Args:
        store: The store.
        settings: The monitor.
        now_ns: The time of the check (ns).
    """
    snoozes = store.monitors.snoozes(now_ns)
    changed, queued = [], []
    for episode in store.monitors.episodes(settings.title, open_only=True):
        event, noted = due_event(episode, snoozes)
        if noted != episode:
            changed.append(noted)
        if event is None or not settings.notify:
            continue
        payload = dumps(notice(settings, episode, event, _learned(store, episode), _marks(store)))
        queued += [
            Notification(
                notification_id=f"{episode.episode_id}-{event}",
                destination=destination,
                episode_id=episode.episode_id,
                event=event,
                payload=payload,
                runs=list(episode.runs),
                created_ns=now_ns,
                next_ns=now_ns,
            )
            for destination in settings.notify
        ]
    store.monitors.put_episodes(changed)
    store.monitors.queue(queued)


def _marks(store: Store) -> Sequence[StoredMark]:
    return store.monitors.marks()


def _learned(store: Store, episode: StoredEpisode) -> LearnedSide | None:
    """Return the scale and baseline of the side of an episode."""
    for row in store.monitors.groups(episode.monitor):
        if row.group == episode.group and row.version == episode.version:
            stored: Mapping[str, Any] = json.loads(row.detectors or "{}")
            if episode.side in stored:
                return LearnedSide.from_dict(stored[episode.side])
    return None


def notice(
    settings: MonitorSettings,
    episode: StoredEpisode,
    event: Event,
    learned: LearnedSide | None,
    marks: Sequence[StoredMark] = (),
) -> dict[str, Any]:
    """Return the payload of a notification.

    Args:
        settings: The monitor.
        episode: The episode.
        event: Whether it starts or ends.
        learned: The scale and baseline of its side.
        marks: Marks on the timeline; those in the interval of the change, or shortly before it, are
            named.
    """
    width = max(episode.change_to_ns - episode.change_from_ns, _SHORTLY_NS)
    scale = learned.scale if learned else None
    figures = {
        name: scale.shown(value) if scale else value
        for name, value in (("before", episode.before), ("after", episode.after))
    }
    return {
        "event": event,
        "episode": episode.episode_id,
        "monitor": episode.monitor,
        "measure": settings.measure,
        "evaluator": settings.evaluator,
        "version": episode.version or None,
        "group": group_values(settings, episode.group),
        "state": "alert" if event == "alert" else "recovered",
        "side": episode.side,
        "figure": scale.figure if scale else settings.measure,
        "since_ns": episode.change_ns,
        "since_from_ns": episode.change_from_ns,
        "since_to_ns": episode.change_to_ns,
        **figures,
        "observations": episode.observations,
        "alarm_ns": episode.alarm_ns,
        "ended_ns": episode.ended_ns,
        "end_reason": episode.end_reason,
        "runs": list(episode.runs),
        "marks": [
            {"time_ns": mark.time_ns, "kind": mark.kind, "name": mark.name}
            for mark in marks
            if episode.change_from_ns - width <= mark.time_ns <= episode.change_to_ns
        ],
    }
