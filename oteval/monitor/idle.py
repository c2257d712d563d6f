"""Checks that have nothing to do: nothing new is stored, and passing time changes nothing either.

Such a check only reads. Passing time changes nothing if no conversation is over, no group has
fallen silent or is gone, no notification of an episode is missing, and nothing was configured anew.
In doubt there is something to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..scoring import Config, MonitorSettings
from ..store import GroupRow, ObservationSource, Store, StoredEpisode, StoredMonitor
from .conversations import IDLE_NS, OLDEST_NS
from .episodes import no_data_after
from .status import MonitorStatus, statuses_of

__all__ = ["GONE_NS", "idle_statuses"]

GONE_NS = 30 * 86_400 * 10**9
"""Groups that were silent for this time are removed."""


def idle_statuses(
    store: Store,
    config: Config,
    settings: MonitorSettings,
    source: ObservationSource,
    stored: StoredMonitor,
    now_ns: int,
) -> list[MonitorStatus] | None:
    """The states of a monitor's groups, or None if a check has something to do.

    Args:
        store: The store.
        config: The configuration.
        settings: The monitor.
        source: Its observations.
        stored: The monitor as it is stored, with the same definition.
        now_ns: The time (ns).
    """
    if stored.missing_ns is not None or stored.configuration != config.path:
        return None
    if store.observations.newest(source) > stored.at.position:
        return None
    close_ns = store.observations.first_close_ns(settings.title, IDLE_NS, OLDEST_NS)
    if close_ns is not None and close_ns <= now_ns:
        return None
    rows = store.monitors.groups(settings.title)
    episodes = store.monitors.episodes(settings.title)
    if any(map(_is_unnoted, episodes)) or _has_silent(settings, rows, episodes, now_ns):
        return None
    return statuses_of(store, settings, rows, episodes, now_ns)


def _is_unnoted(episode: StoredEpisode) -> bool:
    """Whether an episode waits for its evidence or for a notification."""
    if episode.ended_ns is not None:
        return not episode.is_end_notified
    return not episode.is_notified or (episode.evidence is None and episode.side != "silent")


def _has_silent(
    settings: MonitorSettings,
    rows: Sequence[GroupRow],
    episodes: Sequence[StoredEpisode],
    now_ns: int,
) -> bool:
    """Whether a group has fallen silent since the last check that was not idle."""
    after = settings.no_data.after
    silent_groups = {
        episode.group
        for episode in episodes
        if episode.ended_ns is None and episode.side == "silent"
    }
    for row in rows:
        silent_ns = now_ns - row.last_ns
        limit = no_data_after(
            None if after is None else round(after * 1e9),
            row.longest_gap_ns,
            is_learning=row.detectors is None,
        )
        # Versions that were replaced are removed once they are silent.
        is_kept = not settings.no_data.notify and "version" not in settings.group_by
        is_noted = row.group in silent_groups or is_kept
        if silent_ns > GONE_NS or (silent_ns > limit and not is_noted):
            return True
    return False
