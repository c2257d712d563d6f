"""When a trace is complete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oteval.config import Completion
from oteval.live.completion import Tracker
from oteval.store import Arrival

SECOND = 1_000_000_000
DEFAULT = Completion()


def came(name: str = "t", *, root: bool = False, number: int = 1) -> Arrival:
    return Arrival(name, root, number, number)


def names(tracker: Tracker, seconds: float) -> list[tuple[str, str]]:
    due = tracker.due(round(seconds * SECOND), 100)
    return [(one.completed.trace_id, one.completed.reason) for one in due]


def test_a_trace_with_its_root_is_complete_once_it_is_quiet() -> None:
    """Five quiet seconds after the last span complete a trace whose root has ended."""
    tracker = Tracker(DEFAULT)
    tracker.came([came(root=True)], 0)
    tracker.came([came(number=2)], 3 * SECOND)

    assert names(tracker, 7.9) == []
    assert names(tracker, 8) == [("t", "quiet")]
    assert names(tracker, 9) == []


def test_without_a_root_it_must_be_idle() -> None:
    """A trace whose root never comes is complete after the idle time."""
    tracker = Tracker(DEFAULT)
    tracker.came([came()], 0)

    assert names(tracker, 299) == []
    assert names(tracker, 300) == [("t", "idle")]


def test_a_trace_that_never_rests_is_complete_when_it_is_old() -> None:
    """Spans every second cannot keep a trace open for longer than its greatest age."""
    tracker = Tracker(Completion(max_age="20s"))
    for second in range(20):
        tracker.came([came(root=True, number=second + 1)], second * SECOND)

    assert names(tracker, 19.5) == []
    assert names(tracker, 20) == [("t", "max_age")]


def test_a_late_span_opens_it_again_for_a_quiet_time() -> None:
    """What comes after completion is waited out as if the root were among it."""
    tracker = Tracker(DEFAULT)
    tracker.came([came(root=True)], 0)
    names(tracker, 5)

    tracker.came([came(number=9)], 60 * SECOND, complete_before={"t"})

    assert names(tracker, 64) == []
    assert names(tracker, 65) == [("t", "quiet")]


def test_another_configuration_holds_for_open_traces() -> None:
    """A shorter quiet time counts for traces that are open already."""
    tracker = Tracker(DEFAULT)
    tracker.came([came(root=True)], 0)

    tracker.configure(Completion(quiet="1s"))

    assert names(tracker, 1) == [("t", "quiet")]


def test_a_clock_set_back_completes_nothing_early() -> None:
    """A span with an earlier time than the last does not shorten the quiet time."""
    tracker = Tracker(DEFAULT)
    tracker.came([came(root=True)], 100 * SECOND)
    tracker.came([came(number=2)], 10 * SECOND)

    assert names(tracker, 104) == []
    assert names(tracker, 105) == [("t", "quiet")]


def test_the_floor_is_before_the_first_span_of_what_is_open() -> None:
    """All up to the floor is of complete traces: reading on from there misses nothing."""
    tracker = Tracker(DEFAULT)
    tracker.came([came("a", root=True, number=1), came("b", number=5)], 0)
    tracker.came([came("a", number=9)], SECOND)

    assert tracker.floor(9) == 0
    names(tracker, 6)
    assert tracker.floor(9) == 4
    names(tracker, 300)
    assert tracker.floor(9) == 9


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
    tracker = Tracker(completion)
    model: dict[str, tuple[int, int, bool]] = {}
    done: set[str] = set()
    now = 0
    for number, (name, is_root, step, looks) in enumerate(events, 1):
        now += step
        first, _, root = model.get(name, (now, now, False))
        model[name] = (first, now, root or is_root or name in done)
        tracker.came([Arrival(name, is_root, number, number)], now * SECOND, frozenset(done))
        if looks:
            expected = {
                key
                for key, (first, last, root) in model.items()
                if now >= min([last + 10, first + 25] + ([last + 3] if root else []))
            }
            found = {one.completed.trace_id for one in tracker.due(now * SECOND, 100)}
            assert found == expected
            done |= found
            for key in found:
                del model[key]
        assert len(tracker) == len(model)
    late = {one.completed.trace_id for one in tracker.due((now + 300) * SECOND, 100)}
    assert late == set(model)
