"""The tracker decides when a trace has ended."""

from __future__ import annotations

from hypothesis import given, strategies as st

from oteval.scoring.config import Completion
from oteval.serve.tracker import TraceTracker
from oteval.store import TraceArrival

SECOND = 1_000_000_000
DEFAULT = Completion()


def arrival(name: str = "t", *, root: bool = False, number: int = 1) -> TraceArrival:
    return TraceArrival(name, root, number, number)


def ended(tracker: TraceTracker, seconds: float) -> list[tuple[str, str]]:
    """Return the traces that have ended at a time with the reasons, and confirm them."""
    taken = tracker.take_ended(round(seconds * SECOND), 100)
    tracker.confirm([trace.trace_id for trace in taken])
    return [(trace.trace_id, trace.reason) for trace in taken]


def test_a_trace_with_its_root_is_complete_once_it_is_quiet() -> None:
    """Five quiet seconds after the last span complete a trace whose root has ended."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival(root=True)], 0)
    tracker.add([arrival(number=2)], 3 * SECOND)

    assert ended(tracker, 7.9) == []
    assert ended(tracker, 8) == [("t", "quiet")]
    assert ended(tracker, 9) == []


def test_without_a_root_it_must_be_idle() -> None:
    """A trace whose root never comes is complete after the idle time."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival()], 0)

    assert ended(tracker, 299) == []
    assert ended(tracker, 300) == [("t", "idle")]


def test_a_trace_that_never_rests_is_complete_when_it_is_old() -> None:
    """Spans every second cannot keep a trace open for longer than its greatest age."""
    tracker = TraceTracker(Completion(max_age="20s"))
    for second in range(20):
        tracker.add([arrival(root=True, number=second + 1)], second * SECOND)

    assert ended(tracker, 19.5) == []
    assert ended(tracker, 20) == [("t", "max_age")]


def test_traces_that_end_at_once_are_taken_in_the_order_of_storage() -> None:
    """After a pause, scores follow the order in which runs arrived, whatever their ids are."""
    tracker = TraceTracker(DEFAULT)
    names = ["m", "z", "a"]
    tracker.add([arrival(name, root=True, number=n) for n, name in enumerate(names, 1)], 0)

    assert ended(tracker, 9) == [(name, "quiet") for name in names]


def test_a_late_span_opens_it_again_for_a_quiet_time() -> None:
    """What comes after completion is waited out as if the root were among it."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival(root=True)], 0)
    ended(tracker, 5)

    tracker.add([arrival(number=9)], 60 * SECOND, completed_before={"t"})

    assert ended(tracker, 64) == []
    assert ended(tracker, 65) == [("t", "quiet")]


def test_another_configuration_holds_for_open_traces() -> None:
    """A shorter quiet time counts for traces that are open already."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival(root=True)], 0)

    tracker.configure(Completion(quiet="1s"))

    assert ended(tracker, 1) == [("t", "quiet")]


def test_a_clock_set_back_completes_nothing_early() -> None:
    """A span with an earlier time than the last does not shorten the quiet time."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival(root=True)], 100 * SECOND)
    tracker.add([arrival(number=2)], 10 * SECOND)

    assert ended(tracker, 104) == []
    assert ended(tracker, 105) == [("t", "quiet")]


def test_the_floor_is_before_the_first_span_of_what_is_open() -> None:
    """All up to the floor is of complete traces: reading on from there misses nothing."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival("a", root=True, number=1), arrival("b", number=5)], 0)
    tracker.add([arrival("a", number=9)], SECOND)

    assert tracker.floor(9) == 0
    ended(tracker, 6)
    assert tracker.floor(9) == 4
    ended(tracker, 300)
    assert tracker.floor(9) == 9


def test_the_floor_stays_below_a_trace_until_the_store_has_its_end() -> None:
    """A trace that was taken and not confirmed is read again after a crash; so is one reopened."""
    tracker = TraceTracker(DEFAULT)
    tracker.add([arrival("a", root=True, number=3)], 0)

    taken = tracker.take_ended(6 * SECOND, 100)

    assert tracker.floor(3) == 2
    assert tracker.floor(3, {"a"}) == 3
    tracker.reopen(taken)
    assert tracker.floor(3, {"a"}) == 2
    assert ended(tracker, 6) == [("a", "quiet")]
    assert tracker.floor(3) == 3


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.booleans(),
        st.integers(min_value=0, max_value=20),
        st.booleans(),
    ),
    max_size=40,
)


@given(EVENTS)
def test_any_order_and_times_complete_as_the_definition_says(
    events: list[tuple[str, bool, int, bool]],
) -> None:
    """At every moment exactly those traces are complete of which the definition says so."""
    completion = Completion(quiet=3, idle=10, max_age=25)
    tracker = TraceTracker(completion)
    model: dict[str, tuple[int, int, bool]] = {}
    done: set[str] = set()
    now = 0
    for number, (name, is_root, step, looks) in enumerate(events, 1):
        now += step
        first, _, root = model.get(name, (now, now, False))
        model[name] = (first, now, root or is_root or name in done)
        tracker.add([TraceArrival(name, is_root, number, number)], now * SECOND, frozenset(done))
        if looks:
            expected = {
                key
                for key, (first, last, root) in model.items()
                if now >= min([last + 10, first + 25] + ([last + 3] if root else []))
            }
            found = {trace.trace_id for trace in tracker.take_ended(now * SECOND, 100)}
            assert found == expected
            done |= found
            for key in found:
                del model[key]
        assert len(tracker) == len(model)
    late = {trace.trace_id for trace in tracker.take_ended((now + 300) * SECOND, 100)}
    assert late == set(model)
