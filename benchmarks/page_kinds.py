"""The kinds of pages that `pages` measures: the paths to ask for, and what the answers must show.

Each path of a kind is another one, so that no answer is known before.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import httpx

from . import large_store
from .checks import check

__all__ = ["Kind", "Place", "check_answer", "kinds"]

PERIODS = ("7d", "30d", "all")
_AGENTS = ("shop", "travel", "support", "billing", "search")
_RUN = r'href="/runs/[0-9a-f]{16}["?]'
_CONVERSATION = r'href="/conversations/[^"]+"'
_INTERVAL = r"\d\.\d% to \d+\.\d%"
_QUESTION = "Where is order "
_NOTHING = "No run matches"

Paths = Iterator[str]
Place = tuple[int, str]
"""The start of a run and its id, the key of a place in the list of runs."""


class Kind(NamedTuple):
    """A kind of pages.

    Attributes:
        paths: The paths to ask for.
        shows: Patterns that each page has.
        status: The status of each answer.
        to: A pattern of the address that a redirect names.
        follows: Whether redirects are followed, as part of the answer.
    """

    paths: Paths
    shows: Sequence[str] = ()
    status: int = 200
    to: str = ""
    follows: bool = False


def kinds(
    places: Sequence[Place], conversations: Sequence[str], periods: Sequence[str] = PERIODS
) -> dict[str, Kind]:
    """Return the kinds of pages by name.

    Args:
        places: Places in the list of runs.
        conversations: The paths of conversations.
        periods: The periods of pages with figures; each contains scored runs.
    """
    return {
        **_lists(places),
        **_runs(places),
        **_figures(periods),
        **_conversations(places, conversations),
        "alerts": Kind(itertools.repeat("/alerts"), ("<h1>Alerts</h1>",)),
    }


def check_answer(kind: Kind, path: str, answer: httpx.Response) -> None:
    """Check that an answer is the page that its path names.

    Args:
        kind: The kind of the path.
        path: The path.
        answer: The answer.

    Raises:
        CheckError: It is another page, or an empty one.
    """
    status = answer.status_code
    check(status == kind.status, f"{path} has the status {kind.status}", status)
    if kind.to:
        location = answer.headers.get("location", "")
        check(re.search(kind.to, location), f"{path} leads to {kind.to}", location)
        return
    content = answer.headers.get("content-type", "")
    check(content.startswith("text/html"), f"{path} is HTML", content)
    for pattern in kind.shows:
        check(re.search(pattern, answer.text), f"{path} shows {pattern!r}")


def _lists(places: Sequence[Place]) -> dict[str, Kind]:
    keys = itertools.cycle([f"{ns}-{name}" for ns, name in places])
    ids = itertools.cycle([name for _, name in places])
    days = itertools.cycle([datetime.fromtimestamp(ns // 10**9, UTC) for ns, _ in places])
    numbers = itertools.count(1)
    agents = [run.agent for run in large_store.written()]

    def search(text: Callable[[int], str]) -> Paths:
        return (str(httpx.URL("/runs", params={"q": text(number)})) for number in numbers)

    def rows(paths: Paths) -> Kind:
        return Kind(paths, (_RUN,))

    def empty(paths: Paths) -> Kind:
        return Kind(paths, (_NOTHING,))

    return {
        "runs": rows(f"/runs?x={number}" for number in numbers),
        "runs, deep": rows(f"/runs?after={key}" for key in keys),
        "runs, failed": rows(search(lambda at: f"passed=false calls>{at % 3}")),
        "runs, failed, deep": rows(f"/runs?q=passed%3Dfalse&after={key}" for key in keys),
        "runs of an agent": rows(search(lambda at: f"agent={_AGENTS[at % 5]} calls>{at % 7}")),
        "runs with a failed call": rows(
            search(lambda at: f"errors>{at % 2} agent={_AGENTS[at % 5]}")
        ),
        "runs with a tool": rows(search(lambda at: f"tool=tool_{at % 20}")),
        "runs of a time": rows(search(lambda _: f"since={next(days):%Y-%m-%d}")),
        "runs before a time": rows(
            search(lambda _: f"until={next(days) + timedelta(days=1):%Y-%m-%d}")
        ),
        "runs, nothing": empty(search(lambda at: f"agent=nobody-{at}")),
        "runs, rare failure": empty(search(lambda at: f"evaluator=none-{at} passed=false")),
        "runs, common text": rows(search(lambda at: f"order tokens>{at}")),
        # Behind the runs that a live server has just got, the search goes on by a link.
        "runs, rare text": Kind(
            search(lambda at: f'"order {at}?" agent={agents[at]}'), (f"{_RUN}|search further back",)
        ),
        "runs, no such text": empty(search(lambda at: f"headphones-{at}")),
        "runs, an id": Kind(
            (str(httpx.URL("/runs", params={"q": name})) for name in ids),
            status=303,
            to="^/runs/[0-9a-f]{16}$",
        ),
    }


def _runs(places: Sequence[Place]) -> dict[str, Kind]:
    names = [name for _, name in places]
    ids, others = itertools.cycle(names), itertools.cycle([*names[1:], names[0]])
    numbers = itertools.count(1)
    with_spans = itertools.cycle([run.id for run in large_store.written()])
    labels = (_RUN, "queue=sample")

    def neighbour(paths: Paths) -> Kind:
        return Kind(paths, status=303, to="^/runs/[0-9a-f]{16}")

    return {
        "run": Kind((f"/runs/{name}" for name in ids), (_QUESTION, "tool_")),
        "labels": Kind((f"/labels?evaluator=quality&x={number}" for number in numbers), labels),
        "labels, near the threshold": Kind(
            (f"/labels?evaluator=quality&queue=threshold&x={number}" for number in numbers), labels
        ),
        "run, unknown": Kind(
            (f"/runs/ffff{number:012x}" for number in numbers), ("Not found",), status=404
        ),
        "run, newer": neighbour(f"/runs/{name}/newer" for name in ids),
        "run, older": neighbour(f"/runs/{name}/older?q=agent%3Dshop" for name in ids),
        "run, next failure": neighbour(f"/runs/{name}/failure" for name in ids),
        "spans": Kind((f"/runs/{name}/spans" for name in with_spans), ("execute_tool tool_",)),
        "compare": Kind(
            (f"/compare?a={name}&b={next(others)}" for name in ids), (_QUESTION, "tool_")
        ),
        "compare, a run that passed": Kind(
            (f"/compare?a={name}&b=pass" for name in ids), (_QUESTION, "tool_"), follows=True
        ),
    }


def _figures(periods: Sequence[str]) -> dict[str, Kind]:
    numbers = itertools.count(1)
    period = itertools.cycle(periods)
    agents = itertools.cycle(_AGENTS)
    return {
        "overview": Kind(
            (f"/?period={next(period)}&x={number}" for number in numbers), ("billing", "quality")
        ),
        # The latest 20,000 runs; on a live server these are the sent ones, which call get_order.
        "variants": Kind(itertools.repeat("/variants"), (_RUN, "tool_|get_order")),
        "evaluators": Kind(
            (f"/evaluators?period={next(period)}&x={number}" for number in numbers),
            ('href="/evaluators/quality', 'href="/evaluators/match'),
        ),
        "evaluator": Kind(
            (f"/evaluators/quality?period={next(period)}&x={number}" for number in numbers),
            (_INTERVAL, _RUN),
        ),
        "evaluator, an agent": Kind(
            (f"/evaluators/match?period={next(period)}&q=agent%3D{agent}" for agent in agents),
            (_INTERVAL, _RUN),
        ),
    }


def _conversations(places: Sequence[Place], conversations: Sequence[str]) -> dict[str, Kind]:
    keys = itertools.cycle([f"{ns}-{name}" for ns, name in places])
    numbers = itertools.count(1)
    rows = (_CONVERSATION,)
    texts = (
        str(httpx.URL("/conversations", params={"q": f"order {number % 10}"})) for number in numbers
    )
    return {
        "conversations": Kind((f"/conversations?x={number}" for number in numbers), rows),
        "conversation": Kind(itertools.cycle(conversations), (_QUESTION,)),
        "conversations, deep": Kind((f"/conversations?after={key}" for key in keys), rows),
        "conversations, a text": Kind(texts, rows),
        "conversations, a failure, deep": Kind(
            (f"/conversations?q=passed%3Dfalse&after={key}" for key in keys), rows
        ),
    }
