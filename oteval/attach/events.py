"""Scores as ``gen_ai.evaluation.result`` log events in the context of the span that was judged.

The events go through a queue on disk, so that an endpoint that is away for a while gets them
later. They come from the scope ``oteval``, by which they are recognised when they come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from .. import model
from ..model import Score, Trajectory
from .attributes import key_values
from .journal import Journal
from .outbox import Outbox, Parcel
from .posting import Target
from .wire import OWN_SCOPE

__all__ = ["EVENT", "Events", "event_request", "is_own"]

EVENT = "gen_ai.evaluation.result"
_SAMPLED = 1
_RESPONSE = "gen_ai.response.id"


def is_own(record: model.LogRecord) -> bool:
    """Return whether a log record is an event that oteval emitted."""
    return record.scope == OWN_SCOPE and record.event_name == EVENT


def event_request(
    scores: Iterable[tuple[Score, Trajectory]], service: str = "oteval", version: str = ""
) -> ExportLogsServiceRequest:
    """Return a request with an event for each score; what was not evaluated has none.

    Args:
        scores: The scores, each with the trajectory that it is on.
        service: The ``service.name`` of the resource.
        version: The version of the scope.
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


def _event(score: Score, run: Trajectory) -> LogRecord:
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
        # Where the judged span is a model call itself.
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
    """Return the exception's name, which an error's comment begins with."""
    name = comment.partition(":")[0]
    return name if name.isidentifier() else "_OTHER"


class Events:
    """Emits events to an endpoint.

    Args:
        folder: Where they wait.
        target: The endpoint.
        version: The version of oteval.
        clock: The time (ns).
        threaded: Whether a thread sends; otherwise `pump` does.
    """

    def __init__(
        self,
        folder: Path,
        target: Target,
        *,
        version: str = "",
        clock: Callable[[], int] = time.time_ns,
        threaded: bool = True,
    ) -> None:
        self._version, self._clock = version, clock
        self._outbox = Outbox(Journal(folder), target, _whole, folder)
        for record in self._outbox.journal.records():
            record.waiting = 1
            self._outbox.put(Parcel(record))
        if threaded:
            self._outbox.start()

    def emit(self, scores: Iterable[tuple[Score, Trajectory]]) -> None:
        """Emit an event for each score.

        Args:
            scores: The scores, each with the trajectory that it is on.

        Raises:
            OSError: They cannot be written to the queue.
        """
        request = event_request(scores, version=self._version)
        if not request.resource_logs:
            return
        count = sum(len(s.log_records) for r in request.resource_logs for s in r.scope_logs)
        with self._outbox.lock:
            journal = self._outbox.journal
            record = journal.append("logs", "protobuf", request.SerializeToString(), self._clock())
            record.waiting = 1
            self._outbox.put(Parcel(record, "", count))

    def pump(self) -> bool:
        """Send one request, if there is something to send; return whether it was tried."""
        return self._outbox.pump()

    def state(self) -> dict[str, Any]:
        """Return how it stands, for people and metrics."""
        return self._outbox.state()

    def close(self, grace: float = 0.0) -> None:
        """End; what waits longer than `grace` (s) stays for the next start."""
        self._outbox.close(grace)


def _whole(record: Any, payload: bytes, parcel: Parcel) -> bytes:  # noqa: ARG001
    return payload
