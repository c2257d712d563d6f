"""Calls of judges: the cache of their answers, and their costs.

Several threads use it at once, so it has a separate connection and a lock. Calls are written in
groups, so that fifty concurrent calls do not wait for the disk one by one. A call that is not
written yet is found as well.

Tables: ``judge_calls``, to which rows are appended, and ``judge_call_targets``, the trajectories
that the questions were about.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import duckdb
import pyarrow as pa

from ..base.jsontext import dumps, restore
from .arrow_rows import table_of
from .query import first_row, insert, new_cursor, registered

__all__ = ["EvaluatorCalls", "JudgeCalls"]

_TEXT, _BIG = pa.string(), pa.int64()
_SCHEMA = pa.schema(
    [
        *[(name, _TEXT) for name in ("key", "evaluator", "model", "base_url", "answered_by")],
        *[(name, _TEXT) for name in ("answer", "error", "rung", "raw")],
        ("requests", pa.int32()),
        *[(name, _BIG) for name in ("input_tokens", "output_tokens", "cached_tokens")],
        *[(name, pa.float64()) for name in ("cost", "latency")],
        ("time_ns", _BIG),
    ]
)
_FIELDS = [name for name in _SCHEMA.names if name != "evaluator"]
# Calls are written when this many wait, or when the last write is longer ago than this (s).
_GROUP = 64
_MAX_DELAY = 1.0
# The most key prefixes of new calls in a set, before they are sorted into the array.
_MAX_NEW_KEYS = 20_000


CallT = TypeVar("CallT")


class JudgeCalls:
    """The calls of judges in a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._parent = connection
        self._own_connection: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.RLock()
        self._unwritten: list[tuple[str, Any]] = []
        self._links: set[tuple[str, str]] = set()
        self._by_key: dict[str, Any] = {}
        self._written_at = time.monotonic()
        self._closed = False
        # The first 8 bytes of each key with an answer, sorted, so that most questions, which are
        # new, need no query of 1.5 ms. The keys of this process are in a set first.
        self._known_keys: array[int] | None = None
        self._new_keys: set[int] = set()

    def of(
        self, evaluator: str, kind: type[CallT], *, again: bool = False
    ) -> EvaluatorCalls[CallT]:
        """The calls of one evaluator, which serve as the cache of its judges.

        Args:
            evaluator: Its name.
            kind: The class of its calls.
            again: Ignore cached answers, so that every question is asked again.
        """
        return EvaluatorCalls(self, evaluator, kind, again=again)

    def get(self, key: str, kind: type[CallT]) -> CallT | None:
        """The newest call with an answer for a key, from any evaluator."""
        with self._lock:
            if self._closed:
                return None
            if key in self._by_key:
                cached_call: CallT = self._by_key[key]
                return cached_call
            if not self._may_have(key):
                return None
            stored_row = first_row(
                self._connection(),
                f"SELECT {', '.join(_FIELDS)} FROM judge_calls "  # noqa: S608
                "WHERE key = ? AND answer IS NOT NULL ORDER BY time_ns DESC LIMIT 1",
                [key],
            )
        if stored_row is None:
            return None
        values = dict(zip(_FIELDS, stored_row, strict=True))
        return kind(**{**values, "answer": restore(values["answer"])})

    def put(self, evaluator: str, call: Any) -> None:
        """Store a call, with the fields of `oteval.evaluators.judge.JudgeCall`.

        Calls after the store was closed are lost.
        """
        with self._lock:
            if self._closed:
                return
            self._unwritten.append((evaluator, call))
            if call.answer is not None:
                self._by_key[call.key] = call
                self._new_keys.add(_key_prefix(call.key))
                if self._known_keys is not None and len(self._new_keys) > _MAX_NEW_KEYS:
                    self._known_keys = array("Q", sorted({*self._known_keys, *self._new_keys}))
                    self._new_keys = set()
            is_late = time.monotonic() - self._written_at > _MAX_DELAY
            if is_late or len(self._unwritten) >= _GROUP:
                self.flush()

    def link(self, key: str, trajectory_id: str) -> None:
        """Link a question to the trajectory it is about; deleting the trajectory deletes it too."""
        with self._lock:
            if not self._closed:
                self._links.add((key, trajectory_id))
                if len(self._links) >= _GROUP:
                    self._write_links()

    def _write_links(self) -> None:
        keys, runs = zip(*sorted(self._links), strict=True)
        links = pa.table({"key": keys, "trajectory_id": runs})
        connection = self._connection()
        with registered(connection, "links", links):
            connection.execute(
                "INSERT INTO judge_call_targets BY NAME SELECT key, trajectory_id FROM links "
                "ANTI JOIN judge_call_targets USING (key, trajectory_id)"
            )
        self._links = set()

    def flush(self) -> None:
        """Write all calls and links that are not written yet."""
        with self._lock:
            if self._links:
                self._write_links()
            if not self._unwritten:
                return
            rows = [_row(evaluator, call) for evaluator, call in self._unwritten]
            connection = self._connection()
            insert(connection, "judge_calls", table_of(rows, _SCHEMA))
            self._unwritten, self._by_key = [], {}
            self._written_at = time.monotonic()

    def spent(self, evaluator: str, since_ns: int) -> float:
        """The cost of an evaluator's calls since a time (ns), in US dollars."""
        with self._lock:
            self.flush()
            spend_row = first_row(
                self._connection(),
                "SELECT coalesce(sum(cost), 0) FROM judge_calls WHERE evaluator = ? "
                "AND time_ns >= ?",
                [evaluator, since_ns],
            )
        return float(spend_row[0]) if spend_row else 0.0

    def totals(self) -> list[dict[str, Any]]:
        """The number of calls and errors, the tokens and the cost by evaluator and model."""
        with self._lock:
            self.flush()
            rows = self._connection().execute(
                "SELECT evaluator, model, count(*), count(*) FILTER (answer IS NULL), "
                "sum(input_tokens), sum(output_tokens), sum(cost) FROM judge_calls "
                "GROUP BY ALL ORDER BY ALL"
            )
            names = ("evaluator", "model", "calls", "errors", "input_tokens", "output_tokens")
            return [
                dict(zip((*names, "cost"), totals_row, strict=True))
                for totals_row in rows.fetchall()
            ]

    def close(self) -> None:
        """Write all calls and links, and accept no more."""
        with self._lock:
            if self._closed:
                return
            self.flush()
            self._closed = True
            if self._own_connection is not None:
                self._own_connection.close()

    def _may_have(self, key: str) -> bool:
        if self._known_keys is None:
            key_table = self._connection().sql(
                "SELECT DISTINCT key FROM judge_calls WHERE answer IS NOT NULL"
            )
            numbers = (
                _key_prefix(name)
                for batch in key_table.to_arrow_reader(4096)
                for name in batch.column(0).to_pylist()
            )
            self._known_keys = array("Q", sorted(numbers))
        number = _key_prefix(key)
        at = bisect_left(self._known_keys, number)
        return number in self._new_keys or (
            at < len(self._known_keys) and self._known_keys[at] == number
        )

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._own_connection is None:
            self._own_connection = new_cursor(self._parent)
        return self._own_connection


class EvaluatorCalls(Generic[CallT]):
    """The calls of one evaluator in a store: the cache that its judges use."""

    def __init__(
        self, calls: JudgeCalls, evaluator: str, kind: type[CallT], *, again: bool = False
    ) -> None:
        self._calls, self._evaluator, self._kind, self._again = calls, evaluator, kind, again

    def get(self, key: str) -> CallT | None:
        """The newest call with an answer for a key, or None."""
        return None if self._again else self._calls.get(key, self._kind)

    def put(self, call: Any) -> None:
        """Store a call, with or without an answer."""
        self._calls.put(self._evaluator, call)

    def link(self, key: str, trajectory_id: str) -> None:
        """Link a question to the trajectory it is about."""
        self._calls.link(key, trajectory_id)


def _key_prefix(key: str) -> int:
    """The first 16 hexadecimal digits of a key as a number."""
    return int(key[:16] or "0", 16)


def _row(evaluator: str, call: Any) -> Sequence[Any]:
    row_values = {
        "evaluator": evaluator,
        "answer": None if call.answer is None else dumps(call.answer),
    }
    return [row_values[n] if n in row_values else getattr(call, n) for n in _SCHEMA.names]
