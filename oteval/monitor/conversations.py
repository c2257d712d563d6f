"""Conversations become observations: the mean of a conversation's runs, once it is over.

A conversation is over when it was idle for 10 minutes or is an hour old. The times of the runs that
were stored after it decide that; at the end of a check, its clock does. Runs that come later are
ignored. A run without a conversation is an observation at once. A run that was scored again counts
with its last score before its conversation was over.

Everything is decided in the order of storage, run by run, so that the observations and their order
do not depend on how reading was cut into parts.

Hashes replace the names of conversations, because millions are remembered (`text_hashes`). They
have 64 bits, and are the same in every version and on every machine. Texts are read as words of 8
bytes, which are mixed one after the other by multiplication and shifts. They do not protect against
somebody who looks for two names with the same hash. A million names take 0.1 CPU seconds, and 0.9
by md5 in SQL.

Source: the mixing steps come from Pelle Evensen's "moremur" family of finalisers, after
MurmurHash3 by Austin Appleby.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import compute

from .detector import Floats, Ints

__all__ = [
    "IDLE_NS",
    "OLDEST_NS",
    "ClosedConversations",
    "Hashes",
    "close",
    "conversation_hashes",
    "first_remembered_day",
    "joined_hashes",
    "text_hashes",
]

Hashes = npt.NDArray[np.uint64]

_WORD = 8
_SEED = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0x3C79AC492BA7B653), np.uint64(0x1C69B3F74AC4AE35)
# Masks of the first 0 to 8 bytes of a word.
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)


def text_hashes(texts: pa.Array) -> Hashes:
    """The hash of each text; null has the hash of the empty text."""
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.cast(pa.string()).buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    # A word may begin in the last bytes of the texts, and end after them.
    content = np.zeros(int(bounds[-1]) + _WORD, np.uint8)
    content[:-_WORD] = np.frombuffer(data or b"", np.uint8)[: len(content) - _WORD]
    words = np.lib.stride_tricks.sliding_window_view(content, _WORD)
    starts, sizes = bounds[:-1], np.diff(bounds)
    hashes = _mixed(sizes.astype(np.uint64) * _SEED)
    longer = np.arange(len(texts))
    for offset in range(0, int(sizes.max(initial=0)), _WORD):
        longer = longer[sizes[longer] > offset]
        word = words[starts[longer] + offset].view("<u8")[:, 0]
        word = word & _MASKS[np.minimum(sizes[longer] - offset, _WORD)]
        hashes[longer] = _mixed((hashes[longer] ^ word) + _SEED)
    return hashes


def joined_hashes(first: Hashes, second: Hashes) -> Hashes:
    """Return hashes of pairs."""
    return _mixed(_mixed(first + _SEED) ^ second)


def _mixed(values: Hashes) -> Hashes:
    values = (values ^ (values >> np.uint64(27))) * _FIRST
    values = (values ^ (values >> np.uint64(33))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(27))
    return mixed


IDLE_NS = 600 * 10**9
"""The time without runs after which a conversation is over."""
OLDEST_NS = 3600 * 10**9
"""The age when a conversation is over."""
_DAY_NS = 86_400 * 10**9
# Conversations are remembered for so many days; older runs are ignored.
_REMEMBERED_DAYS = 30
# The most open runs of a monitor; beyond it, the oldest conversations are closed early.
_MAX_OPEN = 100_000
_LATEST = 1 << 62
_OPEN_COLUMNS = (
    "group",
    "trajectory_id",
    "version",
    "value",
    "variant",
    "start_ns",
    "end_ns",
    "seq",
)

Flags = npt.NDArray[np.bool_]
Times = TypeVar("Times", int, Ints)


@dataclass(frozen=True, slots=True)
class ClosedConversations:
    """The outcome of reading a part.

    Attributes:
        observations: A table with ``group``, ``version``, ``value``, ``variants``, ``time_ns`` and
            ``trajectory_id``, of the run with the lowest value, in order.
        conversations: A table with the ``conversation`` of each, a hash, and its ``day``.
        open: The runs of open conversations.
        reached_ns: The latest time of a run.
    """

    observations: pa.Table
    conversations: pa.Table
    open: pa.Table
    reached_ns: int


def first_remembered_day(reached_ns: Times) -> Times:
    """The first day (since 1970) whose conversations are remembered at a time (ns)."""
    return reached_ns // _DAY_NS - _REMEMBERED_DAYS


def conversation_hashes(runs: pa.Table) -> Hashes:
    """The hash of the conversation of each run, in its group.

    Args:
        runs: Runs with their ``group`` as a dictionary.
    """
    group = runs["group"].combine_chunks()
    of_groups = text_hashes(group.dictionary)[group.indices.to_numpy()]
    ids, names = runs["conversation_id"], runs["trajectory_id"]
    if ids.null_count < len(ids):
        names = compute.coalesce(ids, names)
    return joined_hashes(of_groups, text_hashes(names.combine_chunks()))


def close(
    new: pa.Table,
    conversations: Hashes,
    is_over: Flags,
    before: pa.Table,
    *,
    reached_ns: int,
    now_ns: int,
    is_last: bool,
    waits: bool,
) -> ClosedConversations:
    """The observations of the conversations that are over.

    Args:
        new: The next runs in the order of storage.
        conversations: Their conversations, as `conversation_hashes`.
        is_over: Which of them belong to conversations that are observations already.
        before: The runs of open conversations.
        reached_ns: The latest time of a run before.
        now_ns: The time of the check. Later times come from a wrong clock, and count as this time.
        is_last: Whether no later runs are stored, so that the clock decides which are over.
        waits: Whether runs without a conversation may be scored again, and wait for that.
    """
    runs = _Runs.of(new, conversations, before, reached_ns, now_ns)
    is_single = np.zeros(len(new), bool) if waits else _nulls(new["conversation_id"])
    # The last rows before the position are read again.
    is_over = is_over | np.isin(_ints(new["seq"]), _ints(before["seq"]))
    singles = runs.first_of_each(runs.arrived(is_single & ~is_over))
    grouped = runs.arrived(~is_single & ~is_over)
    joined = runs.accepted(np.concatenate([np.arange(len(before)), grouped]))
    over = joined.deadlines <= (max(now_ns, runs.reached_ns) if is_last else runs.reached_ns)
    over |= joined.crowded(runs, ~over)
    closed = joined.select(over).without_replaced(runs)
    still_open = np.sort(joined.select(~over).members)
    return ClosedConversations(
        *_observations(runs, singles, closed),
        open=_open_runs(runs, still_open),
        reached_ns=runs.reached_ns,
    )


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of open conversations, then the new runs.

    Attributes:
        table: Their columns.
        conversations: Their conversations.
        values: Their values.
        starts: Their starts.
        ends: Their ends.
        open_count: How many are of open conversations.
        before: The latest time before each run came.
        after: The latest time when each new run had come.
        reached_ns: The latest time of all.
    """

    table: pa.Table
    conversations: Hashes
    values: Floats
    starts: Ints
    ends: Ints
    open_count: int
    before: Ints
    after: Ints
    reached_ns: int

    @classmethod
    def of(
        cls, new: pa.Table, conversations: Hashes, open_: pa.Table, reached_ns: int, now_ns: int
    ) -> _Runs:
        table = pa.concat_tables([open_.select(_OPEN_COLUMNS), new.select(_OPEN_COLUMNS)])
        table = table.unify_dictionaries().combine_chunks()
        hashes = np.concatenate([open_["conversation"].to_numpy().astype(np.uint64), conversations])
        ends = _ints(table["end_ns"])
        open_count = len(open_)
        reached = np.concatenate([[reached_ns], np.minimum(ends[open_count:], now_ns)])
        reached = np.maximum.accumulate(reached)
        return cls(
            table=table,
            conversations=hashes,
            values=np.asarray(table["value"].to_numpy(), np.float64),
            starts=np.minimum(_ints(table["start_ns"]), _LATEST),
            ends=ends,
            open_count=open_count,
            before=np.concatenate([np.full(open_count, -_LATEST), reached[:-1]]),
            after=reached[1:],
            reached_ns=int(reached[-1]),
        )

    def arrived(self, chosen: Flags) -> Ints:
        """The places of some new runs, without runs that are older than is remembered."""
        places = np.flatnonzero(chosen) + self.open_count
        oldest = first_remembered_day(self.before[places]) * _DAY_NS
        return places[self.ends[places] >= oldest]

    def first_of_each(self, places: Ints) -> Ints:
        """The places of the first run of each conversation."""
        numbers = self.conversations[places]
        if _begins(np.sort(numbers)).all():
            return places
        return places[np.sort(np.unique(numbers, return_index=True)[1])]

    def accepted(self, places: Ints) -> _Conversations:
        """The conversations of runs, with the runs that came before each conversation was over."""
        order = places[np.argsort(self.conversations[places], kind="stable")]
        firsts = np.flatnonzero(_begins(self.conversations[order]))
        sizes = np.diff(np.append(firsts, len(order)))
        starts, before = self.starts[order], self.before[order]
        ends = np.minimum(self.ends[order], _LATEST)
        begun, ended = starts[firsts], ends[firsts]
        deadlines = np.minimum(ended + IDLE_NS, begun + OLDEST_NS)
        run_counts = np.ones(len(firsts), np.int64)
        going = np.flatnonzero(sizes > 1)
        count = 1
        # One step for the second run of every conversation, one for the third, and so on.
        while len(going):
            going = going[before[firsts[going] + count] < deadlines[going]]
            at = firsts[going] + count
            begun[going] = np.minimum(begun[going], starts[at])
            ended[going] = np.maximum(ended[going], ends[at])
            deadlines[going] = np.minimum(ended[going] + IDLE_NS, begun[going] + OLDEST_NS)
            count += 1
            run_counts[going] = count
            going = going[sizes[going] > count]
        rank = np.arange(len(order)) - np.repeat(firsts, sizes)
        return _Conversations(order[rank < np.repeat(run_counts, sizes)], run_counts, deadlines)


