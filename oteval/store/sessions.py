"""Sessions: the trajectories that belong to a trajectory, a trace or a conversation.

The session of a trajectory is this run with its sub-agents. The session of a trace is all its runs
with their sub-agents; of a conversation, all its turns with their sub-agents. A name may be the
beginning of an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from ..base.errors import NotFound
from ..base.text import listed
from ..model import INVOCATION_ID
from .query import wanted

__all__ = ["Sessions", "StoredSession"]

# The id of an invocation in the JSON text of a resource.
_INVOCATION = f'"{INVOCATION_ID}":"([^"]+)"'
# The kinds of ids, in the order in which a name is looked up.
_IDS = {
    "trajectory": "SELECT trajectory_id AS name, trajectory_id FROM current_trajectories",
    "trace": "SELECT unnest(trace_ids) AS name, trajectory_id FROM current_trajectories",
    "conversation": "SELECT conversation_id AS name, trajectory_id FROM current_trajectories "
    "WHERE conversation_id <> ''",
}
_FAMILY = """
    WITH RECURSIVE family(id) AS (
        SELECT id FROM wanted
        UNION
        SELECT t.trajectory_id FROM current_trajectories t JOIN family f ON t.parent_id = f.id
    ), needed(id) AS (
        SELECT id FROM family
        UNION
        SELECT t.history_id FROM current_trajectories t
        JOIN needed n ON t.trajectory_id = n.id WHERE t.history_id IS NOT NULL
    )
    SELECT t.trajectory_id, t.trace_ids, t.history_id, t.parent_id
    FROM current_trajectories t SEMI JOIN needed n ON t.trajectory_id = n.id
    ORDER BY t.start_ns, t.trajectory_id
    """


class StoredSession(NamedTuple):
    """The trajectories of a session.

    Attributes:
        name: The whole id.
        kind: The kind of the id: ``trajectory``, ``trace`` or ``conversation``; ``invocation`` for
            all runs that one `oteval run` has recorded.
        trajectory_ids: The ids of its trajectories, by start.
        trace_ids: The ids of the traces with their spans, and of the traces of their histories.
        loose_trace_ids: The ids of traces of the same invocation without a trajectory, such as the
            trace of a request at import.
    """

    name: str
    kind: str
    trajectory_ids: tuple[str, ...]
    trace_ids: tuple[str, ...]
    loose_trace_ids: tuple[str, ...] = ()


class _RecordedInvocation(NamedTuple):
    """The traces of an invocation."""

    trajectory_ids: tuple[str, ...]
    trace_ids: tuple[str, ...]
    loose_trace_ids: tuple[str, ...]


class _Row(NamedTuple):
    """The columns of a trajectory that link it to others."""

    trajectory_id: str
    trace_ids: list[str]
    history_id: str | None
    parent_id: str | None


class Sessions:
    """Finds sessions by the names that people give them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def find(self, names: Sequence[str]) -> list[StoredSession]:
        """The sessions for some names, in the order of the names.

        Args:
            names: Ids of trajectories, traces or conversations, or beginnings of them.

        Raises:
            NotFound: A name matches nothing, or several sessions.
        """
        matches = self._exact(list(dict.fromkeys(names)))
        for name in names:
            if name not in matches:
                matches[name] = self._by_prefix(name)
        roots = {root for _, _, ids in matches.values() for root in ids}
        families = _Families(self._rows(sorted(roots)))
        return [
            StoredSession(full_name, kind, *families.of(ids))
            for full_name, kind, ids in (matches[name] for name in names)
        ]

    def with_loose_traces(self, sessions: Sequence[StoredSession]) -> list[StoredSession]:
        """Return sessions with the traces of their invocation that have no trajectory.

        Args:
            sessions: The sessions.
        """
        return [
            session._replace(loose_trace_ids=invocation.loose_trace_ids) if invocation else session
            for session, invocation in zip(sessions, self._invocations(sessions), strict=True)
        ]

    def whole_invocations(self, sessions: Sequence[StoredSession]) -> list[StoredSession]:
        """Return sessions widened to all runs of their invocation, each invocation once.

        A session that several invocations have recorded, or none, stays as it is.

        Args:
            sessions: The sessions.
        """
        widened: dict[object, StoredSession] = {}
        for session, invocation in zip(sessions, self._invocations(sessions), strict=True):
            if invocation is None:
                widened[session] = session
            elif invocation not in widened:
                is_whole = set(invocation.trajectory_ids) <= set(session.trajectory_ids)
                kind = session.kind if is_whole else "invocation"
                widened[invocation] = StoredSession(session.name, kind, *invocation)
        return list(widened.values())

    def _invocations(self, sessions: Sequence[StoredSession]) -> list[_RecordedInvocation | None]:
        """The invocation of each session; None if it has none, or several."""
        ids_of: dict[str, set[str]] = defaultdict(set)
        traces = {trace for session in sessions for trace in session.trace_ids}
        with wanted(self._connection, "trace_id", sorted(traces)):
            rows = self._connection.execute(
                "SELECT DISTINCT trace_id, regexp_extract(resource, ?, 1) FROM spans "
                "SEMI JOIN wanted USING (trace_id)",
                [_INVOCATION],
            ).fetchall()
        for trace, invocation_id in rows:
            ids_of[trace].add(invocation_id)
        ids = [
            {invocation_ids for trace in session.trace_ids for invocation_ids in ids_of[trace]}
            for session in sessions
        ]
        single = [
            next(iter(invocation_ids)) if len(invocation_ids) == 1 else "" for invocation_ids in ids
        ]
        invocations = self._read_invocations(sorted(set(single) - {""}))
        return [invocations.get(invocation_id) for invocation_id in single]

    def _read_invocations(self, ids: Sequence[str]) -> dict[str, _RecordedInvocation]:
        """Return invocations by their ids, with all traces that they have recorded, by start."""
        if not ids:
            return {}
        with wanted(self._connection, "id", ids):
            rows = self._connection.execute(
                "SELECT id, trace_id FROM ("
                "SELECT regexp_extract(resource, $1, 1) AS id, trace_id, start_ns FROM spans "
                "UNION ALL "
                "SELECT regexp_extract(resource, $1, 1) AS id, trace_id, time_ns FROM logs"
                ") SEMI JOIN wanted USING (id) WHERE trace_id <> '' "
                "GROUP BY id, trace_id ORDER BY min(start_ns), trace_id",
                [_INVOCATION],
            ).fetchall()
        traces: dict[str, list[str]] = defaultdict(list)
        for invocation_id, trace in rows:
            traces[invocation_id].append(trace)
        with wanted(self._connection, "trace", sorted({trace for _, trace in rows})):
            linked = self._connection.execute(
                "SELECT trajectory_id, trace_id FROM (SELECT trajectory_id, start_ns, "
                "unnest(trace_ids) AS trace_id FROM current_trajectories) "
                "SEMI JOIN wanted ON trace = trace_id ORDER BY start_ns, trajectory_id"
            ).fetchall()
        runs_of: dict[str, list[str]] = defaultdict(list)
        for trajectory, trace in linked:
            runs_of[trace].append(trajectory)
        return {
            invocation_id: _RecordedInvocation(
                tuple(dict.fromkeys(name for trace in own for name in runs_of[trace])),
                tuple(trace for trace in own if runs_of[trace]),
                tuple(trace for trace in own if not runs_of[trace]),
            )
            for invocation_id, own in traces.items()
        }

    def _exact(self, names: Sequence[str]) -> dict[str, tuple[str, str, list[str]]]:
        """The whole id, the kind and the trajectories of each name that is an id."""
        matches: dict[str, tuple[str, str, list[str]]] = {}
        for kind, query in _IDS.items():
            missing = [name for name in names if name not in matches]
            if not missing:
                break
            with wanted(self._connection, "name", missing):
                rows = self._connection.execute(
                    f"SELECT name, trajectory_id FROM ({query}) SEMI JOIN wanted USING (name)"  # noqa: S608
                ).fetchall()
            for name, trajectory in rows:
                matches.setdefault(name, (name, kind, []))[2].append(trajectory)
        return matches

    def _by_prefix(self, name: str) -> tuple[str, str, list[str]]:
        for kind, query in _IDS.items() if name else ():
            rows = self._connection.execute(
                f"SELECT name, list(trajectory_id) FROM ({query}) WHERE starts_with(name, ?) "  # noqa: S608
                "GROUP BY name ORDER BY name",
                [name],
            ).fetchall()
            if len(rows) > 1:
                ids = listed([trajectory_id for trajectory_id, _ in rows])
                noun = {"trajectory": "trajectories"}.get(kind, f"{kind}s")
                raise NotFound(f"{name!r} means several {noun}: {ids}")
            if rows:
                return rows[0][0], kind, rows[0][1]
        raise NotFound(
            f"no trajectory, trace or conversation {name!r}; oteval trajectories lists them"
        )

    def _rows(self, roots: Sequence[str]) -> list[_Row]:
        """Some trajectories with their sub-agents and all histories, by start."""
        with wanted(self._connection, "id", roots):
            rows = self._connection.execute(_FAMILY).fetchall()
        return [_Row(*row) for row in rows]


class _Families:
    """Trajectories by their links."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = {row.trajectory_id: row for row in rows}
        self._places = {row.trajectory_id: index for index, row in enumerate(rows)}
        self._below: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            if row.parent_id:
                self._below[row.parent_id].append(row.trajectory_id)

    def of(self, roots: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The ids of trajectories with their sub-agents, and the ids of their traces."""
        family: dict[str, None] = {}
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in self._rows and name not in family:
                family[name] = None
                waiting += self._below[name]
        ids = sorted(family, key=self._places.__getitem__)
        needed = dict.fromkeys(ids)
        for name in ids:
            before = self._rows[name].history_id
            while before and before in self._rows and before not in needed:
                needed[before] = None
                before = self._rows[before].history_id
        traces = dict.fromkeys(trace for name in needed for trace in self._rows[name].trace_ids)
        return tuple(ids), tuple(traces)
