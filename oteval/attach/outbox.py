"""What is sent to an endpoint in order, retried until it is taken, over restarts too.

What an endpoint refuses for good is kept in a folder of its own beside the queue, and counted:
nothing is dropped, and nothing holds up what comes after it. So is a request that was answered with
500 for a minute, once the endpoint is seen to take the next one.
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

from .journal import Journal, Record
from .partial_success import rejected
from .posting import Answer, Target
from .refused import REFUSED, Refused

__all__ = ["Outbox", "Parcel", "part_of"]

_log = logging.getLogger(__name__)
_MOST_PARCELS = 512
_MOST_BYTES = 4 << 20
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
_IDLE = 0.05
# Seconds of an endpoint's answering 500 after which the request itself may be the reason.
_SUSPECT = 60.0

Render = Callable[[Record, bytes, "Parcel"], bytes]


def part_of(trace_id: str) -> bytes:
    """Return the 16 bytes that stand for a trace among a record's parts."""
    try:
        raw = bytes.fromhex(trace_id)
    except ValueError:
        raw = b""
    return raw if len(raw) == 16 else blake2b(trace_id.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent of a record.

    Attributes:
        record: The record.
        trace_id: The trace whose spans are sent, or "" for all that it holds.
        spans: How many they are.
        extra: What the spans get beside what they have, by span id.
    """

    record: Record
    trace_id: str = ""
    spans: int = 0
    extra: Any = None


class Outbox:
    """Sends parcels in the order in which they are put in.

    Args:
        journal: Where their records are.
        target: Where to.
        render: Makes a request of a record, its payload and a parcel.
        folder: What is refused for good is kept in a folder below it.
        before: Called before each round, by the thread that sends.

    Attributes:
        sent: How many spans (or log records) were taken.
        rejected: How many an endpoint said it left out of requests that it took.
        failures: How many requests failed, by status.
        refused: How many requests were refused for good.
        error: Why the last request failed; "" when it was taken.
    """

    def __init__(
        self,
        journal: Journal,
        target: Target,
        render: Render,
        folder: Path,
        before: Callable[[], None] | None = None,
    ) -> None:
        self.journal = journal
        self._target, self._render, self._before = target, render, before
        self._refused = Refused(folder / REFUSED)
        self.lock = threading.RLock()
        self._queue: deque[Parcel] = deque()
        self._wake = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._last: tuple[Record | None, bytes] = (None, b"")
        self._wait_until = 0.0
        self._wait = _FIRST_WAIT
        self._most = _MOST_PARCELS
        self.sent = 0
        self.rejected = 0
        self.failures: dict[str, int] = {}
        self.refused = 0
        self.error = ""
        self._failing_since = 0.0

    def __len__(self) -> int:
        """Return how many parcels wait to be sent."""
        return len(self._queue)

    @property
    def size(self) -> int:
        """The bytes on disk, what was refused included."""
        return self.journal.size + self._refused.kept()[1]

    def state(self) -> dict[str, Any]:
        """Return how it stands, for people and metrics."""
        return {
            "waiting_requests": len(self._queue),
            "bytes": self.size,
            "sent": self.sent,
            "rejected": self.rejected,
            "failures": dict(self.failures),
            "refused": self.refused,
            "refused_kept": self._refused.kept()[0],
            "error": self.error or None,
            "failing_seconds": self._failing_seconds(),
        }

    def put(self, parcel: Parcel) -> None:
        """Take a parcel."""
        with self.lock:
            self._queue.append(parcel)
        self._wake.set()

    def start(self) -> None:
        """Send in a thread of its own from now on."""
        self._thread = threading.Thread(target=self._run, name="oteval-outbox", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look at once."""
        self._wake.set()

    def pump(self) -> bool:
        """Send one request, if something waits and the endpoint is not being given time.

        Returns:
            Whether something was sent or tried.
        """
        if self._before is not None:
            self._before()
        if time.monotonic() < self._wait_until:
            return False
        batch = self._batch()
        if not batch:
            return False
        self._send(batch)
        return True

    def close(self, grace: float = 0.0) -> None:
        """Send what waits, for so long (s) at most; the rest stays for the next start."""
        until = time.monotonic() + grace
        while self._queue and self.error == "" and time.monotonic() < until:
            if self._thread is None:
                self.pump()
            else:
                time.sleep(_IDLE)
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=30.0)
        self._target.close()
        with self.lock:
            self.journal.close()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                done_something = self.pump()
            except Exception:
                # The thread must live on: a fault here would hold everything for ever.
                _log.exception("%s: sending failed", self._target.url)
                self._back_off(0.0)
                done_something = False
            if not done_something:
                self._wake.wait(_IDLE)
                self._wake.clear()

    def _batch(self, begin: int = 0) -> list[Parcel]:
        """Return the parcels from one on that fit into one request."""
        with self.lock:
            batch: list[Parcel] = []
            size = 0
            for parcel in islice(self._queue, begin, begin + self._most):
                first = batch[0].record if batch else parcel.record
                if (parcel.record.kind, parcel.record.encoding) != (first.kind, first.encoding):
                    break
                # In JSON there is no putting requests together by putting them in a row.
                if batch and (first.encoding == "json" or size > _MOST_BYTES):
                    break
                batch.append(parcel)
                size += parcel.record.size
            return batch

    def _send(self, batch: Sequence[Parcel]) -> None:
        answer = self._asked(batch)
        if answer.is_taken:
            self._taken(batch, answer)
            self._recovered()
            self._done(batch)
        elif answer.is_refused and len(batch) > 1:
            # One of them is to blame; the others are not to suffer for it.
            self._send(batch[: len(batch) // 2])
            if self.error == "":
                self._send(batch[len(batch) // 2 :])
        elif answer.is_refused:
            self._give_up(batch, answer)
            self._done(batch)
        elif answer.may_be_the_request and self._is_suspicious():
            self._suspect(batch, answer)
        else:
            self._failed(answer)

    def _is_suspicious(self) -> bool:
        return self._failing_seconds() > _SUSPECT or self._most < _MOST_PARCELS

    def _suspect(self, batch: Sequence[Parcel], answer: Answer) -> None:
        """Find the parcel that an endpoint cannot cope with, if it is one: fewer each round."""
        self._most = max(1, len(batch) // 2)
        after = self._batch(1) if len(batch) == 1 else []
        of_next = self._asked(after) if after else answer
        if not of_next.is_taken:
            self._failed(answer)
            return
        self._give_up(batch, answer)
        self._taken(after, of_next)
        self._done([*batch, *after])

    def _asked(self, batch: Sequence[Parcel]) -> Answer:
        record = batch[0].record
        return self._target.post(record.kind, self._body(batch), record.encoding)

    def _body(self, batch: Sequence[Parcel]) -> bytes:
        return b"".join(self._rendered(parcel) for parcel in batch)

    def _taken(self, batch: Sequence[Parcel], answer: Answer) -> None:
        spans = sum(parcel.spans for parcel in batch)
        left_out, reason = rejected(answer.body, batch[0].record.encoding)
        self.sent += max(0, spans - left_out)
        if left_out:
            if not self.rejected:
                _log.warning("%s: left out %d: %s", self._target.url, left_out, reason)
            self.rejected += left_out

    def _give_up(self, batch: Sequence[Parcel], answer: Answer) -> None:
        self._recovered()
        self._count(answer)
        self._keep_refused(batch[0].record, self._body(batch), answer)

    def _failed(self, answer: Answer) -> None:
        self._count(answer)
        self._failing_since = self._failing_since or time.monotonic()
        self.error = f"{answer.status or 'no answer'}: {answer.reason}"
        self._back_off(answer.wait)

    def _failing_seconds(self) -> float:
        return time.monotonic() - self._failing_since if self._failing_since else 0.0

    def _rendered(self, parcel: Parcel) -> bytes:
        record, payload = self._last
        if record is not parcel.record:
            payload = self.journal.read(parcel.record)
            self._last = (parcel.record, payload)
        return self._render(parcel.record, payload, parcel)

    def _done(self, batch: Sequence[Parcel]) -> None:
        with self.lock:
            for parcel in batch:
                self._queue.popleft()
                parcel.record.waiting -= 1
                self.journal.done(
                    parcel.record, part_of(parcel.trace_id), is_last=not parcel.record.waiting
                )

    def _count(self, answer: Answer) -> None:
        key = str(answer.status or "unreachable")
        self.failures[key] = self.failures.get(key, 0) + 1
        if not self.error:
            _log.warning("%s: %s %s", self._target.url, key, answer.reason)

    def _back_off(self, asked: float) -> None:
        wait = max(asked, self._wait * random.uniform(0.8, 1.2))  # noqa: S311  no secret
        self._wait_until = time.monotonic() + wait
        self._wait = min(self._wait * 2, _LONGEST_WAIT)

    def _recovered(self) -> None:
        if self._failing_since:
            _log.info("%s: it answers again", self._target.url)
        if self.error == "":
            # Two in a row: what one request breaks is not sought any more, or not here.
            self._most = min(2 * self._most, _MOST_PARCELS)
        self.error, self._wait, self._failing_since = "", _FIRST_WAIT, 0.0

    def _keep_refused(self, record: Record, body: bytes, answer: Answer) -> None:
        path = self._refused.keep(record.kind, record.encoding, body)
        self.refused += 1
        _log.error(
            "%s: refused %s (%s %s); it is kept in %s",
            *(self._target.url, record.kind, answer.status, answer.reason, path),
        )
