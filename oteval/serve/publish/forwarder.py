"""The forwarder: keeps traces until they are scored or a deadline passes, then sends them on.

Spans are sent as they came, in their order within a trace. Scores are appended to the attributes
of the spans they belong to. If an endpoint sends a forwarded span back to oteval, it is not
forwarded again. Deadlines count only the time when a server runs, since nothing can be scored while
it is down.
"""

from __future__ import annotations

import heapq
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...base.clients.otlp_client import OtlpClient
from ...base.durable_log import Encoding, Kind, Position
from ...base.files import write_private
from ...model import Score
from ...scoring import as_fields, as_json, score_attributes
from .export_queue import ExportQueue, QueueEntry, part_id
from .request_log import QueuedRequest, RequestLog
from .trace_requests import SpanKey, TraceRequest, parse_traces, without_own_events

__all__ = [
    "Forwarder",
    "Uptime",
]

_NS = 1_000_000_000

_RUN = struct.Struct("<QQ")  # start, end
# Deadlines span few restarts. Without the older runs, they only pass a little earlier.
_MAX_RUNS = 100
_BEAT_NS = 250_000_000


class Uptime:
    """The runs of a server, in a file whose last entry `beat` extends.

    Args:
        path: The file; created if it is missing.
        now: The time (ns).
    """

    def __init__(self, path: Path, now: int) -> None:
        earlier = _read_runs(path)[-_MAX_RUNS:]
        self._downtimes = _gaps([*earlier, (now, now)])
        self._begun, self._last_beat = now, now
        self._at = len(earlier) * _RUN.size
        self._file = -1
        # If the disk is full, deadlines after the next restart are off by this run.
        with suppress(OSError):
            self._file = _write_runs(path, [*earlier, (now, now)])

    def beat(self, now: int) -> None:
        """Note that the server runs. Call it often: the time after the last call is downtime."""
        if now - self._last_beat >= _BEAT_NS:
            self._last_beat = now
            with suppress(OSError):
                os.pwrite(self._file, _RUN.pack(self._begun, now), self._at)

    def due(self, since: int, wait: int) -> int:
        """When the server will have run for `wait` ns since a time, if it keeps running.

        Args:
            since: The time (ns).
            wait: The running time to wait for (ns).
        """
        until = since + wait
        if not self._downtimes or since >= self._downtimes[-1][1]:
            return until
        for begin, end in self._downtimes:
            if begin < until and end > since:
                until += end - max(begin, since)
        return until

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _read_runs(path: Path) -> list[tuple[int, int]]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    complete = len(data) // _RUN.size * _RUN.size
    return [(begin, end) for begin, end in _RUN.iter_unpack(data[:complete]) if 0 < begin <= end]


def _write_runs(path: Path, runs: list[tuple[int, int]]) -> int:
    """Replace the file of runs, and return its descriptor."""
    partial = path.with_suffix(".new")
    write_private(partial, b"".join(_RUN.pack(*run) for run in runs))
    partial.replace(path)
    return os.open(path, os.O_WRONLY)


