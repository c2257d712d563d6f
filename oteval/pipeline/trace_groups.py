"""Spans of a file in groups that are reconstructed together, while the file is read.

A group holds the traces that share a conversation, also through third traces. It is closed when no
span of it was read for a while. Every group leaves keys. Two groups that share one may belong
together: the rest of a trace comes later, another trace continues the messages, or two
instrumentations recorded one call. Such groups are found by `shared_groups` after all files were
read; they are then reconstructed from a store, and their scores from here are dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple

from ..identities import conversation_id
from ..model import FAILED_REQUEST, FOLLOWS_ANSWER, RETRY_WAIT_NS, LogRecord, Span, Trajectory

__all__ = [
    "GroupKey",
    "TraceGroup",
    "TraceGroups",
    "keys_of_group",
    "keys_of_run",
    "linked_groups",
    "shared_groups",
]

# The pieces of a file without a span of a group after which the group is closed, and the pieces
# that a group may extend over: a larger one takes too much memory, and is left to a store.
_QUIET, _LONGEST = 1, 16
# As for pairs of runs in a store: the longest time between a call and a tool run in another trace.
_WAIT_NS = 60 * 10**9
_ALWAYS = (-(1 << 63), (1 << 63) - 1)
_ANY, _OFFERS, _WANTS = 0, 1, 2


class GroupKey(NamedTuple):
    """A key of a group, as it is compared with those of other groups.

    Attributes:
        value: A hash.
        group: The number of the group.
        role: Groups with a key only belong together if one of them has the role 0, or one has 1 and
            another 2.
        first: The begin (ns) of the time in which the key counts.
        last: The end of that time.
    """

    value: int
    group: int
    role: int
    first: int
    last: int


KEY_FORMAT: Final = Struct("<QQBqq")


class TraceGroup:
    """Traces that share a conversation, and their spans.

    Attributes:
        names: The ids of the traces, and of the conversations.
        spans: The spans; empty if the group is left to a store.
        first: The first piece of the file that has a span of the group.
        last: The last such piece.
        is_left: Whether it is left to a store, for instance because a span was read twice.
    """

    __slots__ = ("_ids", "first", "is_left", "last", "names", "spans")

    def __init__(self, piece: int) -> None:
        self.names: dict[tuple[str, str], None] = {}
        self.spans: list[Span] = []
        self._ids: set[tuple[str, str]] = set()
        self.first = self.last = piece
        self.is_left = False

    @property
    def traces(self) -> list[str]:
        """The ids of the traces."""
        return [name for kind, name in self.names if kind == "trace"]

    def add(self, span: Span, piece: int) -> None:
        """Add a span."""
        self.last = piece
        if self.is_left:
            return
        key = (span.trace_id, span.span_id)
        if key in self._ids or piece - self.first >= _LONGEST:
            self.leave()
            return
        self._ids.add(key)
        self.spans.append(span)

    def leave(self) -> None:
        """Leave the group to a store."""
        self.is_left = True
        self.spans, self._ids = [], set()

    def merge(self, other: TraceGroup) -> None:
        """Add the traces of another group."""
        self.names.update(other.names)
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        if self.is_left or other.is_left:
            self.leave()
        else:
            self.spans += other.spans
            self._ids |= other._ids


class TraceGroups:
    """The groups of a file that are not closed."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], TraceGroup] = {}

    def add(self, spans: Sequence[Span], logs: Sequence[LogRecord], piece: int) -> None:
        """Add the content of a piece of the file.

        Args:
            spans: The spans.
            logs: The log records. Groups with records are left to a store.
            piece: The number of the piece.
        """
        for span in spans:
            group = self._of(("trace", span.trace_id), piece)
            name = conversation_id(span.attributes)
            if name:
                group = self._joined(group, ("conversation", name))
            group.add(span, piece)
        for record in logs:
            group = self._of(("trace", record.trace_id), piece)
            group.last = piece
            group.leave()

    def _of(self, name: tuple[str, str], piece: int) -> TraceGroup:
        group = self._open.get(name)
        if group is None:
            group = self._open[name] = TraceGroup(piece)
            group.names[name] = None
        return group

    def _joined(self, group: TraceGroup, name: tuple[str, str]) -> TraceGroup:
        """Return the group of a trace after it was joined with that of its conversation."""
        other = self._open.setdefault(name, group)
        group.names[name] = None
        if other is group:
            return group
        if len(other.names) < len(group.names):
            group, other = other, group
        other.merge(group)
        self._open.update(dict.fromkeys(group.names, other))
        return other

    def closed(self, piece: int | None = None) -> Iterator[TraceGroup]:
        """Remove and yield the groups that are complete after a piece, by default all of them."""
        groups = {id(group): group for group in self._open.values()}
        for group in groups.values():
            if piece is None or group.last + _QUIET < piece:
                for name in group.names:
                    del self._open[name]
                yield group