@dataclass(frozen=True, slots=True)
class _Conversations:
    """Conversations with their runs.

    Attributes:
        members: The places of their runs, one conversation after the other.
        sizes: The number of runs of each.
        deadlines: When each is over (ns), if no further run comes.
    """

    members: Ints
    sizes: Ints
    deadlines: Ints

    @property
    def firsts(self) -> Ints:
        """The index of the first run of each conversation, in `members`."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def owners(self) -> Ints:
        """The index of the conversation of each run."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def select(self, chosen: Flags) -> _Conversations:
        """Some conversations."""
        is_member = np.repeat(chosen, self.sizes)
        return _Conversations(self.members[is_member], self.sizes[chosen], self.deadlines[chosen])

    def crowded(self, runs: _Runs, is_open: Flags) -> Flags:
        """Which open conversations are closed early, because too many runs are open."""
        ends = runs.ends[self.members]
        count = int(self.sizes[is_open].sum())
        if count <= _MAX_OPEN:
            return np.zeros(len(self.sizes), bool)
        newest = np.partition(ends[np.repeat(is_open, self.sizes)], count - 1 - _MAX_OPEN)
        oldest = np.minimum.reduceat(ends, self.firsts)
        is_crowded: Flags = is_open & (oldest <= newest[count - 1 - _MAX_OPEN])
        return is_crowded

    def without_replaced(self, runs: _Runs) -> _Conversations:
        """Leave out runs that have a later score, or a later revision."""
        if len(self.members) == len(self.sizes):
            return self
        names = runs.table["trajectory_id"].take(pa.array(self.members)).combine_chunks()
        hashes, owners = text_hashes(names), self.owners
        order = np.lexsort((hashes, owners))
        pairs = joined_hashes(hashes, owners.astype(np.uint64))[order]
        is_current = np.zeros(len(order), bool)
        is_current[order[np.append(pairs[1:] != pairs[:-1], True)]] = True
        sizes = np.bincount(owners[is_current], minlength=len(self.sizes))
        return _Conversations(self.members[is_current], sizes, self.deadlines)


