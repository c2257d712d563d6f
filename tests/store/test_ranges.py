"""Ranges that limit a query."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, strategies as st

from oteval.store import Range, merge_ranges

ENDS = st.integers(-1000, 1000)


@given(st.lists(st.builds(Range, ENDS, ENDS), max_size=30), st.integers(0, 50), st.integers(1, 5))
def test_merged_ranges_cover_all_ranges(ranges: list[Range], near: int, most: int) -> None:
    """Merged ranges cover the given ones, and are few, ordered and apart."""
    found = merge_ranges(ranges, near, most)

    assert len(found) <= most
    for one in ranges:
        assert one.first > one.last or any(
            held.first <= one.first and one.last <= held.last for held in found
        )
    assert all(left.last + near < right.first for left, right in pairwise(found))
    assert {one.first for one in found} <= {one.first for one in ranges}
    assert {one.last for one in found} <= {one.last for one in ranges}
