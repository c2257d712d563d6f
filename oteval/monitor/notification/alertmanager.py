"""Alerts for a Prometheus Alertmanager, by its API v2.

An alert is identified by its labels, which are therefore the same for its resolution and for each
repetition. Alertmanager forgets alerts when it restarts, and ends alerts that are not repeated. So
an alert that lasts is sent again (see `outbox`), each time with an end in the future.

See https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...base.jsontext import dumps
from ...base.text import printable
from .text import Payload, message, slice_text, standard_time, time_text

__all__ = ["alert_body", "alert_labels", "alerts_url"]

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
