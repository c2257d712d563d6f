"""Makes rows of the table ``spans`` from spans that are in columns, without an object for each.

`telemetry_rows.span_table` makes the same rows from `Span` objects.

Arrow can describe a text in any buffer with 16 bytes, a *view*. NumPy makes the views of a whole
column together (`ByteTexts`), and Arrow copies the texts that they describe: 0.14 us for a text of
900 bytes in place of 0.47.
Format: https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout

The attributes of a span become a JSON object (`json_objects`), which is put together from parts:
``{"key":"``, a value, ``","key":``, and so on. Texts without a character that JSON escapes are
parts of the received bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..base.jsontext import dumps
from ..model import AttributeColumns, Slices, Span, SpanColumns
from .arrow_rows import encodable_array
from .telemetry_rows import (
    CONTENTS,
    PROMOTED_NUMBERS,
    PROMOTED_TEXTS,
    SPAN_SCHEMA,
    events_text,
    links_text,
    rest_text,
    with_identities,
)

__all__ = [
    "PADDING",
    "ByteTexts",
    "json_objects",
    "span_column_table",
    "text_bytes",
]

PADDING = bytes(16)
"""Must follow the last text, because the first bytes of each are read as numbers."""

_U = np.uint64
# A view holds a text of up to 12 bytes itself: the first 4 beside its size, then 8.
_HEAD, _INLINE = 4, 12
# The lowest bytes of a number, by their count.
_LOWEST = np.array([(1 << 8 * count) - 1 for count in range(9)], _U)


class ByteTexts:
    """Bytes that contain texts, followed by `PADDING`."""

    def __init__(self, data: bytes) -> None:
        self._buffer = pa.py_buffer(data)
        # The eight bytes from each position on. NumPy would read numbers that are not aligned more
        # slowly than bytes.
        self._words = np.ndarray((len(data) - 7,), "S8", data, strides=(1,))

    def array(self, texts: Slices, is_there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """Return texts as an array.

        Args:
            texts: Their places, in any order.
            is_there: Whether each text is there; the others are null.

        Raises:
            UnicodeDecodeError: A text is not UTF-8.
        """
        copied = self._copied(texts, is_there)
        try:
            copied.validate(full=True)
        except pa.ArrowInvalid as error:
            raise UnicodeDecodeError("utf-8", b"", 0, 0, str(error)) from None
        return copied

    def joined(self, texts: Slices, ends: _Integers) -> pa.Array:
        """Return texts that consist of several parts, which are valid UTF-8.

        Args:
            texts: The parts in their order.
            ends: The number of parts up to the end of each text; ascending.
        """
        parts = self._copied(texts)
        starts, data = _bounds(parts), parts.buffers()[2]
        bounds = np.append(np.zeros(1, np.int32), starts[ends])
        return pa.Array.from_buffers(pa.string(), len(ends), [None, pa.py_buffer(bounds), data])

    def _copied(self, texts: Slices, is_there: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        bits = None
        if is_there is not None:
            bits = pa.py_buffer(np.packbits(is_there, bitorder="little").tobytes())
        views = pa.py_buffer(self._views(texts.start, texts.end - texts.start))
        kind, buffers = pa.string_view(), [bits, views, self._buffer]
        return pa.Array.from_buffers(kind, len(texts.start), buffers).cast(pa.string())

    def _views(self, start: _Integers, size: _Integers) -> npt.NDArray[Any]:
        views = np.empty((len(start), 2), _U)
        head = self._words[start].view("<u8") & _LOWEST[np.minimum(size, _HEAD)]
        tail = self._words[start + _HEAD].view("<u8") & _LOWEST[np.clip(size - _HEAD, 0, 8)]
        views[:, 0] = size.astype(_U) | (head << _U(32))
        views[:, 1] = np.where(size <= _INLINE, tail, start.astype(_U) << _U(32))
        return views


def text_bytes(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], _Integers]:
    """The bytes of an array of texts, and where each begins and the last one ends."""
    bounds, data = _bounds(texts).astype(np.int64), texts.buffers()[2]
    return np.frombuffer(data or b"", np.uint8)[: bounds[-1]], bounds


def _bounds(texts: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]


# An attribute is the first one of its object, or follows another value (1), or a text (2).
_FIRST = 0
_OPENINGS = (b"{", b",", b'",')
_ENDS = (b"{}", b"}", b'"}')


def json_objects(
    texts: ByteTexts, attributes: AttributeColumns, chosen: _Integers, count: int
) -> pa.Array:
    """Some attributes of each span as the text of a JSON object, as `dumps` writes it.

    Args:
        texts: The bytes that contain the attributes' texts.
        attributes: The attributes of all spans.
        chosen: The indexes of the attributes to write; ascending.
        count: The number of spans.

    Raises:
        UnicodeDecodeError: A text is not UTF-8.
    """
    parts = _Parts()
    is_text, span = attributes.is_text[chosen], attributes.span[chosen]
    values = _values(parts, texts, attributes, chosen)
    bounds = np.searchsorted(span, np.arange(count + 1))
    before = np.full(len(chosen), _FIRST)
    before[1:] = np.where(span[1:] != span[:-1], _FIRST, 1 + is_text[:-1])
    names = parts.add(_openings(attributes.keys))
    name = _only(names, (attributes.key[chosen] * 3 + before) * 2 + is_text)
    last = np.full(count, _FIRST)
    filled = bounds[1:] > bounds[:-1]
    last[filled] = 1 + is_text[bounds[1:][filled] - 1]
    end = _only(parts.add(_ENDS), last)
    position = 2 * np.arange(len(chosen)) + span
    ends = 2 * bounds[1:] + np.arange(count)
    start, stop = np.empty((2, 2 * len(chosen) + count), np.int64)
    for where, part in ((position, name), (position + 1, values), (ends, end)):
        start[where], stop[where] = part.start, part.end
    return ByteTexts(parts.data()).joined(Slices(start, stop), ends + 1)


def _openings(keys: Sequence[str]) -> list[bytes]:
    """The texts before a value: for each key, each predecessor, and no text or a text."""
    openings = []
    for key in keys:
        name = dumps(key).encode() + b":"
        openings += [opening + name + quote for opening in _OPENINGS for quote in (b"", b'"')]
    return openings


def _only(places: Slices, chosen: npt.NDArray[np.integer]) -> Slices:
    return Slices(places.start[chosen], places.end[chosen])


class _Parts:
    """The bytes of all parts, one after the other."""

    def __init__(self) -> None:
        self._data: list[bytes | memoryview] = []
        self._size = 0

    def data(self) -> bytes:
        return b"".join([*self._data, PADDING])

    def add(self, parts: Sequence[bytes]) -> Slices:
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        return self._added(b"".join(parts), np.append(0, np.cumsum(sizes)))

    def add_array(self, parts: pa.Array) -> tuple[Slices, npt.NDArray[np.uint8], _Integers]:
        """Add texts; return their places, all their bytes, and where each begins in these."""
        data, bounds = text_bytes(parts)
        return self._added(data.data, bounds), data, bounds

    def _added(self, data: bytes | memoryview, bounds: _Integers) -> Slices:
        places = Slices(bounds[:-1] + self._size, bounds[1:] + self._size)
        self._data.append(data)
        self._size += len(data)
        return places


def _values(
    parts: _Parts, texts: ByteTexts, attributes: AttributeColumns, chosen: _Integers
) -> Slices:
    """Add the values of attributes, a text without its quotes; return their places."""
    start, end = np.zeros((2, len(chosen)), np.int64)

    def put(where: _Integers, places: Slices) -> None:
        start[where], end[where] = places.start, places.end

    text = np.flatnonzero(attributes.is_text[chosen])
    text_array = texts.array(_only(attributes.text, chosen[text]))
    plain, data, bounds = parts.add_array(text_array)
    put(text, plain)
    escaped = _to_escape(data, bounds)
    written = [
        dumps(data[begin:stop].tobytes().decode())[1:-1].encode()
        for begin, stop in zip(bounds[escaped].tolist(), bounds[escaped + 1].tolist(), strict=True)
    ]
    put(text[escaped], parts.add(written))
    integer = np.flatnonzero(attributes.is_integer[chosen])
    digits = pa.array(attributes.number[chosen[integer]], pa.int64()).cast(pa.string())
    put(integer, parts.add_array(digits)[0])
    structured = np.fromiter(attributes.others, np.int64, len(attributes.others))
    structured = structured[np.isin(structured, chosen, assume_unique=True)]
    written = [dumps(attributes.others[index]).encode() for index in structured.tolist()]
    put(np.searchsorted(chosen, structured), parts.add(written))
    return Slices(start, end)


def _to_escape(data: npt.NDArray[np.uint8], bounds: _Integers) -> _Integers:
    """Which texts have a character that JSON escapes: a quote, a backslash, a control."""
    is_special = data < 0x20
    is_special |= data == 0x22
    is_special |= data == 0x5C
    # Of the texts that begin at the same place, all but the last are empty.
    return np.unique(np.searchsorted(bounds, np.flatnonzero(is_special), side="right") - 1)


_Integers = npt.NDArray[np.int64]
_MISSING = -1


def span_column_table(spans: SpanColumns) -> pa.Table:
    """Return spans as rows of ``spans``, numbered from 0.

    Args:
        spans: The spans.

    Raises:
        UnicodeDecodeError: A text of a span is not UTF-8.
    """
    attributes = _Attributes(spans)
    inputs, outputs = (attributes.first_text(names) for names in CONTENTS)
    texts = [attributes.promoted(names) for names in PROMOTED_TEXTS]
    numbers = [attributes.number(names) for names in PROMOTED_NUMBERS]
    origin = spans.origin
    columns = [
        _ids(spans.trace_id, 16),
        _ids(spans.span_id, 8),
        _ids(spans.parent_id, 8),
        attributes.source.array(spans.name),
        pa.array(spans.kind.astype(np.uint8)),
        pa.array(spans.start_ns),
        pa.array(spans.end_ns),
        pa.array(spans.status_code.astype(np.uint8)),
        attributes.source.array(spans.status_message),
        *(_shared(values, origin) for values in _of_origins(spans)),
        *texts,
        *numbers,
        attributes.key_names(inputs),
        attributes.texts(inputs),
        attributes.key_names(outputs),
        attributes.texts(outputs),
        attributes.remaining(inputs, outputs),
        *_rare(spans),
        pa.array(np.arange(len(spans), dtype=np.int64)),
    ]
    # The resource comes between the links and the rest.
    resources = _shared([dumps(origin.resource) for origin in spans.origins], origin)
    columns.insert(-2, resources)
    return with_identities(pa.Table.from_arrays(columns, schema=SPAN_SCHEMA))


def _of_origins(spans: SpanColumns) -> tuple[list[str], list[str], list[str]]:
    """The service, the scope and its version of each origin."""
    services = [str(origin.resource.get("service.name", "")) for origin in spans.origins]
    return (
        services,
        [origin.scope for origin in spans.origins],
        [origin.version for origin in spans.origins],
    )


def _shared(values: Sequence[str], origin: _Integers) -> pa.Array:
    return encodable_array(values, pa.string()).take(pa.array(origin))


def _rare(spans: SpanColumns) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The columns ``events``, ``links`` and ``rest``, which most spans leave empty."""
    whole_spans: Mapping[int, Span] = spans.whole
    events: list[str | None] = [None] * len(spans)
    links, other_fields = events.copy(), events.copy()
    texts: dict[tuple[int, int], str | None] = {}
    with_attributes = [index for index, origin in enumerate(spans.origins) if origin.attributes]
    filled = np.flatnonzero((spans.flags != 0) | np.isin(spans.origin, with_attributes))
    for index in filled.tolist():
        key = int(spans.origin[index]), int(spans.flags[index])
        if key not in texts:
            attributes = spans.origins[key[0]].attributes
            texts[key] = rest_text(Span("", "", scope_attributes=attributes, flags=key[1]))
        other_fields[index] = texts[key]
    for index, span in whole_spans.items():
        events[index] = events_text(span.events) if span.events else None
        links[index] = links_text(span.links) if span.links else None
        other_fields[index] = rest_text(span)
    arrays = (encodable_array(column, pa.string()) for column in (events, links, other_fields))
    return next(arrays), next(arrays), next(arrays)


