"""Export to an OTLP endpoint with OpenTelemetry's exporters, over HTTP or gRPC.

The exporters read the environment variables OTEL_EXPORTER_OTLP_* for headers, certificates,
compression and timeouts, and retry for up to their timeout. They report errors by logging each of
them. Here, the messages of exports by oteval become the reason of the failure instead.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from .export_pipeline import Exportable, ExportFailed

__all__ = ["OtlpExporter", "is_grpc", "otlp_endpoint"]

_GRPC_SCHEMES = ("grpc", "grpcs")
_SIGNALS = ("traces", "logs")
# Answers of endpoints that take traces only: no such address, no such method, not implemented.
_NO_SUCH_SIGNAL = re.compile(r"code: (?:404|405|501)\b|UNIMPLEMENTED")
# A request was sent, and not answered: the endpoint may have stored it.
_NO_ANSWER = re.compile(r"(?i)read timed out|ReadTimeout|DEADLINE_EXCEEDED")
# Refused for its size: HTTP's status, gRPC's, and the exporters' own check.
_TOO_LARGE = ("413", "RESOURCE_EXHAUSTED", "exceeds max_request_size")
_DEFAULT = "http://127.0.0.1:4318"
_LOGGERS = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http._log_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)


def is_grpc(url: str | None) -> bool:
    """Whether to export over gRPC: by the URL's scheme, else by the environment."""
    if url is not None and urlsplit(url).scheme in _GRPC_SCHEMES:
        return True
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    chosen = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return chosen.strip().lower() == "grpc"


def otlp_endpoint(url: str | None) -> str | None:
    """The base URL to export to; None if the environment has one.

    Args:
        url: The URL that was given; None for the URL of the environment, or oteval's default.
    """
    if url is not None:
        for signal in _SIGNALS:
            url = url.removesuffix(f"/v1/{signal}")
        return url.rstrip("/")
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if any(os.environ.get(name) for name in names):
        return None
    return "http://127.0.0.1:4317" if is_grpc(None) else _DEFAULT


class OtlpExporter:
    """Sends batches to an OTLP endpoint."""

    def __init__(self, url: str | None) -> None:
        """Create the exporters.

        Args:
            url: The base URL; None for the URL of the environment variables.

        Raises:
            ImportError: The package of OpenTelemetry's exporters is not installed.
        """
        self._url = url
        self._messages = _ExporterMessages()
        self._exporters: tuple[Any, Any] | None = self._create()
        self._takes_no_logs = False

    @property
    def trouble(self) -> str:
        """Why the last attempt failed, "" if it did not."""
        return self._messages.reason

    def export(self, batch: list[Exportable]) -> None:
        """Send a batch: its spans, then its log records.

        Raises:
            ExportFailed: The endpoint refused a part of it, or did not answer in time.
        """
        if self._exporters is None:
            self._exporters = self._create()
        spans, logs = self._exporters
        failed = unknown = untaken = 0
        reason = ""
        with self._messages.collected():
            for exporter, is_log in ((spans, False), (logs, True)):
                items = [exportable.item for exportable in batch if exportable.is_log is is_log]
                if is_log and self._takes_no_logs:
                    untaken += len(items)
                    continue
                lost = self._send(exporter, items)
                problem = self._messages.reason
                if is_log and lost and _NO_SUCH_SIGNAL.search(problem):
                    self._takes_no_logs, self._messages.reason = True, ""
                    untaken += lost
                elif lost and _NO_ANSWER.search(f"{problem} {_error_of(exporter)}"):
                    unknown += lost
                elif lost:
                    failed, reason = failed + lost, problem or "the exporter failed"
        if failed or unknown or untaken:
            reason = reason or ("no answer in time" if unknown else "it takes no logs")
            raise ExportFailed(reason, failed, unknown=unknown, untaken_logs=untaken)

    def close(self) -> None:
        """Shut the exporters down, which aborts their retries."""
        with self._messages.collected():
            for exporter in self._exporters or ():
                exporter.shutdown()

    def after_fork(self) -> None:
        """Forget the parent's connections; new ones are opened by the first export."""
        self._messages = _ExporterMessages()
        self._exporters = None

    def _send(self, exporter: Any, items: Sequence[Any]) -> int:
        """Send spans or log records, in halves if they are too large; return how many failed."""
        if not items:
            return 0
        self._messages.reason = ""
        if exporter.export(items).name == "SUCCESS":
            self._messages.reason = ""
            return 0
        if len(items) > 1 and any(mark in self._messages.reason for mark in _TOO_LARGE):
            middle = len(items) // 2
            return self._send(exporter, items[:middle]) + self._send(exporter, items[middle:])
        return len(items)

    def _create(self) -> tuple[Any, Any]:
        return _grpc_exporters(self._url) if is_grpc(self._url) else _http_exporters(self._url)


def _error_of(exporter: Any) -> str:
    """The exception type that ended the last request over HTTP, or ""."""
    error = getattr(exporter, "last_error", None)
    return type(error).__name__ if error is not None else ""


def _http_exporters(url: str | None) -> tuple[Any, Any]:
    from .otlp_requests import HttpLogExporter, HttpSpanExporter

    if url is None:
        return HttpSpanExporter(), HttpLogExporter()
    return HttpSpanExporter(f"{url}/v1/traces"), HttpLogExporter(f"{url}/v1/logs")


def _grpc_exporters(url: str | None) -> tuple[Any, Any]:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    if url is None:
        return OTLPSpanExporter(), OTLPLogExporter()
    scheme, _, address = url.partition("://")
    endpoint = f"{'https' if scheme in ('https', 'grpcs') else 'http'}://{address}"
    return OTLPSpanExporter(endpoint), OTLPLogExporter(endpoint)


# Exceptions of requests repeat the URL and the cause in several layers.
_CAUSE = re.compile(r"\[Errno -?\d+\] ([^\"')]+)")
_MAX_REASON = 300


class _ExporterMessages(logging.Filter):
    """Keeps the log messages of our exporters as the reason of a failure.

    Attributes:
        reason: The reason of the last failed attempt, "" after a success.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        self._threads: set[int] = set()
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep the messages of this thread instead of logging them."""
        self._threads.add(threading.get_ident())
        try:
            yield
        finally:
            self._threads.discard(threading.get_ident())

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep an exporter's message of an export by oteval; let others be logged."""
        if record.thread not in self._threads:
            return True
        text = record.getMessage()
        if record.levelno >= logging.ERROR:
            # The exporter's last message is only that it gave up; the previous message has the
            # reason.
            is_vague = "due to timeout, max retries or shutdown" in text
            self.reason = self.reason if is_vague and self.reason else _shortened(text)
        elif record.levelno >= logging.WARNING and record.args and "Transient" in text:
            details = record.args if isinstance(record.args, tuple) else ()
            self.reason = _shortened(str(details[0]) if details else text)
        return False


def _shortened(reason: str) -> str:
    """The innermost reason of a failed connection; other reasons are cut."""
    causes = _CAUSE.findall(reason)
    return causes[-1] if causes else reason[:_MAX_REASON]
