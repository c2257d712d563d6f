"""Live scoring from spans to scores, driven by a clock of the test."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from oteval.evaluators.scorer import is_drawn
from oteval.model import Message, Span
from oteval.scoring import RefreshResult, TraceLocator
from oteval.serve import evaluations, reconstructor, scheduler
from oteval.serve.batch_scorer import ScoredBatch
from oteval.serve.reconstructor import ReconstructedTraces
from oteval.store import Store

from ..make import chat
from .conftest import Driver

COUNT = """
import threading
calls = []
gate = threading.Event()
def ok(outputs):
    calls.append(1)
    return len(outputs) > 1
def bad(outputs):
    calls.append(1)
    raise ValueError("broken")
def hangs(outputs):
    gate.wait(30)
    return True
def costs(outputs):
    calls.append(1)
    return {"score": 1.0, "metadata": {"cost_usd": 0.4}}
"""


def rules(name: str, *lines: str, more: str = "") -> str:
    text_lines = ["evaluators:"]
    text_lines += [
        f"  - {{name: {function}, type: python, call: '{name}:{function}'}}" for function in lines
    ]
    return "\n".join(text_lines) + "\n" + more


def chat_span(number: int, text: str = "hello") -> Span:
    return chat(number, 1, [("user", "hi")], f"{text} {number}")


def test_a_complete_trace_is_scored_once(driver: Driver, module: Callable[[str], str]) -> None:
    """Each run is scored exactly once, after the quiet time."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(chat_span(1), chat_span(2))

    driver.run(4)
    before = driver.scores()
    driver.run(2)
    driver.run(600)

    assert before == []
    assert [(s.status, s.passed, s.rev) for s in driver.scores()] == [("ok", True, 1)] * 2
    assert len(driver.rows()) == 2


