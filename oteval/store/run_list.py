"""The list of runs, newest first: read page by page from columns, without their messages.

A page begins after a key, the start and id of a run, so that the thousandth page costs as much as
the first one. Only the questions of the runs on a page are taken from their messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from ..selection import Selection
from .memory import with_memory
from .query import condition_of, first_row, number, registered, rows_of, wanted
from .ranges import EVERYWHERE, Range, merge_ranges, rows_in
from .scores import Outcome, outcome_condition

__all__ = ["ListedRun", "RunKey", "RunList", "StoreState", "VerdictFilter"]

_KEYS = pa.schema([("id", pa.string()), ("ns", pa.int64())])
# Characters of a question, and ranges of times in which the runs of a page are read.
_QUESTION, _PAGE_RANGES = 400, 4
# How many runs to look at before all of them.
_STRETCHES = (500, 30_000)
# `roles` has the run's own messages, which are the last ones of `messages`.
_PLACE = (
    "'$[' || (json_array_length(messages) - len(roles) + list_position(roles, 'user') - 1) "
    "|| '].content'"
)
# DuckDB refuses JSON with half of a surrogate pair. (An escaped backslash before it stays one.)
_READABLE = (
    "CASE WHEN json_valid(messages) THEN messages ELSE regexp_replace(messages, "
    r"'\\u[dD][89a-fA-F][0-9a-fA-F][0-9a-fA-F]', '\\ufffd', 'g') END"
)
_ROWS = f"""
    SELECT trajectory_id, start_ns, end_ns, rev, trace_id, agent, service, conversation_id, turn,
        parent_id, models, input_tokens, output_tokens, cached_tokens, model_calls, gap_codes,
        len(call_names) AS calls, len(list_filter(call_errors, lambda e: e)) AS failures,
        CASE WHEN list_contains(roles, 'user')
            THEN left(json_extract_string(messages, {_PLACE}), {_QUESTION}) END AS question
    FROM (SELECT * REPLACE ({_READABLE} AS messages) FROM trajectories
        WHERE start_ns BETWEEN {{first}} AND {{last}}) t
    SEMI JOIN wanted w ON t.trajectory_id = w.id AND t.start_ns = w.ns
    ANTI JOIN superseded USING (trajectory_id, rev)
"""  # noqa: S608


class RunKey(NamedTuple):
    """The place of a run in the list.

    Attributes:
        start_ns: When it began (ns since the epoch).
        id: The trajectory's id.
    """

    start_ns: int
    id: str


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """Runs that have a score with an outcome.

    Attributes:
        outcome: The outcome of the score; None for any.
        evaluators: The evaluators, one of which gave the score; empty for any.
    """

    outcome: Outcome | None = None
    evaluators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as the list shows it.

    Attributes:
        key: Its place in the list.
        end_ns: When it ended (ns since the epoch).
        rev: Its revision.
        trace_id: The trace of its root span.
        agent: The agent, or "".
        service: The service, or "".
        conversation_id: The conversation, or "".
        turn: Its number in the conversation, from 1.
        parent_id: The run that called it, or "".
        models: The models that answered.
        input_tokens: Input tokens, cached ones included.
        output_tokens: Output tokens.
        cached_tokens: Input tokens that came from a cache.
        model_calls: The number of model calls.
        gap_codes: The codes of its gaps.
        calls: The number of tool calls.
        failures: The number of tool calls that failed.
        question: The beginning of the user's first message, or "".
    """

    key: RunKey
    end_ns: int
    rev: int
    trace_id: str
    agent: str
    service: str
    conversation_id: str
    turn: int
    parent_id: str
    models: tuple[str, ...]
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    model_calls: int
    gap_codes: tuple[str, ...]
    calls: int
    failures: int
    question: str

    @property
    def id(self) -> str:
        """The trajectory's id."""
        return self.key.id


