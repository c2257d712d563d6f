"""Write scores to a trace backend as they are stored.

The scoring thread calls `ScorePush.feed`, which reads the scores after the last score that it took
and appends them to a durable queue, together with their position. So a server that is killed
continues after the last score that was appended, and a full queue leaves the scores in the store. A
thread sends the requests of the queue, in order.

A backend may get a span later than oteval, for instance through `forward`. A score whose span it
does not have is tried again, for a while, without delaying the others.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from ..base.clients.otlp_client import ExportResult
from ..base.durable_log import Position
from ..base.errors import BackendError
from ..base.jsontext import dumps, loads
from ..scoring import Annotation, AnnotationTarget, PushReport, annotation_of, withdrawal_of
from ..store import Store
from .publish.export_queue import ExportQueue, QueueEntry
from .publish.request_log import RequestLog

__all__ = ["AnnotationClient", "ScorePush"]

_log = logging.getLogger(__name__)
_NS = 1_000_000_000
_SEGMENT_BYTES = 32 << 20
# Scores that are read at once, and pages of them for each call of `feed`.
_PAGE, _PAGES = 500, 10
# Scores of one request.
_REQUEST = 100
# The wait before a score without its span is tried again. Each later wait equals the time that it
# has waited so far.
_FIRST_PAUSE_NS = 2 * _NS
_LONGEST_PAUSE_NS = 120 * _NS
_FAILED = 500


def _encoded(annotations: Sequence[Annotation], since_ns: int) -> bytes:
    request = {
        "since_ns": since_ns,
        "annotations": [asdict(annotation) for annotation in annotations],
    }
    return dumps(request).encode()


class AnnotationClient:
    """A backend as the client of an `ExportQueue` whose requests are annotations.

    Args:
        target: The backend.
        on_missing: Called with annotations whose span the backend does not have, and the time (ns)
            when the first of them was stored; without it they are only counted.

    Attributes:
        url: The backend's URL without a password.
        report: The counts of annotations that were written, or not.
        refused: The number of annotations that the backend will never take.
    """

    def __init__(
        self,
        target: AnnotationTarget,
        on_missing: Callable[[Sequence[Annotation], int], None] | None = None,
    ) -> None:
        self.url, self.report, self.refused = target.url, PushReport(), 0
        self._target, self._on_missing = target, on_missing

    def export(self, signal: str, body: bytes, encoding: str = "protobuf") -> ExportResult:
        """Write the annotations of a request; see `OtlpClient`."""
        del signal
        request = loads(body)
        annotations = [Annotation(**fields) for fields in request["annotations"]]
        try:
            missing = self._write(annotations)
        except BackendError as error:
            return ExportResult(error.status, str(error), error.retry_after)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            return ExportResult(_FAILED, f"its answer cannot be read ({error!r})")
        if missing and self._on_missing is not None:
            try:
                self._on_missing(missing, request["since_ns"])
            except OSError as error:
                return ExportResult(0, f"the queue cannot be written ({error})")
        return ExportResult(200, encoding=encoding)

    def close(self) -> None:
        """Close the connection."""
        self._target.close()

    def _write(self, annotations: Sequence[Annotation]) -> Sequence[Annotation]:
        """Write annotations, except for annotations that the backend will never take."""
        if not annotations:
            return ()
        try:
            return self._target.write(annotations, self.report)
        except BackendError as error:
            if not ExportResult(error.status).is_refused:
                raise
            if len(annotations) == 1:
                self.refused += 1
                annotation = annotations[0]
                _log.error(
                    "the score of %s on span %s: %s", annotation.name, annotation.span_id, error
                )
                return ()
        half = len(annotations) // 2
        return [*self._write(annotations[:half]), *self._write(annotations[half:])]


class ScorePush:
    """Writes the scores of a store to one backend.

    Args:
        folder: The folder of the queue.
        target: The backend.
        name: Its name, for people and metrics.
        evaluators: Only scores by these evaluators; by all when empty.
        wait: Seconds that a score waits for its span.
        quota: Bytes on disk; from this number on, `feed` takes no more.
        clock: The time (ns).
        threaded: Whether a thread sends; without it, the caller calls `pump`.

    Raises:
        OSError: The queue cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        target: AnnotationTarget,
        *,
        name: str,
        evaluators: Sequence[str] = (),
        wait: float = 600.0,
        quota: int = 1 << 30,
        clock: Callable[[], int] = time.time_ns,
        threaded: bool = True,
    ) -> None:
        self.name = name
        self._evaluators, self._quota, self._clock = frozenset(evaluators), quota, clock
        self._wait_ns = round(wait * _NS)
        self._client = AnnotationClient(target, self._put_off)
        # The newest segment counts until the next one begins, even if all of it was sent.
        log = RequestLog(folder, min(_SEGMENT_BYTES, quota // 8))
        self._queue = ExportQueue(log, self._client, folder, before_send=self._release_due)
        # Scores that wait for their spans: when they are due, a number, the entry.
        self._put_off_entries: list[tuple[int, int, QueueEntry]] = []
        self._numbers = count()
        self._given_up = 0
        self._read_to: int | None = log.position.offset if log.position.segment else None
        self._queue.put_stored()
        if threaded:
            self._queue.start()

    def feed(self, store: Store) -> None:
        """Take the scores that were stored since the last call, as far as there is room.

        A new queue begins after the present scores, which `oteval push` writes.

        Raises:
            OSError: The queue cannot be written.
        """
        last = store.scores.last_number()
        if self._read_to is None or last < self._read_to:
            # The queue is new, or the database is another one: the epoch in the position grows.
            with self._queue.lock:
                self._append((), last, epoch=self._queue.log.position.segment + 1)
            self._read_to = last
        for _ in range(_PAGES):
            if self._read_to >= last or self._queue.size >= self._quota:
                return
            scores, number = store.scores.after(self._read_to, _PAGE)
            annotations = [
                annotation_of(score) if score.status == "ok" else withdrawal_of(score)
                for score in scores
                if not self._evaluators or score.evaluator in self._evaluators
            ]
            with self._queue.lock:
                # Only the last request has the new position, so that a crash skips no score.
                for start in range(0, len(annotations), _REQUEST):
                    batch = annotations[start : start + _REQUEST]
                    is_last = start + _REQUEST >= len(annotations)
                    self._append(batch, number if is_last else self._read_to)
            self._read_to = number

    def pump(self) -> bool:
        """Send one request if one waits; return whether an attempt was made."""
        return self._queue.pump()

    def state(self) -> dict[str, Any]:
        """The state for people, /readyz and metrics."""
        report = self._client.report
        return {
            "name": self.name,
            **self._queue.state(),
            "quota": self._quota,
            "written": report.written,
            "unchanged": report.unchanged,
            "waiting_for_spans": len(self._put_off_entries),
            "unknown": self._given_up,
            "refused_scores": self._client.refused,
        }

    def close(self, grace: float = 0.0) -> None:
        """Stop; waiting scores stay on disk after `grace` seconds."""
        self._queue.close(grace)

    def _append(
        self, annotations: Sequence[Annotation], number: int, *, epoch: int | None = None
    ) -> QueueEntry:
        """Append a request and queue it. The lock must be held."""
        now = self._clock()
        log = self._queue.log
        position = Position(log.position.segment if epoch is None else epoch, number)
        request = log.append("logs", "json", _encoded(annotations, now), now, position)
        request.unsent = 1
        entry = QueueEntry(request, "", len(annotations))
        self._queue.put(entry)
        return entry

    def _put_off(self, annotations: Sequence[Annotation], since_ns: int) -> None:
        """Keep annotations for a later attempt, or give them up after the longest wait."""
        now = self._clock()
        waited = max(0, now - since_ns)
        if waited >= self._wait_ns:
            self._given_up += len(annotations)
            _log.warning(
                "%s: %d scores of spans that it does not have", self._client.url, len(annotations)
            )
            return
        pause = min(max(_FIRST_PAUSE_NS, waited), _LONGEST_PAUSE_NS, self._wait_ns - waited + 1)
        with self._queue.lock:
            # The entry is on disk before the request that they came with is marked as sent.
            body = _encoded(annotations, since_ns)
            request = self._queue.log.append("logs", "json", body, since_ns)
            request.unsent = 1
            entry = QueueEntry(request, "", len(annotations))
            heapq.heappush(self._put_off_entries, (now + pause, next(self._numbers), entry))
        self._queue.sync()

    def _release_due(self) -> None:
        """Queue the annotations whose next attempt is due."""
        now = self._clock()
        with self._queue.lock:
            while self._put_off_entries and self._put_off_entries[0][0] <= now:
                self._queue.put(heapq.heappop(self._put_off_entries)[2])
