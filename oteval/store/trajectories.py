"""Trajectories in the store: written by revision, read with their history."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..errors import NotFound
from ..jsontext import dumps, dumps_exact, restore
from ..model import Gap, Rewrite, SpanRef, Trajectory, Usage
from ..selection import EVERYTHING, Selection
from ..text import listed
from .messages import message_fields, message_of
from .query import number, reader, transaction
from .ranges import EVERYWHERE, WIDE, Range, joined, per_range, rows_in
from .rows import rows_of, table_of
from .signature import signature_of
from .where import where
from .wide import fetched

__all__ = ["TRAJECTORY_SCHEMA", "Trajectories"]

_TEXT, _BIG, _INT = pa.string(), pa.int64(), pa.int32()
_TEXTS = pa.list_(pa.string())
TRAJECTORY_SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXT),
        ("rev", _INT),
        ("trace_id", _TEXT),
        ("span_id", _TEXT),
        ("trace_ids", _TEXTS),
        ("history_id", _TEXT),
        ("conversation_id", _TEXT),
        ("turn", _INT),
        ("new_from", _INT),
        ("agent", _TEXT),
        ("service", _TEXT),
        ("parent_id", _TEXT),
        ("parent_call_id", _TEXT),
        ("start_ns", _BIG),
        ("end_ns", _BIG),
        ("models", _TEXTS),
        ("dialects", _TEXTS),
        ("input_tokens", _BIG),
        ("output_tokens", _BIG),
        ("cached_tokens", _BIG),
        ("model_calls", _INT),
        *[(name, _TEXT) for name in ("messages", "steps", "tools", "gaps")],
        ("gap_codes", _TEXTS),
        *[(name, _TEXT) for name in ("rewrites", "attributes", "chain", "follows", "fingerprint")],
        ("roles", _TEXTS),
        ("call_names", _TEXTS),
        ("call_hashes", pa.list_(_BIG)),
        ("call_messages", pa.list_(_INT)),
        ("call_errors", pa.list_(pa.bool_())),
        ("strict_names", _BIG),
        ("strict_calls", _BIG),
        ("overlapping", pa.bool_()),
        ("call_keys", pa.list_(_BIG)),
        ("history_ns", _BIG),
    ]
)
# Trajectories read at once: so many at the most, and at first; else about so many bytes of them.
_PAGE, _FIRST = 1000, 100
_PAGE_BYTES = 64 << 20
_MOST = (1 << 63) - 1
# From so many runs behind another on, those that it follows are looked for together: at first in
# the minutes before it, then in stretches of time (ns) that grow by this factor.
_SHALLOW, _STRETCH, _LONGER = 3, 600_000_000_000, 8
# What a name may mean, tried in this order: a short id of a trajectory, as tables show it, is
# never in doubt because of a trace that begins alike.
_MEANT_BY = (
    "starts_with(trajectory_id, $name)",
    "list_contains(trace_ids, $name) OR span_id = $name",
    "len(list_filter(trace_ids, lambda t: starts_with(t, $name))) > 0 "
    "OR starts_with(span_id, $name)",
)


def _row(trajectory: Trajectory) -> dict[str, Any]:
    signature = signature_of(trajectory.own_messages)
    history = trajectory.history
    row = {
        "trajectory_id": trajectory.id,
        "trace_id": trajectory.root_span.trace_id,
        "span_id": trajectory.root_span.span_id,
        "trace_ids": list(trajectory.trace_ids),
        "history_id": history.id if history else None,
        "conversation_id": trajectory.conversation_id,
        "turn": trajectory.turn,
        "new_from": trajectory.new_from,
        "agent": trajectory.agent,
        "service": trajectory.service,
        "parent_id": trajectory.parent_id,
        "parent_call_id": trajectory.parent_call_id,
        "start_ns": trajectory.start_ns,
        "end_ns": trajectory.end_ns,
        "models": list(trajectory.models),
        "dialects": list(trajectory.dialects),
        **{f.name: _int64(getattr(trajectory.usage, f.name)) for f in fields(Usage)},
        "messages": dumps_exact([message_fields(message) for message in trajectory.tail]),
        "steps": dumps(trajectory.steps),
        "tools": dumps(trajectory.tools),
        "gaps": dumps([gap.as_dict() for gap in trajectory.gaps]),
        "gap_codes": list(dict.fromkeys(gap.code for gap in trajectory.gaps)),
        "rewrites": dumps_exact([_rewrite_fields(rewrite) for rewrite in trajectory.rewrites]),
        "attributes": dumps(trajectory.attributes),
        "chain": trajectory.chain,
        "follows": trajectory.follows,
        "roles": list(signature.roles),
        "call_names": list(signature.names),
        "call_hashes": list(signature.hashes),
        "call_messages": list(signature.positions),
        "call_errors": list(signature.errors),
        "strict_names": signature.strict_names,
        "strict_calls": signature.strict_calls,
        "overlapping": signature.overlapping,
        "call_keys": list(trajectory.call_keys),
    }
    row["fingerprint"] = hashlib.blake2b(dumps(row).encode(), digest_size=12).hexdigest()
    # Where to look for the history first; it says nothing of the run itself.
    row["history_ns"] = history.start_ns if history else None
    return row


def _int64(tokens: int) -> int:
    """Return a count that a column can hold, whatever spans claim."""
    return max(-_MOST, min(tokens, _MOST))


def _rewrite_fields(rewrite: Rewrite) -> dict[str, Any]:
    messages = [message_fields(message) for message in rewrite.messages]
    return {"at": rewrite.at, "messages": messages, "span_id": rewrite.span_id}


def _trajectory(row: Mapping[str, Any], history: Trajectory | None) -> Trajectory:
    return Trajectory(
        id=row["trajectory_id"],
        root_span=SpanRef(row["trace_id"], row["span_id"]),
        trace_ids=tuple(row["trace_ids"]),
        tail=tuple(message_of(found) for found in restore(row["messages"])),
        new_from=row["new_from"],
        history=history,
        conversation_id=row["conversation_id"],
        turn=row["turn"],
        agent=row["agent"],
        service=row["service"],
        parent_id=row["parent_id"],
        parent_call_id=row["parent_call_id"],
        steps=tuple(tuple(step) for step in restore(row["steps"])),
        tools=tuple(restore(row["tools"])),
        models=tuple(row["models"]),
        dialects=tuple(row["dialects"]),
        usage=Usage(**{f.name: row[f.name] for f in fields(Usage)}),
        start_ns=row["start_ns"],
        end_ns=row["end_ns"],
        gaps=tuple(Gap(**gap) for gap in restore(row["gaps"])),
        rewrites=tuple(
            Rewrite(r["at"], tuple(message_of(m) for m in r["messages"]), r["span_id"])
            for r in restore(row["rewrites"])
        ),
        attributes=restore(row["attributes"]),
        chain=row["chain"],
        follows=row["follows"],
        call_keys=tuple(row["call_keys"] or ()),
        rev=row["rev"],
    )


class _Link(NamedTuple):
    """What a run follows."""

    rev: int
    start_ns: int
    history_id: str | None
    history_ns: int | None


class Trajectories:
    """The trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def write(
        self,
        trajectories: Sequence[Trajectory],
        trace_ids: Sequence[str],
        times: Sequence[Range] = (EVERYWHERE,),
    ) -> list[str]:
        """Store what some traces were reconstructed to, as new revisions where it differs.

        Args:
            trajectories: All trajectories of the traces.
            trace_ids: The traces; what else was stored of them is superseded.
            times: The times (ns) in which their spans begin; no run of a trace lies outside.

        Returns:
            The trajectories of which a revision was written.
        """
        rows = [_row(trajectory) for trajectory in trajectories]
        known = self._known(trace_ids, times)
        fresh = []
        for row in rows:
            rev, fingerprint = known.get(row["trajectory_id"], (0, None))
            if fingerprint == row["fingerprint"]:
                del known[row["trajectory_id"]]
            else:
                fresh.append({**row, "rev": rev + 1})
        replaced = [
            {"trajectory_id": name, "rev": rev}
            for name, (rev, fingerprint) in known.items()
            if fingerprint is not None
        ]
        self._insert(fresh, replaced)
        return [row["trajectory_id"] for row in fresh]

    def add(self, trajectories: Sequence[Trajectory]) -> list[str]:
        """Store trajectories that were reconstructed elsewhere, unless the ids are known.

        Nothing is replaced: what the store's own spans came to says more.

        Returns:
            The ids of those that are new.
        """
        wanted = pa.table({"id": pa.array([one.id for one in trajectories], _TEXT)})
        self._connection.register("wanted", wanted)
        rows = self._connection.execute(
            "SELECT trajectory_id FROM trajectories t SEMI JOIN wanted w ON t.trajectory_id = w.id"
        ).fetchall()
        self._connection.unregister("wanted")
        known = {name for (name,) in rows}
        fresh = [{**_row(one), "rev": 1} for one in trajectories if one.id not in known]
        self._insert(fresh, ())
        return [row["trajectory_id"] for row in fresh]

    def _known(
        self, trace_ids: Sequence[str], times: Sequence[Range]
    ) -> dict[str, tuple[int, str | None]]:
        """Return the last revision of each trajectory that was ever rooted in the traces.

        Returns:
            Its number and fingerprint by id; the fingerprint is None when it is not current.
        """
        wanted = pa.table({"trace_id": pa.array(trace_ids, pa.string())})
        self._connection.register("wanted", wanted)
        rooted = per_range(
            "SELECT trajectory_id, rev, trace_id, fingerprint FROM trajectories "
            "WHERE start_ns <= {last} AND end_ns >= {first}",
            times,
        )
        rows = self._connection.execute(
            f"""
            SELECT t.trajectory_id, max(t.rev), max(t.fingerprint) FILTER (s.rev IS NULL)
            FROM (SELECT * FROM ({rooted}) SEMI JOIN wanted USING (trace_id)) t
            LEFT JOIN superseded s ON t.trajectory_id = s.trajectory_id AND t.rev = s.rev
            GROUP BY t.trajectory_id
            """  # noqa: S608
        ).fetchall()
        self._connection.unregister("wanted")
        return {name: (rev, fingerprint) for name, rev, fingerprint in rows}

    def _insert(self, fresh: Sequence[Mapping[str, Any]], replaced: Sequence[Any]) -> None:
        connection = self._connection
        with transaction(connection):
            if replaced:
                schema = pa.schema([("trajectory_id", _TEXT), ("rev", _INT)])
                connection.register("incoming", pa.Table.from_pylist(replaced, schema=schema))
                connection.execute("INSERT INTO superseded SELECT * FROM incoming")
            if fresh:
                rows = [[row[name] for name in TRAJECTORY_SCHEMA.names] for row in fresh]
                connection.register("incoming", table_of(rows, TRAJECTORY_SCHEMA))
                connection.execute("INSERT INTO trajectories SELECT * FROM incoming")
        connection.unregister("incoming")

    def read(self, selection: Selection = EVERYTHING) -> Iterator[Trajectory]:
        """Yield the current trajectories of a selection, in order of start, a page at a time."""
        clause, values = where(selection)
        keys = self._connection.execute(
            f"SELECT trajectory_id FROM current_trajectories WHERE {clause} "  # noqa: S608
            "ORDER BY start_ns, trajectory_id",
            values,
        ).fetchall()
        names = [name for (name,) in keys]
        if selection.limit is not None and not selection.needs_python:
            names = names[max(0, len(names) - selection.limit) :]
        found = self._pages(names, selection)
        if selection.limit is None or not selection.needs_python:
            yield from found
        else:
            yield from deque(found, maxlen=selection.limit)

    def _pages(self, names: Sequence[str], selection: Selection) -> Iterator[Trajectory]:
        start, size = 0, _FIRST
        while start < len(names):
            page = names[start : start + size]
            table = self._rows_with_history(page)
            start += size
            size = _next_size(size, table)
            by_id = _built(table)
            del table
            for name in page:
                if not selection.needs_python or selection.matches(by_id[name]):
                    yield by_id[name]

    def _with_history(self, names: Sequence[str]) -> dict[str, Trajectory]:
        """Return trajectories by id, those that they follow among them."""
        return _built(self._rows_with_history(names))

    def _rows_with_history(self, names: Sequence[str]) -> pa.Table:
        """Return the current rows with some ids, and those that they follow."""
        self._connection.register("wanted", pa.table({"id": pa.array(names, pa.string())}))
        table = fetched(
            self._connection,
            """
            WITH RECURSIVE needed(id) AS (
                SELECT id FROM wanted
                UNION
                SELECT t.history_id FROM current_trajectories t
                JOIN needed n ON t.trajectory_id = n.id WHERE t.history_id IS NOT NULL
            )
            SELECT t.* FROM current_trajectories t SEMI JOIN needed n ON t.trajectory_id = n.id
            """,
        )
        self._connection.unregister("wanted")
        return table

    def of(self, names: Sequence[str]) -> dict[str, Trajectory]:
        """Return those current trajectories that have one of some ids, by id."""
        found = self._with_history(names)
        return {name: found[name] for name in names if name in found}

    def at(
        self, begun: Mapping[str, int], kept: Mapping[str, Trajectory] | None = None
    ) -> dict[str, Trajectory]:
        """Return current trajectories by id, as `of` does, without looking through all.

        Args:
            begun: When they begin (ns), by id; those that have another beginning by now are left
                out.
            kept: Trajectories that were read before, by id. Those of them that others follow and
                that have not changed are not read again.
        """
        rows: dict[str, Mapping[str, Any]] = {}
        built: dict[str, Trajectory] = {}
        wanted: dict[str, int | None] = dict(begun)
        for level in itertools.count():
            if not wanted:
                break
            known = {name: ns for name, ns in wanted.items() if ns is not None}
            if level >= _SHALLOW:
                # A query for each run of a long conversation would take longer than its rows do.
                line = self._line_of(known, rows.keys())
                built |= _unchanged(line, kept or {})
                known |= {name: link.start_ns for name, link in line.items()}
            found = self._rows_at({name: ns for name, ns in known.items() if name not in built})
            # A history may begin elsewhere by now, or no longer be there.
            lost = [n for n in wanted if n not in found and n not in begun and n not in built]
            found.update(self._rows_anywhere(lost) if lost else {})
            rows.update(found)
            wanted = {
                row["history_id"]: row["history_ns"]
                for row in found.values()
                if row["history_id"] is not None
                and row["history_id"] not in rows
                and row["history_id"] not in built
            }
        for name in rows:
            _build(name, rows, built)
        return {name: built[name] for name in begun if name in built}

    def _line_of(self, begun: Mapping[str, int], known: Container[str]) -> dict[str, _Link]:
        """Return the runs that some follow, also by way of others, and those themselves.

        They are looked for in stretches of time before those, each longer than the last. A run
        that began elsewhere, before it changed, ends its line.

        Args:
            begun: When the runs begin (ns), by id.
            known: Runs that need not be looked for.
        """
        line: dict[str, _Link] = {}
        ends, stretch = dict(begun), _STRETCH
        until = max(begun.values(), default=0)
        while ends:
            first = max(EVERYWHERE.first, min(until, *ends.values()) - stretch)
            rows = self._connection.execute(
                "SELECT trajectory_id, rev, start_ns, history_id, history_ns FROM trajectories "
                "ANTI JOIN superseded USING (trajectory_id, rev) WHERE start_ns BETWEEN ? AND ?",
                [first, until],
            ).fetchall()
            links = {name: _Link(*link) for name, *link in rows}
            names, ends = list(ends), {}
            for at in names:
                while (link := links.get(at)) and at not in line and at not in known:
                    line[at] = link
                    if link.history_id is None or link.history_ns is None:
                        break
                    if link.history_ns < first:
                        ends[link.history_id] = link.history_ns
                        break
                    at = link.history_id
            until, stretch = first - 1, stretch * _LONGER
        return line

    def _rows_at(self, begun: Mapping[str, int]) -> dict[str, Mapping[str, Any]]:
        """Return the current rows with some ids that begin when they are said to."""
        known = {"id": pa.array(begun, _TEXT), "ns": pa.array(begun.values(), _BIG)}
        self._connection.register("wanted", pa.table(known))
        table = rows_in(
            self._connection,
            "SELECT t.* FROM trajectories t SEMI JOIN wanted w ON t.trajectory_id = w.id "
            "AND t.start_ns = w.ns ANTI JOIN superseded USING (trajectory_id, rev) "
            "WHERE t.start_ns BETWEEN {first} AND {last}",
            joined((Range(ns, ns) for ns in begun.values()), most=WIDE),
        )
        self._connection.unregister("wanted")
        return {row["trajectory_id"]: row for row in rows_of(table)}

    def _rows_anywhere(self, names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
        """Return the current rows with some ids."""
        self._connection.register("wanted", pa.table({"id": pa.array(names, _TEXT)}))
        table = fetched(
            self._connection,
            "SELECT t.* FROM current_trajectories t SEMI JOIN wanted w ON t.trajectory_id = w.id",
        )
        self._connection.unregister("wanted")
        return {row["trajectory_id"]: row for row in rows_of(table)}

    def get(self, name: str) -> Trajectory:
        """Return the current trajectory that an id, or the beginning of one, means.

        Args:
            name: A trajectory's id; else the id of one of its traces or of its root span.

        Raises:
            NotFound: No such id begins so, or those of several trajectories do.
        """
        for condition in _MEANT_BY:
            found = self._meant(condition, name)
            if len(found) == 1:
                return self._with_history(found)[found[0]]
            if found:
                raise NotFound(f"{name!r} means several trajectories: {listed(found)}")
        raise NotFound(f"no trajectory {name!r}; oteval trajectories lists them")

    def beginning(self, name: str) -> list[str]:
        """Return the ids of the current trajectories that begin so, by start."""
        return self._meant(_MEANT_BY[0], name)

    def _meant(self, condition: str, name: str) -> list[str]:
        rows = self._connection.execute(
            f"SELECT trajectory_id FROM current_trajectories WHERE {condition} "  # noqa: S608
            "ORDER BY start_ns, trajectory_id",
            {"name": name},
        ).fetchall()
        return [found for (found,) in rows]

    def count(self, selection: Selection = EVERYTHING) -> int:
        """Return how many current trajectories there are, as far as columns tell a selection."""
        clause, values = where(selection)
        found = number(
            self._connection,
            f"SELECT count(*) FROM current_trajectories WHERE {clause}",  # noqa: S608
            values,
        )
        return found if selection.limit is None else min(found, selection.limit)

    def export(self) -> pa.RecordBatchReader:
        """Return the current trajectories, to be read batch by batch."""
        return reader(self._connection, "SELECT * FROM current_trajectories")


def _unchanged(line: Mapping[str, _Link], kept: Mapping[str, Trajectory]) -> dict[str, Trajectory]:
    """Return those of some trajectories, read before, that are as they were, with their history."""
    found: dict[str, Trajectory] = {}
    for name, link in sorted(line.items(), key=lambda item: item[1].start_ns):
        known = kept.get(name)
        if known is None or known.rev != link.rev:
            continue
        if known.history is (found.get(link.history_id) if link.history_id else None):
            found[name] = known
    return found


def _next_size(size: int, table: pa.Table) -> int:
    """Return how many trajectories to read next, after so many had the rows of a table."""
    width = 1 + int(table.nbytes // max(1, table.num_rows))
    return max(1, min(_PAGE, 4 * size, _PAGE_BYTES // width))


def _built(table: pa.Table) -> dict[str, Trajectory]:
    """Return the trajectories of rows by id."""
    rows = {row["trajectory_id"]: row for row in rows_of(table)}
    found: dict[str, Trajectory] = {}
    for name in rows:
        _build(name, rows, found)
    return found


def _build(name: str, rows: Mapping[str, Mapping[str, Any]], found: dict[str, Trajectory]) -> None:
    """Build a trajectory after those it follows, without recursion."""
    line = []
    at: str | None = name
    while at is not None and at in rows and at not in found:
        line.append(at)
        at = rows[at]["history_id"]
    for member in reversed(line):
        row = rows[member]
        found[member] = _trajectory(row, found.get(row["history_id"] or ""))
