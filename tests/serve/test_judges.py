"""Language models as judges in live scoring, asked by real HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from oteval import ConfigError

from ..make import chat
from ..model_server import Server, error, verdict
from .conftest import Driver


def rules(model_server: Server, name: str, more: str = "") -> str:
    return (
        "evaluators:\n"
        f"  - {{name: fast, type: python, call: '{name}:ok'}}\n"
        "  - {name: quality, type: judge, model: 'openai:m', max_retries: 0, "
        f"base_url: '{model_server.url}', prices: {{m: {{input: 1000.0, output: 0.0}}}}{more}}}\n"
    )


OK = "def ok(outputs): return True\n"


def came(driver: Driver, *numbers: int) -> None:
    driver.came(*[chat(n, 1, [("user", f"hi {n}")], f"hello {n}") for n in numbers])


def test_a_judge_that_is_down_is_asked_again(
    driver: Driver, model_server: Server, module: Callable[[str], str]
) -> None:
    """While it is down there are errors and the other evaluator's scores; then verdicts."""
    driver.rules(rules(model_server, module(OK)))
    driver.start()
    model_server.script = lambda *_: error(503, "down")
    came(driver, 1, 2)
    driver.run(6)
    down = Counter((score.evaluator, score.status) for score in driver.scores())

    model_server.script = lambda *_: verdict(True)
    driver.run(61)

    assert down == {("fast", "ok"): 2, ("quality", "error"): 2}
    assert Counter((s.evaluator, s.status) for s in driver.scores()) == {
        ("fast", "ok"): 2,
        ("quality", "ok"): 2,
    }


def test_a_slow_judge_delays_nothing_else(
    driver: Driver, model_server: Server, module: Callable[[str], str]
) -> None:
    """The other evaluator's scores are there while the judge still thinks."""
    driver.rules(rules(model_server, module(OK)))
    scoring = driver.start()
    model_server.script = lambda *_: verdict(True, delay=1.0)
    came(driver, 1)
    driver.clock.move(6)

    while not driver.scores("fast"):
        scoring.tick()
    early = driver.scores("quality")
    driver.run()

    assert early == []
    assert [score.status for score in driver.scores("quality")] == ["ok"]


@pytest.mark.parametrize("limit", ["max_cost_per_day", "max_cost"])
def test_a_day_s_budget_holds_and_turns_with_the_day(
    driver: Driver, model_server: Server, module: Callable[[str], str], limit: str
) -> None:
    """A judge's own limit is kept, over a restart too, and the next day it goes on."""
    driver.rules(rules(model_server, module(OK), f", {limit}: 0.25"))  # a verdict costs 0.1
    driver.start()
    came(driver, 1, 2, 3, 4)
    driver.run(6)
    first = Counter(score.status for score in driver.scores("quality"))
    assert driver.scoring is not None
    driver.scoring.close()
    driver.start()
    driver.run(10)
    asked = len(model_server.requests)
    driver.run(24 * 3600)

    assert first == {"ok": 2, "not_evaluated": 2}
    assert asked == 2
    assert Counter(s.status for s in driver.scores("quality")) == {"ok": 4}


def test_failures_do_not_open_a_day_s_budget(
    driver: Driver, model_server: Server, module: Callable[[str], str]
) -> None:
    """After failed calls, concurrent ones still spend no more than the day allows."""
    driver.rules(rules(model_server, module(OK), ", max_cost_per_day: 0.25, max_concurrency: 8"))
    driver.start()
    model_server.script = lambda *_: error(503, "down")
    came(driver, 1)
    driver.run(6)
    model_server.script = lambda *_: verdict(True, delay=0.05)
    came(driver, *range(2, 12))
    driver.run(6)

    counted = Counter(score.status for score in driver.scores("quality"))

    assert counted["ok"] == 2
    assert counted["ok"] + counted["not_evaluated"] + counted["error"] == 11


def test_a_limit_without_a_price_is_refused(
    driver: Driver, model_server: Server, module: Callable[[str], str]
) -> None:
    """A server does not start with a budget that it cannot keep."""
    text = rules(model_server, module(OK), ", max_cost_per_day: 0.25").replace("{m:", "{other:")
    driver.rules(text)

    with pytest.raises(ConfigError, match="max_cost_per_day needs the price of 'm': add prices"):
        driver.start()