def test_a_late_span_makes_a_new_revision_and_a_new_score(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """The old score remains in the table, superseded by the new revision's score."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    parent = chat_span(1)
    driver.came(parent)
    driver.run(6)

    late = replace(
        chat(1, 2, [("user", "hi"), ("assistant", "hello 1"), ("user", "more")], "yes"),
        parent_id=parent.span_id,
    )
    driver.came(late)
    driver.run(6)

    assert len(driver.rows()) >= 2
    per_run = Counter(score.trajectory_id for score in driver.scores("ok"))
    assert set(per_run.values()) == {1}
    current = {t.id: t.rev for t in driver.store.trajectories.read()}
    assert {s.trajectory_id: s.rev for s in driver.scores()} == current


def test_what_came_back_changes_nothing(driver: Driver, module: Callable[[str], str]) -> None:
    """Spans sent twice make no new revision and no new score."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)

    driver.came(chat_span(1))
    driver.run(600)

    assert len(driver.rows()) == 1


def test_a_sample_draws_the_same_traces_always(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """The traces that the hash draws are scored, and the rate is stored with them."""
    name = module(COUNT)
    driver.rules(f"evaluators:\n  - {{name: ok, type: python, call: '{name}:ok', sample: 0.3}}\n")
    driver.start()
    driver.came(*[chat_span(number) for number in range(1, 41)])
    driver.run(6)

    drawn = {f"{n:032x}" for n in range(1, 41) if is_drawn("oteval", "ok", f"{n:032x}", 0.3)}
    assert {score.trace_id for score in driver.scores()} == drawn
    assert {score.sample_p for score in driver.scores()} == {0.3}


def test_a_broken_evaluator_holds_up_no_other(driver: Driver, module: Callable[[str], str]) -> None:
    """A raising evaluator leaves errors after a bounded number of attempts; the other scores."""
    driver.rules(rules(module(COUNT), "bad", "ok", more="budgets: {bad: {attempts: 3}}\n"))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)

    assert [s.status for s in driver.scores("ok")] == ["ok"]
    assert [(s.status, s.score) for s in driver.scores("bad")] == [("error", None)]
    for _ in range(10):
        driver.run(24 * 3600)
    assert [row[2] for row in driver.rows()].count("bad") == 3
    assert "broken" in driver.scores("bad")[0].comment


def test_one_that_hangs_is_given_up_and_holds_up_no_other(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call past its timeout is an error; while all threads hang, other calls are postponed."""
    name = module(COUNT)
    limits = "budgets: {hangs: {timeout: 0.2s, concurrency: 1}}\n"
    driver.rules(rules(name, "hangs", "ok", more=limits))
    driver.start()
    driver.came(chat_span(1), chat_span(2))
    driver.run(6)

    assert {s.status for s in driver.scores("ok")} == {"ok"}
    by_status = {s.status: s for s in driver.scores("hangs")}
    assert set(by_status) == {"error", "not_evaluated"}
    assert "no answer within 0.2 s" in by_status["error"].comment
    assert "hang" in by_status["not_evaluated"].comment

    import sys

    sys.modules[name].gate.set()
    for _ in range(100):
        if not any(t.name == "oteval hangs" for t in threading.enumerate()):
            break
        threading.Event().wait(0.02)
    driver.run(400)
    assert [s.status for s in driver.scores("hangs")] == ["ok", "ok"]


def test_over_its_budget_it_is_postponed_until_the_next_day(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """Runs over a day's budget are recorded with the reason, once, and scored the next day."""
    more = "budgets: {costs: {max_cost_per_day: 1.0, concurrency: 1}}\n"
    driver.rules(rules(module(COUNT), "costs", "ok", more=more))
    driver.start()
    driver.came(*[chat_span(number) for number in range(1, 6)])
    driver.run(6)
    first = Counter(score.status for score in driver.scores("costs"))
    reasons = {s.comment for s in driver.scores("costs") if s.status == "not_evaluated"}
    driver.run(60)
    same_day = len(driver.rows())
    driver.run(24 * 3600)
    second = Counter(score.status for score in driver.scores("costs"))
    driver.run(24 * 3600)

    assert first == {"ok": 2, "not_evaluated": 3}
    assert all("budget of $1" in reason for reason in reasons)
    assert same_day == 10
    assert second == {"ok": 4, "not_evaluated": 1}
    assert Counter(score.status for score in driver.scores("costs")) == {"ok": 5}
    assert Counter(score.status for score in driver.scores("ok")) == {"ok": 5}


def test_a_budget_is_remembered_over_a_restart(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """A restarted process has only the rest of the day's budget."""
    more = "budgets: {costs: {max_cost_per_day: 0.5, concurrency: 1}}\n"
    driver.rules(rules(module(COUNT), "costs", more=more))
    driver.start().tick()
    driver.came(chat_span(1))
    driver.run(6)
    assert driver.scoring is not None
    driver.scoring.close()

    driver.start()
    driver.came(chat_span(2))
    driver.run(6)

    assert Counter(score.status for score in driver.scores()) == {"ok": 1, "not_evaluated": 1}


def test_a_restart_goes_on_where_the_process_ended(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """Open traces, runs not judged yet and retries are found again; nothing is judged twice."""
    driver.rules(rules(module(COUNT), "ok", "bad"))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)
    driver.came(chat_span(2))

    driver.start()  # the other is left as a crash leaves it
    driver.scoring.tick()  # type: ignore[union-attr]
    driver.run(6)
    done = driver.rows()
    driver.run(120)

    assert [row[2] for row in done].count("ok") == 2
    assert len({row[:4] for row in done}) == 4
    errors = [row for row in driver.rows() if row[2] == "bad"]
    assert len(errors) == 4


def test_a_new_evaluator_scores_complete_traces(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """A changed file is reloaded while scoring; its new evaluator scores recent runs too."""
    name = module(COUNT)
    driver.rules(rules(name, "ok"))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)

    driver.rules(rules(name, "ok", "costs"))
    driver.run(2)

    assert Counter(score.evaluator for score in driver.scores()) == {"ok": 1, "costs": 1}


def test_backfill_says_how_far_back(driver: Driver, module: Callable[[str], str]) -> None:
    """Without backfill, a new evaluator scores only traces that are complete from then on."""
    name = module(COUNT)
    more = "completion: {backfill: 0}\n"
    driver.rules(rules(name, "ok", more=more))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)

    driver.rules(rules(name, "ok", "costs", more=more))
    driver.run(2)
    driver.came(chat_span(2))
    driver.run(6)

    assert Counter(score.evaluator for score in driver.scores()) == {"ok": 2, "costs": 1}


def test_a_broken_file_keeps_the_old_rules_and_says_so(
    driver: Driver, module: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The old rules stay active, the state and the log name the error, and a fixed file is read."""
    name = module(COUNT)
    driver.rules(rules(name, "ok"))
    scoring = driver.start()

    driver.rules("evaluators: [{name: x, typ: python}]\n")
    driver.run(2)
    broken = scoring.state()
    driver.came(chat_span(1))
    driver.run(6)
    driver.rules(rules(name, "costs"))
    scoring.reload()
    driver.run()

    assert "oteval.yaml:1" in broken["config_error"]
    assert "the old rules stay" in caplog.text
    assert scoring.state()["config_error"] is None
    assert scoring.state()["evaluators"] == ["costs"]
    assert Counter(score.evaluator for score in driver.scores()) == {"ok": 1, "costs": 1}


def test_a_replaced_reference_counts_from_the_next_check_on(driver: Driver) -> None:
    """A replaced reference is read again without a restart."""
    driver.store.references.add("wanted", [Message("assistant", "hello 1")], "test", 1)
    driver.rules(
        "evaluators:\n"
        "  - {name: m, type: trajectory_match, mode: strict, "
        "reference: {name: wanted}}\n"
    )
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)
    first = {score.version for score in driver.scores("m")}
    driver.store.references.add("wanted", [Message("assistant", "hello 2")], "test", 2)
    driver.run(6)
    driver.came(chat_span(2))
    driver.run(6)

    newest = [score for score in driver.scores("m") if score.version not in first]
    assert len(first) == 1
    assert f"{2:032x}" in {score.trace_id for score in newest}


def test_a_conversation_in_two_traces_is_told_as_one(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """The second turn has the first as history, and each turn has one score."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    first = chat(1, 1, [("user", "hi")], "hello", **{"gen_ai.conversation.id": "c"})
    history = [("user", "hi"), ("assistant", "hello"), ("user", "go on")]
    second = chat(2, 1, history, "sure", **{"gen_ai.conversation.id": "c"})
    driver.came(first)
    driver.run(6)
    driver.came(replace(second, start_ns=100, end_ns=101))
    driver.run(6)

    turns = sorted(t.turn for t in driver.store.trajectories.read())
    assert turns == [1, 2]
    assert len({row[0] for row in driver.rows()}) == 2
    assert len(driver.rows()) == len({row[:4] for row in driver.rows()})


def test_the_span_views_carry_the_scores(driver: Driver, module: Callable[[str], str]) -> None:
    """A span in scored_spans has its scores; an unscored span has none."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(chat_span(1))
    driver.run(6)

    rows = driver.store._connection.execute("SELECT span_id, scores FROM scored_spans").fetchall()
    assert [(row[0], row[1][0]["evaluator"], row[1][0]["score"]) for row in rows] == [
        ("0000000000000001", "ok", 1.0)
    ]
    assert json.dumps(rows[0][1]).count("evaluator") == 1


def test_a_page_that_cannot_be_reconstructed_is_tried_again(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the store fails while a trace is reconstructed, the trace is not lost."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(chat_span(1))

    def fails(*_: object) -> list[str]:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(reconstructor, "refresh_traces", fails)
        with pytest.raises(OSError, match="disk full"):
            driver.run(6)
    driver.run(1)

    assert len(driver.scores()) == 1


def test_a_trace_that_cannot_be_reconstructed_holds_up_no_other(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is skipped after a few attempts, and the others of its page are scored."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(*[chat_span(number) for number in range(1, 6)])
    real, tries = reconstructor.refresh_traces, []

    def fails(store: Store, names: list[str], places: TraceLocator) -> RefreshResult:
        if f"{3:032x}" in names:
            tries.append(len(names))
            raise RecursionError("too deep")
        return real(store, names, places)

    monkeypatch.setattr(reconstructor, "refresh_traces", fails)
    driver.run(6)
    driver.run(1)
    driver.run(1)

    assert len(driver.scores()) == 4
    assert driver.scoring is not None
    assert driver.scoring.open_traces == 0
    assert tries.count(1) == 3


def test_a_trace_that_cannot_be_admitted_holds_up_no_other(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is split, and after some attempts the run is scored as stored."""
    driver.rules(rules(module(COUNT), "ok"))
    driver.start()
    driver.came(*[chat_span(number) for number in range(1, 6)])
    real, tries = scheduler.Scheduler.admit, []

    def fails(self: scheduler.Scheduler, batch: ReconstructedTraces, now: int) -> ScoredBatch:
        if batch.refreshed and f"{3:032x}" in [trace.trace_id for trace in batch.traces]:
            tries.append(len(batch.traces))
            raise ValueError("unexpected")
        return real(self, batch, now)

    monkeypatch.setattr(scheduler.Scheduler, "admit", fails)
    driver.run(6)
    assert len(driver.scores()) == 4
    driver.run(1)
    driver.run(1)

    assert len(driver.scores()) == 5
    assert driver.scoring is not None
    assert driver.scoring.open_traces == 0
    assert tries.count(1) == 3


def test_traces_whose_end_cannot_be_recorded_stay_open(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the store fails while the ends of traces are recorded, no trace is lost or left out."""
    driver.rules(rules(module(COUNT), "ok"))
    scoring = driver.start()
    driver.came(*[chat_span(number) for number in range(1, 6)])

    def fails(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(scheduler.Scheduler, "admit", fails)
        with pytest.raises(OSError, match="disk full"):
            driver.run(6)
        assert scoring.open_traces == 5
    driver.run(1)

    assert scoring.open_traces == 0
    assert len(driver.scores()) == 5


@pytest.mark.parametrize("most", [1, 5])
@pytest.mark.slow
def test_more_than_memory_holds_is_found_in_the_store(
    driver: Driver, module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """With a small queue, every run is judged once and every failure is retried."""
    monkeypatch.setattr(evaluations, "CAPACITY", most)
    monkeypatch.setattr(scheduler, "_REFILL", 3)
    driver.rules(rules(module(COUNT), "ok", "bad", more="budgets: {bad: {attempts: 2}}\n"))
    scoring = driver.start()
    driver.came(*[chat_span(number) for number in range(1, 31)])
    driver.clock.move(6)
    until = time.monotonic() + 60
    while len(driver.rows()) < 90 and time.monotonic() < until:
        scoring.tick()
        driver.clock.move(10)
        time.sleep(0.002)
    driver.run(3600)

    counts = Counter((row[2], row[4]) for row in driver.rows())
    assert counts == {("ok", "ok"): 30, ("bad", "error"): 60}
    assert len({row[0] for row in driver.rows()}) == 30