def _observations(runs: _Runs, singles: Ints, closed: _Conversations) -> tuple[pa.Table, pa.Table]:
    """The observations in the order of their decisions, and their conversations."""
    firsts, members = closed.firsts, closed.members
    lowest = np.lexsort((runs.values[members], closed.owners))[firsts]
    newest = members[firsts + closed.sizes - 1]
    # A run ends conversations before it is an observation itself.
    ended = np.searchsorted(runs.after, closed.deadlines)
    ended = 2 * np.maximum(ended, newest - runs.open_count)
    by_end = np.lexsort((runs.conversations[newest], closed.deadlines, ended))
    order = np.argsort(
        np.concatenate([2 * (singles - runs.open_count) + 1, ended[by_end]]), kind="stable"
    )
    order = np.concatenate([np.arange(len(singles)), len(singles) + by_end])[order]

    def arranged(of_singles: npt.NDArray[Any], of_closed: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([of_singles, of_closed])[order]

    means = np.add.reduceat(runs.values[members], firsts) / closed.sizes
    ends = np.maximum.reduceat(runs.ends[members], firsts)
    times, latest = arranged(runs.ends[singles], ends), arranged(singles, newest)
    flat = pa.array(np.concatenate([singles, members]))
    offsets = np.cumsum(np.concatenate([[0], np.ones(len(singles), np.int64), closed.sizes]))
    observations = pa.table(
        {
            "group": runs.table["group"].take(pa.array(latest)),
            "version": runs.table["version"].take(pa.array(latest)),
            "value": arranged(runs.values[singles], means),
            "variants": _variants(runs, flat, offsets).take(pa.array(order)),
            "time_ns": times,
            "trajectory_id": runs.table["trajectory_id"].take(
                pa.array(arranged(singles, members[lowest]))
            ),
        }
    )
    days = np.clip(times // _DAY_NS, 0, 1_000_000).astype(np.int32)
    return observations, pa.table(
        {
            "conversation": arranged(runs.conversations[singles], runs.conversations[newest]),
            "day": days,
        }
    )


def _variants(runs: _Runs, flat: pa.Array, offsets: Ints) -> pa.Array:
    """The variants of the runs of each observation; nulls for measures without variants."""
    variants = runs.table["variant"]
    if variants.null_count == len(variants):
        return pa.nulls(len(offsets) - 1, pa.list_(pa.int64()))
    values = variants.take(flat).combine_chunks().fill_null(0)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _open_runs(runs: _Runs, places: Ints) -> pa.Table:
    table = runs.table.take(pa.array(places)).combine_chunks()
    return table.append_column("conversation", pa.array(runs.conversations[places]))


def _begins(keys: Hashes) -> Flags:
    """Which keys differ from the key before."""
    is_first = np.ones(len(keys), bool)
    is_first[1:] = keys[1:] != keys[:-1]
    return is_first


def _nulls(column: pa.ChunkedArray) -> Flags:
    is_null: Flags = column.is_null().to_numpy()
    return is_null


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), np.int64)
