"""Exports scores as log events to an endpoint.

The events wait in a durable queue, so that they also reach an endpoint that was away for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ...base.clients.otlp_client import OtlpClient
from ...model import Score
from ...scoring import EventRun, event_request
from .export_queue import ExportQueue, QueueEntry
from .request_log import RequestLog

__all__ = ["EventExporter"]


class EventExporter:
    """Exports scores as events to an endpoint.

    Args:
        folder: The folder of the queue.
        client: The endpoint.
        version: The version of oteval.
        clock: The time (ns).
        threaded: Whether a thread sends the events; without it, the caller calls `pump`.

    Raises:
        OSError: The queue cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        client: OtlpClient,
        *,
        version: str = "",
        clock: Callable[[], int] = time.time_ns,
        threaded: bool = True,
    ) -> None:
        self._version, self._clock = version, clock
        self._queue = ExportQueue(RequestLog(folder), client, folder)
        self._queue.put_stored()
        if threaded:
            self._queue.start()

    def emit(self, scores: Iterable[tuple[Score, EventRun]]) -> None:
        """Queue an event for each score.

        Args:
            scores: The scores, each with its run.

        Raises:
            OSError: The queue cannot be written.
        """
        events = event_request(scores, version=self._version)
        if not events.resource_logs:
            return
        count = sum(len(s.log_records) for r in events.resource_logs for s in r.scope_logs)
        with self._queue.lock:
            request = self._queue.log.append(
                "logs", "protobuf", events.SerializeToString(), self._clock()
            )
            request.unsent = 1
            self._queue.put(QueueEntry(request, "", count))

    def pump(self) -> bool:
        """Send one batch if events wait; return whether an attempt was made."""
        return self._queue.pump()

    def state(self) -> dict[str, Any]:
        """The queue's state for people and metrics."""
        return self._queue.state()

    def close(self, grace: float = 0.0) -> None:
        """Stop exporting.

        Args:
            grace: How long (s) to go on sending waiting events; unsent events stay on disk.
        """
        self._queue.close(grace)
