"""The values that monitors keep in the store, and their columns.

Each is a row of a table: `StoredMonitor` of ``monitors``, `GroupRow` of ``monitor_groups``,
`StoredEpisode` of ``monitor_episodes``, `StoredMark` of ``monitor_marks``, and `Notification` of
``notifications``. `Monitors` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .observations import ReadPosition

__all__ = [
    "EPISODES",
    "GROUPS",
    "GROUP_KEYS",
    "LEARNING",
    "MARKS",
    "NOTIFICATIONS",
    "VERSIONS",
    "GroupRow",
    "Notification",
    "StoredEpisode",
    "StoredMark",
    "StoredMonitor",
    "learning_rows",
]

_TEXT, _BIG, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()


@dataclass(frozen=True, slots=True)
class StoredMonitor:
    """A monitor as it is stored.

    Attributes:
        monitor: Its name.
        definition: Everything on which its state depends; when it changes, it starts over.
        at: How far it has read.
        missing_ns: When a check (ns) found that it is not in the configuration; None if it is.
        configuration: The file of the configuration that had it last; None if it is not known.
    """

    monitor: str
    definition: str
    at: ReadPosition = field(default_factory=ReadPosition)
    missing_ns: int | None = None
    configuration: str | None = None


@dataclass(frozen=True, slots=True)
class GroupRow:
    """The state of a group of a monitor.

    Attributes:
        monitor: The monitor.
        group: The group's values, as a JSON list.
        version: The version of the evaluator; "" for measures of runs.
        first_ns: The time of the first observation.
        last_ns: The latest time of an observation.
        longest_gap_ns: The longest time between two observations while learning.
        observations: The number of observations.
        tried: The number of observations at the last attempt to learn a baseline.
        recent: An average of the newest raw values.
        evidence: How near the next alarm is, from 0 to 1; None while learning.
        progress: Why the baseline is not learned yet, or "".
        detectors: The detectors by direction, with their baselines, as JSON text; None before.
    """

    monitor: str
    group: str
    version: str
    first_ns: int = 0
    last_ns: int = 0
    longest_gap_ns: int = 0
    observations: int = 0
    tried: int = 0
    recent: float | None = None
    evidence: float | None = None
    progress: str = ""
    detectors: str | None = None


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """An episode: from an alert to its end.

    Attributes:
        episode_id: Its id.
        monitor: The monitor.
        group: The group's values, as a JSON list.
        version: The version of the evaluator.
        side: ``worse``, ``better`` or ``silent``.
        alarm_ns: The time of the observation that raised the alarm.
        change_ns: The estimated time of the change.
        change_from_ns: The earliest plausible time of the change.
        change_to_ns: The latest plausible time of the change.
        before: The mean before the change, as the detector saw it.
        after: The mean since the change.
        observations: The number of observations since the change.
        opened_ns: When a check raised it.
        ended_ns: The time of the observation that ended it; None while it lasts.
        closed_ns: When a check ended it.
        end_reason: Why it ended: ``recovered``, or that the monitor started over.
        is_notified: Whether its start is in the outbox.
        is_end_notified: Whether its end is in the outbox.
        acknowledged_ns: When a person acknowledged it.
        acknowledged_by: Who.
        runs: Ids of runs since the change that show it.
        runs_before: Ids of usual runs before it.
        evidence: Its figures with intervals and the worst slices, as JSON text; None before they
            are gathered.
    """

    episode_id: str
    monitor: str
    group: str
    version: str
    side: str
    alarm_ns: int
    change_ns: int
    change_from_ns: int
    change_to_ns: int
    before: float | None
    after: float | None
    observations: int
    opened_ns: int
    ended_ns: int | None = None
    closed_ns: int | None = None
    end_reason: str | None = None
    is_notified: bool = False
    is_end_notified: bool = False
    acknowledged_ns: int | None = None
    acknowledged_by: str | None = None
    runs: list[str] = field(default_factory=list)
    runs_before: list[str] = field(default_factory=list)
    evidence: str | None = None


@dataclass(frozen=True, slots=True)
class StoredMark:
    """A mark on the timeline.

    Attributes:
        time_ns: When.
        kind: ``version`` if the version of a service changed in its runs, else ``mark``.
        name: Its name.
        service: The service, or "".
        version: The version, or "".
        created_ns: When it was noted.
    """

    time_ns: int
    kind: str
    name: str
    service: str
    version: str
    created_ns: int


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification for one destination.

    Attributes:
        notification_id: Its id, the same for all destinations.
        destination: A name in ``notify`` of oteval.yaml.
        episode_id: The episode.
        event: ``alert`` or ``resolved``.
        payload: JSON text.
        runs: The ids of runs that the payload names.
        created_ns: When it was queued.
        attempts: How often it was tried.
        next_ns: When it is to be tried next.
        sent_ns: When it was delivered; None before.
        error: Why the last attempt failed.
    """

    notification_id: str
    destination: str
    episode_id: str
    event: str
    payload: str
    runs: list[str]
    created_ns: int
    attempts: int = 0
    next_ns: int = 0
    sent_ns: int | None = None
    error: str | None = None


