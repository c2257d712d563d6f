"""Questions to judges and what came of them: the cache of answers, and what they cost.

Used from several threads at once: there is one connection of its own, and a lock. Calls are
written in groups, so that fifty at once do not wait for the disk one by one; what is not written
yet is known all the same.
"""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

import duckdb
import pyarrow as pa

from ..jsontext import dumps, restore
from .query import row
from .rows import table_of

__all__ = ["CallsOf", "JudgeCalls"]

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
_GROUP = 64
_FRESH = 20_000
_SECONDS = 1.0


class Call(Protocol):
    """What a call has: the fields of `oteval.evaluators.judge.JudgeCall`."""

    key: str
    answer: Any


Kind = TypeVar("Kind")


class JudgeCalls:
    """The calls of a store."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._parent = connection
        self._own: duckdb.DuckDBPyConnection | None = None
        self._lock = threading.RLock()
        self._waiting: list[tuple[str, Any]] = []
        self._links: set[tuple[str, str]] = set()
        self._by_key: dict[str, Any] = {}
        self._written = time.monotonic()
        self._closed = False
        # The beginnings of the keys that have an answer: most questions are new, and to look
        # for one in the table takes 1.5 ms. Sorted, 8 bytes each; those of this process apart.
        self._known: array[int] | None = None
        self._fresh: set[int] = set()

    def of(self, evaluator: str, kind: type[Kind], *, again: bool = False) -> CallsOf[Kind]:
        """Return the calls as an evaluator uses them.

        Args:
            evaluator: Its name.
            kind: The class of its calls.
            again: Whether it asks what has been answered before.
        """
        return CallsOf(self, evaluator, kind, again=again)

    def get(self, key: str, kind: type[Kind]) -> Kind | None:
        """Return the newest call of a key that has an answer, whichever evaluator asked."""
        with self._lock:
            if self._closed:
                return None
            if key in self._by_key:
                found: Kind = self._by_key[key]
                return found
            if not self._may_have(key):
                return None
            kept = row(
                self._connection(),
                f"SELECT {', '.join(_FIELDS)} FROM judge_calls "  # noqa: S608  names of ours
                "WHERE key = ? AND answer IS NOT NULL ORDER BY time_ns DESC LIMIT 1",
                [key],
            )
        if kept is None:
            return None
        values = dict(zip(_FIELDS, kept, strict=True))
        return kind(**{**values, "answer": restore(values["answer"])})

    def put(self, evaluator: str, call: Call) -> None:
        """Keep a call; one that comes after the store was closed is lost."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append((evaluator, call))
            if call.answer is not None:
                self._by_key[call.key] = call
                self._fresh.add(_beginning(call.key))
                if self._known is not None and len(self._fresh) > _FRESH:
                    self._known = array("Q", sorted({*self._known, *self._fresh}))
                    self._fresh = set()
            late = time.monotonic() - self._written > _SECONDS
            if late or len(self._waiting) >= _GROUP:
                self.flush()

    def link(self, key: str, trajectory_id: str) -> None:
        """Note that a question was about a stored run, so that it is deleted with the run."""
        with self._lock:
            if not self._closed:
                self._links.add((key, trajectory_id))
                if len(self._links) >= _GROUP:
                    self._write_links()

    def _write_links(self) -> None:
        keys, runs = zip(*sorted(self._links), strict=True)
        connection = self._connection()
        connection.register("links", pa.table({"key": keys, "trajectory_id": runs}))
        connection.execute(
            "INSERT INTO judge_call_targets SELECT key, trajectory_id FROM links "
            "ANTI JOIN judge_call_targets USING (key, trajectory_id)"
        )
        connection.unregister("links")
        self._links = set()

    def flush(self) -> None:
        """Write what is not written yet."""
        with self._lock:
            if self._links:
                self._write_links()
            if not self._waiting:
                return
            rows = [_row(evaluator, call) for evaluator, call in self._waiting]
            connection = self._connection()
            connection.register("incoming_calls", table_of(rows, _SCHEMA))
            connection.execute("INSERT INTO judge_calls BY NAME SELECT * FROM incoming_calls")
            connection.unregister("incoming_calls")
            self._waiting, self._by_key = [], {}
            self._written = time.monotonic()

    def spent(self, evaluator: str, since_ns: int) -> float:
        """Return what an evaluator's calls have cost since a time, in US dollars."""
        with self._lock:
            self.flush()
            found = row(
                self._connection(),
                "SELECT coalesce(sum(cost), 0) FROM judge_calls WHERE evaluator = ? "
                "AND time_ns >= ?",
                [evaluator, since_ns],
            )
        return float(found[0]) if found else 0.0

    def totals(self) -> list[dict[str, Any]]:
        """Return the calls, errors, tokens and cost of each evaluator and model."""
        with self._lock:
            self.flush()
            rows = self._connection().execute(
                "SELECT evaluator, model, count(*), count(*) FILTER (answer IS NULL), "
                "sum(input_tokens), sum(output_tokens), sum(cost) FROM judge_calls "
                "GROUP BY ALL ORDER BY ALL"
            )
            names = ("evaluator", "model", "calls", "errors", "input_tokens", "output_tokens")
            return [dict(zip((*names, "cost"), one, strict=True)) for one in rows.fetchall()]

    def close(self) -> None:
        """Write what is not written yet, and take no more."""
        with self._lock:
            if self._closed:
                return
            self.flush()
            self._closed = True
            if self._own is not None:
                self._own.close()

    def _may_have(self, key: str) -> bool:
        if self._known is None:
            kept = self._connection().sql(
                "SELECT DISTINCT key FROM judge_calls WHERE answer IS NOT NULL"
            )
            numbers = (
                _beginning(name)
                for batch in kept.to_arrow_reader(4096)
                for name in batch.column(0).to_pylist()
            )
            self._known = array("Q", sorted(numbers))
        number = _beginning(key)
        at = bisect_left(self._known, number)
        return number in self._fresh or (at < len(self._known) and self._known[at] == number)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._own is None:
            self._own = self._parent.cursor()
            self._own.execute("USE store")
        return self._own


class CallsOf(Generic[Kind]):
    """The calls of a store as one evaluator uses them: the cache that its judges take."""

    def __init__(
        self, calls: JudgeCalls, evaluator: str, kind: type[Kind], *, again: bool = False
    ) -> None:
        self._calls, self._evaluator, self._kind, self._again = calls, evaluator, kind, again

    def get(self, key: str) -> Kind | None:
        """Return the newest call of a key that has an answer, or None."""
        return None if self._again else self._calls.get(key, self._kind)

    def put(self, call: Any) -> None:
        """Keep a call, answered or not."""
        self._calls.put(self._evaluator, call)

    def link(self, key: str, trajectory_id: str) -> None:
        """Note that a question was about a stored run."""
        self._calls.link(key, trajectory_id)

    def spent(self, since_ns: int) -> float:
        """Return what this evaluator's calls have cost since a time, in US dollars."""
        return self._calls.spent(self._evaluator, since_ns)


def _beginning(key: str) -> int:
    """Return the number that the first 16 hex digits of a key are."""
    return int(key[:16] or "0", 16)


def _row(evaluator: str, call: Any) -> Sequence[Any]:
    known = {
        "evaluator": evaluator,
        "answer": None if call.answer is None else dumps(call.answer),
    }
    return [known[n] if n in known else getattr(call, n) for n in _SCHEMA.names]