def _gaps(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The times between runs, except where the clock was set back."""
    pairs = pairwise(runs)
    return [(end, begin) for (_, end), (begin, _) in pairs if begin > end]


# Spans remembered as forwarded, in each of two generations; some 20 MB together.
_REMEMBERED_SPANS = 100_000
# After a start, live scoring has this long to attach the scores of traces that were due before.
_START_NS = 5 * _NS


class _ForwardedSpans:
    """The spans taken last: when the newer of two generations is full, the older is dropped."""

    def __init__(self) -> None:
        self._new: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, key: SpanKey) -> bool:
        number = hash(key)
        return number in self._new or number in self._old

    def add(self, keys: Sequence[SpanKey]) -> None:
        self._new.update(map(hash, keys))
        if len(self._new) > _REMEMBERED_SPANS:
            self._old, self._new = self._new, set()


class Forwarder:
    """Keeps requests and forwards them trace by trace.

    The reader of the spool calls `take` in the spool's order, and `sync` before it commits the
    spool's position; live scoring calls the other methods. A request stays on disk until the
    endpoint has accepted all of it.

    Args:
        folder: The folder of the queue.
        client: The endpoint.
        deadline: Seconds that a span waits for its scores.
        quota: Bytes on disk; from this number on, `has_room` is false.
        clock: The time (ns).
        threaded: Whether a thread sends; without it, the caller calls `pump`.
        segment_bytes: Bytes of a segment of the queue, at most an eighth of the quota.

    Attributes:
        deadline_ns: The deadline (ns).
        looped: The number of spans that came back or came twice.

    Raises:
        OSError: The queue cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        client: OtlpClient,
        *,
        deadline: float = 30.0,
        quota: int = 4 << 30,
        clock: Callable[[], int] = time.time_ns,
        threaded: bool = True,
        segment_bytes: int = 32 << 20,
    ) -> None:
        self.deadline_ns = round(deadline * _NS)
        self._quota, self._clock = quota, clock
        # The newest segment counts until the next one begins, even if all of it was sent.
        log = RequestLog(folder, min(segment_bytes, quota // 8))
        begun = clock()
        self._uptime = Uptime(folder / "runs", begun)
        self._started_ns = begun + min(self.deadline_ns, _START_NS)
        self._queue = ExportQueue(
            log,
            client,
            folder,
            build_body=self._entry_body,
            before_send=self._release_overdue,
        )
        self._lock = self._queue.lock
        # The waiting parts of each trace with their deadlines (ns), the oldest first.
        self._held: dict[str, list[tuple[int, QueueEntry]]] = {}
        self._deadlines: list[tuple[int, str]] = []
        self._held_spans = 0
        self._forwarded = _ForwardedSpans()
        # The request parsed last: a request of many traces is parsed once.
        self._parsed: tuple[QueuedRequest | None, TraceRequest | None] = (None, None)
        self.looped = 0
        for request in log.requests():
            self._hold(request, _parsed(request.kind, request.encoding, log.read(request)))
        if threaded:
            self._queue.start()

    def has_room(self) -> bool:
        """Whether more may be taken; if not, requests stay in the spool."""
        return self._queue.size < self._quota

    def take(
        self,
        kind: Kind,
        encoding: Encoding,
        payload: bytes,
        position: tuple[int, int],
        now: int | None = None,
    ) -> None:
        """Take a request, unless a request at its position or later was taken before.

        Args:
            kind: The signal, ``traces`` or ``logs``.
            encoding: ``protobuf`` or ``json``.
            payload: The request body, decompressed.
            position: Where the request ends in the spool. Positions grow; none is (0, 0).
            now: When the request arrived (ns); the clock's time by default.

        Raises:
            OSError: The request cannot be written; nothing of it is kept.
        """
        with self._lock:
            log = self._queue.log
            if Position(*position) <= log.position:
                return
            parsed = _parsed(kind, encoding, payload)
            foreign_payload = self._without_forwarded(kind, encoding, payload, parsed)
            if foreign_payload:
                received = self._clock() if now is None else now
                request = log.append(
                    kind, encoding, foreign_payload, received, position=Position(*position)
                )
                self._hold(
                    request,
                    parsed
                    if foreign_payload is payload
                    else _parsed(kind, encoding, foreign_payload),
                )
            else:
                log.position = Position(*position)
        self._queue.wake()

    def reset_position(self) -> None:
        """Take the next requests whatever their positions: the spool was begun anew."""
        with self._lock:
            self._queue.log.position = Position()

    def sync(self) -> None:
        """Wait until everything taken is durable.

        Raises:
            OSError: The disk failed, or the queue's files were moved away.
        """
        self._queue.sync()

    def held(self, traces: Sequence[str]) -> list[str]:
        """The traces that have a part waiting."""
        with self._lock:
            return [name for name in traces if name in self._held]

    def release(self, scores: Mapping[str, Sequence[Score]]) -> None:
        """Send traces with their scores by trace."""
        with self._lock:
            for trace_id, trace_scores in scores.items():
                parts = self._held.pop(trace_id, None)
                if parts is not None:
                    self._enqueue([entry for _, entry in parts], trace_scores)

    def expiring(self, until: int, limit: int | None = None) -> list[str]:
        """The traces with a part whose deadline is before a time, earliest first.

        Args:
            until: The time (ns).
            limit: The number of traces to return at most.
        """
        with self._lock:
            self._uptime.beat(self._clock())
            due_by_trace: dict[str, int] = {}
            while self._deadlines and self._deadlines[0][0] <= until and len(due_by_trace) != limit:
                _, name = heapq.heappop(self._deadlines)
                parts = self._held.get(name)
                if parts is not None and parts[0][0] <= until:
                    due_by_trace[name] = parts[0][0]
            for name, due in due_by_trace.items():
                heapq.heappush(self._deadlines, (due, name))
            if not due_by_trace:
                # Live scoring has released everything that was due at the start.
                self._started_ns = 0
            return list(due_by_trace)

    def expire(self, scores: Mapping[str, Sequence[Score]], until: int) -> None:
        """Send the parts of traces whose deadline is before a time, with the scores so far.

        Args:
            scores: The scores of each trace to send.
            until: The time (ns).
        """
        with self._lock:
            for trace_id, trace_scores in scores.items():
                self._release_due(trace_id, until, trace_scores)

    def pump(self) -> bool:
        """Send one batch if entries wait; return whether an attempt was made."""
        return self._queue.pump()

    def state(self) -> dict[str, Any]:
        """The state for people and metrics."""
        with self._lock:
            # The trace that has waited longest is the oldest, or nearly so.
            first = next((parts[0][0] for parts in self._held.values()), None)
            age = 0.0
            if first is not None:
                age = max(0, self._clock() - first + self.deadline_ns) / _NS
            return {
                "held_traces": len(self._held),
                "held_spans": self._held_spans,
                "oldest_seconds": age,
                "quota": self._quota,
                "looped": self.looped,
                **self._queue.state(),
            }

    def close(self, grace: float = 0.0) -> None:
        """Stop forwarding.

        Args:
            grace: Seconds for sending released traces; everything else stays on disk.
        """
        self._queue.close(grace)
        self._uptime.close()

    def _without_forwarded(
        self, kind: Kind, encoding: Encoding, payload: bytes, parsed: TraceRequest | None
    ) -> bytes:
        """A request without oteval's events and without spans taken before."""
        if kind == "logs":
            try:
                return without_own_events(payload, encoding)
            except ValueError:
                return payload
        if parsed is None:
            return payload
        first: set[SpanKey] = set()
        repeated = []
        for key in parsed.keys:
            if key in self._forwarded or key in first:
                repeated.append(key)
            first.add(key)
        if not repeated:
            return payload
        self.looped += len(repeated)
        forwarded_keys = {key for key in repeated if key in self._forwarded}
        if len(forwarded_keys) == len(first):
            return b""
        # Duplicates within one request were sent like this, and stay.
        return parsed.without(forwarded_keys) if forwarded_keys else payload

    def _hold(self, request: QueuedRequest, parsed: TraceRequest | None) -> None:
        """Keep the parts of a request that are not sent yet; logs are queued at once."""
        counts: dict[str, int] = {}
        if parsed is not None:
            self._parsed = (request, parsed)
            self._forwarded.add(parsed.keys)
            for key in parsed.keys:
                counts[key.trace_id] = counts.get(key.trace_id, 0) + 1
        parts = {name: n for name, n in counts.items() if part_id(name) not in request.sent_parts}
        # If the clock was set back, the request may seem to come from the future.
        received = min(request.received_ns, self._clock())
        due = self._uptime.due(received, self.deadline_ns)
        if not counts and part_id("") not in request.sent_parts:
            request.unsent = 1
            self._queue.put(QueueEntry(request))
            return
        request.unsent = len(parts)
        if not parts:
            self._queue.log.mark_sent(request, part_id(""), is_last=True)
        for name, count in parts.items():
            self._held.setdefault(name, []).append((due, QueueEntry(request, name, count)))
            heapq.heappush(self._deadlines, (due, name))
            self._held_spans += count

    def _release_overdue(self) -> None:
        """Send the traces past their deadline, whatever the state of live scoring."""
        now = self._clock()
        with self._lock:
            self._uptime.beat(now)
            if now < self._started_ns:
                return
            for name in self.expiring(now):
                self._release_due(name, now, ())

    def _release_due(self, trace_id: str, until: int, scores: Sequence[Score]) -> None:
        parts = self._held.get(trace_id)
        if parts is None:
            return
        entries = [entry for due, entry in parts if due <= until]
        self._held[trace_id] = [part for part in parts if part[0] > until]
        if not self._held[trace_id]:
            del self._held[trace_id]
        self._enqueue(entries, scores)

    def _enqueue(self, entries: Sequence[QueueEntry], scores: Sequence[Score]) -> None:
        # The attributes wait in their encoded form, which takes the least memory.
        extra: dict[str, dict[str, Any]] = {}
        for entry in entries:
            encoding = entry.request.encoding
            if encoding not in extra:
                extra[encoding] = _attributes(scores, encoding)
            self._held_spans -= entry.spans
            self._queue.put(replace(entry, extra=extra[encoding] or None))

    def _entry_body(self, request: QueuedRequest, body: bytes, entry: QueueEntry) -> bytes:
        if not entry.trace_id and not entry.spans:
            return body
        parsed_request, parsed = self._parsed
        if parsed_request is not request or parsed is None:
            parsed = parse_traces(body, request.encoding)
            self._parsed = (request, parsed)
        return parsed.of_trace(entry.trace_id, entry.extra)


def _parsed(kind: Kind, encoding: Encoding, payload: bytes) -> TraceRequest | None:
    """Parse a request for traces; None for logs, and for a body that is forwarded as it came."""
    if kind != "traces":
        return None
    try:
        return parse_traces(payload, encoding)
    except ValueError:
        return None


def _attributes(scores: Sequence[Score], encoding: str) -> dict[str, Any]:
    """The attributes that scores add to spans, by span id, encoded."""
    by_span: dict[str, list[Score]] = {}
    for score in scores:
        by_span.setdefault(score.span_id, []).append(score)
    encode = as_json if encoding == "json" else as_fields
    attributes_by_span = {span_id: score_attributes(own) for span_id, own in by_span.items()}
    return {
        span_id: encode(attributes)
        for span_id, attributes in attributes_by_span.items()
        if attributes
    }
