"""Reading only the traces' rows gives the same trajectories as searching all rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import LogRecord, Span
from oteval.scoring import RefreshResult, TraceLocator, refresh, refresh_traces
from oteval.scoring.config import Completion
from oteval.serve import reconstructor
from oteval.serve.reconstructor import TraceReconstructor
from oteval.serve.scheduler import Scheduler
from oteval.serve.tracker import ArrivalReader, TraceTracker
from oteval.store import Store

from ..make import ALL_WHEN_SLOW, CAPTURES, SOME_SEEDS, alike, capture, chat, told

SECOND = 1_000_000_000
QUIET = Completion(quiet=1.0, idle=20.0)


def live(parts: Sequence[tuple[Sequence[Span], Sequence[LogRecord]]], seed: int) -> list[Any]:
    """Return the stored trajectories after parts came, with pauses and restarts between them."""
    chance = random.Random(seed)
    with Store() as store:
        line, now = Line(store), 0
        for spans, logs in parts:
            store.spans.write(spans, logs)
            now += chance.choice([0, 0, 2, 30]) * SECOND
            if chance.random() < 0.2:
                line = Line(store)
            line.arrivals.notify({span.trace_id for span in (*spans, *logs) if span.trace_id}, now)
            line.arrivals.read(now)
            line.reconstruct(now)
        line.arrivals.read(now)
        line.reconstruct(now + 100 * SECOND)
        assert len(line.tracker) == 0
        return [told(trajectory) for trajectory in store.trajectories.read()]


class Line:
    """The stages up to a scheduler that has no evaluators."""

    def __init__(self, store: Store) -> None:
        self.tracker = TraceTracker(QUIET)
        self.arrivals = ArrivalReader(store, self.tracker)
        self.reconstructor = TraceReconstructor(store, self.tracker, self.arrivals)
        self.scheduler = Scheduler(store)

    def reconstruct(self, now: int) -> None:
        """Reconstruct the traces that have ended, and record their ends."""
        while True:
            for reconstructed in self.reconstructor.run(now):
                self.scheduler.admit(reconstructed, now)
            if not self.reconstructor.has_more:
                return


def everywhere(store: Store, traces: Sequence[str], _: TraceLocator) -> RefreshResult:
    """Reconstruct traces without knowing where their rows are."""
    return refresh_traces(store, traces)


def offline(parts: Sequence[tuple[Sequence[Span], Sequence[LogRecord]]]) -> list[Any]:
    """Return the stored trajectories when everything is stored before reconstruction."""
    with Store() as store:
        for spans, logs in parts:
            store.spans.write(spans, logs)
        refresh(store)
        return [told(trajectory) for trajectory in store.trajectories.read()]


def shuffled(spans: Sequence[Span], logs: Sequence[LogRecord], seed: int) -> list[Any]:
    """Return spans and log records in some parts, roughly by their ends."""
    chance = random.Random(seed)
    late = {id(span): span.end_ns if chance.random() < 0.8 else chance.random() for span in spans}
    ordered = sorted(spans, key=lambda span: late[id(span)])
    parts, size = [], max(1, len(ordered) // 6)
    for begin in range(0, len(ordered), size):
        parts.append((ordered[begin : begin + size], logs if begin == 0 else []))
    chance.shuffle(parts)
    return parts


@pytest.mark.parametrize("name", ALL_WHEN_SLOW)
@pytest.mark.slow
def test_captures_come_to_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each capture, in parts with pauses and restarts between, gives the same as before."""
    spans, logs = capture(name)
    parts = shuffled(spans, logs, len(name))
    confined = live(parts, len(name))

    monkeypatch.setattr(reconstructor, "refresh_traces", everywhere)

    assert live(parts, len(name)) == confined


def turns(count: int, chance: random.Random) -> list[Span]:
    """Return turns of chats: some name their conversation, some only repeat earlier messages."""
    spans, number = [], 0
    for talk in range(count):
        messages: list[tuple[str, str]] = []
        ids = {"gen_ai.conversation.id": f"c{talk}"} if talk % 2 else {}
        for turn in range(chance.randrange(1, 5)):
            number += 1
            messages.append(("user", f"question {talk} {turn}"))
            span = chat(number, number, messages, f"answer {talk} {turn}", **ids)
            start = (1000 * turn + number) * SECOND
            spans.append(replace(span, start_ns=start, end_ns=start + SECOND))
            messages.append(("assistant", f"answer {talk} {turn}"))
    return spans


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_turns_that_come_hours_apart_find_each_other(seed: int) -> None:
    """Turns with and without a conversation id, in any order, form whole conversations."""
    chance = random.Random(seed)
    spans = turns(12, chance)
    chance.shuffle(spans)
    parts = [([span], []) for span in spans]

    assert live(parts, seed) == offline([(spans, [])])


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_chats_that_begin_alike_go_on_from_the_last_of_them(seed: int) -> None:
    """Runs that a late span changes are found again by their next and previous runs."""
    chance = random.Random(seed)
    spans = alike(5, chance)
    chance.shuffle(spans)
    parts = [(spans[at : at + 2], []) for at in range(0, len(spans), 2)]

    assert live(parts, seed) == offline([(spans, [])])


def test_a_turn_finds_its_run_again_after_late_spans() -> None:
    """A turn finds its conversation when late spans change the run that it seemed to follow."""
    spans, logs = capture("vercel_ai7_generate")

    assert live(shuffled(spans, logs, 19), 19) == offline([(spans, logs)])


@pytest.mark.slow
@pytest.mark.parametrize("name", CAPTURES)
def test_captures_in_any_order_come_to_the_same(name: str) -> None:
    """Each capture, in parts in many orders, gives the same live as at once."""
    spans, logs = capture(name)
    whole = offline([(spans, logs)])

    for seed in range(6):
        assert live(shuffled(spans, logs, seed), seed) == whole, seed


@pytest.mark.slow
def test_only_what_came_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """For new traces no query goes without bounds; the turns of a conversation have theirs."""
    requested: list[Any] = []
    real: Callable[..., Any] = Store().spans.of_traces.__func__  # type: ignore[attr-defined]

    def noted(self: Any, traces: Any, **ranges: Any) -> Any:
        requested.append((ranges["row_ranges"], ranges["archived"]))
        return real(self, traces, **ranges)

    monkeypatch.setattr("oteval.store.spans.Spans.of_traces", noted)
    parts = [([turn], []) for turn in turns(12, random.Random(1))]

    live(parts, 1)

    assert requested
    assert all(numbers is not None for numbers, _ in requested)
    assert any(archived == [] for _, archived in requested)
