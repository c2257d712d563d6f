"""Monitors that are not in the configuration any more: their episodes end.

A monitor was *removed* if the file that last contained it no longer does, or if no check had it for
two days. Until then, another configuration may be used with the same database: its checks leave the
monitor alone. The time counts from the first check without the monitor, so a monitor is not removed
merely because nothing ran for days.

Its episodes end with one resolution each. The baselines stay for 30 days: if the monitor comes
back, its groups are compared with them, and a group that is still bad alerts again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from ..scoring import Config
from ..store import Store, StoredEpisode, StoredMonitor, repeated
from .episodes import end
from .notices import queue_removals

__all__ = ["end_removed"]

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
