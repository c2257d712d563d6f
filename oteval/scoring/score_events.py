"""Scores as ``gen_ai.evaluation.result`` log events, in the context of the span they are about.

Their instrumentation scope is ``oteval``, so oteval recognises the events if it receives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from .. import model
from ..model import Score
from .span_attributes import key_values

__all__ = ["EVENT", "OWN_SCOPE", "EventRun", "event_request", "is_own"]

EVENT = "gen_ai.evaluation.result"
OWN_SCOPE = "oteval"
"""The instrumentation scope of everything that oteval emits."""
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
    """Whether a log record is an event that oteval exported."""
    return record.scope == OWN_SCOPE and record.event_name == EVENT


def event_request(
    scores: Iterable[tuple[Score, EventRun]], service: str = "oteval", version: str = ""
) -> ExportLogsServiceRequest:
    """A request with an event for each score whose status is not "not_evaluated".

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
    """The exception name that an error's comment begins with."""
    name = comment.partition(":")[0]
    return name if name.isidentifier() else "_OTHER"
