"""The observations of a monitor, read from the store part by part.

The store returns new runs with their values, and `conversations` makes observations of them. The
caller has begun a transaction, in which it also calls `RunReader.write` and notes the position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..store import ObservationSource, ReadPosition, Store
from .conversations import close, conversation_hashes, first_remembered_day

__all__ = ["RunReader"]

_ERROR_MEASURES = ("error_rate", "not_evaluated_rate")


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
        found, run_seq = self._reader.new_runs(self._source, self.at, upto, self._accepts)
        found = _encoded(found)
        hashes = conversation_hashes(found)
        observed = self._reader.observed(monitor, pa.array(hashes)).to_numpy()
        order = np.argsort(found["seq"].to_numpy(), kind="stable")
        closed = close(
            found.take(pa.array(order)),
            hashes[order],
            np.isin(hashes[order], observed),
            self._open,
            reached_ns=self.at.reached_ns,
            now_ns=self._now_ns,
            is_last=is_last,
            # A failed evaluation is tried again, and the last attempt counts.
            waits=self._source.measure in _ERROR_MEASURES,
        )
        self._open = closed.open
        self._reader.note_observed(monitor, closed.conversations)
        if (day := first_remembered_day(closed.reached_ns)) > self._forgotten:
            self._reader.forget_observed(monitor, day)
            self._forgotten = day
        self.at = replace(self.at, position=upto, run_seq=run_seq, reached_ns=closed.reached_ns)
        return closed.observations

    def write(self) -> None:
        """Write the runs of open conversations."""
        self._reader.put_open_runs(self._source.monitor, self._open)


def _encoded(runs: pa.Table) -> pa.Table:
    """Return runs with the columns of few different texts as dictionaries."""
    for name in ("group", "version"):
        column = runs[name].combine_chunks().dictionary_encode()
        runs = runs.set_column(runs.schema.get_field_index(name), name, column)
    return runs
