"""Jobs on threads: concurrency, timeouts, limits and cancellation."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest

from oteval.base.runner import DailyBudget, Outcome, RateLimiter, Runner, run_inline

HERE = contextvars.ContextVar("here", default="")
WAIT = 10.0


def drained(runner: Runner[Any, Any]) -> list[Outcome[Any, Any]]:
    """Wait for all jobs, and return their outcomes."""
    return list(runner.completed(max_pending=0))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_jobs_run_concurrently_and_none_is_lost(concurrency: int):
    """As many jobs run at once as allowed, and never more."""
    lock, now, most = threading.Lock(), 0, 0
    together = threading.Barrier(concurrency)

    def job() -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(WAIT)
        with lock:
            now -= 1
        return 1

    runner = Runner[int, int](concurrency)
    found = []
    for number in range(30):
        runner.submit(job, number)
        found += runner.completed(max_pending=2 * concurrency)
    found += drained(runner)
    runner.close()

    assert sorted(outcome.key for outcome in found) == list(range(30))
    assert {outcome.status for outcome in found} == {"ok"}
    assert most == concurrency


def test_outcomes_are_collected_without_waiting():
    """What has ended is returned at once, in the order in which it ended."""
    runner = Runner[str, bool](2)
    first, second = threading.Event(), threading.Event()
    runner.submit(lambda: first.wait(WAIT), "first")
    runner.submit(lambda: second.wait(WAIT), "second")

    assert list(runner.completed()) == []
    second.set()
    assert [outcome.key for outcome in runner.completed(max_pending=1)] == ["second"]
    first.set()
    assert [outcome.key for outcome in drained(runner)] == ["first"]
    assert runner.pending == 0
    runner.close()


def test_coroutine_functions_are_jobs_too():
    """A thread awaits what its job returns."""

    async def later() -> int:
        return 42

    runner = Runner[str, int]()
    runner.submit(later, "job")

    assert [outcome.result() for outcome in drained(runner)] == [42]
    runner.close()


def test_jobs_run_in_the_context_of_their_submitter():
    """Context variables, such as the current span, are set in the job's thread."""
    runner = Runner[str, str](1)
    for name in ("a", "b"):
        HERE.set(name)
        runner.submit(HERE.get, name)

    assert {outcome.key: outcome.value for outcome in drained(runner)} == {"a": "a", "b": "b"}
    runner.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KeyError("k"), KeyError), (SystemExit(3), RuntimeError), (StopIteration(), RuntimeError)],
)
def test_an_exception_is_an_outcome(error: BaseException, expected: type[Exception]):
    """Whatever a job raises ends only the job, and the thread goes on with the next."""

    def fail() -> None:
        raise error

    runner = Runner[str, Any]()
    runner.submit(fail, "bad")
    runner.submit(lambda: 1, "good")
    bad, good = drained(runner)

    assert (bad.key, bad.status) == ("bad", "error")
    with pytest.raises(expected):
        bad.result()
    assert good.result() == 1
    runner.close()


def test_a_job_that_hangs_is_abandoned_and_its_late_result_dropped():
    """After the timeout its outcome is a timeout, and another thread takes its place."""
    gate, ended = threading.Event(), threading.Event()

    def hang() -> str:
        gate.wait(WAIT)
        ended.set()
        return "late"

    runner = Runner[str, str](2, timeout=0.02)
    runner.submit(hang, "hangs")
    [outcome] = drained(runner)
    assert (outcome.status, str(outcome.error)) == ("timeout", "no answer within 0.02 s")
    assert outcome.seconds > 0.02

    gate.set()
    assert ended.wait(WAIT)
    runner.submit(lambda: "next", "next")
    assert [outcome.key for outcome in drained(runner)] == ["next"]
    assert runner.pending == 0
    runner.close()


def test_jobs_are_postponed_while_all_threads_hang():
    """What waits behind hung jobs is postponed with a reason, and runs once one of them returns."""
    gate = threading.Event()
    runner = Runner[str, bool](1, timeout=0.02, name="hanging runner")
    runner.submit(lambda: gate.wait(WAIT), "hangs")
    runner.submit(lambda: True, "waits")
    found = {outcome.key: outcome for outcome in drained(runner)}

    assert found["hangs"].status == "timeout"
    assert (found["waits"].status, found["waits"].postponed_by) == ("postponed", "hangs")
    assert "hang" in found["waits"].reason
    with pytest.raises(RuntimeError, match="hang"):
        found["waits"].result()

    gate.set()
    for thread in threading.enumerate():
        if thread.name == "hanging runner":
            thread.join(WAIT)
    runner.submit(lambda: True, "again")
    assert [outcome.status for outcome in drained(runner)] == ["ok"]
    runner.close()


def budget_of(limit: float) -> DailyBudget:
    """Return a budget on its first day."""
    budget = DailyBudget(limit, lambda _day: (0.0, 0.0))
    budget.start_day(0)
    return budget


