"""Notices: the notifications of episodes, also of removed monitors, written to the outbox.

A notice is queued once for the start of an episode and once for its end, in the transaction of the
check that noted it. The start is queued for each destination of the monitor, the end for each
destination that was notified of the start. Delivery is separate.

The names of groups come from senders, so one sender could cause any number of notifications.
If one check has more than ten events of a kind, one notification sums up: it names the first groups
and counts the others. When the first of its episodes ends, so does the alert. The resolution then
reports how many episodes last.

The episodes of monitors that are not in the configuration any more end (`end_removed`). A monitor
was *removed* if the file that last contained it no longer does, or if no check had it for two days.
Until then, another configuration may be used with the same database: its checks leave the monitor
alone. The time counts from the first check without the monitor, so a monitor is not removed merely
because nothing ran for days.

Its episodes end with one resolution each. The baselines stay for 30 days: if the monitor comes
back, its groups are compared with them, and a group that is still bad alerts again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from ..base.jsontext import dumps
from ..scoring import Config, MonitorSettings
from ..store import Notification, Store, StoredEpisode, StoredMark, StoredMonitor, repeated
from .episodes import Event, due_event, end
from .evidence import shortened
from .status import group_values

__all__ = [
    "end_removed",
    "notice",
    "queue_events",
    "queue_removals",
]

_SHORTLY_NS = 3600 * 10**9
_FARTHEST_NS = 24 * _SHORTLY_NS
_LONGEST_VALUE = 300
# The most marks near a change that are named.
_MARKS = 10
# The most events of a monitor in one check that have a notification each.
_MOST_EVENTS = 10
# How many groups a notification for more events names.
_NAMED_GROUPS = 10


class _DueEvent(NamedTuple):
    """An event that is to be notified."""

    episode: StoredEpisode
    payload: dict[str, Any]
    destinations: tuple[str, ...]


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
    marks = store.monitors.marks()
    changed, due = [], []
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
            services = _services(store, settings, episode)
            payload = notice(settings, episode, event, marks, services)
            due.append(_DueEvent(episode, payload, tuple(destinations)))
    store.monitors.put_episodes(changed)
    store.outbox.queue(_notifications(store, due, now_ns))


def queue_removals(
    store: Store, ended: Sequence[StoredEpisode], existing: Collection[str], now_ns: int
) -> None:
    """Queue the resolutions of the episodes of monitors that were removed, and write these.

    The settings of a monitor are gone with it, so the rest of a payload is copied from the alert.

    Args:
        store: The store.
        ended: The episodes, ended.
        existing: The names of the destinations that exist.
        now_ns: The time of the check (ns).
    """
    changed, due = [], []
    for episode in ended:
        event, noted = due_event(episode, {})
        changed.append(noted)
        alert = store.outbox.payload(f"{episode.episode_id}-alert")
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
        if destinations:
            due.append(_DueEvent(episode, payload, tuple(destinations)))
    store.monitors.put_episodes(changed)
    store.outbox.queue(_notifications(store, due, now_ns))


def _notified(store: Store, episode: StoredEpisode, existing: Collection[str]) -> list[str]:
    """The destinations of the alert of an episode, as far as they still exist."""
    destinations = store.outbox.destinations(f"{episode.episode_id}-alert")
    return [name for name in destinations if name in existing]


def _notifications(store: Store, due: Sequence[_DueEvent], now_ns: int) -> list[Notification]:
    """The notifications of events; one for many of a kind."""
    kinds: dict[tuple[Any, ...], list[_DueEvent]] = {}
    for event in due:
        kind = (*(event.payload[name] for name in ("monitor", "event", "side")), event.destinations)
        kinds.setdefault(kind, []).append(event)
    queued: list[Notification] = []
    for events in kinds.values():
        if len(events) > _MOST_EVENTS:
            events = [_summed_up(events)]
        for event in events:
            payload = _with_summary(store, event.payload)
            queued += _for_destinations(event.episode, payload, event.destinations, now_ns)
    return queued


def _summed_up(events: Sequence[_DueEvent]) -> _DueEvent:
    """Return one event for many of a kind: the first episode's event, with the groups of all."""
    first = events[0]
    groups = [event.payload["group"] for event in events[:_NAMED_GROUPS]]
    summary = {"groups": groups, "count": len(events), "left_out": len(events) - len(groups)}
    return first._replace(payload={**first.payload, "group": {}, "summary": summary})


