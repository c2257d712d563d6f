from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest

from oteval.model import LogRecord, Span
from oteval.scoring import refresh
from oteval.store import LooseRun, Range, Store

from ..make import (
    ALL_WHEN_SLOW,
    CAPTURES,
    SOME_SEEDS,
    alike,
    capture,
    chat,
    retried,
    span,
    told,
)
from ..reconstruct import builders

INCREMENTAL = [
    "genai_openai_chat",
    "v2_legacy_chat",
    "pydantic_ai_v5_subagent",
    "langgraph_genai",
    "openai_agents_openinference",
]

# The reconstruction after every span takes seconds when there are many. The hardest capture, with
# duplicates of two instrumentations, and small ones are enough for the fast suite: a subagent, log
# records with the content, and a root that never came.
FEW_SPANS = [
    name
    if name.startswith(("dup_", "pydantic_ai_v5_subagent", "v2_legacy", "mlflow_orphan"))
    else pytest.param(name, marks=pytest.mark.slow)
    for name in CAPTURES
]
# Each dialect has log records of its own; every second is enough for the fast suite.
WITH_LOGS = [
    name if index % 2 else pytest.param(name, marks=pytest.mark.slow)
    for index, name in enumerate(name for name in CAPTURES if capture(name)[1])
]

Part = tuple[Sequence[Span], Sequence[LogRecord]]


def all_told(parts: Iterable[Part]) -> list[Any]:
    """Return the trajectories of a new store after storing and reconstructing part by part."""
    with Store() as store:
        for spans, logs in parts:
            store.spans.write(spans, logs)
            refresh(store)
        return [told(trajectory) for trajectory in store.trajectories.read()]


@cache
def at_once(name: str) -> list[Any]:
    """Return the trajectories of a capture that is stored as a whole."""
    return all_told([capture(name)])


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
@pytest.mark.slow
def test_two_halves_give_the_same_trajectories(name: str):
    """A capture loaded in two parts gives the same trajectories as in one."""
    spans, logs = capture(name)
    middle = len(spans) // 2

    assert all_told([(spans[:middle], logs), (spans[middle:], [])]) == at_once(name)


@pytest.mark.parametrize("name", FEW_SPANS)
@pytest.mark.slow
def test_one_span_at_a_time_gives_the_same_trajectories(name: str):
    """A capture with one load per span, in the order of their ends, gives the same trajectories."""
    spans, logs = capture(name)
    parts = [([item], []) for item in sorted(spans, key=lambda item: item.end_ns)]

    assert all_told([([], logs), *parts]) == at_once(name)


@pytest.mark.parametrize("name", WITH_LOGS)
@pytest.mark.slow
def test_logs_may_come_first_or_last(name: str):
    """Content in log records is found whether they arrive before or after the spans."""
    spans, logs = capture(name)
    whole = at_once(name)

    assert all_told([([], logs), (spans, [])]) == whole
    assert all_told([(spans, []), ([], logs)]) == whole


def test_the_order_of_captures_does_not_matter():
    """Captures loaded in the opposite order give the same trajectories."""
    parts = [capture(name) for name in INCREMENTAL]

    assert all_told(parts) == all_told(parts[::-1])


@pytest.mark.parametrize("seed", SOME_SEEDS)
@pytest.mark.parametrize("chats", [alike, retried])
@pytest.mark.slow
def test_chats_that_begin_alike_may_arrive_in_any_parts(
    seed: int, chats: Callable[[int, random.Random], list[Span]]
):
    """Runs with equal messages follow the same runs in any parts and on any pages."""
    chance = random.Random(seed)
    spans = chats(5, chance)
    chance.shuffle(spans)
    whole = all_told([(spans, [])])

    assert all_told([(spans[at : at + 2], []) for at in range(0, len(spans), 2)]) == whole
    assert in_small_pages(spans) == whole


