from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from oteval.model import LogRecord, Span
from oteval.pipeline import refresh
from oteval.store import LooseRun, Range, Store

from ..make import ALL_WHEN_SLOW, CAPTURES, SOME_SEEDS, alike, capture, chat, span, told
from ..reconstruct import builders

INCREMENTAL = [
    "genai_openai_chat",
    "v2_legacy_chat",
    "pydantic_ai_v5_subagent",
    "langgraph_genai",
    "openai_agents_openinference",
]

Part = tuple[Sequence[Span], Sequence[LogRecord]]


def all_told(parts: Iterable[Part]) -> list[Any]:
    """Return what a new store says after each part was stored and reconstructed in turn."""
    with Store() as store:
        for spans, logs in parts:
            store.spans.write(spans, logs)
            refresh(store)
        return [told(trajectory) for trajectory in store.trajectories.read()]


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
def test_halves_come_to_what_the_whole_comes_to(name: str):
    """A capture loaded in two parts gives the trajectories that it gives at once."""
    spans, logs = capture(name)
    middle = len(spans) // 2

    assert all_told([(spans[:middle], logs), (spans[middle:], [])]) == all_told([(spans, logs)])


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
def test_one_span_at_a_time_comes_to_what_the_whole_comes_to(name: str):
    """A capture whose spans come one by one, as they ended, gives the same trajectories."""
    spans, logs = capture(name)
    parts = [([item], []) for item in sorted(spans, key=lambda item: item.end_ns)]

    assert all_told([([], logs), *parts]) == all_told([(spans, logs)])


@pytest.mark.parametrize("name", [name for name in CAPTURES if capture(name)[1]])
def test_logs_may_come_first_or_last(name: str):
    """Content in log records is found whether they come before the spans or after them."""
    spans, logs = capture(name)
    whole = all_told([(spans, logs)])

    assert all_told([([], logs), (spans, [])]) == whole
    assert all_told([(spans, []), ([], logs)]) == whole


def test_the_order_of_captures_does_not_matter():
    """Captures loaded one after the other come to what they come to in the opposite order."""
    parts = [capture(name) for name in INCREMENTAL]

    assert all_told(parts) == all_told(parts[::-1])


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_chats_that_begin_alike_may_come_in_any_parts(seed: int):
    """Many runs that say the same, in any parts and on any pages, follow those they did at once."""
    chance = random.Random(seed)
    spans = alike(5, chance)
    chance.shuffle(spans)
    whole = all_told([(spans, [])])

    assert all_told([(spans[at : at + 2], []) for at in range(0, len(spans), 2)]) == whole
    assert in_small_pages(spans) == whole


def in_small_pages(spans: Sequence[Span]) -> list[Any]:
    """Return what a new store says that reconstructs two traces at a time."""
    with Store() as store, pytest.MonkeyPatch.context() as patch:
        store.spans.write(spans)
        patch.setattr(store.pending, "pages", partial(store.pending.pages, 2))
        refresh(store)
        return [told(trajectory) for trajectory in store.trajectories.read()]


def test_of_runs_that_say_the_same_the_last_is_followed(store: Store):
    """The traces linked to a run are that of the last before it, not of all that said the same."""
    said = [("user", "hello")]
    again = [*said, ("assistant", "hi"), ("user", "well")]
    first = [chat(number, number, said, "hi") for number in (1, 2, 3)]
    store.spans.write([*first, chat(9, 9, again, "so")])
    refresh(store)
    (turn,) = [one for one in store.trajectories.read() if one.follows]
    runs = [LooseRun(turn.service, turn.chain, turn.follows, turn.start_ns)]

    found = store.related.by_messages(runs, [turn.root_span.trace_id], [Range(9, 9)])

    assert found == [f"{3:032x}"]
    assert turn.history is not None
    assert turn.history.root_span.trace_id == found[0]


def test_a_trace_that_a_run_of_another_is_made_of_is_told_with_it(store: Store):
    """A late span of the second trace of a run brings the first one, where the run is rooted."""
    spans, logs = capture("dup_openinference_langchain_and_openai")
    store.spans.write(spans, logs)
    refresh(store)
    run = next(one for one in store.trajectories.read() if len(one.trace_ids) > 1)

    found = store.related.by_runs([run.trace_ids[-1]])

    assert run.root_span.trace_id != run.trace_ids[-1]
    assert sorted(found) == sorted(run.trace_ids)


def test_only_what_came_since_is_pending(store: Store):
    """After a refresh nothing is pending; a new span makes its own trace pending."""
    store.spans.write([span(1, 1), span(2, 2)])
    assert store.pending.count() == 2
    refresh(store)
    assert (store.pending.count(), list(store.pending.pages())) == (0, [])

    store.spans.write([span(1, 3)])

    assert (store.pending.count(), list(store.pending.pages())) == (1, [[f"{1:032x}"]])


def test_a_log_record_makes_its_trace_pending(store: Store):
    """A record that comes to a known trace has it reconstructed again."""
    store.spans.write([span(1, 1), span(2, 2)])
    refresh(store)

    store.spans.write([], [LogRecord(f"{2:032x}", body="x")])

    assert list(store.pending.pages()) == [[f"{2:032x}"]]


