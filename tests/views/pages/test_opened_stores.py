"""Pages of a served database, or of several read as one, equal the pages of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from oteval.model import Trajectory
from oteval.store import ShardedStore, Store, StoredMark

from . import hostile
from .conftest import SECOND, START, ShowPages, put, run, score

SEARCHES = (
    *("passed=false", "status=not_evaluated", "agent=shop errors>0", "tool=get_order", "order"),
    *("since=2020-01-01", "evaluator=calls passed=true", "conversation=c1", "asked~order"),
)
LISTS = ("/runs", "/conversations", "/variants", "/evaluators")
# The growth of the store since then, which is counted differently.
STATE = re.compile(r' data-live="[^"]*"')


def filled(path: Path) -> list[Trajectory]:
    """Write a database with runs of every kind, and return them."""
    with Store(path) as store:
        runs = [hostile.with_text(n, text) for n, text in enumerate(hostile.TEXTS[:3], 1)]
        talks = [run(100 + n, f"order {n}", conversation_id=f"c{n % 3}") for n in range(9)]
        put(store, *runs, *talks)
        store.scores.write(
            [score(run, "calls", passed=at % 2 == 0) for at, run in enumerate([*runs, *talks])]
        )
        for trajectory in runs[:2]:
            store.spans.write(hostile.spans(trajectory, 5, is_large=False))
        store.monitors.add_mark(StoredMark(START + SECOND, "mark", "deploy-9", "web", "", START))
    return [*runs, *talks]


def paths(runs: list[Trajectory]) -> Iterator[str]:
    """Yield the paths of every kind of page."""
    yield from ("/", "/?period=all", "/alerts", "/experiments", "/labels?evaluator=calls")
    for queue in ("disagreements", "threshold", "variants"):
        yield f"/labels?evaluator=calls&queue={queue}"
    yield from LISTS
    yield from ("/evaluators/calls", "/evaluators/calls?period=all", "/conversations/c1")
    for search in SEARCHES:
        for page in LISTS[:2]:
            yield f"{page}?q={search.replace(' ', '+')}"
    for trajectory in (*runs[:2], runs[-1]):
        yield from (
            f"/runs/{trajectory.id}",
            f"/runs/{trajectory.id}/spans",
            f"/compare?a={trajectory.id}&b=pass",
        )
        yield from (f"/runs/{trajectory.id}/{way}" for way in ("newer", "older", "failure"))
        yield f"/conversations?after={trajectory.start_ns}-{trajectory.id}&q=order"


def answers(client: TestClient, runs: list[Trajectory]) -> dict[str, tuple[int, str, str]]:
    """Return the status, the text and the address of a redirect of every page."""
    answers_by_path = {}
    for path in paths(runs):
        answer = client.get(path)
        text = STATE.sub("", answer.text)
        answers_by_path[path] = (answer.status_code, text, answer.headers.get("location", ""))
    return answers_by_path


@pytest.mark.parametrize("kind", ["served", "sharded"])
@pytest.mark.slow
def test_pages_are_the_same_however_the_database_is_opened(
    kind: str, pages: ShowPages, tmp_path: Path
):
    """Every page equals the page of a database that this process opened."""
    path = tmp_path / "traces.duckdb"
    runs = filled(path)
    with Store(path) as store:
        expected = answers(pages(store), runs)
        assert {status for status, _, _ in expected.values()} == {200, 303, 404}
        if kind == "served":
            with ExitStack() as stack:
                stack.callback(store.serve(lambda _: b"", {}).close)
                other = stack.enter_context(Store(path))
                assert answers(pages(other), runs) == expected
    if kind == "sharded":
        with ShardedStore([str(path)]) as shards:
            assert answers(pages(shards), runs) == expected