def _ids(ids: bytes, size: int) -> pa.Array:
    """Return ids in hexadecimal digits; an id of zeros is empty."""
    words = np.frombuffer(ids, np.uint64).reshape(-1, size // 8)
    is_there: npt.NDArray[np.bool_] = (words != 0).any(axis=1)
    text = (ids if is_there.all() else words[is_there].tobytes()).hex()
    bounds = np.zeros(len(is_there) + 1, np.int32)
    np.cumsum(np.where(is_there, 2 * size, 0), out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text.encode())]
    return pa.Array.from_buffers(pa.string(), len(is_there), buffers)


class _Attributes:
    """The columns that attributes fill.

    `_MISSING` is the index of a missing attribute. It refers to the last value, so each array below
    has one more value for it.
    """

    def __init__(self, spans: SpanColumns) -> None:
        self._spans, self._all = spans, spans.attributes
        self.source = ByteTexts(spans.data)
        codes = {key: code for code, key in enumerate(self._all.keys)}
        self._is_text = np.append(self._all.is_text, False)
        self._start = np.append(self._all.text.start, 0)
        self._end = np.append(self._all.text.end, 0)
        self._key = np.append(self._all.key, len(codes))
        self._number = np.append(self._all.number, 0)
        self._of_key = {key: np.flatnonzero(self._all.key == code) for key, code in codes.items()}

    def _preferred(self, names: Sequence[str], is_valid: npt.NDArray[np.bool_]) -> _Integers:
        """Each span's attribute with the first of some names that has a valid value."""
        preferred = np.full(len(self._spans), _MISSING)
        for name in reversed(names):
            if (indexes := self._of_key.get(name)) is not None:
                indexes = indexes[is_valid[indexes]]
                preferred[self._all.span[indexes]] = indexes
        return preferred

    def first_text(self, names: Sequence[str]) -> _Integers:
        """Each span's attribute of some names that is a text."""
        return self._preferred(names, self._all.is_text)

    def promoted(self, names: Sequence[str]) -> pa.Array:
        """The first value of some names that is not empty, as a text."""
        attributes = self._all
        is_valid = np.ones(len(attributes.key), np.bool_)
        is_valid[attributes.is_text] = (attributes.text.end > attributes.text.start)[
            attributes.is_text
        ]
        for index, value in attributes.others.items():
            is_valid[index] = value is not None
        preferred = self._preferred(names, is_valid)
        odd = np.flatnonzero((preferred != _MISSING) & ~self._is_text[preferred])
        if not odd.size:
            return self.texts(preferred)
        values = self.texts(np.where(self._is_text[preferred], preferred, _MISSING)).to_pylist()
        for span in odd.tolist():
            values[span] = dumps(self._value(int(preferred[span])))
        return encodable_array(values, pa.string())

    def number(self, names: Sequence[str]) -> pa.Array:
        """The first integer of some names."""
        preferred = self._preferred(names, self._all.is_integer)
        is_missing = preferred == _MISSING
        if is_missing.all():
            return pa.nulls(len(preferred), pa.int64())
        return pa.array(self._number[preferred], pa.int64(), mask=is_missing)

    def texts(self, indexes: _Integers) -> pa.Array:
        """The texts of some attributes, null for a span without the attribute."""
        is_there = indexes != _MISSING
        if not is_there.any():
            return pa.nulls(len(indexes), pa.string())
        return self.source.array(Slices(self._start[indexes], self._end[indexes]), is_there)

    def key_names(self, indexes: _Integers) -> pa.Array:
        """The keys of some attributes, null for a span without the attribute."""
        keys = encodable_array([*self._all.keys, None], pa.string())
        return keys.take(pa.array(self._key[indexes]))

    def _value(self, index: int) -> Any:
        attributes = self._all
        if attributes.is_text[index]:
            return self._spans.data[
                attributes.text.start[index] : attributes.text.end[index]
            ].decode()
        return (
            int(attributes.number[index])
            if attributes.is_integer[index]
            else attributes.others[index]
        )

    def remaining(self, *stored: _Integers) -> pa.Array:
        """The attributes that have no column, as one JSON text for each span."""
        is_kept = np.ones(len(self._all.key), np.bool_)
        for indexes in stored:
            is_kept[indexes[indexes != _MISSING]] = False
        return json_objects(self.source, self._all, np.flatnonzero(is_kept), len(self._spans))
