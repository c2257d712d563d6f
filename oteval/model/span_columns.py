"""Spans of many requests as columns, as a server stores them, and the counts of a write.

A server stores most spans without looking at them. As columns, the parts of a span are positions in
the received bytes, and need no object for each span and attribute. The arrays are NumPy's.

Reports of files add up the counts of writes. Loading a file again stores nothing. A span that
arrives again with other content is a conflict: the first span is kept. Only a few conflicts are
listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .telemetry import Attributes, Span

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = [
    "MAX_CONFLICTS",
    "AttributeColumns",
    "Slices",
    "SpanColumns",
    "SpanOrigin",
    "WriteResult",
]


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