def test_jobs_over_the_budget_are_postponed():
    """Jobs run until the next one could exceed the budget; the others say why they did not."""
    budget = budget_of(1.0)
    runner = Runner[int, float](4, budget=budget, cost_of=lambda cost: cost)
    for number in range(10):
        runner.submit(lambda: 0.3, number)
    found = drained(runner)
    runner.close()

    assert [outcome.status for outcome in found].count("ok") == 3
    postponed = [outcome for outcome in found if outcome.status == "postponed"]
    assert {outcome.postponed_by for outcome in postponed} == {"budget"}
    assert all("budget of $1" in outcome.reason for outcome in postponed)
    assert budget.spent == pytest.approx(0.9)


def test_an_expected_cost_is_computed_on_the_thread_of_the_job():
    """A function that estimates the cost does not run on the submitting thread."""
    threads = []

    def expected() -> float:
        threads.append(threading.current_thread())
        return 2.0

    runner = Runner[str, int](1, budget=budget_of(1.0), cost_of=lambda _: 0.0)
    runner.submit(lambda: 1, "dear", expected_cost=expected)

    assert [outcome.postponed_by for outcome in drained(runner)] == ["budget"]
    assert threads != [threading.current_thread()]
    runner.close()


def test_a_hung_first_call_does_not_block_a_budget():
    """The others do not wait for its cost, and its late cost is counted."""
    gate, settled = threading.Event(), threading.Event()
    budget = budget_of(1.0)

    def cost_of(cost: float) -> float:
        if cost == 0.25:
            settled.set()
        return cost

    def hang() -> float:
        gate.wait(WAIT)
        return 0.25

    runner = Runner[str, float](2, timeout=0.05, budget=budget, cost_of=cost_of, name="budget")
    runner.submit(hang, "hangs")
    for outcome in runner.completed(max_pending=0):
        assert outcome.status == "timeout"
    runner.submit(lambda: 0.1, "next")
    assert [outcome.status for outcome in drained(runner)] == ["ok"]

    runner.close()
    gate.set()
    assert settled.wait(WAIT)
    for thread in threading.enumerate():
        if thread.name == "budget":
            thread.join(WAIT)
    assert budget.spent == pytest.approx(0.35)


def test_a_failing_cost_is_the_jobs_error():
    """An error outside of the job's function is an outcome too, and nothing stays pending."""

    def cost_of(value: Any) -> float:
        raise ZeroDivisionError

    runner = Runner[str, int](1, budget=budget_of(1.0), cost_of=cost_of)
    runner.submit(lambda: 1, "job")

    assert [type(outcome.error) for outcome in drained(runner)] == [ZeroDivisionError]
    runner.close()


def test_calls_wait_for_their_rate():
    """A call starts when its slot comes."""
    slots = iter([0.0, 0.01, 0.02])
    rate = RateLimiter(None)
    rate.reserve = lambda: next(slots)  # type: ignore[method-assign]
    runner = Runner[int, int](1, rate=rate)
    for number in range(3):
        runner.submit(lambda: 1, number)

    assert [outcome.key for outcome in drained(runner)] == [0, 1, 2]
    assert next(slots, None) is None
    runner.close()


def test_closing_ends_threads_that_wait():
    """A thread that waits for its slot ends without making its call."""
    called = threading.Event()
    rate = RateLimiter(1)
    rate.reserve()
    runner = Runner[str, None](1, rate=rate, name="closing")
    runner.submit(called.set, "job")
    runner.close()
    threads = [thread for thread in threading.enumerate() if thread.name == "closing"]
    for thread in threads:
        thread.join(WAIT)

    assert not any(thread.is_alive() for thread in threads)
    assert not called.is_set()


def test_closing_drops_queued_jobs():
    """A job that runs may end; those behind it never start."""
    started, gate, other = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        started.set()
        gate.wait(WAIT)

    runner = Runner[str, None](1, name="queued")
    runner.submit(job, "runs")
    runner.submit(other.set, "queued")
    assert started.wait(WAIT)
    runner.close()
    threads = [thread for thread in threading.enumerate() if thread.name == "queued"]
    gate.set()
    for thread in threads:
        thread.join(WAIT)

    assert not any(thread.is_alive() for thread in threads)
    assert not other.is_set()


def test_threads_are_daemons_and_only_as_many_as_needed():
    """One job after another needs one thread, whatever the concurrency."""
    runner = Runner[int, threading.Thread](8)
    threads = set()
    for number in range(5):
        runner.submit(threading.current_thread, number)
        threads |= {outcome.result() for outcome in drained(runner)}
    runner.close()

    assert len(threads) == 1
    assert all(thread.daemon for thread in threads)


def test_a_fast_job_runs_inline_with_the_same_outcome():
    """It runs on the caller's thread, and its error is an outcome."""

    def fail() -> None:
        raise ConnectionError("down")

    good = run_inline(threading.current_thread, "good")
    bad = run_inline(fail, "bad")

    assert (good.key, good.value) == ("good", threading.current_thread())
    assert (bad.key, bad.status, str(bad.error)) == ("bad", "error", "down")
