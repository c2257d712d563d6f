"""Scores published on the traces that they belong to, while the server runs.

`Forwarder` sends traces on with their scores as attributes, `EventExporter` sends scores as log
events, and `metrics` counts them. Metrics need an extra package, so import them from
`oteval.serve.publish.metrics`.
"""

from __future__ import annotations

from .destinations import ScoreDestinations
from .events import EventExporter
from .export_queue import ExportQueue, QueueEntry
from .forwarder import Forwarder
from .refused_requests import REFUSED_FOLDER, resend
from .request_log import QueuedRequest, RequestLog

__all__ = [
    "REFUSED_FOLDER",
    "EventExporter",
    "ExportQueue",
    "Forwarder",
    "QueueEntry",
    "QueuedRequest",
    "RequestLog",
    "ScoreDestinations",
    "resend",
]
