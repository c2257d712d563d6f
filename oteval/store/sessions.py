"""Sessions: the trajectories that belong to a trajectory, a trace or a conversation.

The session of a trajectory is that run with its sub-agents; of a trace, all its runs with their
sub-agents; of a conversation, all its turns with theirs. A name may be the beginning of an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from ..errors import NotFound
from ..text import listed
from .query import wanted

__all__ = ["Sessions", "StoredSession"]

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
        kind: The kind of the id: ``trajectory``, ``trace`` or ``conversation``.
        trajectory_ids: The ids of its trajectories, by start.
        trace_ids: The ids of the traces with their spans, and with those of their histories.
    """

    name: str
    kind: str
    trajectory_ids: tuple[str, ...]
    trace_ids: tuple[str, ...]


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
        """Return the sessions that some names stand for, in their order.

        Args:
            names: Ids of trajectories, traces or conversations, or beginnings of them.

        Raises:
            NotFound: A name stands for nothing, or for several sessions.
        """
        found = self._exact(list(dict.fromkeys(names)))
        for name in names:
            if name not in found:
                found[name] = self._by_prefix(name)
        roots = {root for _, _, ids in found.values() for root in ids}
        families = _Families(self._rows(sorted(roots)))
        return [
            StoredSession(whole, kind, *families.of(ids))
            for whole, kind, ids in (found[name] for name in names)
        ]

    def _exact(self, names: Sequence[str]) -> dict[str, tuple[str, str, list[str]]]:
        """Return the whole id, the kind and the trajectories of each name that is an id."""
        found: dict[str, tuple[str, str, list[str]]] = {}
        for kind, query in _IDS.items():
            missing = [name for name in names if name not in found]
            if not missing:
                break
            with wanted(self._connection, "name", missing):
                rows = self._connection.execute(
                    f"SELECT name, trajectory_id FROM ({query}) SEMI JOIN wanted USING (name)"  # noqa: S608
                ).fetchall()
            for name, trajectory in rows:
                found.setdefault(name, (name, kind, []))[2].append(trajectory)
        return found

    def _by_prefix(self, name: str) -> tuple[str, str, list[str]]:
        for kind, query in _IDS.items() if name else ():
            rows = self._connection.execute(
                f"SELECT name, list(trajectory_id) FROM ({query}) WHERE starts_with(name, ?) "  # noqa: S608
                "GROUP BY name ORDER BY name",
                [name],
            ).fetchall()
            if len(rows) > 1:
                ids = listed([found for found, _ in rows])
                noun = {"trajectory": "trajectories"}.get(kind, f"{kind}s")
                raise NotFound(f"{name!r} means several {noun}: {ids}")
            if rows:
                return rows[0][0], kind, rows[0][1]
        raise NotFound(
            f"no trajectory, trace or conversation {name!r}; oteval trajectories lists them"
        )

    def _rows(self, roots: Sequence[str]) -> list[_Row]:
        """Return some trajectories with their sub-agents and all histories, by start."""
        with wanted(self._connection, "id", roots):
            rows = self._connection.execute(_FAMILY).fetchall()
        return [_Row(*row) for row in rows]


class _Families:
    """Trajectories by their links."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows = {row.trajectory_id: row for row in rows}
        self._places = {row.trajectory_id: place for place, row in enumerate(rows)}
        self._below: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            if row.parent_id:
                self._below[row.parent_id].append(row.trajectory_id)

    def of(self, roots: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the ids of trajectories with their sub-agents, and those of their traces."""
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
