"""The state of monitors: groups, baselines, episodes, and marks.

A check writes all its changes in one transaction, so that a killed process loses and repeats
nothing.

Tables: ``monitors`` (a `StoredMonitor` is a row), ``monitor_groups`` (`GroupRow`),
``monitor_learning``, ``monitor_baselines``, ``monitor_episodes`` (`StoredEpisode`),
``monitor_snoozes``, ``monitor_marks`` (`StoredMark`), ``monitor_versions`` and ``monitor_checks``.
`observations` has the others, and `outbox` has ``notifications``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field, fields
from typing import Any

import duckdb
import pyarrow as pa

from ..base.errors import StoreError
from .arrow_rows import table_of
from .observations import ReadPosition
from .query import insert, number, registered, repeated, transaction

__all__ = [
    "EPISODES",
    "GROUPS",
    "GROUP_KEYS",
    "LEARNING",
    "MARKS",
    "VERSIONS",
    "GroupRow",
    "Monitors",
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


# A version of a service that did not run for this time counts as deployed again when it returns.
_DEPLOYED_AGAIN_NS = 3600 * 10**9
# The tables with rows of one monitor, which are deleted when it starts over.
_OF_MONITOR = (
    "monitors",
    "monitor_groups",
    "monitor_learning",
    "monitor_baselines",
    "monitor_open_runs",
    "monitor_conversations",
)


class Monitors:
    """The state of monitors in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @contextmanager
    def check(self, now_ns: int) -> Iterator[None]:
        """Begin the transaction of a check; of two at once, the later one fails to commit.

        Args:
            now_ns: The time (ns).
        """
        with transaction(self._connection):
            self._connection.execute(
                "UPDATE monitor_checks SET number = number + 1, time_ns = ?", [now_ns]
            )
            yield

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Read and write empty tables of monitors in this block, which are dropped at its end.

        Nothing is locked meanwhile, so a server that uses the database goes on checking.
        """
        tables = (*_OF_MONITOR, "monitor_episodes")
        try:
            for table in tables:
                # DuckDB finds a temporary table before another one of the same name.
                self._connection.execute(f"CREATE TEMP TABLE {table} AS FROM store.{table} LIMIT 0")
            yield
        finally:
            # A failed query may have ended the connection.
            with suppress(duckdb.Error, StoreError):
                for table in tables:
                    self._connection.execute(f"DROP TABLE IF EXISTS temp.{table}")

    def last_check_ns(self) -> int:
        """The time (ns) of the last check, or 0."""
        return number(self._connection, "SELECT max(time_ns) FROM monitor_checks")

    def monitors(self) -> dict[str, StoredMonitor]:
        """The monitors by name."""
        rows = self._connection.execute(
            "SELECT monitor, definition, missing_ns, configuration, "
            "position, run_seq, reached_ns, coalesce(first_seq, 0) FROM monitors"
        ).fetchall()
        return {
            name: StoredMonitor(name, definition, ReadPosition(*at), missing_ns, configuration)
            for name, definition, missing_ns, configuration, *at in rows
        }

    def put_monitor(self, monitor: StoredMonitor) -> None:
        """Write a monitor."""
        self._connection.execute("DELETE FROM monitors WHERE monitor = ?", [monitor.monitor])
        self._connection.execute(
            "INSERT INTO monitors (monitor, definition, missing_ns, configuration, "
            "position, run_seq, reached_ns, first_seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                monitor.monitor,
                monitor.definition,
                monitor.missing_ns,
                monitor.configuration,
                *astuple(monitor.at),
            ],
        )

    def forget(self, monitor: str) -> None:
        """Delete the state of a monitor, except its episodes."""
        for table in _OF_MONITOR:
            self._connection.execute(f"DELETE FROM {table} WHERE monitor = ?", [monitor])  # noqa: S608

    def groups(self, monitor: str) -> list[GroupRow]:
        """The groups of a monitor, the latest last."""
        return [
            GroupRow(*row)
            for row in self._connection.execute(
                f"SELECT {_columns(GROUPS)} FROM monitor_groups WHERE monitor = ? "  # noqa: S608
                'ORDER BY last_ns, "group"',
                [monitor],
            ).fetchall()
        ]

    def put_groups(self, groups: Sequence[GroupRow]) -> None:
        """Write groups; a group has one row."""
        if not groups:
            return
        table = table_of([astuple(group) for group in groups], GROUPS)
        with registered(self._connection, "changed_groups", table):
            self._connection.execute(
                'DELETE FROM monitor_groups WHERE (monitor, "group") IN '
                '(SELECT monitor, "group" FROM changed_groups)'
            )
        insert(self._connection, "monitor_groups", table)

    def remove_groups(self, groups: Sequence[GroupRow]) -> None:
        """Delete groups that are gone; their baselines stay."""
        for row in groups:
            for table in ("monitor_groups", "monitor_learning"):
                self._connection.execute(
                    f'DELETE FROM {table} WHERE monitor = ? AND "group" = ?',  # noqa: S608
                    [row.monitor, row.group],
                )

    def add_learning(self, rows: pa.Table) -> None:
        """Append observations of groups that are learning, with the columns of `learning`."""
        insert(self._connection, "monitor_learning", rows.cast(LEARNING))

    def learning(self, groups: Sequence[GroupRow]) -> pa.Table:
        """The observations of groups that are learning, in order."""
        keys = table_of([(row.monitor, row.group, row.version) for row in groups], GROUP_KEYS)
        with registered(self._connection, "wanted_groups", keys):
            return self._connection.sql(
                'SELECT "group", version, value, variants, time_ns, trajectory_id, number '
                "FROM monitor_learning SEMI JOIN wanted_groups "
                'USING (monitor, "group", version) ORDER BY "group", number'
            ).to_arrow_table()

    def end_learning(self, groups: Sequence[GroupRow]) -> None:
        """Delete the observations of groups in all versions, because they are not needed."""
        keys = table_of([(row.monitor, row.group, row.version) for row in groups], GROUP_KEYS)
        with registered(self._connection, "wanted_groups", keys):
            self._connection.execute(
                'DELETE FROM monitor_learning WHERE (monitor, "group") IN '
                '(SELECT monitor, "group" FROM wanted_groups)'
            )

    def baselines(self, monitor: str) -> dict[tuple[str, str], str]:
        """The newest baselines of a monitor as JSON text, by group and version."""
        rows = self._connection.execute(
            'SELECT "group", version, arg_max(baseline, created_ns) FROM monitor_baselines '
            'WHERE monitor = ? GROUP BY "group", version ORDER BY max(created_ns)',
            [monitor],
        ).fetchall()
        return {(group, version): text for group, version, text in rows}

    def add_baselines(self, rows: Sequence[tuple[str, str, str, str, int]]) -> None:
        """Append baselines: monitor, group, version, JSON text, time (ns)."""
        columns = [pa.field("baseline", pa.string()), pa.field("created_ns", pa.int64())]
        schema = pa.schema([*GROUP_KEYS, *columns])
        if rows:
            insert(self._connection, "monitor_baselines", table_of(rows, schema))

    def episodes(
        self, monitor: str | None = None, *, open_only: bool = False
    ) -> list[StoredEpisode]:
        """The episodes of a monitor or of all, the oldest first.

        Args:
            monitor: The monitor.
            open_only: Only episodes that last, or whose notifications are not queued.
        """
        clause = "(NOT $open OR ended_ns IS NULL OR NOT is_end_notified)"
        rows = self._connection.execute(
            f"SELECT {_columns(EPISODES)} FROM monitor_episodes "  # noqa: S608
            f"WHERE {clause} AND ($monitor IS NULL OR monitor = $monitor) "
            "ORDER BY alarm_ns, episode_id",
            {"open": open_only, "monitor": monitor},
        ).fetchall()
        return [StoredEpisode(*row) for row in rows]

    def put_episodes(self, episodes: Sequence[StoredEpisode]) -> None:
        """Write episodes."""
        if not episodes:
            return
        table = table_of([_fields(episode) for episode in episodes], EPISODES)
        with registered(self._connection, "changed_episodes", table):
            self._connection.execute(
                "DELETE FROM monitor_episodes WHERE episode_id IN "
                "(SELECT episode_id FROM changed_episodes)"
            )
        insert(self._connection, "monitor_episodes", table)

    def acknowledge(self, beginning: str, person: str, now_ns: int) -> str | None:
        """Note that a person looks at an episode.

        Args:
            beginning: Its id, or the beginning of it if it is unique.
            person: Who.
            now_ns: The time (ns).

        Returns:
            Its id, or None if no episode or several begin so.
        """
        episodes = [
            episode for episode in self.episodes() if episode.episode_id.startswith(beginning)
        ]
        if len(episodes) != 1:
            return None
        name = episodes[0].episode_id
        # One statement, because a check may be ending the episode; `runs` makes that a conflict.
        repeated(
            lambda: self._connection.execute(
                "UPDATE monitor_episodes SET runs = runs, acknowledged_ns = ?, acknowledged_by = ? "
                "WHERE episode_id = ?",
                [now_ns, person, name],
            )
        )
        return name

    def snooze(
        self, monitor: str, group: str | None, until_ns: int, actor: str, now_ns: int
    ) -> None:
        """Note that a monitor, or one group of it, is not to notify until a time."""
        self._connection.execute(
            "INSERT INTO monitor_snoozes VALUES (?, ?, ?, ?, ?)",
            [monitor, group, until_ns, actor, now_ns],
        )

    def snoozes(self, now_ns: int) -> dict[tuple[str, str | None], int]:
        """Return when the snooze of each snoozed monitor and group ends.

        The newest snooze counts, so that a snooze with a past end cancels earlier snoozes.
        """
        rows = self._connection.execute(
            # Not by time_ns: the clock may have stepped back between two of them.
            'SELECT monitor, "group", arg_max(until_ns, rowid) AS until_ns FROM monitor_snoozes '
            'GROUP BY monitor, "group" HAVING until_ns > ?',
            [now_ns],
        ).fetchall()
        return {(monitor, group): until for monitor, group, until in rows}

    def add_mark(self, mark: StoredMark) -> None:
        """Append a mark."""
        self._connection.execute(
            "INSERT INTO monitor_marks VALUES (?, ?, ?, ?, ?, ?)", list(astuple(mark))
        )

    def marks(self, since_ns: int = 0) -> list[StoredMark]:
        """The marks since a time (ns), by time."""
        rows = self._connection.execute(
            "SELECT time_ns, kind, name, service, version, created_ns FROM monitor_marks "
            "WHERE time_ns >= ? ORDER BY time_ns, name",
            [since_ns],
        ).fetchall()
        return [StoredMark(*row) for row in rows]

    def note_versions(self, after: int, upto: int, now_ns: int) -> list[StoredMark]:
        """Note the versions of services in runs, and mark versions that are new or are back.

        Args:
            after: The number of the last run that was looked at.
            upto: The number of the last run to look at.
            now_ns: The time (ns).
        """
        rows = self._connection.execute(
            "SELECT service, version, min(start_ns), max(start_ns) FROM ("
            "SELECT coalesce(service, '') AS service, start_ns, "
            "json_extract_string(attributes, '/service.version') AS version "
            "FROM trajectories WHERE seq > ? AND seq <= ? AND start_ns > 0) "
            "GROUP BY ALL ORDER BY min(start_ns), service",
            [after, upto],
        ).fetchall()
        # As a condition of the query, this would extract each version twice.
        rows = [row for row in rows if row[1] is not None]
        versions_by_service: dict[str, dict[str, tuple[int, int]]] = {}
        for service, version, first, last in self._connection.execute(
            "SELECT service, version, first_ns, last_ns FROM monitor_versions"
        ).fetchall():
            versions_by_service.setdefault(service, {})[version] = (first, last)
        marks = []
        for service, version, first, last in rows:
            versions = versions_by_service.setdefault(service, {})
            before = versions.get(version)
            is_back = (
                before is not None
                and first - before[1] > _DEPLOYED_AGAIN_NS
                and any(
                    before[1] < later_first <= first
                    for name, (_, later_first) in versions.items()
                    if name != version
                )
            )
            if (before is None and versions) or is_back:
                name = f"{service} {version}".strip()
                marks.append(StoredMark(first, "version", name, service, version, now_ns))
            period = before or (first, last)
            versions[version] = (min(period[0], first), max(period[1], last))
        self._put_versions(
            [
                (service, version, *versions_by_service[service][version])
                for service, version, *_ in rows
            ]
        )
        if marks:
            insert(
                self._connection,
                "monitor_marks",
                table_of([astuple(mark) for mark in marks], MARKS),
            )
        return marks

    def _put_versions(self, rows: Sequence[tuple[str, str, int, int]]) -> None:
        """Write versions of services; a first check may have thousands."""
        if not rows:
            return
        table = table_of(rows, VERSIONS)
        with registered(self._connection, "seen_versions", table):
            self._connection.execute(
                "DELETE FROM monitor_versions WHERE (service, version) IN "
                "(SELECT service, version FROM seen_versions)"
            )
        insert(self._connection, "monitor_versions", table)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f'"{name}"' for name in schema.names)


def _fields(value: Any) -> list[Any]:
    return [getattr(value, column.name) for column in fields(value)]