GROUPS = pa.schema(
    [
        *[(name, _TEXT) for name in ("monitor", "group", "version")],
        *[(name, _BIG) for name in ("first_ns", "last_ns", "longest_gap_ns")],
        *[(name, _BIG) for name in ("observations", "tried")],
        ("recent", _FLOAT),
        ("evidence", _FLOAT),
        ("progress", _TEXT),
        ("detectors", _TEXT),
    ]
)
EPISODES = pa.schema(
    [
        *[(name, _TEXT) for name in ("episode_id", "monitor", "group", "version", "side")],
        *[(name, _BIG) for name in ("alarm_ns", "change_ns", "change_from_ns", "change_to_ns")],
        *[(name, _FLOAT) for name in ("before", "after")],
        *[(name, _BIG) for name in ("observations", "opened_ns", "ended_ns", "closed_ns")],
        ("end_reason", _TEXT),
        *[(name, _BOOL) for name in ("is_notified", "is_end_notified")],
        ("acknowledged_ns", _BIG),
        ("acknowledged_by", _TEXT),
        *[(name, pa.list_(_TEXT)) for name in ("runs", "runs_before")],
        ("evidence", _TEXT),
    ]
)
NOTIFICATIONS = pa.schema(
    [
        *[(name, _TEXT) for name in ("notification_id", "destination", "episode_id", "event")],
        ("payload", _TEXT),
        ("runs", pa.list_(_TEXT)),
        ("created_ns", _BIG),
        ("attempts", pa.int32()),
        *[(name, _BIG) for name in ("next_ns", "sent_ns")],
        ("error", _TEXT),
    ]
)
LEARNING = pa.schema(
    [
        *[(name, _TEXT) for name in ("monitor", "group", "version")],
        ("value", _FLOAT),
        ("variants", pa.list_(_BIG)),
        ("time_ns", _BIG),
        ("number", _BIG),
        ("trajectory_id", _TEXT),
    ]
)
MARKS = pa.schema(
    [
        ("time_ns", pa.int64()),
        *((name, _TEXT) for name in ("kind", "name", "service", "version")),
        ("created_ns", pa.int64()),
    ]
)
VERSIONS = pa.schema(
    [
        *((name, _TEXT) for name in ("service", "version")),
        *((name, pa.int64()) for name in ("first_ns", "last_ns")),
    ]
)
GROUP_KEYS = pa.schema([(name, _TEXT) for name in ("monitor", "group", "version")])


def learning_rows(rows: Mapping[str, Any]) -> pa.Table:
    """Return columns of observations as the table that `Monitors.add_learning` takes."""
    return pa.table(dict(rows), schema=LEARNING)
