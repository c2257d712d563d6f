"""Rates and daily budgets."""

from __future__ import annotations

import threading

from oteval.base.runner import DailyBudget, RateLimiter, day_of, next_day_ns, start_of_day_ns

NS = 1_000_000_000
NOON = start_of_day_ns("2026-11-21") + 12 * 3600 * NS


def budget_of(limit: float | None, spent: float = 0.0, each: float = 0.0) -> DailyBudget:
    """Return a budget on its first day."""
    budget = DailyBudget(limit, lambda _day: (spent, each))
    budget.start_day(NOON)
    return budget


def test_days_are_those_of_utc():
    """A time has a day, and the next day begins at its midnight."""
    assert day_of(NOON) == "2026-11-21"
    assert day_of(next_day_ns(NOON)) == "2026-11-22"
    assert next_day_ns(NOON) == start_of_day_ns("2026-11-22")


def test_a_rate_spaces_calls_evenly():
    """Calls in one moment wait for one slot after the other; time that passes frees slots."""
    now = 100.0
    rate = RateLimiter(60, clock=lambda: now)

    assert [rate.reserve() for _ in range(3)] == [0.0, 1.0, 2.0]
    now = 110.0
    assert rate.reserve() == 0.0


def test_no_rate_never_waits():
    """Without a limit every call may start at once."""
    rate = RateLimiter(None)

    assert [rate.reserve() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_running_calls_reserve_the_highest_known_cost():
    """Concurrent calls are refused before they could exceed the budget together."""
    budget = budget_of(1.0)
    assert budget.reserve() == ""
    budget.settle(0.4)

    assert budget.reserve() == ""
    reason = budget.reserve()

    assert reason.startswith("the budget of $1 for 2026-11-21 (UTC) is used up ($0.4 spent)")


def test_an_expected_cost_is_reserved_if_it_is_higher():
    """A call that is known to be expensive is refused although cheap ones are not."""
    budget = budget_of(1.0, spent=0.5, each=0.1)

    assert budget.reserve(0.6) != ""
    assert budget.reserve(0.3) == ""
    assert budget.reserve(0.3) != ""


def test_calls_run_one_at_a_time_until_a_cost_is_known():
    """A second call waits for the first; a failure reveals no cost, so the third waits too."""
    budget = budget_of(1.0)
    assert budget.reserve() == ""
    admitted = threading.Semaphore(0)

    def reserve() -> None:
        budget.reserve()
        admitted.release()

    threads = [threading.Thread(target=reserve, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert not admitted.acquire(timeout=0.02)

    budget.settle(None)
    assert admitted.acquire(timeout=10)
    assert not admitted.acquire(timeout=0.02)

    budget.settle(0.1)
    assert admitted.acquire(timeout=10)


def test_a_call_that_hangs_does_not_block_the_others():
    """An abandoned call keeps its reservation, but nothing waits for its cost any more."""
    budget = budget_of(1.0)
    assert budget.reserve(0.6) == ""
    budget.abandon()

    assert budget.reserve(0.6) != ""
    assert budget.reserve(0.3) == ""

    budget.settle(0.2, 0.6, was_abandoned=True)
    assert budget.spent == 0.2
    assert budget.reserve(0.4) == ""


def test_a_new_day_begins_with_what_it_has_cost_already():
    """The store says what a day cost before this process started; a new day has a new budget."""
    spent = {"2026-11-21": (1.0, 0.5), "2026-11-22": (0.0, 0.0)}
    budget = DailyBudget(1.0, lambda day: spent[day])
    budget.start_day(NOON)
    assert budget.reserve() != ""

    budget.start_day(next_day_ns(NOON))

    assert budget.reserve() == ""
    assert budget.spent == 0.0


def test_no_limit_refuses_nothing_and_counts_all():
    """Without a limit calls run at once, and their costs add up."""
    budget = budget_of(None)
    assert [budget.reserve(), budget.reserve()] == ["", ""]
    budget.settle(3.0)
    budget.settle(None)

    assert budget.spent == 3.0
