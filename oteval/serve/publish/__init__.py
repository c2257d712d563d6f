"""Scores attached to the traces they are about.

`Forwarder` sends traces on with their scores as attributes, `EventExporter` sends scores as log
events, and `metrics` counts them. Metrics need an extra package, so import them from
`oteval.serve.publish.metrics`.
"""

from __future__ import annotations

from ...base.clients.otlp_client import ExportResult, HttpClient, OtlpClient, open_client
from ...scoring.otlp_requests import log_request, span_request
from ...scoring.score_events import EventRun, event_request, is_own
from ...scoring.span_attributes import score_attributes
from .destinations import ScoreDestinations
from .events import EventExporter
from .export_queue import ExportQueue, QueueEntry
from .forwarder import Forwarder
from .refused_requests import REFUSED_FOLDER, resend
from .request_log import QueuedRequest, RequestLog

__all__ = [
    "REFUSED_FOLDER",
    "EventExporter",
    "EventRun",
    "ExportQueue",
    "ExportResult",
    "Forwarder",
    "HttpClient",
    "OtlpClient",
    "QueueEntry",
    "QueuedRequest",
    "RequestLog",
    "ScoreDestinations",
    "event_request",
    "is_own",
    "log_request",
    "open_client",
    "resend",
    "score_attributes",
    "span_request",
]
