"""Processors of OpenTelemetry's SDK that queue spans and log records in an export pipeline.

They run in the agent's threads, so they only estimate sizes and append to a queue. Redaction and
encoding happen in the pipeline's thread.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk._logs import LogRecordProcessor, ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor

from ..base.redaction import ValueRedactor
from ..model import EVENT_NAME
from .export_pipeline import BatchExporter, Exportable, ExportFailed, ExportPipeline
from .providers import InvocationMarker
from .span_redaction import TelemetryRedactor

__all__ = ["LogExportProcessor", "RedactingExporter", "SpanExportProcessor", "readable_record"]

_LOG = logging.getLogger("oteval")
# The memory of a span without attributes, and of each further object.
_SPAN_BYTES = 2_000
_OBJECT_BYTES = 100
# While the process is about to be killed, the end of a trace waits this long for its export.
_EAGER_TIMEOUT = 2.0
_CUT = (
    "the span %s lost %d attributes to a limit of its tracer provider, and messages with them; "
    "set OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=100000 (further spans are not named)"
)


class _Queueing:
    """The part of a processor that concerns its queue."""

    def __init__(self, pipeline: ExportPipeline) -> None:
        self._pipeline = pipeline

    def shutdown(self) -> None:
        """Export everything that is queued, and close the destination."""
        self._pipeline.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export everything that is queued.

        Args:
            timeout_millis: The time to wait for it (ms).
        """
        return self._pipeline.flush(timeout_millis / 1000)


class SpanExportProcessor(_Queueing, SpanProcessor):
    """Queues ended spans."""

    _has_warned = False

    def on_end(self, span: Any) -> None:
        """Queue a span; a span that was not sampled is ignored."""
        try:
            if span.context is None or not span.context.trace_flags.sampled:
                return
            self._pipeline.add(Exportable(span, False, _span_size(span)))
            if span.dropped_attributes and not self._has_warned:
                self._has_warned = True
                _LOG.warning(_CUT, span.name, span.dropped_attributes)
            if self._pipeline.is_eager and (span.parent is None or span.parent.is_remote):
                self._pipeline.flush(_EAGER_TIMEOUT, is_ending=True)
        except Exception:  # the agent must not fail because of its spans
            _LOG.debug("a span could not be queued", exc_info=True)


class LogExportProcessor(_Queueing, LogRecordProcessor):
    """Queues log records."""

    def on_emit(self, log_record: Any) -> None:
        """Queue a log record with a copy of its body, which its emitter may change later."""
        try:
            record = copy.copy(log_record.log_record)
            # A context may have large objects of the agent.
            record.context = None
            if record.event_name == EVENT_NAME:
                # The recorder made the body for this record; copying it costs as much as redacting
                # it.
                size = _exchange_size(record.body)
            else:
                record.body, size = _copied(record.body)
            size += _OBJECT_BYTES + _attributes_size(record.attributes)
            self._pipeline.add(Exportable(readable_record(log_record, record), True, size))
        except Exception:  # the agent must not fail because of its logs
            _LOG.debug("a log record could not be queued", exc_info=True)


def readable_record(log_record: Any, record: Any = None) -> ReadableLogRecord:
    """A log record as exporters get it.

    Args:
        log_record: The log record as processors get it.
        record: Its record, if it is a copy.
    """
    return ReadableLogRecord(
        record or log_record.log_record,
        log_record.resource or Resource.get_empty(),
        log_record.instrumentation_scope,
        log_record.limits,
    )


class RedactingExporter:
    """Redacts batches, and marks them with their invocation, before another exporter sends them.

    A span that cannot be redacted is not sent.
    """

    def __init__(self, exporter: BatchExporter, values: ValueRedactor) -> None:
        self._exporter = exporter
        self._redactor = TelemetryRedactor(values)
        self._marker = InvocationMarker()

    def use(self, values: ValueRedactor) -> None:
        """Use other rules from the next batch on."""
        self._redactor = TelemetryRedactor(values)

    @property
    def trouble(self) -> str:
        """Why the last attempt failed, "" if it did not."""
        return self._exporter.trouble

    def export(self, batch: list[Exportable]) -> None:
        """Redact and send a batch.

        Raises:
            ExportFailed: Some spans could not be redacted or sent.
        """
        redacted: list[Exportable] = []
        failed, reason = 0, ""
        for exportable in batch:
            try:
                redact = self._redactor.log_record if exportable.is_log else self._redactor.span
                redacted.append(
                    self._marker.marked(exportable._replace(item=redact(exportable.item)))
                )
            except Exception as error:
                failed, reason = failed + 1, f"it cannot be redacted: {error}"
        if redacted:
            try:
                self._exporter.export(redacted)
            except ExportFailed as error:
                lost = len(redacted) if error.count is None else error.count
                more = {"unknown": error.unknown, "untaken_logs": error.untaken_logs}
                raise ExportFailed(str(error), failed + lost, **more) from error
        if failed:
            raise ExportFailed(reason, failed)

    def close(self) -> None:
        """Close the destination."""
        self._exporter.close()

    def after_fork(self) -> None:
        """Become usable in a forked child."""
        self._exporter.after_fork()


def _span_size(span: Any) -> int:
    size = _SPAN_BYTES + _attributes_size(span.attributes)
    for event in span.events:
        size += _OBJECT_BYTES + _attributes_size(event.attributes)
    return size


def _attributes_size(attributes: Mapping[str, Any] | None) -> int:
    if not attributes:
        return 0
    return sum(_OBJECT_BYTES + _size(value) for value in attributes.values())


def _size(value: Any) -> int:
    # By the exact type first: checks for abstract classes are slow.
    kind = type(value)
    if kind is str or kind is bytes:
        return int(value.__sizeof__())
    if kind is int or kind is bool or kind is float:
        return _OBJECT_BYTES
    if isinstance(value, (tuple, list)):
        return sum(_OBJECT_BYTES + _size(item) for item in value)
    if isinstance(value, Mapping):
        return _attributes_size(value)
    return _OBJECT_BYTES


def _exchange_size(body: Mapping[str, Any]) -> int:
    """The size of a recorded HTTP exchange's body."""
    sides = (body.get("request"), body.get("response"))
    return _SPAN_BYTES + sum(_attributes_size(side) for side in sides if side)


def _copied(value: Any) -> tuple[Any, int]:
    """Copy the containers of a body, and return the copy with its size."""
    if isinstance(value, Mapping):
        pairs = {key: _copied(item) for key, item in value.items()}
        size = sum(_OBJECT_BYTES + item[1] for item in pairs.values())
        return {key: item[0] for key, item in pairs.items()}, size
    if isinstance(value, (list, tuple)):
        items = [_copied(item) for item in value]
        return [item[0] for item in items], sum(_OBJECT_BYTES + item[1] for item in items)
    return value, _size(value)
