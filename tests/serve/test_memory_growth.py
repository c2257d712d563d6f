"""The memory of live scoring does not grow while traces come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from oteval.serve.destinations import ScoreDestinations
from oteval.serve.publish.metrics import ScoringMetrics
from oteval.serve.scoring_loop import ScoringLoop
from oteval.serve.tracker import HashSet

from ..make import chat
from .conftest import Driver
from .test_scoring_loop import COUNT, rules

_HOLDERS = (
    "oteval.serve",
    "oteval.serve.publish",
    "oteval.scoring",
    "oteval.evaluators",
    "oteval.store",
)


def sizes(thing: Any, path: str = "", known: set[int] | None = None) -> Iterator[tuple[str, int]]:
    """Yield how many entries each collection has that an object of ours holds, by its path."""
    known = set() if known is None else known
    if id(thing) in known or isinstance(thing, HashSet):
        return
    known.add(id(thing))
    if isinstance(thing, deque) and thing.maxlen is not None:
        return
    if isinstance(thing, (dict, list, set, deque)):
        yield path, len(thing)
        members = thing.values() if isinstance(thing, dict) else thing
        for member in list(members):
            yield from sizes(member, f"{path}[]", known)
    elif type(thing).__module__.startswith(_HOLDERS):
        names = [*getattr(thing, "__dict__", ()), *getattr(type(thing), "__slots__", ())]
        for name in names:
            yield from sizes(getattr(thing, name, None), f"{path}.{name}", known)


def held(scoring: ScoringLoop) -> dict[str, int]:
    """Return the entries of all collections by path."""
    found: dict[str, int] = {}
    for path, size in sizes(scoring):
        found[path] = found.get(path, 0) + size
    return found


def test_nothing_grows_while_traces_come_and_go(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """After twelve rounds of traces nothing holds more than it did after two."""
    name = module(COUNT)
    driver.rules(rules(name, "ok", "bad", "costs", more="budgets: {bad: {attempts: 2}}\n"))
    driver.start(ScoreDestinations(ScoringMetrics()))
    assert driver.scoring is not None
    after: list[dict[str, int]] = []
    number = 0
    for _ in range(12):
        spans = []
        for _ in range(10):
            number += 1
            ids = {"gen_ai.conversation.id": f"c{number // 3}"} if number % 2 else {}
            spans.append(chat(number, number, [("user", f"hi {number}")], "hello", **ids))
        driver.came(*spans)
        driver.run(6)
        # What failed is tried again once, and then not any more.
        driver.run(120)
        driver.run(20)
        after.append(held(driver.scoring))

    grown = {
        path: (after[1].get(path, 0), n)
        for path, n in after[-1].items()
        if n > after[1].get(path, 0)
    }
    assert grown == {}
    assert driver.scoring.open_traces == 0
    assert driver.scoring.is_idle
    # There was something to grow.
    assert len(driver.rows()) >= 12 * 10 * 4