def _with_summary(store: Store, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of an event; the end of an alert for many groups is about all of them."""
    if payload["event"] != "resolved" or "summary" in payload:
        return payload
    alert = json.loads(store.outbox.payload(f"{payload['episode']}-alert") or "{}")
    if "summary" not in alert:
        return payload
    episodes = store.monitors.episodes(payload["monitor"], open_only=True)
    lasting = sum(
        episode.ended_ns is None and episode.side == payload["side"] for episode in episodes
    )
    return {**payload, "group": {}, "summary": {**alert["summary"], "lasting": lasting}}


def _for_destinations(
    episode: StoredEpisode, payload: dict[str, Any], destinations: Sequence[str], now_ns: int
) -> list[Notification]:
    """The notification of an event for each destination."""
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
    services: AbstractSet[str] | None = None,
) -> dict[str, Any]:
    """The payload of a notification.

    Args:
        settings: The monitor.
        episode: The episode, with its evidence.
        event: Whether it starts or ends.
        marks: Marks on the timeline. Marks near the change that may concern the group are named.
        services: The services of the group's runs; None if they may be any.
    """
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
        **{name: part for name, part in _evidence(episode).items() if name != "services"},
        "observations": episode.observations,
        "alarm_ns": episode.alarm_ns,
        "ended_ns": episode.ended_ns,
        "end_reason": episode.end_reason,
        "runs": list(episode.runs),
        "runs_before": list(episode.runs_before),
        "marks": [
            {"time_ns": mark.time_ns, "kind": mark.kind, "name": shortened(mark.name)}
            for mark in _nearest(
                [mark for mark in marks if _may_concern(mark, group, services)], episode
            )
        ],
    }


def _evidence(episode: StoredEpisode) -> dict[str, Any]:
    evidence: dict[str, Any] = json.loads(episode.evidence or "{}")
    return evidence


def _services(
    store: Store, settings: MonitorSettings, episode: StoredEpisode
) -> AbstractSet[str] | None:
    """The services of a group's runs near a change; None if they may be any."""
    group = group_values(settings, episode.group)
    if "service" in group:
        return {group["service"]}
    if (names := _evidence(episode).get("services")) is not None:
        return set(names)
    if "agent" not in group:
        return None
    first_ns = episode.change_from_ns - _FARTHEST_NS
    by_agent = store.agent_figures.services(first_ns, episode.change_to_ns)
    return by_agent.get(group["agent"], set())


def _may_concern(
    mark: StoredMark, group: Mapping[str, str], services: AbstractSet[str] | None
) -> bool:
    """Whether a mark is about no service in particular, or about a service of a group."""
    if mark.service and services is not None and mark.service not in services:
        return False
    return not mark.version or mark.version == group.get("version", mark.version)


def _nearest(marks: Sequence[StoredMark], episode: StoredEpisode) -> list[StoredMark]:
    """The marks near a change, by time; of many the nearest.

    They are in the interval of the change or shortly before it. They are at most a day from its
    most likely time, because in a long interval a deployment is near by chance.
    """
    near = [
        mark
        for mark in marks
        if episode.change_from_ns - _SHORTLY_NS <= mark.time_ns <= episode.change_to_ns
        and abs(mark.time_ns - episode.change_ns) <= _FARTHEST_NS
    ]
    near.sort(key=lambda mark: abs(mark.time_ns - episode.change_ns))
    return sorted(near[:_MARKS], key=lambda mark: mark.time_ns)


def _distinct(value: str) -> str:
    """A value of a group, cut to a length that keeps different values different."""
    if len(value) <= _LONGEST_VALUE:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{shortened(value, _LONGEST_VALUE)} ({digest})"


_DAY_NS = 86_400 * 10**9
_REMOVED_NS, _FORGOTTEN_NS = 2 * _DAY_NS, 30 * _DAY_NS


def end_removed(
    store: Store,
    config: Config,
    stored: Mapping[str, StoredMonitor],
    now_ns: int,
    wait: Callable[[float], object] = time.sleep,
) -> bool:
    """End the episodes of monitors that were removed, and return whether any monitor is missing.

    Args:
        store: The store.
        config: The configuration in force.
        stored: The monitors that are stored.
        now_ns: The time (ns).
        wait: Waits for some seconds while another process checks.
    """
    missing = _missing(stored, config)
    is_new = any(monitor.missing_ns is None for monitor in missing)
    removed = [monitor for monitor in missing if _is_removed(monitor, config, now_ns)]
    names = {monitor.monitor for monitor in removed}
    is_old = any(_is_forgotten(monitor, now_ns) for monitor in removed)
    if is_new or is_old or (names and _open_episodes(store, names)):
        repeated(partial(_note, store, config, now_ns), wait)
    return bool(missing)


def _missing(stored: Mapping[str, StoredMonitor], config: Config) -> list[StoredMonitor]:
    """The stored monitors that are not in the configuration."""
    # The monitor without a name stores the position of versions.
    titles = {"", *(monitor.title for monitor in config.monitors)}
    return [monitor for name, monitor in stored.items() if name not in titles]


def _is_removed(monitor: StoredMonitor, config: Config, now_ns: int) -> bool:
    if config.path is not None and monitor.configuration == config.path:
        return True
    return monitor.missing_ns is not None and now_ns - monitor.missing_ns >= _REMOVED_NS


def _is_forgotten(monitor: StoredMonitor, now_ns: int) -> bool:
    return monitor.missing_ns is not None and now_ns - monitor.missing_ns >= _FORGOTTEN_NS


def _open_episodes(store: Store, monitors: Collection[str]) -> list[StoredEpisode]:
    open_episodes = store.monitors.episodes(open_only=True)
    return [episode for episode in open_episodes if episode.monitor in monitors]


def _note(store: Store, config: Config, now_ns: int) -> None:
    """Note which monitors are missing, and end the episodes of monitors that were removed."""
    with store.monitors.check(now_ns):
        for monitor in _missing(store.monitors.monitors(), config):
            if _is_removed(monitor, config, now_ns):
                _end(store, monitor.monitor, config.notify, now_ns)
            if _is_forgotten(monitor, now_ns):
                store.monitors.forget(monitor.monitor)
            elif monitor.missing_ns is None:
                store.monitors.put_monitor(replace(monitor, missing_ns=now_ns))


def _end(store: Store, monitor: str, existing: Collection[str], now_ns: int) -> None:
    """End the episodes of a monitor, and forget the state of their groups."""
    rows = {row.group: row for row in store.monitors.groups(monitor)}
    ended = []
    for episode in _open_episodes(store, {monitor}):
        if episode.ended_ns is None:
            row = rows.get(episode.group)
            ended_ns = max(episode.alarm_ns, row.last_ns if row else 0)
            episode = end(episode, "the monitor was removed", ended_ns, now_ns)
        ended.append(episode)
    groups = {episode.group for episode in ended}
    # Detectors that alert would stay silent if the monitor came back.
    store.monitors.remove_groups([row for group, row in rows.items() if group in groups])
    queue_removals(store, ended, existing, now_ns)
