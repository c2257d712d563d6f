"""Edits of text: replacements by their places, applied at once, also to text in pieces."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..patterns import Pattern

__all__ = ["Edit", "edited", "edited_pieces", "merged", "spans_in"]


class Edit(NamedTuple):
    """A replacement of a part of a text.

    Attributes:
        start: The index of the first replaced character.
        end: The index after the last replaced character.
        text: The replacement.
    """

    start: int
    end: int
    text: str


def merged(edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in order, without overlaps: of several, the first and longest counts.

    It then replaces everything that the others would have replaced.
    """
    out: list[Edit] = []
    for edit in sorted(edits, key=lambda edit_to_sort: (edit_to_sort.start, -edit_to_sort.end)):
        if out and edit.start < out[-1].end:
            if edit.end > out[-1].end:
                out[-1] = out[-1]._replace(end=edit.end)
        else:
            out.append(edit)
    return out


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text with edits applied; the edits are in order and do not overlap."""
    out = []
    end = 0
    for edit in edits:
        out += [text[end : edit.start], edit.text]
        end = edit.end
    return "".join([*out, text[end:]])


def edited_pieces(
    text: str, edits: Sequence[Edit], pieces: Sequence[bytes], encoding: str
) -> list[bytes]:
    """The pieces of an encoded text with edits applied.

    If the replaced text lies in several pieces, its replacement is in the first of them.

    Args:
        text: The decoded text of all pieces.
        edits: The edits, in order and without overlaps.
        pieces: The pieces; a character may be divided between two.
        encoding: The encoding of the text.
    """
    data_before = b"".join(pieces)
    olds: list[int] = []  # the end of each edit in the old bytes
    news: list[int] = []  # and in the new bytes
    starts: list[int] = []
    out: list[bytes] = []
    old = new = end = 0
    for edit in edits:
        unchanged = text[end : edit.start].encode(encoding)
        replacement = edit.text.encode(encoding, "xmlcharrefreplace")
        old, new = old + len(unchanged), new + len(unchanged) + len(replacement)
        starts.append(old)
        old += len(text[edit.start : edit.end].encode(encoding))
        olds.append(old)
        news.append(new)
        out += [unchanged, replacement]
        end = edit.end
    data = b"".join([*out, data_before[old:]])

    def moved(index: int) -> int:
        """The place in the new bytes of a border between old pieces."""
        at = bisect_right(starts, index - 1) - 1
        if at < 0:
            return index
        return news[at] if index < olds[at] else news[at] + index - olds[at]

    borders = [0]
    length = 0
    for piece in pieces:
        length += len(piece)
        borders.append(moved(length))
    return [data[start:end] for start, end in pairwise(borders)]


def spans_in(
    pattern: Pattern, text: str, stretches: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Yield the places of the matches of a pattern in stretches of a text."""
    for first, last in stretches:
        for start, end in pattern.spans(text[first:last]):
            yield first + start, first + end