def test_a_failed_request_is_a_retry_of_a_stored_one():
    """A run that is one retry and may have another finds the request that is stored before it."""
    process = {"service.name": "s", "process.pid": "1"}
    tries = [
        builders.chat(f"c{at}", at, [builders.user("q")], trace=f"{at:032x}", status_code=2)
        for at in (1, 2, 3)
    ]

    trajectories = all_told([([replace(attempt, resource=process)], []) for attempt in tries])

    assert [len(plain.trace_ids) for plain, _ in trajectories] == [3]


def in_small_pages(spans: Sequence[Span]) -> list[Any]:
    """Return the trajectories of a new store that reconstructs two traces at a time."""
    with Store() as store, pytest.MonkeyPatch.context() as patch:
        store.spans.write(spans)
        patch.setattr(store.pending, "pages", partial(store.pending.pages, 2))
        refresh(store)
        return [told(trajectory) for trajectory in store.trajectories.read()]


def test_the_last_of_equal_runs_is_followed(store: Store):
    """A run is related to the last equal run before it, and not to the others."""
    prompt = [("user", "hello")]
    again = [*prompt, ("assistant", "hi"), ("user", "well")]
    first = [chat(number, number, prompt, "hi") for number in (1, 2, 3)]
    store.spans.write([*first, chat(9, 9, again, "so")])
    refresh(store)
    (turn,) = [trajectory for trajectory in store.trajectories.read() if trajectory.follows]
    runs = [LooseRun(turn.service, turn.chain, turn.follows, turn.start_ns)]

    related = store.related.by_messages(runs, [turn.root_span.trace_id], [Range(9, 9)])

    assert related == [f"{3:032x}"]
    assert turn.history is not None
    assert turn.history.root_span.trace_id == related[0]


def test_traces_of_one_run_are_related(store: Store):
    """A late span of a run's second trace includes the trace of the run's root."""
    spans, logs = capture("dup_openinference_langchain_and_openai")
    store.spans.write(spans, logs)
    refresh(store)
    run = next(
        trajectory for trajectory in store.trajectories.read() if len(trajectory.trace_ids) > 1
    )

    related = store.related.by_runs([run.trace_ids[-1]])

    assert run.root_span.trace_id != run.trace_ids[-1]
    assert sorted(related) == sorted(run.trace_ids)


def test_only_traces_with_new_spans_are_pending(store: Store):
    """After a refresh nothing is pending; a new span makes its own trace pending."""
    store.spans.write([span(1, 1), span(2, 2)])
    assert store.pending.count() == 2
    refresh(store)
    assert (store.pending.count(), list(store.pending.pages())) == (0, [])

    store.spans.write([span(1, 3)])

    assert (store.pending.count(), list(store.pending.pages())) == (1, [[f"{1:032x}"]])


def test_a_log_record_makes_its_trace_pending(store: Store):
    """A new log record of a known trace makes the trace pending."""
    store.spans.write([span(1, 1), span(2, 2)])
    refresh(store)

    store.spans.write([], [LogRecord(f"{2:032x}", body="x")])

    assert list(store.pending.pages()) == [[f"{2:032x}"]]


def test_log_records_without_spans_wait(store: Store):
    """Log records of a trace without spans give no page until its spans arrive."""
    store.spans.write([], [LogRecord(f"{1:032x}", body="x")])
    assert list(store.pending.pages()) == []

    store.spans.write([span(1, 1)])

    assert list(store.pending.pages()) == [[f"{1:032x}"]]


def test_pages_that_were_not_exhausted_stay_pending(store: Store):
    """Pages that were abandoned, for instance by Ctrl-C, come again."""
    store.spans.write([span(number, number) for number in range(1, 6)])

    pages = store.pending.pages(size=2)
    next(pages)
    pages.close()

    assert store.pending.count() == 5
    assert [len(page) for page in store.pending.pages(size=2)] == [2, 2, 1]