def test_records_without_spans_wait_for_them(store: Store):
    """Records of a trace that has no spans yet give no page, and count when the spans come."""
    store.spans.write([], [LogRecord(f"{1:032x}", body="x")])
    assert list(store.pending.pages()) == []

    store.spans.write([span(1, 1)])

    assert list(store.pending.pages()) == [[f"{1:032x}"]]


def test_what_was_not_taken_to_the_end_stays_pending(store: Store):
    """Pages left in the middle, for instance by Ctrl-C, are given again."""
    store.spans.write([span(number, number) for number in range(1, 6)])

    pages = store.pending.pages(size=2)
    next(pages)
    pages.close()

    assert store.pending.count() == 5
    assert [len(page) for page in store.pending.pages(size=2)] == [2, 2, 1]


def test_conversations_are_never_split(store: Store):
    """However small a page, all traces of a conversation are on one."""
    store.spans.write(
        [
            span(number, number, attributes={"gen_ai.conversation.id": f"c{number % 3}"})
            for number in range(1, 10)
        ]
    )

    pages = [sorted(int(trace, 16) % 3 for trace in page) for page in store.pending.pages(size=1)]

    assert pages == [[1, 1, 1], [2, 2, 2], [0, 0, 0]]


def test_conversations_that_share_a_trace_go_together(store: Store):
    """A trace of two conversations holds both together, as does a chain of such traces."""
    links = [(1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c"), (5, "d"), (6, None)]
    store.spans.write(
        [
            span(trace, number, attributes={"session.id": conversation} if conversation else {})
            for number, (trace, conversation) in enumerate(links, 1)
        ]
    )

    pages = [[int(trace, 16) for trace in page] for page in store.pending.pages(size=1)]

    assert pages == [[1, 2, 3], [4, 5], [6]]


def test_a_new_turn_brings_all_that_hang_together_with_it(store: Store):
    """Known traces are pending again when a span comes to a conversation they reach."""
    store.spans.write(
        [
            span(1, 1, attributes={"session.id": "a"}),
            span(2, 2, attributes={"session.id": "a"}),
            span(2, 3, attributes={"session.id": "b"}),
            span(9, 9),
        ]
    )
    refresh(store)

    store.spans.write([span(3, 4, attributes={"session.id": "b"})])

    pages = [[int(trace, 16) for trace in page] for page in store.pending.pages()]
    assert pages == [[1, 2, 3]]


def test_a_trace_of_two_conversations_keeps_both_histories():
    """A late turn of one conversation does not cut what its trace has of another."""
    first = chat(1, 1, [("user", "q1")], "a1", **{"gen_ai.conversation.id": "x"})
    both = [
        chat(
            2,
            2,
            [("user", "q1"), ("assistant", "a1"), ("user", "q2")],
            "a2",
            **{"gen_ai.conversation.id": "x"},
        ),
        chat(2, 3, [("user", "p1")], "b1", **{"gen_ai.conversation.id": "y"}),
    ]
    late = chat(
        3,
        4,
        [("user", "p1"), ("assistant", "b1"), ("user", "p2")],
        "b2",
        **{"gen_ai.conversation.id": "y"},
    )

    parts = [([first, *both], []), ([late], [])]

    assert all_told(parts) == all_told([([first, *both, late], [])])


def test_turns_without_a_conversation_id_find_each_other():
    """A run is stitched to the one that its messages continue, in whatever order they come."""
    turns = [
        chat(1, 1, [("user", "q1")], "a1"),
        chat(2, 2, [("user", "q1"), ("assistant", "a1"), ("user", "q2")], "a2"),
        chat(
            3,
            3,
            [
                ("user", "q1"),
                ("assistant", "a1"),
                ("user", "q2"),
                ("assistant", "a2"),
                ("user", "q3"),
            ],
            "a3",
        ),
    ]
    whole = all_told([(turns, [])])

    assert [plain.turn for plain, _ in whole] == [1, 2, 3]
    assert all_told([([turn], []) for turn in turns]) == whole
    assert all_told([([turn], []) for turn in reversed(turns)]) == whole
    assert all_told([([turns[1]], []), ([turns[0], turns[2]], [])]) == whole


def test_many_pages_come_to_what_one_comes_to(monkeypatch: pytest.MonkeyPatch):
    """The fetching of pages in parts gives every trace once."""
    monkeypatch.setattr("oteval.store.progress._FETCHED", 3)
    with Store() as store:
        store.spans.write([span(number, number) for number in range(1, 11)])

        pages = list(store.pending.pages(size=4))

    assert [int(trace, 16) for page in pages for trace in page] == list(range(1, 11))
    assert [len(page) for page in pages] == [4, 4, 2]


def test_tools_in_traces_of_their_own_find_the_call_that_asked():
    """One trace at a time, in any order, comes to what all at once comes to."""
    second = 10**9
    asked = builders.asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))
    given = [builders.gives("r1", "k1"), builders.gives("r2", "k2")]
    question, answer = builders.user("q"), builders.said("a")
    parts = [
        builders.chat("c", second, [question], asked, trace="a" * 32),
        builders.tool("s", 2 * second, id="k1", args='{"x": 1}', trace="b" * 32),
        builders.tool("t", 3 * second, args='{"x": 2}', trace="c" * 32),
        builders.chat("d", 4 * second, [question, asked, *given], answer, trace="d" * 32),
    ]
    whole = all_told([(parts, [])])

    assert len(whole) == 1
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [2, 0, 3, 1]):
        assert all_told([([parts[i]], []) for i in order]) == whole
