"""Attributes of many spans as JSON objects, one for each span, without a Python object for most.

An object is put together from parts: ``{"key":"``, a value, ``","key":``, and so on. Texts without
a character that JSON escapes are parts of the received bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..base.jsontext import dumps
from ..model import AttributeColumns, Slices
from .byte_texts import PADDING, ByteTexts, text_bytes

__all__ = ["json_objects"]

_Integers = npt.NDArray[np.int64]

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
