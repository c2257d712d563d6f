"""The fields of many protobuf messages at once, as NumPy arrays.

One step reads the next field of every message that has another field, so all messages share the
work per field. Format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "FIXED32",
    "FIXED64",
    "LENGTH",
    "PADDING",
    "VARINT",
    "Integers",
    "WireBuffer",
    "WireFields",
    "read_fields",
    "read_varint",
]

Integers = npt.NDArray[np.int64]
_Bytes = npt.NDArray[np.uint8]
_U = np.uint64

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
PADDING = bytes(16)
"""Must follow the last message, so that reading a number never leaves the buffer."""

# A step costs as much as reading some dozens of fields one by one. After this many steps, the
# caller must read the remaining few long messages.
_MANY_STEPS, _FEW_MESSAGES = 32, 64
_MAX_VARINT = 10  # bytes


@dataclass(frozen=True, slots=True)
class WireFields:
    """WireFields in the order of their messages.

    Attributes:
        message: The index of each field's message; ascending.
        number: The number of the field.
        wire: The wire type: 0 varint, 1 64-bit, 2 length-delimited, 5 32-bit.
        start: Where the content begins.
        end: Where the content ends.
        value: The number of a varint, or of fixed bytes, as 64 bits; else 0.
        is_left: For each message, whether it was left out because it is malformed or too long.
    """

    message: Integers
    number: Integers
    wire: Integers
    start: Integers
    end: Integers
    value: npt.NDArray[np.uint64]
    is_left: npt.NDArray[np.bool_]

    def only(self, chosen: Integers) -> WireFields:
        """Some of the fields, by their indexes."""
        return WireFields(
            self.message[chosen],
            self.number[chosen],
            self.wire[chosen],
            self.start[chosen],
            self.end[chosen],
            self.value[chosen],
            self.is_left,
        )


class WireBuffer:
    """The bytes of messages, followed by `PADDING`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.array: _Bytes = np.frombuffer(data, np.uint8)
        # The eight bytes from each position on. NumPy would read numbers that are not aligned more
        # slowly than bytes.
        self._words = np.ndarray((len(data) - 7,), "S8", data, strides=(1,))

    def words(self, at: Integers) -> npt.NDArray[np.uint64]:
        """The eight bytes at each position as a number."""
        return self._words[at].view("<u8")

    def varints(self, at: Integers) -> tuple[npt.NDArray[np.uint64], Integers]:
        """The varints at some positions, and their sizes; size 0 if a varint has no end."""
        first = self.array[at]
        values = (first & 0x7F).astype(np.uint64)
        sizes = np.ones(len(at), np.int64)
        going = np.flatnonzero(first & 0x80)
        for count in range(1, _MAX_VARINT):
            if not going.size:
                return values, sizes
            byte = self.array[at[going] + count]
            values[going] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * count)
            sizes[going] = count + 1
            going = going[(byte & 0x80) != 0]
        sizes[going] = 0
        return values, sizes

    def distinct(self, start: Integers, end: Integers) -> tuple[Integers, Integers]:
        """Find the different texts among many that are mostly equal.

        Returns:
            The index of the first occurrence of each different text; and for every text, its index
            among the different texts.
        """
        size = end - start
        # The first and the last eight bytes; the bytes after a shorter text are cut off.
        mask = np.where(size < 8, (_U(1) << (8 * size % 64).astype(_U)) - _U(1), ~_U(0))
        head = self.words(start) & mask
        tail = self.words(np.where(size < 8, start, end - 8)) & mask
        sums = head * _U(0x9E3779B97F4A7C15) ^ (tail + size.astype(_U)) * _U(0xC2B2AE3D27D4EB4F)
        _, first, which = np.unique(sums, return_index=True, return_inverse=True)
        same = first[which]
        is_equal = (size == size[same]) & (head == head[same]) & (tail == tail[same])
        for offset in range(8, int(size.max(initial=0)) - 8, 8):
            inner = np.flatnonzero(size - 8 > offset)
            words = self.words(start[inner] + offset), self.words(start[same[inner]] + offset)
            is_equal[inner] &= words[0] == words[1]
        if is_equal.all():
            return first, which
        return self._distinct_one_by_one(start, end)

    def _distinct_one_by_one(self, start: Integers, end: Integers) -> tuple[Integers, Integers]:
        """Find the different texts if some were constructed to have equal sums."""
        numbers: dict[bytes, int] = {}
        first: list[int] = []
        which: list[int] = []
        for index, bounds in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
            which.append(numbers.setdefault(self.data[slice(*bounds)], len(numbers)))
            if len(numbers) > len(first):
                first.append(index)
        return np.array(first, np.int64), np.array(which, np.int64)


