"""Spans and log records, as OpenTelemetry defines them: as objects, as columns, and counted.

A server stores most spans without looking at them. As columns, the parts of the spans of many
requests are positions in the received bytes, and need no object for each span and attribute. The
arrays are NumPy's.

A write to the store is counted, and reports of files add the counts up. Loading a file again stores
nothing. A span that arrives again with other content is a conflict: the first span is kept. Only a
few conflicts are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, dataclass_transform

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = [
    "MAX_CONFLICTS",
    "SCORE_ATTRIBUTES",
    "AttributeColumns",
    "Attributes",
    "Event",
    "Link",
    "LogRecord",
    "Slices",
    "Span",
    "SpanColumns",
    "SpanOrigin",
    "WriteResult",
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


class Slices(NamedTuple):
    """Parts of the bytes, each from its start to before its end. An empty part is a text too."""

    start: Integers
    end: Integers

    def joined(self, data: bytes) -> bytes:
        """The parts of some bytes, one after the other."""
        filled = (self.end > self.start).nonzero()[0]
        places = zip(self.start[filled].tolist(), self.end[filled].tolist(), strict=True)
        return b"".join([data[start:end] for start, end in places])


class SpanOrigin(NamedTuple):
    """The resource and scope that some spans share."""

    resource: Attributes
    scope: str
    version: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class AttributeColumns:
    """The attributes of all spans, in the order of the spans and of their attributes.

    Attributes:
        span: The index of each attribute's span; ascending.
        key: The key of each attribute, as an index of `keys`. No span has a key twice.
        keys: The different keys.
        is_text: Whether the value is a text; `text` has its bytes.
        is_integer: Whether the value is an integer; `number` contains it.
        text: Where the texts are.
        number: The integers.
        others: The other values by the index of the attribute.
    """

    span: Integers
    key: Integers
    keys: Sequence[str]
    is_text: npt.NDArray[np.bool_]
    is_integer: npt.NDArray[np.bool_]
    text: Slices
    number: Integers
    others: Mapping[int, Any]


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """Spans as columns of equal length, with the same content as `Span` objects.

    Texts are not checked yet: they are UTF-8 only if the sender was correct.

    Attributes:
        data: The bytes that slices refer to.
        trace_id: The trace ids, 16 bytes each.
        span_id: The span ids, 8 bytes each.
        parent_id: The parents' span ids, 8 bytes each; zeros for a root.
        name: The names.
        kind: OTLP's numbers.
        start_ns: The start times.
        end_ns: The end times.
        status_code: OTLP's numbers.
        status_message: The descriptions of the status.
        flags: The span flags.
        attributes: The attributes.
        origin: The origin of each span, as an index of `origins`.
        origins: The resources and scopes.
        whole: Spans with a part without a column (events, links, a trace state, dropped parts), by
            their index.
    """

    data: bytes
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: Slices
    kind: Integers
    start_ns: Integers
    end_ns: Integers
    status_code: Integers
    status_message: Slices
    flags: Integers
    attributes: AttributeColumns
    origin: Integers
    origins: Sequence[SpanOrigin]
    whole: Mapping[int, Span]

    def __len__(self) -> int:
        """The number of spans."""
        return len(self.kind)


MAX_CONFLICTS = 20
"""The most ids that a result lists."""


@dataclass
class WriteResult:
    """Counts of the spans, log records or runs that a write stored or skipped.

    It is not frozen: the counts of several writes are added to one.

    Attributes:
        stored: The new items.
        duplicate: The items that the store had already.
        conflicts: ``trace/span`` ids of up to 20 duplicates with other content than the stored
            span.
        runs: The new items that are runs reconstructed elsewhere.
    """

    stored: int = 0
    duplicate: int = 0
    conflicts: list[str] = field(default_factory=list)
    runs: int = 0

    def add(self, other: WriteResult) -> None:
        """Add the counts of another write."""
        self.stored += other.stored
        self.duplicate += other.duplicate
        self.runs += other.runs
        self.conflicts = (self.conflicts + other.conflicts)[:MAX_CONFLICTS]