def keys_of_group(group: TraceGroup, number: int) -> Iterator[GroupKey]:
    """Yield the keys of the names of a group."""
    for kind, name in group.names:
        yield GroupKey(_hashed(kind, name), number, _ANY, *_ALWAYS)


def keys_of_run(run: Trajectory, number: int) -> Iterator[GroupKey]:
    """Yield the keys that a run of a group shares with runs that may belong to it."""
    if not run.conversation_id:
        for role, text in ((_OFFERS, run.chain), (_WANTS, run.follows)):
            if text:
                value = _hashed("messages", run.service, text)
                yield GroupKey(value, number, role, *_times_of(run, text))
    if run.follows.startswith(FOLLOWS_ANSWER):
        key = int(run.follows.removeprefix(FOLLOWS_ANSWER))
        yield GroupKey(key & (1 << 64) - 1, number, _WANTS, *_ALWAYS)
    role = _OFFERS if run.agent else _ANY
    first, last = run.start_ns - _WAIT_NS, run.end_ns + _WAIT_NS
    for key in run.call_keys:
        yield GroupKey(key & (1 << 64) - 1, number, role, first, last)


def _times_of(run: Trajectory, text: str) -> tuple[int, int]:
    """Return the begin and end of the time in which a run may follow another, or be followed."""
    if not text.startswith(FAILED_REQUEST):
        return _ALWAYS
    is_offer = text == run.chain
    return run.start_ns, run.end_ns + RETRY_WAIT_NS if is_offer else run.start_ns


def _hashed(*texts: str) -> int:
    data = "\0".join(texts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def shared_groups(keys: Callable[[], Iterable[GroupKey]], passes: int) -> set[int]:
    """Return the groups that may belong together with others.

    Args:
        keys: Returns the keys of all groups.
        passes: How often the keys are read. Each time, only the keys of one pass are kept.
    """
    found: set[int] = set()
    for turn in range(passes):
        once: dict[int, GroupKey] = {}
        several: dict[int, list[GroupKey]] = {}
        for key in keys():
            if key[0] % passes == turn:
                known = once.setdefault(key[0], key)
                if known is not key:
                    several.setdefault(key[0], [known]).append(key)
        for same in several.values():
            found.update(*linked_groups(same))
    return found


def linked_groups(keys: Iterable[GroupKey]) -> Iterator[set[int]]:
    """Yield sets of groups whose times overlap, if their roles go together.

    Args:
        keys: Keys with equal values.
    """
    begun: list[GroupKey] = []
    end = 0
    for key in sorted(keys, key=lambda key: key.first):
        if begun and key.first > end:
            yield _matched(begun)
            begun = []
        end = max(end, key.last) if begun else key.last
        begun.append(key)
    yield _matched(begun)


def _matched(keys: Sequence[GroupKey]) -> set[int]:
    groups, roles = {key.group for key in keys}, {key.role for key in keys}
    return groups if len(groups) > 1 and (_ANY in roles or len(roles) > 1) else set()
