"""The observations of a monitor, read from the store part by part.

The store returns new runs with their values, and `conversations` makes observations of them. The
caller has begun a transaction, in which it also calls `RunReader.write` and notes the position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..store import ObservationSource, ReadPosition, Store
from .conversations import (
    ClosedConversations,
    close,
    conversation_hashes,
    first_remembered_day,
)
from .hashes import Hashes

__all__ = ["RunReader"]

_ERROR_MEASURES = ("error_rate", "not_evaluated_rate")
# Rows that a query reads, and runs whose conversations are closed together: both take memory.
_PART = 150_000
_CLOSED_AT_ONCE = 50_000


class RunReader:
    """Reads observations from a position on.

    Args:
        store: The store.
        source: The observations to read.
        at: How far it was read.
        now_ns: The time (ns).
        accepts: Returns those of some trajectories that match conditions which SQL cannot check;
            None without such conditions.

    Attributes:
        at: How far it is read.
    """

    def __init__(
        self,
        store: Store,
        source: ObservationSource,
        at: ReadPosition,
        *,
        now_ns: int,
        accepts: Callable[[Collection[str]], Collection[str]] | None = None,
    ) -> None:
        self.at = at
        self._reader = store.observations
        self._source = source
        self._now_ns = now_ns
        self._accepts = accepts
        self._open = _encoded(self._reader.open_runs(source.monitor))
        self._forgotten = first_remembered_day(at.reached_ns)

    def read(self, upto: int, *, is_last: bool) -> pa.Table:
        """Return the observations that the next rows bring, in the order in which they are decided.

        Args:
            upto: The number of the last row to read.
            is_last: Whether no later rows are stored.
        """
        monitor = self._source.monitor
        parts = list(self._parts(upto))
        # All remembered conversations are looked through once.
        hashes = np.concatenate([part.hashes for part in parts])
        observed = [np.sort(self._reader.observed(monitor, pa.array(hashes)).to_numpy())]
        found = []
        while parts:
            # Nothing keeps a part longer than it is used.
            closed = self._closed(parts.pop(0), observed, is_last=is_last and not parts)
            observed.append(np.sort(closed.conversations["conversation"].to_numpy()))
            self._reader.note_observed(monitor, closed.conversations)
            self._open = closed.open
            self.at = replace(self.at, reached_ns=closed.reached_ns)
            found.append(closed.observations)
        if (day := first_remembered_day(self.at.reached_ns)) > self._forgotten:
            self._reader.forget_observed(monitor, day)
            self._forgotten = day
        return pa.concat_tables(found)

    def _parts(self, upto: int) -> Iterator[_RunPart]:
        """Yield the next runs, and note how far they reach."""
        while True:
            end = min(upto, self.at.position + _PART)
            found, run_seq = self._reader.new_runs(self._source, self.at, end, self._accepts)
            self.at = replace(self.at, position=end, run_seq=run_seq)
            order = np.argsort(found["seq"].to_numpy(), kind="stable")
            found = _encoded(found.take(pa.array(order)))
            hashes = conversation_hashes(found)
            for first in range(0, max(1, len(found)), _CLOSED_AT_ONCE):
                yield _RunPart(
                    found.slice(first, _CLOSED_AT_ONCE), hashes[first : first + _CLOSED_AT_ONCE]
                )
            if end >= upto:
                return

    def _closed(
        self, part: _RunPart, observed: Sequence[Hashes], *, is_last: bool
    ) -> ClosedConversations:
        is_over = np.zeros(len(part.hashes), bool)
        for known in observed:
            is_over |= _among(part.hashes, known)
        return close(
            part.runs,
            part.hashes,
            is_over,
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


def _among(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """Return which hashes are among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[places] == hashes
    return found


def _encoded(runs: pa.Table) -> pa.Table:
    """Return runs with the columns of few different texts as dictionaries."""
    for name in ("group", "version"):
        column = runs[name].combine_chunks().dictionary_encode()
        runs = runs.set_column(runs.schema.get_field_index(name), name, column)
    return runs
