"""The compact set of trace ids."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oteval.serve import tracker
from oteval.serve.tracker import HashSet
from oteval.store import CompletedTrace, Store


@given(st.lists(st.lists(st.integers(0, 500), max_size=60), max_size=12))
def test_it_has_what_was_added_and_nothing_else(parts: list[list[int]]) -> None:
    """However texts are added, in whatever runs they are kept, it holds those and no others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tracker, "_MAX_UNSORTED", 7)
        found = HashSet()
        for part in parts:
            found.add(map(str, part))

    known = {str(number) for part in parts for number in part}
    assert {text for text in map(str, range(501)) if text in found} == known


def test_it_begins_with_what_the_store_knows(store: Store) -> None:
    """The hashes that SQL makes of traces are those that are looked for."""
    names = [f"{number:032x}" for number in range(3000)] + ["déjà vu", ""]
    store.live.note_completions([CompletedTrace(name, 1, "quiet", 1) for name in names[::2]], 1, 1)

    found = HashSet(store.live.trace_keys())

    assert [name in found for name in names] == [True, False] * (len(names) // 2)
    assert len(found) == len(names[::2])
