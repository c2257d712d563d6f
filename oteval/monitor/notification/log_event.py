"""Notifications as OpenTelemetry log events named ``oteval.monitor.alert``.

A resolution has the same name and the state ``recovered``. Names follow OpenTelemetry's rules:
namespaces with dots, times as ISO 8601. Groups by agent and model also have the attributes of the
GenAI conventions.
"""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ...scoring import key_values
from .text import Payload, message, slice_text, standard_time

__all__ = ["EVENT_NAME", "event_attributes", "log_event_request"]

EVENT_NAME = "oteval.monitor.alert"
_SCOPE = "oteval"
_CONVENTIONS = {"agent": "gen_ai.agent.name", "model": "gen_ai.response.model"}


def log_event_request(payload: Payload, *, key: str, now_ns: int, version: str = "") -> bytes:
    """An OTLP request with the log event of a notification.

    Args:
        payload: The payload of the notification.
        key: The id of the notification.
        now_ns: The time (ns).
        version: The version of oteval.
    """
    is_alert = payload["event"] == "alert"
    time_ns = payload["alarm_ns"] if is_alert else payload.get("ended_ns") or now_ns
    warn, info = SeverityNumber.SEVERITY_NUMBER_WARN, SeverityNumber.SEVERITY_NUMBER_INFO
    record = LogRecord(
        time_unix_nano=max(0, time_ns),
        observed_time_unix_nano=now_ns,
        severity_number=warn if is_alert else info,
        severity_text="WARN" if is_alert else "INFO",
        event_name=EVENT_NAME,
        body=AnyValue(string_value=message(payload).title.encode("utf-8", "replace").decode()),
        attributes=key_values(event_attributes(payload, key)),
    )
    scope = InstrumentationScope(name=_SCOPE, version=version)
    resource = Resource(attributes=key_values({"service.name": "oteval"}))
    scoped = ScopeLogs(scope=scope, log_records=[record])
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=resource, scope_logs=[scoped])]
    )
    return bytes(request.SerializeToString())


def event_attributes(payload: Payload, key: str) -> dict[str, Any]:
    """The attributes of the log event.

    Args:
        payload: The payload of the notification.
        key: The id of the notification.
    """
    attributes: dict[str, Any] = {
        "oteval.monitor.name": payload["monitor"],
        "oteval.monitor.measure": payload["measure"],
        "oteval.monitor.state": payload["state"],
        "oteval.monitor.side": payload["side"],
        "oteval.monitor.figure": payload.get("figure"),
        "oteval.monitor.episode.id": payload["episode"],
        "oteval.monitor.notification.id": key,
        "oteval.monitor.change.time": standard_time(payload["since_ns"]),
        "oteval.monitor.change.earliest_time": standard_time(payload["since_from_ns"]),
        "oteval.monitor.change.latest_time": standard_time(payload["since_to_ns"]),
        "oteval.monitor.observation.count": payload.get("observations"),
        "oteval.evaluator.version": payload.get("version"),
        "gen_ai.evaluation.name": payload.get("evaluator"),
        "oteval.trajectory.ids": list(payload.get("runs") or []) or None,
        "oteval.monitor.before.trajectory.ids": list(payload.get("runs_before") or []) or None,
        "oteval.monitor.slices": [
            slice_text(payload, worst_slice) for worst_slice in payload.get("slices") or []
        ]
        or None,
        "oteval.monitor.doubts": payload.get("doubts") or None,
    }
    for moment in ("before", "after"):
        low, high = payload.get(f"{moment}_interval") or (None, None)
        figures = (("mean", payload.get(moment)), ("low", low), ("high", high))
        attributes |= {
            f"oteval.monitor.{moment}.{name}": None if value is None else float(value)
            for name, value in figures
        }
    for name, value in payload["group"].items():
        attributes[f"oteval.monitor.group.{name}"] = value
        if name in _CONVENTIONS:
            attributes[_CONVENTIONS[name]] = value
    return {name: value for name, value in attributes.items() if value is not None}
