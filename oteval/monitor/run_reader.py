"""The observations of a monitor, read from the store part by part.

The store returns new runs with their values, and `conversations` turns them into observations. Use
a reader in a transaction, which also calls `RunReader.write` and stores the position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..store import ObservationSource, ReadPosition, Store
from .conversations import (
    ClosedConversations,
    Hashes,
    close,
    conversation_hashes,
    first_remembered_day,
)

__all__ = ["RunReader"]

_ERROR_MEASURES = ("error_rate", "not_evaluated_rate")
# Rows per query, and runs whose conversations are closed together, to limit memory.
_PART = 150_000
_CLOSED_AT_ONCE = 50_000


class RunReader:
    """Reads observations from a position on.

    Args:
        store: The store.
        source: The observations to read.
        at: The position to read from.
        now_ns: The time (ns).
        lock: Held while the store is used, because others use it while a thread reads ahead.

    Attributes:
        at: The position after the last read.
    """

    def __init__(
        self,
        store: Store,
        source: ObservationSource,
        at: ReadPosition,
        *,
        now_ns: int,
        lock: Lock | None = None,
    ) -> None:
        self.at = at
        self._lock = lock or Lock()
        self._reader = store.observations
        self._source = source
        self._now_ns = now_ns
        self._open = _encoded(self._reader.open_runs(source.monitor))
        self._forgotten = first_remembered_day(at.reached_ns)

    def read(self, upto: int, *, is_last: bool) -> pa.Table:
        """The observations of the next rows, in the order of their decisions.

        Args:
            upto: The number of the last row to read.
            is_last: Whether no later rows are stored.
        """
        monitor = self._source.monitor
        parts = list(self._parts(upto))
        # Search the remembered conversations once.
        over = _Marked(np.concatenate([part.hashes for part in parts]))
        with self._lock:
            over.mark(self._reader.observed(monitor, pa.array(over.hashes)).to_numpy())
        observations = []
        while parts:
            # Pop each part, so that its memory is freed after use.
            closed = self._closed(parts.pop(0), over, is_last=is_last and not parts)
            over.mark(closed.conversations["conversation"].to_numpy())
            with self._lock:
                self._reader.note_observed(monitor, closed.conversations)
            self._open = closed.open
            self.at = replace(self.at, reached_ns=closed.reached_ns)
            observations.append(closed.observations)
        if (day := first_remembered_day(self.at.reached_ns)) > self._forgotten:
            with self._lock:
                self._reader.forget_observed(monitor, day)
            self._forgotten = day
        return pa.concat_tables(observations)

    def _parts(self, upto: int) -> Iterator[_RunPart]:
        """Yield the next runs, and note how far they reach."""
        while True:
            end = min(upto, self.at.position + _PART)
            with self._lock:
                runs, run_seq = self._reader.new_runs(self._source, self.at, end)
            self.at = replace(self.at, position=end, run_seq=run_seq)
            order = np.argsort(runs["seq"].to_numpy(), kind="stable")
            # Dictionary codes are faster to reorder than texts.
            runs = _encoded(runs).take(pa.array(order))
            hashes = conversation_hashes(runs)
            for first in range(0, max(1, len(runs)), _CLOSED_AT_ONCE):
                yield _RunPart(
                    runs.slice(first, _CLOSED_AT_ONCE), hashes[first : first + _CLOSED_AT_ONCE]
                )
            if end >= upto:
                return

    def _closed(self, part: _RunPart, over: _Marked, *, is_last: bool) -> ClosedConversations:
        return close(
            part.runs,
            part.hashes,
            over.next(len(part.hashes)),
            self._open,
            reached_ns=self.at.reached_ns,
            now_ns=self._now_ns,
            is_last=is_last,
            # A failed evaluation is tried again, and the last attempt counts.
            waits=self._source.measure in _ERROR_MEASURES,
        )

    def write(self) -> None:
        """Write the runs of open conversations."""
        self._reader.put_open_runs(self._source.monitor, self._open)


@dataclass(frozen=True, slots=True)
class _RunPart:
    """Some runs in the order of storage, and the hashes of their conversations."""

    runs: pa.Table
    hashes: Hashes


class _Marked:
    """Marks of the conversations of runs; each hash is looked up once in total, not once per part.

    Args:
        of_runs: The hash of the conversation of each run.

    Attributes:
        hashes: The hashes of all conversations.
    """

    def __init__(self, of_runs: Hashes) -> None:
        self.hashes, self._places = np.unique(of_runs, return_inverse=True)
        self._marks = np.zeros(len(self.hashes), bool)
        self._seen = 0

    def mark(self, hashes: Hashes) -> None:
        """Mark conversations; hashes of other conversations are ignored."""
        if not len(self.hashes):
            return
        # Sorted lookups hit nearby memory.
        hashes = np.sort(hashes)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        self._marks[places[self.hashes[places] == hashes]] = True

    def next(self, count: int) -> npt.NDArray[np.bool_]:
        """Whether the conversations of the next runs are marked."""
        first, self._seen = self._seen, self._seen + count
        marks: npt.NDArray[np.bool_] = self._marks[self._places[first : self._seen]]
        return marks


def _encoded(runs: pa.Table) -> pa.Table:
    """Return runs where columns of few different texts are dictionaries."""
    for name in ("group", "version"):
        column = runs[name].combine_chunks().dictionary_encode()
        runs = runs.set_column(runs.schema.get_field_index(name), name, column)
    return runs
