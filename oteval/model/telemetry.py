"""Spans and log records, as OpenTelemetry defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

__all__ = [
    "SCORE_ATTRIBUTES",
    "Attributes",
    "Event",
    "Link",
    "LogRecord",
    "Span",
    "is_completed_by",
    "record",
]

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[_Class]) -> type[_Class]:
    """Make a class a hashable dataclass with slots that is frozen only for the type checker.

    A truly frozen instance takes three to five times as long to create: 2 us for a span, half the
    time to decode it. Without slots, more than 30 fields would take a table of 2 KB for each
    instance.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


SCORE_ATTRIBUTES = "oteval.score."
"""The prefix of the attributes that add scores to a span."""

Attributes = Mapping[str, Any]


@record
class Event:
    """A span event.

    Attributes:
        name: The event's name.
        time_ns: The time of the event.
        attributes: Its attributes.
        dropped_attributes: The number of attributes that the emitter dropped.
    """

    name: str
    time_ns: int = 0
    attributes: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0


@record
class Link:
    """A link from a span to another.

    Attributes:
        trace_id: The trace id of the other span.
        span_id: The span id of the other span.
        attributes: The link's attributes.
    """

    trace_id: str
    span_id: str
    attributes: Attributes = field(default_factory=dict)


@record
class Span:
    """An OpenTelemetry span.

    Attribute values are OTLP's AnyValue as JSON-like Python values. The two kinds that JSON cannot
    represent keep the form of OTLP/JSON: bytes are ``{"bytesValue": base64}``, and non-finite
    doubles are ``{"doubleValue": "NaN"}``.

    Attributes:
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: The parent's span id, or "" for a root.
        name: The span's name.
        kind: OTLP's number: 0 unspecified, 1 internal, 2 server, 3 client, 4 producer, 5 consumer.
        start_ns: The start time.
        end_ns: The end time.
        status_code: OTLP's number: 0 unset, 1 ok, 2 error.
        status_message: The description of the status.
        attributes: The attributes.
        events: Span events, in the emitter's order.
        links: Links to other spans.
        scope: The instrumentation scope's name.
        scope_version: The instrumentation scope's version.
        scope_attributes: The instrumentation scope's attributes.
        resource: The resource's attributes.
        trace_state: The W3C trace state.
        flags: The span flags.
        dropped_attributes: The number of attributes that the emitter dropped.
        dropped_events: The number of events that the emitter dropped.
        dropped_links: The number of links that the emitter dropped.
        seq: The order of arrival in a store; 0 before it is stored.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    kind: int = 0
    start_ns: int = 0
    end_ns: int = 0
    status_code: int = 0
    status_message: str = ""
    attributes: Attributes = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = ()
    scope: str = ""
    scope_version: str = ""
    scope_attributes: Attributes = field(default_factory=dict)
    resource: Attributes = field(default_factory=dict)
    trace_state: str = ""
    flags: int = 0
    dropped_attributes: int = 0
    dropped_events: int = 0
    dropped_links: int = 0
    seq: int = 0

    @property
    def service(self) -> str:
        """The resource's ``service.name``, or ""."""
        return str(self.resource.get("service.name", ""))

    @property
    def is_error(self) -> bool:
        """Whether the span's status is an error."""
        return self.status_code == 2


def is_completed_by(span: Span, again: Span) -> bool:
    """Whether a span was exported again with more data.

    Some emitters export a span while it is in progress, and once more when it has ended.

    Args:
        span: The span.
        again: A span with the same ids.
    """
    has_ended, again_has_ended = (export.end_ns > export.start_ns for export in (span, again))
    if has_ended != again_has_ended:
        return again_has_ended
    names, again_names = (_own_attributes(export) for export in (span, again))
    extent = (span.end_ns, len(names), len(span.events))
    return (again.end_ns, len(again_names), len(again.events)) > extent and names <= again_names


def _own_attributes(span: Span) -> set[str]:
    """The names of a span's attributes, without the scores that oteval added to it."""
    return {name for name in span.attributes if not name.startswith(SCORE_ATTRIBUTES)}


@record
class LogRecord:
    """An OpenTelemetry log record. Several dialects record messages in them.

    Attributes:
        trace_id: The id of the trace that was active when it was emitted, or "".
        span_id: The id of the span that was active when it was emitted, or "".
        time_ns: The time of the event; 0 if the emitter omitted it.
        observed_ns: The time at which it was collected.
        event_name: OTLP's ``eventName``, or the attribute ``event.name`` or ``otel.event.name``.
        severity: OTLP's severity number.
        severity_text: The severity's name.
        body: The body, a JSON-like value.
        attributes: The attributes.
        scope: The instrumentation scope's name.
        scope_version: The instrumentation scope's version.
        resource: The resource's attributes.
        dropped_attributes: The number of attributes that the emitter dropped.
        seq: The order of arrival in a store; 0 before it is stored.
    """

    trace_id: str = ""
    span_id: str = ""
    time_ns: int = 0
    observed_ns: int = 0
    event_name: str = ""
    severity: int = 0
    severity_text: str = ""
    body: Any = None
    attributes: Attributes = field(default_factory=dict)
    scope: str = ""
    scope_version: str = ""
    resource: Attributes = field(default_factory=dict)
    dropped_attributes: int = 0
    seq: int = 0
