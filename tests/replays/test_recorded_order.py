"""What precedes what: any order that the recording allows passes, any other one is reported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, strategies as st

from oteval.replays.replay_order import HappenedBefore, RecordedEvent

times = st.tuples(st.integers(1, 30), st.integers(1, 8))


def events_of(intervals: Sequence[tuple[int, int]], thread: str = "main") -> list[RecordedEvent]:
    """Return events of one thread from their starts and durations."""
    return [
        RecordedEvent(f"event {number}", start, start + duration, thread)
        for number, (start, duration) in enumerate(intervals)
    ]


def precedes(earlier: RecordedEvent, later: RecordedEvent) -> bool:
    return earlier.end_ns < later.start_ns


def reported(events: Sequence[RecordedEvent], order: Sequence[int]) -> list[tuple[int, str]]:
    """Return the events that came too late in an order, each with the one that came before it."""
    happened = HappenedBefore(events)
    overtaken = ((index, happened.arrived(index)) for index in order)
    return [(index, early.name) for index, early in overtaken if early is not None]


def names(events: Sequence[RecordedEvent], order: Sequence[int]) -> set[int]:
    return {index for index, _ in reported(events, order)}


@given(st.lists(times, min_size=1, max_size=6), st.randoms())
def test_every_violation_of_an_order_of_intervals_is_reported(
    intervals: list[tuple[int, int]], random: object
) -> None:
    """An event is reported if, and only if, one came before it that it precedes."""
    events = events_of(intervals)
    order = list(range(len(events)))
    random.shuffle(order)  # type: ignore[attr-defined]

    late = {
        index
        for position, index in enumerate(order)
        if any(precedes(events[index], events[earlier_index]) for earlier_index in order[:position])
    }

    assert names(events, order) == late
    for index, early in reported(events, order):
        assert precedes(events[index], events[int(early.split()[1])])


@given(st.lists(times, min_size=1, max_size=5))
def test_every_linear_extension_passes(intervals: list[tuple[int, int]]) -> None:
    """All orders in which nothing comes before what precedes it are orders of the recording."""
    events = events_of(intervals)
    for order in permutations(range(len(events))):
        is_allowed = not any(
            precedes(events[later], events[earlier])
            for position, later in enumerate(order)
            for earlier in order[:position]
        )
        assert (not reported(events, order)) == is_allowed


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.lists(st.integers(1, 5), min_size=1, max_size=5),
    st.integers(0, 3),
    st.randoms(),
    st.sampled_from(["thread", "conversation"]),
)
def test_two_strands_at_the_same_time_may_be_merged_in_any_way(
    durations: list[int], other_durations: list[int], delay: int, random: object, kind: str
) -> None:
    """Of threads or conversations that overlapped, each keeps its own order and no other."""

    def strand(name: str, lengths: list[int], start: int) -> list[RecordedEvent]:
        reports = []
        for number, length in enumerate(lengths):
            labels = {"thread": f"task {name}"} if kind == "thread" else {"conversation": name}
            end = start + 2 * length
            reports.append(RecordedEvent(f"{name}{number}", start, end, **labels))
            start = end + 2
        return reports

    events = [
        *strand("a", durations, 1),
        *strand("b", other_durations, 1 + min(delay, durations[0])),
    ]
    first, second = list(range(len(durations))), list(range(len(durations), len(events)))
    order = []
    while first or second:
        source = first if not second or (first and random.random() < 0.5) else second  # type: ignore[attr-defined]
        order.append(source.pop(0))

    assert not reported(events, order)
    if len(durations) > 1:
        swapped = [1, 0, *range(2, len(events))]
        assert names(events, swapped) == {0}


def test_threads_one_after_the_other_keep_their_order() -> None:
    """A sequential agent whose framework runs each step in another thread is still sequential."""
    events = [
        RecordedEvent(f"event {number}", number * 10, number * 10 + 5, f"thread {number}")
        for number in range(1, 4)
    ]

    assert not reported(events, [0, 1, 2])
    assert reported(events, [1, 0, 2]) == [(0, "event 2")]


@pytest.mark.parametrize(
    "threads",
    [
        pytest.param(["pool 1", "pool 2", "pool 1", "pool 2"], id="a pool"),
        pytest.param(["task 1", "task 2", "task 3", "task 4"], id="a semaphore"),
    ],
)
def test_work_that_others_could_have_taken_up_has_no_order(threads: list[str]) -> None:
    """Of four jobs for two workers, which one takes up the third, and when, is chance."""
    events = [
        RecordedEvent("first", 10, 20, threads[0]),
        RecordedEvent("second", 12, 30, threads[1]),
        RecordedEvent("third", 22, 40, threads[2]),
        RecordedEvent("fourth", 32, 50, threads[3]),
    ]

    for order in permutations(range(4)):
        assert not reported(events, order)


def test_a_step_after_parallel_ones_comes_after_them() -> None:
    """Checks in two tasks overlap; the payment after both is in the task that waits for them."""
    events = [
        RecordedEvent("one check", 10, 20, "task 1"),
        RecordedEvent("another check", 12, 22, "task 2"),
        RecordedEvent("payment", 30, 40, "main"),
    ]

    assert not reported(events, [1, 0, 2])
    assert reported(events, [2, 0, 1]) == [(0, "payment"), (1, "payment")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"start_ns": 0, "end_ns": 0}, {}, id="no times"),
        pytest.param({"end_ns": 10}, {}, id="no duration"),
        pytest.param({"clock": "other"}, {}, id="two clocks"),
        pytest.param({"end_ns": 30}, {}, id="ended as the other began"),
    ],
)
def test_what_has_no_order(first: dict[str, object], second: dict[str, object]) -> None:
    """Without times that can be compared, nothing is out of order."""
    events = [
        RecordedEvent(**{"name": "first", "start_ns": 10, "end_ns": 20, **first}),  # type: ignore[arg-type]
        RecordedEvent(**{"name": "second", "start_ns": 30, "end_ns": 40, **second}),  # type: ignore[arg-type]
    ]

    assert not reported(events, [1, 0])


def test_events_of_unknown_threads_are_ordered_where_nothing_overlapped() -> None:
    """Without threads, events at the same time show that there are several of them."""
    pay = RecordedEvent("pay", 40, 45)
    alone = [RecordedEvent("ask", 10, 20), pay]
    crowded = [*alone, RecordedEvent("left", 15, 25), RecordedEvent("right", 22, 38)]

    assert reported(alone, [1, 0]) == [(0, "pay")]
    assert not reported(crowded, [1, 0, 2])


def test_requests_inside_a_tool_are_not_beside_it() -> None:
    """A tool that asks a model, or sends a request, is no second strand."""
    tool = RecordedEvent("tool", 10, 50, is_tool=True)
    events = [tool, RecordedEvent("inside", 20, 30), RecordedEvent("after", 60, 70)]

    assert reported(events, [2, 0]) == [(0, "after")]


def test_what_never_comes_is_not_out_of_order() -> None:
    """A cached request, or an event of another process, does not hold up those after it."""
    events = events_of([(1, 5), (10, 5), (20, 5)])

    assert not reported(events, [0, 2])
    assert not reported(events, [1, 2])