class StoreState(NamedTuple):
    """How far a store has grown; a different value means that something new is shown.

    Attributes:
        runs: The number of the newest row of a run.
        scores: The number of the newest score.
    """

    runs: int
    scores: int


class RunList:
    """Lists the current trajectories of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def state(self) -> StoreState:
        """Return how far the store has grown."""
        found = first_row(
            self._connection,
            "SELECT (SELECT coalesce(max(seq), 0) FROM trajectories), "
            "(SELECT coalesce(max(seq), 0) FROM scores)",
        )
        assert found is not None
        return StoreState(*map(int, found))

    def find(self, name: str) -> RunKey | None:
        """Return the key of the current trajectory with an id, or None."""
        found = first_row(
            self._connection,
            "SELECT start_ns, trajectory_id FROM trajectories "
            "ANTI JOIN superseded USING (trajectory_id, rev) WHERE trajectory_id = ?",
            [name],
        )
        return RunKey(*found) if found else None

    def of_conversations(self, names: Sequence[str]) -> dict[str, list[RunKey]]:
        """Return the keys of the runs of some conversations, the oldest first, by conversation."""
        found: dict[str, list[RunKey]] = {name: [] for name in names}
        with wanted(self._connection, "conversation_id", found):
            rows = self._connection.execute(
                "SELECT conversation_id, start_ns, trajectory_id FROM trajectories "
                "ANTI JOIN superseded USING (trajectory_id, rev) "
                "SEMI JOIN wanted USING (conversation_id) ORDER BY start_ns, trajectory_id"
            ).fetchall()
        for name, *key in rows:
            found[name].append(RunKey(*key))
        return found

    def count(self, selection: Selection, most: int) -> int:
        """Return how many runs match the filters that have a column.

        Args:
            selection: The runs.
            most: The number at which counting ends, unless every run matches.
        """
        clause, values = condition_of(selection)
        limit = "" if clause == "TRUE" else f"LIMIT {int(most)}"
        query = (
            "SELECT count(*) FROM (SELECT 1 FROM trajectories "  # noqa: S608
            f"ANTI JOIN superseded USING (trajectory_id, rev) WHERE {clause} {limit})"
        )
        return with_memory(self._connection, lambda: number(self._connection, query, values))

    def keys(
        self,
        selection: Selection,
        most: int,
        *,
        after: RunKey | None = None,
        verdict: VerdictFilter | None = None,
        is_forward: bool = False,
    ) -> list[RunKey]:
        """Return the keys of runs in the order of the list, the newest first.

        Args:
            selection: The runs, by the filters that have a column.
            most: The most keys.
            after: Only runs after this one.
            verdict: Only runs that have, or had before they were scored again, such a score.
            is_forward: List the oldest first instead.
        """
        clause, values = condition_of(selection)
        sign, order = (">", "ASC") if is_forward else ("<", "DESC")
        if after is not None:
            clause += f" AND (start_ns, trajectory_id) {sign} (?, ?)"
            values += [*after]
        join = ""
        if verdict is not None:
            scored = [outcome_condition(verdict.outcome)] if verdict.outcome else ["TRUE"]
            if verdict.evaluators:
                scored.append("list_contains(?::VARCHAR[], evaluator)")
                values = [*values, list(verdict.evaluators)]
            join = (
                "SEMI JOIN (SELECT trajectory_id FROM scores "  # noqa: S608
                f"WHERE {' AND '.join(scored)}) USING (trajectory_id)"
            )
        found: list[RunKey] = []
        for stretch in self._stretches(selection, after, most=most, is_forward=is_forward):
            query = (
                "SELECT start_ns, trajectory_id FROM (SELECT * FROM trajectories "  # noqa: S608
                "ANTI JOIN superseded USING (trajectory_id, rev) "
                f"WHERE start_ns BETWEEN {stretch.first} AND {stretch.last} AND {clause}) {join} "
                f"ORDER BY start_ns {order}, trajectory_id {order} LIMIT {int(most)}"
            )
            rows = with_memory(
                self._connection,
                lambda query=query: self._connection.execute(query, values).fetchall(),  # type: ignore[misc]
            )
            found = [RunKey(*row) for row in rows]
            if len(found) == most:
                break
        return found

    def _stretches(
        self, selection: Selection, after: RunKey | None, *, most: int, is_forward: bool
    ) -> Iterator[Range]:
        """Yield stretches of time that begin at a run, each with more runs, the last with all.

        Most pages are full after the first, so that only its row groups are read.
        A stretch with fewer runs than are wanted cannot fill the page and is left out.
        """
        first, last = EVERYWHERE
        if selection.since_ns is not None:
            first = selection.since_ns
        if selection.until_ns is not None:
            last = selection.until_ns - 1
        if after is not None and is_forward:
            first = max(first, after.start_ns)
        elif after is not None:
            last = min(last, after.start_ns)
        order, end = ("ASC", "max") if is_forward else ("DESC", "min")
        for count in _STRETCHES:
            if count < most:
                continue
            found = first_row(
                self._connection,
                f"SELECT {end}(start_ns), count(*) FROM (SELECT start_ns FROM trajectories "  # noqa: S608
                f"WHERE start_ns BETWEEN {first} AND {last} "
                f"ORDER BY start_ns {order} LIMIT {count})",
            )
            if found is None or found[1] < count:
                break
            yield Range(first, found[0]) if is_forward else Range(found[0], last)
        yield Range(first, last)

    def containing(self, keys: Sequence[RunKey], words: Sequence[str]) -> list[RunKey]:
        """Return those of some runs that may say some words, read without parsing their messages.

        Args:
            keys: The runs.
            words: The words in lower case, of printable ASCII characters that JSON does not escape.
        """
        if not keys or not words:
            return list(keys)
        # The words are part of a text that is formatted.
        said = (word.replace("'", "''").replace("{", "{{").replace("}", "}}") for word in words)
        condition = " AND ".join(f"contains(lower(messages), '{word}')" for word in said)
        columns = {"id": [key.id for key in keys], "ns": [key.start_ns for key in keys]}
        with registered(self._connection, "wanted", pa.table(columns, schema=_KEYS)):
            table = rows_in(
                self._connection,
                "SELECT trajectory_id FROM trajectories t "  # noqa: S608
                "SEMI JOIN wanted w ON t.trajectory_id = w.id AND t.start_ns = w.ns "
                f"WHERE {condition} AND t.start_ns BETWEEN {{first}} AND {{last}}",
                merge_ranges((Range(ns, ns) for ns, _ in keys), max_ranges=1),
            )
        found = set(table["trajectory_id"].to_pylist())
        return [key for key in keys if key.id in found]

    def rows(self, keys: Sequence[RunKey]) -> list[ListedRun]:
        """Return the runs of some keys in their order, without those that have changed since."""
        if not keys:
            return []
        columns = {"id": [key.id for key in keys], "ns": [key.start_ns for key in keys]}
        with registered(self._connection, "wanted", pa.table(columns, schema=_KEYS)):
            table = rows_in(
                self._connection,
                _ROWS,
                merge_ranges((Range(ns, ns) for ns, _ in keys), max_ranges=_PAGE_RANGES),
            )
        found: dict[RunKey, ListedRun] = {}
        for row in rows_of(table):
            key = RunKey(row.pop("start_ns"), row.pop("trajectory_id"))
            values: dict[str, Any] = {name: row[name] or "" for name in _TEXTS}
            values |= {name: tuple(row[name] or ()) for name in ("models", "gap_codes")}
            values |= {name: row[name] or 0 for name in _NUMBERS}
            found[key] = ListedRun(key, **values)
        return [found[key] for key in keys if key in found]


_TEXTS = ("trace_id", "agent", "service", "conversation_id", "parent_id", "question")
_NUMBERS = (
    *("end_ns", "rev", "turn", "input_tokens", "output_tokens", "cached_tokens"),
    *("model_calls", "calls", "failures"),
)