def test_the_size_of_each_page_may_be_limited(store: Store):
    """The limit is asked for before each page, and the size stays the most."""
    store.spans.write([span(number, number) for number in range(1, 8)])
    limits = iter([1, 2, 9, 9])

    pages = [len(page) for page in store.pending.pages(size=3, limit=lambda: next(limits))]

    assert pages == [1, 2, 3, 1]


def test_large_traces_are_reconstructed_a_few_at_a_time(store: Store):
    """After a first page, a page has as many traces as its bytes allow."""
    text = "long " * 200_000
    store.spans.write([replace(span(n, n), attributes={"x": f"{n}{text}"}) for n in range(1, 31)])
    done: list[int] = []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oteval.scoring.reconstruction._PAGE_BYTES", 4 << 20)
        refresh(store, lambda count, _: done.append(count))

    assert [after - before for before, after in pairwise([0, *done])] == [16, 4, 4, 4, 2]


def test_conversations_are_never_split(store: Store):
    """All traces of a conversation are on one page, however small its size."""
    store.spans.write(
        [
            span(number, number, attributes={"gen_ai.conversation.id": f"c{number % 3}"})
            for number in range(1, 10)
        ]
    )

    pages = [sorted(int(trace, 16) % 3 for trace in page) for page in store.pending.pages(size=1)]

    assert pages == [[1, 1, 1], [2, 2, 2], [0, 0, 0]]


def test_conversations_that_share_a_trace_go_together(store: Store):
    """A trace of two conversations joins them on one page, and so does a chain of such traces."""
    links = [(1, "a"), (2, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c"), (5, "d"), (6, None)]
    store.spans.write(
        [
            span(trace, number, attributes={"session.id": conversation} if conversation else {})
            for number, (trace, conversation) in enumerate(links, 1)
        ]
    )

    pages = [[int(trace, 16) for trace in page] for page in store.pending.pages(size=1)]

    assert pages == [[1, 2, 3], [4, 5], [6]]


def test_a_new_turn_makes_its_conversations_pending(store: Store):
    """Known traces are pending again when a span arrives in a conversation they are linked to."""
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
    """A late turn of one conversation keeps the history of another in the same trace."""
    first = chat(1, 1, [("user", "q1")], "a1", **{"gen_ai.conversation.id": "x"})
    late_turns = [
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

    parts = [([first, *late_turns], []), ([late], [])]

    assert all_told(parts) == all_told([([first, *late_turns, late], [])])


def test_turns_without_a_conversation_id_are_related():
    """A run follows the one whose messages it continues, in any order of arrival."""
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


def test_many_pages_give_every_trace_once(monkeypatch: pytest.MonkeyPatch):
    """The list of pending traces is fetched in parts without losing one."""
    monkeypatch.setattr("oteval.store.progress._FETCHED", 3)
    with Store() as store:
        store.spans.write([span(number, number) for number in range(1, 11)])

        pages = list(store.pending.pages(size=4))

    assert [int(trace, 16) for page in pages for trace in page] == list(range(1, 11))
    assert [len(page) for page in pages] == [4, 4, 2]


@pytest.mark.slow
def test_tools_in_separate_traces_find_their_call():
    """One trace at a time, in any order, gives the same trajectories as all at once."""
    second = 10**9
    requested = builders.asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))
    results = [builders.gives("r1", "k1"), builders.gives("r2", "k2")]
    question, answer = builders.user("q"), builders.said("a")
    parts = [
        builders.chat("c", second, [question], requested, trace="a" * 32),
        builders.tool("s", 2 * second, id="k1", args='{"x": 1}', trace="b" * 32),
        builders.tool("t", 3 * second, args='{"x": 2}', trace="c" * 32),
        builders.chat("d", 4 * second, [question, requested, *results], answer, trace="d" * 32),
    ]
    whole = all_told([(parts, [])])

    assert len(whole) == 1
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 2, 3, 0], [2, 0, 3, 1]):
        assert all_told([([parts[i]], []) for i in order]) == whole
