"""A notification in the formats of its destinations: webhook, Alertmanager and log event.

Webhooks get JSON, signed as the Standard Webhooks specification describes. The signature is an
HMAC-SHA256 of the id, the time of the attempt and the body. So a receiver can verify who sent a
request, and that it is neither old nor changed. The id is the same in every attempt: a receiver
that has seen it ignores the request.

See https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.

A Prometheus Alertmanager gets alerts by its API v2. An alert is identified by its labels, which are
therefore the same for its resolution and for each repetition. Alertmanager forgets alerts when it
restarts, and ends alerts that are not repeated. So an alert that lasts is sent again (see
`outbox`), each time with an end in the future.

See https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.

Log events of OpenTelemetry are named ``oteval.monitor.alert``. A resolution has the same name and
the state ``recovered``. Names follow OpenTelemetry's rules: namespaces with dots, times as ISO
8601. Groups by agent and model also have the attributes of the GenAI conventions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ...base.jsontext import dumps
from ...base.text import printable
from ...scoring import key_values
from .text import Payload, message, slice_text, standard_time, time_text

__all__ = [
    "EVENT_NAME",
    "alert_body",
    "alert_labels",
    "alerts_url",
    "event_attributes",
    "log_event_request",
    "signature",
    "webhook_body",
    "webhook_headers",
]

_ENCODED = "whsec_"


def webhook_body(payload: Payload, key: str) -> bytes:
    """The body of a request, which is the same in every attempt.

    Args:
        payload: The payload of the notification.
        key: The id of the notification.
    """
    alert_message = message(payload)
    kind = f"monitor.{payload['event']}"
    body = {
        "id": key,
        "type": kind,
        "title": alert_message.title,
        "text": alert_message.text,
        "data": payload,
    }
    return dumps(body).encode()


def webhook_headers(
    body: bytes, *, key: str, now_ns: int, secret: str | None = None
) -> Mapping[str, str]:
    """The headers of a request.

    Args:
        body: The body.
        key: The id of the notification.
        now_ns: The time of the attempt (ns).
        secret: The secret that signs it; without one, the request has no signature.

    Raises:
        ValueError: The secret begins with ``whsec_`` and is not base64.
    """
    timestamp = str(now_ns // 10**9)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": key,
        "webhook-id": key,
        "webhook-timestamp": timestamp,
    }
    if secret is not None:
        headers["webhook-signature"] = signature(body, key=key, timestamp=timestamp, secret=secret)
    return headers


def signature(body: bytes, *, key: str, timestamp: str, secret: str) -> str:
    """The signature of a request: ``v1,`` and base64.

    Args:
        body: The body.
        key: The id of the notification.
        timestamp: The time of the attempt, in seconds since the Unix epoch.
        secret: Any text, or ``whsec_`` and base64.

    Raises:
        ValueError: The secret begins with ``whsec_`` and is not base64.
    """
    signed = b".".join([key.encode(), timestamp.encode(), body])
    digest = hmac.new(_key_of(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key_of(secret: str) -> bytes:
    if not secret:
        raise ValueError("the secret is empty")
    if not secret.startswith(_ENCODED):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except binascii.Error:
        # Without its message and context, which may show the secret.
        raise ValueError("the secret begins with whsec_, but is not base64") from None


_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_SHOWN_RUNS = 5


def alert_body(
    payload: Payload,
    *,
    key: str,
    now_ns: int,
    resolve_timeout: float,
    labels: Mapping[str, str] | None = None,
) -> bytes:
    """The body of a request with one alert or its resolution.

    Args:
        payload: The payload of the notification.
        key: The id of the notification.
        now_ns: The time (ns).
        resolve_timeout: Seconds until Alertmanager ends an alert that is not repeated.
        labels: Labels to add, for instance for routes.
    """
    start = int(payload["alarm_ns"])
    end = now_ns + round(resolve_timeout * 1e9)
    if payload["event"] == "resolved":
        end = int(payload.get("ended_ns") or now_ns)
    # The end of an alert must be after its start.
    end = max(end, start + 10**6)
    alert = {
        "labels": {**alert_labels(payload), **(labels or {})},
        "annotations": _annotations(payload, key),
        "startsAt": standard_time(start),
        "endsAt": standard_time(end),
    }
    return dumps([alert]).encode()


def alert_labels(payload: Payload) -> dict[str, str]:
    """The labels that identify an alert: its monitor, its group and the kind of change."""
    labels = {
        "alertname": "OtevalMonitor",
        "monitor": str(payload["monitor"]),
        "measure": str(payload["measure"]),
        "side": str(payload["side"]),
        "severity": "warning",
    }
    if payload.get("evaluator"):
        labels["evaluator"] = str(payload["evaluator"])
    for name, value in payload["group"].items():
        label = _NOT_IN_NAMES.sub("_", name)
        while label in labels:
            label += "_"
        labels[label] = str(value)
    # Alertmanager drops empty labels. Different values stay different, so that alerts do.
    return {name: _label_value(value) for name, value in labels.items()}


def _label_value(text: str) -> str:
    """Return text without characters that could control a terminal or break a template's line."""
    label_value = printable(text).replace("\n", "\\n").replace("\t", "\\t")
    return label_value.encode("utf-8", "replace").decode()


def _annotations(payload: Payload, key: str) -> dict[str, str]:
    notice = message(payload)
    annotations = {
        "summary": notice.title,
        "description": notice.text,
        "since": time_text(payload["since_ns"]),
        "episode": str(payload["episode"]),
        "notification": key,
    }
    for name, runs in (("runs", payload.get("runs")), ("runs_before", payload.get("runs_before"))):
        if runs:
            annotations[name] = " ".join(runs[:_SHOWN_RUNS])
    if doubts := payload.get("doubts"):
        annotations["doubts"] = "; ".join(doubts)
    if slices := payload.get("slices"):
        annotations["slices"] = printable(
            "; ".join(slice_text(payload, worst_slice) for worst_slice in slices)
        )
    return annotations


def alerts_url(base: str) -> str:
    """The URL that alerts are posted to."""
    return f"{base.rstrip('/')}/api/v2/alerts"


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
