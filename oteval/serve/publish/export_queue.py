"""The durable queue of requests to one endpoint: sent in order, retried until accepted.

The queue survives restarts. A request that the endpoint refuses for good is counted, and stored in
a folder next to the queue, so that it does not block the requests after it. The same happens to a
request that gets status 500 for a minute, once the endpoint is seen to accept the next request.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from ...base.clients.otlp_client import ExportResult, OtlpClient
from ...base.durable_log import SegmentMoved
from .request_log import REFUSED_FOLDER, QueuedRequest, RefusedRequests, RequestLog

__all__ = ["ExportQueue", "QueueEntry", "part_id"]

_log = logging.getLogger(__name__)
# Entries and bytes of one request to the endpoint at most.
_MAX_BATCH = 512
_MAX_BATCH_BYTES = 4 << 20
# Seconds between two attempts; the wait doubles from the first to the longest.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
_IDLE_SECONDS = 0.05
# Seconds of status 500 after which the request itself may be the cause.
_SUSPECT_SECONDS = 60.0

BuildBody = Callable[[QueuedRequest, bytes, "QueueEntry"], bytes]


def part_id(trace_id: str) -> bytes:
    """The 16 bytes that represent a trace in the list of sent parts."""
    try:
        raw = bytes.fromhex(trace_id)
    except ValueError:
        raw = b""
    return raw if len(raw) == 16 else blake2b(trace_id.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """A part of a request that is to be sent.

    Attributes:
        request: The request.
        trace_id: The trace whose spans are sent; "" for the whole request.
        spans: The number of its spans.
        extra: Attributes to add to spans, by span id, ready to be appended.
    """

    request: QueuedRequest
    trace_id: str = ""
    spans: int = 0
    extra: Any = None


class ExportQueue:
    """Sends queue entries in order.

    Args:
        log: The requests of the entries.
        client: The endpoint.
        build_body: Builds the body to send from a request, its body and an entry; by default the
            whole body is sent.
        folder: The queue's folder; refused requests are kept in a folder below it.
        before_send: Called by the sending thread before each attempt.

    Attributes:
        lock: Guards `log` and the queue.
        sent: The number of spans or log records that the endpoint accepted.
        rejected: The number of spans or log records left out of requests that it accepted.
        failures: The number of failed attempts by status.
        refused: The number of requests that were refused for good.
        error: Why the last attempt failed; "" if it succeeded.
    """

    def __init__(
        self,
        log: RequestLog,
        client: OtlpClient,
        folder: Path,
        *,
        build_body: BuildBody | None = None,
        before_send: Callable[[], None] | None = None,
    ) -> None:
        self.log = log
        self._client, self._build_body, self._before_send = client, build_body, before_send
        self._refused = RefusedRequests(folder / REFUSED_FOLDER)
        self.lock = threading.RLock()
        self._entries: deque[QueueEntry] = deque()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        # The request read last: a request of many traces is read once.
        self._last: tuple[QueuedRequest | None, bytes] = (None, b"")
        self._wait_until = 0.0
        self._wait = _FIRST_WAIT
        self._max_batch = _MAX_BATCH
        self.sent = 0
        self.rejected = 0
        self.failures: dict[str, int] = {}
        self.refused = 0
        self.error = ""
        self._failing_since = 0.0

    def __len__(self) -> int:
        """The number of waiting entries."""
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes on disk, including refused requests."""
        return self.log.size + self._refused.kept()[1]

    def state(self) -> dict[str, Any]:
        """The state for people, /readyz and metrics."""
        return {
            "waiting_requests": len(self._entries),
            "bytes": self.size,
            "sent": self.sent,
            "rejected": self.rejected,
            "failures": dict(self.failures),
            "refused": self.refused,
            "refused_kept": self._refused.kept()[0],
            "error": self.error or None,
            "failing_seconds": self._failing_seconds(),
        }

    def put(self, entry: QueueEntry) -> None:
        """Add an entry at the end."""
        with self.lock:
            self._entries.append(entry)
        self._wake.set()

    def put_stored(self) -> None:
        """Add the requests of the log, each as one entry."""
        for request in self.log.requests():
            request.unsent = 1
            self.put(QueueEntry(request))

    def sync(self) -> None:
        """Wait until all requests of the log are durable.

        Raises:
            OSError: The disk failed, or the log's files were moved away.
        """
        try:
            self.log.sync()
        except SegmentMoved:
            with self.lock:
                self.log.restore()
            _log.error("the deleted files of the queue to %s were restored", self._client.url)

    def start(self) -> None:
        """Start the sending thread."""
        self._thread = threading.Thread(target=self._run, name="oteval-export", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the sending thread."""
        self._wake.set()

    def pump(self) -> bool:
        """Send one batch, if entries wait and no wait between attempts is under way.

        Returns:
            Whether an attempt was made.
        """
        if self._before_send is not None:
            self._before_send()
        if time.monotonic() < self._wait_until:
            return False
        batch = self._batch()
        if not batch:
            return False
        self._send(batch)
        return True

    def close(self, grace: float = 0.0) -> None:
        """Stop sending, and close the log and the client.

        Args:
            grace: Seconds for sending waiting entries; the others stay on disk.
        """
        until = time.monotonic() + grace
        while self._entries and self.error == "" and time.monotonic() < until:
            if self._thread is None:
                self.pump()
            else:
                time.sleep(_IDLE_SECONDS)
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=30.0)
        self._client.close()
        with self.lock:
            self.log.close()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                has_tried = self.pump()
            except Exception:
                # The thread must survive: without it, nothing would be sent any more.
                _log.exception("%s: sending failed", self._client.url)
                self._back_off(0.0)
                has_tried = False
            if not has_tried:
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()

    def _batch(self, begin: int = 0) -> list[QueueEntry]:
        """The entries from an index on that fit into one request."""
        with self.lock:
            batch: list[QueueEntry] = []
            size = 0
            for entry in islice(self._entries, begin, begin + self._max_batch):
                first = batch[0].request if batch else entry.request
                if (entry.request.kind, entry.request.encoding) != (first.kind, first.encoding):
                    break
                # Only protobuf requests can be merged by concatenation.
                if batch and (first.encoding == "json" or size > _MAX_BATCH_BYTES):
                    break
                batch.append(entry)
                size += entry.request.size
            return batch

    def _send(self, batch: Sequence[QueueEntry]) -> None:
        result = self._export(batch)
        if result.is_accepted:
            self._count_sent(batch, result)
            self._note_success()
            self._remove(batch)
        elif result.is_refused and len(batch) > 1:
            # Find the entry that is refused, so that the others arrive.
            self._send(batch[: len(batch) // 2])
            if self.error == "":
                self._send(batch[len(batch) // 2 :])
        elif result.is_refused:
            self._give_up(batch, result)
            self._remove(batch)
        elif result.is_internal_error and self._is_suspicious():
            self._bisect(batch, result)
        else:
            self._note_failure(result)

    def _is_suspicious(self) -> bool:
        """Whether a request may be the cause of the endpoint's internal errors."""
        return self._failing_seconds() > _SUSPECT_SECONDS or self._max_batch < _MAX_BATCH

    def _bisect(self, batch: Sequence[QueueEntry], result: ExportResult) -> None:
        """Look for an entry that breaks the endpoint: halve the batch with each attempt.

        A single entry is given up only if the endpoint accepts the entries after it.
        """
        self._max_batch = max(1, len(batch) // 2)
        following = self._batch(1) if len(batch) == 1 else []
        next_result = self._export(following) if following else result
        if not next_result.is_accepted:
            self._note_failure(result)
            return
        self._give_up(batch, result)
        self._count_sent(following, next_result)
        self._remove([*batch, *following])

    def _export(self, batch: Sequence[QueueEntry]) -> ExportResult:
        request = batch[0].request
        return self._client.export(request.kind, self._body(batch), request.encoding)

    def _body(self, batch: Sequence[QueueEntry]) -> bytes:
        return b"".join(self._entry_body(entry) for entry in batch)

    def _entry_body(self, entry: QueueEntry) -> bytes:
        request, body = self._last
        if request is not entry.request:
            with self.lock:
                body = self.log.read(entry.request)
            self._last = (entry.request, body)
        return self._build_body(entry.request, body, entry) if self._build_body else body

    def _count_sent(self, batch: Sequence[QueueEntry], result: ExportResult) -> None:
        spans = sum(entry.spans for entry in batch)
        rejected, reason = result.rejected(batch[0].request.kind)
        self.sent += max(0, spans - rejected)
        if rejected:
            if not self.rejected:
                _log.warning("%s: rejected %d: %s", self._client.url, rejected, reason)
            self.rejected += rejected

    def _give_up(self, batch: Sequence[QueueEntry], result: ExportResult) -> None:
        """Move a refused request to the folder of refused requests."""
        self._note_success()
        self._count_failure(result)
        request = batch[0].request
        path = self._refused.keep(request.kind, request.encoding, self._body(batch))
        self.refused += 1
        _log.error(
            "%s: refused %s (%s %s); the request is kept in %s",
            *(self._client.url, request.kind, result.status, result.reason, path),
        )

    def _note_failure(self, result: ExportResult) -> None:
        self._count_failure(result)
        self._failing_since = self._failing_since or time.monotonic()
        self.error = f"{result.status or 'no answer'}: {result.reason}"
        self._back_off(result.retry_after)

    def _note_success(self) -> None:
        if self._failing_since:
            _log.info("%s: it answers again", self._client.url)
        if self.error == "":
            # After the second success in a row, no entry is suspected, or it is further on.
            self._max_batch = min(2 * self._max_batch, _MAX_BATCH)
        self.error, self._wait, self._failing_since = "", _FIRST_WAIT, 0.0

    def _failing_seconds(self) -> float:
        return time.monotonic() - self._failing_since if self._failing_since else 0.0

    def _count_failure(self, result: ExportResult) -> None:
        key = str(result.status or "unreachable")
        self.failures[key] = self.failures.get(key, 0) + 1
        if not self.error:
            _log.warning("%s: %s %s", self._client.url, key, result.reason)

    def _back_off(self, retry_after: float) -> None:
        jitter = random.uniform(0.8, 1.2)  # noqa: S311  not a secret
        self._wait_until = time.monotonic() + max(retry_after, self._wait * jitter)
        self._wait = min(self._wait * 2, _LONGEST_WAIT)

    def _remove(self, batch: Sequence[QueueEntry]) -> None:
        with self.lock:
            for entry in batch:
                self._entries.popleft()
                entry.request.unsent -= 1
                is_last = not entry.request.unsent
                self.log.mark_sent(entry.request, part_id(entry.trace_id), is_last=is_last)
