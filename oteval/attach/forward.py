"""Traces on their way through: held until they are scored or a deadline passes, then sent on.

Every span goes on as the bytes it came as; the judged one has its scores as attributes after its
own. Spans of one trace keep their order. A span that was sent on and comes back, because someone
leads what oteval forwards to oteval again, goes no second round. Time in which the process was
down counts against no deadline: nothing could be scored in it.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..model import Score
from .attributes import as_fields, as_json, score_attributes
from .journal import Journal, Position, Record
from .outbox import Outbox, Parcel, part_of
from .posting import Target
from .uptime import Uptime
from .wire import Request, SpanKey, own_removed, parse

__all__ = ["Forwarder"]

_NS = 1_000_000_000
# Of so many spans it is known that they were taken; some 20 MB.
_REMEMBERED = 100_000
# So long after a start, live scoring may find the scores of what was due before it.
_START_NS = 5 * _NS


class _Seen:
    """The spans that were taken, the newest of them: two generations, the older one dropped."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()

    def has(self, key: SpanKey) -> bool:
        number = hash(key)
        return number in self._new or number in self._old

    def add(self, keys: Sequence[SpanKey]) -> None:
        self._new.update(map(hash, keys))
        if len(self._new) > _REMEMBERED:
            self._old, self._new = self._new, set()


