"""Large traces and long conversations take linear time, and delay no other agent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from oteval.model import Span, Trajectory
from oteval.scoring import RefreshResult, reconstruction
from oteval.serve import reconstructor
from oteval.serve.reconstructor import BackgroundReconstructor
from oteval.store import Store

from .conftest import SECOND, Driver

pytestmark = pytest.mark.slow

RULES = """
evaluators:
  - {name: long, type: latency, max: 60s}
completion: {quiet: 1s, idle: 5s}
"""
START = 1_700_000_000 * SECOND


def agent_run(trace: int, number: int = 0, conversation: str = "", agent: str = "a") -> list[Span]:
    """Return the spans of an agent run with one model call."""
    begin = START + (trace + number) * SECOND
    said = {"gen_ai.conversation.id": conversation} if conversation else {}
    root = f"{number + 1:08x}{0:08x}"
    hello = f"hi {trace + number}"
    asked = f'[{{"role":"user","parts":[{{"type":"text","content":"{hello}"}}]}}]'
    answer = '[{"role":"assistant","parts":[{"type":"text","content":"yes"}]}]'

    def span(span_id: str, parent: str, operation: str, **more: str) -> Span:
        attributes = {"gen_ai.operation.name": operation, **said, **more}
        return Span(
            trace_id=f"{trace:032x}",
            span_id=span_id,
            parent_id=parent,
            name=operation,
            start_ns=begin,
            end_ns=begin + SECOND // 2,
            attributes=attributes,
            resource={"service.name": agent},
        )

    messages = {"gen_ai.input.messages": asked, "gen_ai.output.messages": answer}
    return [
        span(root, "", "invoke_agent", **{"gen_ai.agent.name": agent}),
        span(f"{number + 1:08x}{1:08x}", root, "chat", **messages),
    ]


class Gate:
    """Reconstruction that waits where a trace is among those asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.asked: list[list[str]] = []
        real = reconstructor.refresh_traces

        def refresh(store: Store, names: Sequence[str], *places: Any, **more: Any) -> RefreshResult:
            if name in names:
                self.reached.set()
                self.open.wait(10)
            found = real(store, names, *places, **more)
            self.asked.append(found.trace_ids)
            return found

        monkeypatch.setattr(reconstructor, "refresh_traces", refresh)


def scored(driver: Driver) -> set[str]:
    return {score.trace_id for score in driver.scores()}


def ticked_until(driver: Driver, holds: Any) -> None:
    assert driver.scoring is not None
    end = time.monotonic() + 40
    while not holds():
        assert time.monotonic() < end, driver.scoring.state()
        driver.scoring.tick()
        driver.clock.move(0.1)
        time.sleep(0.002)


@pytest.mark.parametrize("kind", ["trace", "conversation"])
def test_an_agent_does_not_wait_for_another_s_large_trace(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """While thousands of spans of a trace or a conversation are at work, others are scored."""
    if kind == "trace":
        large = [span for n in range(1_600) for span in agent_run(1, n, agent="odd")]
    else:
        large = [
            span for n in range(1, 900) for span in agent_run(n, conversation="c", agent="odd")
        ]
    gate = Gate(monkeypatch, f"{1:032x}")
    driver.rules(RULES)
    driver.start()

    driver.came(*large)
    driver.clock.move(2)
    ticked_until(driver, gate.reached.is_set)
    driver.came(*agent_run(5_000, agent="good"))
    ticked_until(driver, lambda: scored(driver))
    first = scored(driver)
    gate.open.set()
    driver.run(10)

    assert first == {f"{5_000:032x}"}
    assert scored(driver) == {span.trace_id for span in large} | first
    assert len(driver.scores()) == len(large) // 2 + 1


def test_what_comes_while_a_large_trace_is_at_work_is_not_forgotten(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trajectories are those of all of its spans in the end."""
    monkeypatch.setattr(reconstructor, "_LARGE_TRACE", 200)
    large = [span for n in range(100) for span in agent_run(1, n)]
    gate = Gate(monkeypatch, f"{1:032x}")
    driver.rules(RULES)
    driver.start()
    driver.came(*large)
    driver.clock.move(2)
    ticked_until(driver, gate.reached.is_set)

    driver.came(*agent_run(1, 170))
    gate.open.set()
    ticked_until(driver, lambda: len(driver.scores()) == 101)

    assert len(list(driver.store.trajectories.read())) == 101


def test_a_large_trace_that_others_needed_meanwhile_keeps_its_newest_runs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slow reconstruction, begun with fewer spans, does not replace the one of all of them."""
    monkeypatch.setattr(reconstructor, "_LARGE_TRACE", 6)
    has_read, may_write = threading.Event(), threading.Event()
    real = reconstruction.reconstruct_all

    def slowly(*rows: Any) -> list[Trajectory]:
        if threading.current_thread().name == "large traces":
            has_read.set()
            may_write.wait(10)
        return real(*rows)

    monkeypatch.setattr(reconstruction, "reconstruct_all", slowly)
    runs = [agent_run(1, number) for number in range(10)]
    driver.rules(RULES)
    driver.start()
    # A model call whose root is missing is compared with the same calls of other traces.
    driver.came(runs[4][1])
    driver.run(10)
    driver.came(*(call for number, (_, call) in enumerate(runs) if number != 4))
    driver.clock.move(10)
    ticked_until(driver, has_read.is_set)

    driver.came(*(root for root, _ in runs))
    driver.came(*agent_run(2, 3, agent="good"))
    driver.clock.move(10)
    driver.scoring.tick()  # type: ignore[union-attr]
    may_write.set()
    driver.run(60)
    driver.run(60)

    assert {run.root_span.trace_id: run.agent for run in driver.store.trajectories.read()} == {
        f"{1:032x}": "a",
        f"{2:032x}": "good",
    }
    assert len(list(driver.store.trajectories.read())) == 11
    assert len(driver.scores()) == 11


def test_a_conversation_is_reconstructed_once_for_all_of_its_runs(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many traces are completed at once, each is read once."""
    gate = Gate(monkeypatch, "")
    driver.rules(RULES)
    driver.start()

    driver.came(*(span for n in range(950) for span in agent_run(n + 1, conversation="c")))
    driver.run(10)

    assert sum(map(len, gate.asked)) == 950
    assert len(driver.scores()) == 950


@pytest.mark.slow
def test_scoring_a_long_conversation_is_linear(driver: Driver) -> None:
    """Five times the runs of one conversation take about five times as long."""
    driver.rules(RULES)
    driver.start()
    took = []
    for count, first in ((500, 1), (2_500, 10_000)):
        runs = range(first, first + count)
        driver.came(*(span for n in runs for span in agent_run(n, conversation=f"c{count}")))
        begun = time.process_time()
        driver.run(10, patience=60)
        took.append(time.process_time() - begun)

    assert len(driver.scores()) == 3_000
    assert took[1] < 9 * took[0] + 0.5, took


def test_a_group_that_took_long_rests() -> None:
    """It is taken again after a multiple of the time that it took, others at once."""
    now = [0.0]

    def refresh(names: Sequence[str]) -> RefreshResult:
        now[0] += 10.0
        return RefreshResult([*names, "also"], [], [])

    background = BackgroundReconstructor(refresh, lambda: now[0])
    background.submit(["a"], {"a": 1})
    while (group := background.take_finished()) is None:
        time.sleep(0.001)
    resting = ["a" in background, "also" in background, "b" in background]
    now[0] += 21.0

    assert group.refreshed is not None
    assert not group.is_overtaken
    assert resting == [True, True, False]
    assert "a" not in background
    assert background.is_idle