def read_fields(buffer: WireBuffer, start: Integers, end: Integers) -> WireFields:
    """Read the fields of messages.

    Args:
        buffer: Their bytes.
        start: Where each message begins.
        end: Where each message ends.
    """
    left = np.zeros(len(start), np.bool_)
    at, active = start.copy(), np.flatnonzero(start < end)
    steps: list[tuple[npt.NDArray[Any], ...]] = []
    while active.size:
        if len(steps) >= _MANY_STEPS and active.size < _FEW_MESSAGES:
            left[active] = True
            break
        limit = end[active]
        begin = at[active]
        tags, tag_size = buffer.varints(begin)
        wire = (tags & _U(7)).astype(np.int64)
        begin += tag_size
        value, size = buffer.varints(np.minimum(begin, limit))
        is_fixed = (wire == FIXED64) | (wire == FIXED32)
        if is_fixed.any():
            word = buffer.words(np.minimum(begin[is_fixed], limit[is_fixed]))
            narrow = wire[is_fixed] == FIXED32
            value[is_fixed] = np.where(narrow, word & _U(0xFFFFFFFF), word)
            size[is_fixed] = np.where(narrow, 4, 8)
        is_text = wire == LENGTH
        # A length that leaves the message is cut here, so that the sum cannot overflow.
        length = np.minimum(value, _U(len(buffer.data))).astype(np.int64)
        begin += np.where(is_text, size, 0)
        stop = begin + np.where(is_text, length, size)
        is_valid = (tag_size > 0) & (size > 0) & (stop <= limit) & (tags >= _U(8))
        is_valid &= (tags < _U(1 << 32)) & (is_fixed | is_text | (wire == VARINT))
        if not is_valid.all():
            left[active[~is_valid]] = True
            active, tags = active[is_valid], tags[is_valid]
            begin, stop, value = begin[is_valid], stop[is_valid], value[is_valid]
            limit = limit[is_valid]
        steps.append((active, tags, begin, stop, value))
        at[active] = stop
        active = active[stop < limit]
    return _in_order(steps, left)


def _in_order(steps: list[tuple[npt.NDArray[Any], ...]], left: npt.NDArray[np.bool_]) -> WireFields:
    """The fields of all steps, message by message."""
    counts = np.zeros(len(left), np.int64)
    for active, *_ in steps:
        counts[active] += 1
    ends = np.cumsum(counts)
    total = int(counts.sum())
    tags, value = np.empty((2, total), _U)
    start, end = np.empty((2, total), np.int64)
    # A message has a field in each step until its last field.
    for number, (active, *columns) in enumerate(steps):
        position = ends[active] - counts[active] + number
        for column, values in zip((tags, start, end, value), columns, strict=True):
            column[position] = values
    message = np.repeat(np.arange(len(left)), counts)
    numbers, wire = (tags >> _U(3)).astype(np.int64), (tags & _U(7)).astype(np.int64)
    return WireFields(message, numbers, wire, start, end, value, left)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return one varint and the position after it.

    Raises:
        ValueError: It has no end.
    """
    value = shift = 0
    for position in range(at, min(at + _MAX_VARINT, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise ValueError("a varint without an end")