class _Held:
    """The parts of a trace that are held, each with its deadline (ns), the oldest first."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[tuple[int, Parcel]] = []


class Forwarder:
    """Holds what comes in and sends it on.

    `take` and `sync` are called by what reads the spool, in its order and before the spool's
    position is committed; the other calls by live scoring. What was taken is on disk until the
    endpoint has it.

    Args:
        folder: Where it is held.
        target: Where it goes.
        deadline: How long a span is held for scores (s).
        quota: From how many bytes on disk on there is no room.
        clock: The time (ns).
        threaded: Whether a thread sends; otherwise `pump` does.

    Attributes:
        deadline_ns: The deadline (ns).
        looped: How many spans came back, or came twice.
    """

    def __init__(
        self,
        folder: Path,
        target: Target,
        *,
        deadline: float = 30.0,
        quota: int = 4 << 30,
        clock: Callable[[], int] = time.time_ns,
        threaded: bool = True,
        segment_size: int = 32 << 20,
    ) -> None:
        self.deadline_ns = round(deadline * _NS)
        self._quota, self._clock = quota, clock
        journal = Journal(folder, segment_size)
        begun = clock()
        self._uptime = Uptime(folder / "runs", begun)
        self._started_ns = begun + min(self.deadline_ns, _START_NS)
        self._outbox = Outbox(journal, target, self._rendered, folder, self._overdue)
        self._lock = self._outbox.lock
        self._held: dict[str, _Held] = {}
        self._due: list[tuple[int, str]] = []
        self._held_spans = 0
        self._seen = _Seen()
        self._parsed: tuple[Record | None, Request | None] = (None, None)
        self.looped = 0
        for record in journal.records():
            self._index(record, journal.read(record))
        if threaded:
            self._outbox.start()

    def has_room(self) -> bool:
        """Return whether more may be taken; otherwise leave it in the spool."""
        return self._outbox.size < self._quota

    def take(
        self,
        kind: str,
        encoding: str,
        payload: bytes,
        position: tuple[int, int],
        now: int | None = None,
    ) -> None:
        """Take a request in; one whose position was taken already is left alone.

        Args:
            kind: ``traces`` or ``logs``.
            encoding: ``protobuf`` or ``json``.
            payload: The request as it came, decompressed.
            position: Where it ends in the spool: positions grow, and none is (0, 0).
            now: When it came (ns); the clock's time by default.

        Raises:
            OSError: It cannot be written; nothing of it is kept.
        """
        with self._lock:
            journal = self._outbox.journal
            if Position(*position) <= journal.position:
                return
            payload = self._without_own(kind, encoding, payload)
            if payload:
                record = journal.append(
                    *(kind, encoding, payload, self._clock() if now is None else now),
                    position=Position(*position),
                )
                self._index(record, payload)
            else:
                journal.position = Position(*position)
        self._outbox.wake()

    def rewind(self) -> None:
        """Take what comes next whatever its position: the source was begun anew."""
        with self._lock:
            self._outbox.journal.position = Position()

    def sync(self) -> None:
        """Wait until all that was taken is on the disk."""
        self._outbox.journal.sync()

    def held(self, traces: Sequence[str]) -> list[str]:
        """Return those of some traces of which something is held."""
        with self._lock:
            return [name for name in traces if name in self._held]

    def release(self, scores: Mapping[str, Sequence[Score]], now: int) -> None:  # noqa: ARG002
        """Send traces on with their scores.

        Args:
            scores: The scores on the spans of each trace.
            now: The time (ns).
        """
        with self._lock:
            for trace_id, found in scores.items():
                held = self._held.pop(trace_id, None)
                if held is not None:
                    self._send([parcel for _, parcel in held.parts], found)

    def expiring(self, until: int, limit: int | None = None) -> list[str]:
        """Return traces of which something has its deadline before a time (ns), the first ones.

        Args:
            until: The time.
            limit: The most there may be.
        """
        with self._lock:
            self._uptime.beat(self._clock())
            found: dict[str, int] = {}
            while self._due and self._due[0][0] <= until and len(found) != limit:
                _, name = heapq.heappop(self._due)
                held = self._held.get(name)
                if held is not None and held.parts[0][0] <= until:
                    found[name] = held.parts[0][0]
            for name, due in found.items():
                heapq.heappush(self._due, (due, name))
            if not found:
                # All that was due at the start has been seen to.
                self._started_ns = 0
            return list(found)

    def expire(self, scores: Mapping[str, Sequence[Score]], until: int) -> None:
        """Send on, with the scores there are, what has its deadline before a time (ns)."""
        with self._lock:
            for trace_id, found in scores.items():
                self._expire_one(trace_id, until, found)

    def pump(self) -> bool:
        """Send one request, if there is something to send; return whether it was tried."""
        return self._outbox.pump()

    def state(self) -> dict[str, Any]:
        """Return how it stands, for people and metrics."""
        with self._lock:
            # The first that came is the oldest, or nearly so.
            first = next((h.parts[0][0] for h in self._held.values()), None)
            age = 0.0
            if first is not None:
                age = max(0, self._clock() - first + self.deadline_ns) / _NS
            return {
                "held_traces": len(self._held),
                "held_spans": self._held_spans,
                "oldest_seconds": age,
                "quota": self._quota,
                "looped": self.looped,
                **self._outbox.state(),
            }

    def close(self, grace: float = 0.0) -> None:
        """End; what is held or waits longer than `grace` (s) stays for the next start."""
        self._outbox.close(grace)
        self._uptime.close()

    def _without_own(self, kind: str, encoding: str, payload: bytes) -> bytes:
        """Return a request without what oteval emitted itself, and without spans taken before."""
        try:
            if kind == "logs":
                return own_removed(payload, encoding)
            request = parse(payload, encoding)
        except ValueError:
            # Whatever it is, it goes on as it came.
            return payload
        first: set[SpanKey] = set()
        again = []
        for key in request.keys:
            if self._seen.has(key) or key in first:
                again.append(key)
            first.add(key)
        if not again:
            return payload
        self.looped += len(again)
        known = {key for key in again if self._seen.has(key)}
        if len(known) == len(first):
            return b""
        # Twins within one request stay: they came so.
        return request.pick(lambda key: key not in known)

    def _index(self, record: Record, payload: bytes) -> None:
        """Take up the parts of a record that are not sent yet."""
        counts: dict[str, int] = {}
        try:
            if record.kind == "traces":
                request = parse(payload, record.encoding)
                self._parsed = (record, request)
                self._seen.add(request.keys)
                for key in request.keys:
                    counts[key.trace_id] = counts.get(key.trace_id, 0) + 1
        except ValueError:
            counts = {}
        parts = {name: n for name, n in counts.items() if part_of(name) not in record.done}
        # One of the future was received before the clock was set back.
        received = min(record.received_ns, self._clock())
        due = self._uptime.due(received, self.deadline_ns)
        if not counts and part_of("") not in record.done:
            record.waiting = 1
            self._outbox.put(Parcel(record))
            return
        record.waiting = len(parts)
        if not parts:
            self._outbox.journal.done(record, part_of(""), is_last=True)
        for name, count in parts.items():
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = _Held()
            held.parts.append((due, Parcel(record, name, count)))
            heapq.heappush(self._due, (due, name))
            self._held_spans += count

    def _overdue(self) -> None:
        """Send on what is past its deadline, whatever live scoring is at."""
        now = self._clock()
        with self._lock:
            self._uptime.beat(now)
            if now < self._started_ns:
                return
            for name in self.expiring(now):
                self._expire_one(name, now, ())

    def _expire_one(self, trace_id: str, until: int, scores: Sequence[Score]) -> None:
        held = self._held.get(trace_id)
        if held is None:
            return
        parcels = [parcel for due, parcel in held.parts if due <= until]
        held.parts = [part for part in held.parts if part[0] > until]
        if not held.parts:
            del self._held[trace_id]
        self._send(parcels, scores)

    def _send(self, parcels: Sequence[Parcel], scores: Sequence[Score]) -> None:
        # Ready to be appended: while an endpoint is away, many wait in memory.
        extra: dict[str, dict[str, Any]] = {}
        for parcel in parcels:
            encoding = parcel.record.encoding
            if encoding not in extra:
                extra[encoding] = _extra(scores, encoding)
            self._held_spans -= parcel.spans
            self._outbox.put(replace(parcel, extra=extra[encoding] or None))

    def _rendered(self, record: Record, payload: bytes, parcel: Parcel) -> bytes:
        if not parcel.trace_id and not parcel.spans:
            return payload
        known, request = self._parsed
        if known is not record or request is None:
            request = parse(payload, record.encoding)
            self._parsed = (record, request)
        return request.pick(lambda key: key.trace_id == parcel.trace_id, parcel.extra)


def _extra(scores: Sequence[Score], encoding: str) -> dict[str, Any]:
    """Return what the judged spans get, by span id, in the form in which it is added."""
    by_span: dict[str, list[Score]] = {}
    for score in scores:
        by_span.setdefault(score.span_id, []).append(score)
    form = as_json if encoding == "json" else as_fields
    found = {span_id: score_attributes(own) for span_id, own in by_span.items()}
    return {span_id: form(attributes) for span_id, attributes in found.items() if attributes}
