"""Scores as ``gen_ai.evaluation.result`` log events, in the context of the span they are about.

The events wait in a durable queue, so that they also reach an endpoint that was away for a while.
Their instrumentation scope is ``oteval``, so that oteval recognises them when they come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from .. import model
from ..model import Score
from .attributes import key_values
from .export_queue import ExportQueue, QueueEntry
from .otlp_client import OtlpClient
from .request_log import QueuedRequest, RequestLog
from .trace_requests import OWN_SCOPE

__all__ = ["EVENT", "EventExporter", "EventRun", "event_request", "is_own"]

EVENT = "gen_ai.evaluation.result"
_SAMPLED = 1
_RESPONSE = "gen_ai.response.id"


class EventRun(Protocol):
    """The parts of a run that an event carries."""

    @property
    def agent(self) -> str:
        """The agent's name, or ""."""

    @property
    def conversation_id(self) -> str:
        """The id of its conversation, or ""."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Its attributes."""


def is_own(record: model.LogRecord) -> bool:
    """Return whether a log record is an event that oteval exported."""
    return record.scope == OWN_SCOPE and record.event_name == EVENT


def event_request(
    scores: Iterable[tuple[Score, EventRun]], service: str = "oteval", version: str = ""
) -> ExportLogsServiceRequest:
    """Return a request with an event for each score whose status is not "not_evaluated".

    Args:
        scores: The scores, each with its run.
        service: The ``service.name`` of the resource.
        version: The version of the instrumentation scope.
    """
    records = [_event(score, run) for score, run in scores if score.status != "not_evaluated"]
    if not records:
        return ExportLogsServiceRequest()
    scope = InstrumentationScope(name=OWN_SCOPE, version=version)
    resource = Resource(attributes=key_values({"service.name": service}))
    scoped = ScopeLogs(scope=scope, log_records=records)
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=resource, scope_logs=[scoped])]
    )


def _event(score: Score, run: EventRun) -> LogRecord:
    attributes: dict[str, Any] = {"gen_ai.evaluation.name": score.evaluator}
    failed = score.status == "error"
    if score.score is not None:
        attributes["gen_ai.evaluation.score.value"] = float(score.score)
    if score.label:
        attributes["gen_ai.evaluation.score.label"] = score.label
    if score.comment:
        attributes["gen_ai.evaluation.explanation"] = score.comment
    if failed:
        attributes["error.type"] = _error_type(score.comment)
    if run.conversation_id:
        attributes["gen_ai.conversation.id"] = run.conversation_id
    if run.agent:
        attributes["gen_ai.agent.name"] = run.agent
    if response := run.attributes.get(_RESPONSE):
        # The scored span is a model call itself.
        attributes[_RESPONSE] = response
    if score.passed is not None:
        attributes["oteval.passed"] = score.passed
    attributes["oteval.trajectory.id"] = score.trajectory_id
    attributes["oteval.trajectory.rev"] = score.rev
    attributes["oteval.evaluator.version"] = score.version
    if score.sample_p < 1.0:
        attributes["oteval.sample_p"] = score.sample_p
    severity = (
        SeverityNumber.SEVERITY_NUMBER_WARN if failed else SeverityNumber.SEVERITY_NUMBER_INFO
    )
    return LogRecord(
        time_unix_nano=score.time_ns,
        observed_time_unix_nano=score.time_ns,
        severity_number=severity,
        severity_text="WARN" if failed else "INFO",
        event_name=EVENT,
        body=AnyValue(),
        attributes=key_values(attributes),
        trace_id=bytes.fromhex(score.trace_id),
        span_id=bytes.fromhex(score.span_id),
        flags=_SAMPLED,
    )


def _error_type(comment: str) -> str:
    """Return the exception name that an error's comment begins with."""
    name = comment.partition(":")[0]
    return name if name.isidentifier() else "_OTHER"


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
        self._queue = ExportQueue(RequestLog(folder), client, _whole_body, folder)
        for request in self._queue.log.requests():
            request.unsent = 1
            self._queue.put(QueueEntry(request))
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
        """Return the queue's state for people and metrics."""
        return self._queue.state()

    def close(self, grace: float = 0.0) -> None:
        """Stop exporting.

        Args:
            grace: How long (s) to go on sending waiting events; unsent ones stay on disk.
        """
        self._queue.close(grace)


def _whole_body(request: QueuedRequest, body: bytes, entry: QueueEntry) -> bytes:  # noqa: ARG001
    return body
