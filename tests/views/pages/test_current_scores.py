"""The score of a run's newest revision counts everywhere, even if it was written earlier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oteval.model import Score
from oteval.model.selection import EVERYTHING
from oteval.store import Store

from .conftest import START, ShowPages, put, run, score


@pytest.fixture
def failing(store: Store) -> Score:
    """A run whose second revision fails; the score of its first, a pass, was written later."""
    first = run(1)
    put(store, first)
    put(store, replace(first, end_ns=first.end_ns + 1))
    fails = score(first, "calls", rev=2, passed=False, score=0.0, comment="no refund")
    store.scores.write([fails])
    store.scores.write([score(first, "calls", rev=1)])
    return fails


def test_a_late_score_of_an_older_revision_is_not_current(store: Store, failing: Score):
    """The lists of scores, the figures of agents and evaluators and a report's agree."""
    period = (START - 1, START + 10**12)
    [agent] = store.agent_figures.of(*period, 1, 9)
    figures = store.evaluator_figures.of("calls", *period, 1, bins=1, selection=EVERYTHING)
    verdicts = store.statistics.of(EVERYTHING, ("calls",)).verdicts(START, 1.0, 1)

    assert list(store.scores.read()) == [failing]
    assert store.scores.of([failing.trajectory_id])[failing.trajectory_id] == [failing]
    assert store.scores.on_traces([failing.trace_id])[failing.trace_id] == [failing]
    assert [(verdict.passed, verdict.failed) for verdict in agent.verdicts] == [(0, 1)]
    assert (figures.counts.passed, figures.counts.failed) == (0, 1)
    assert [(row["passed"], row["failed"]) for row in verdicts.to_pylist()] == [(0, 1)]


@pytest.mark.parametrize("path", ["/runs", "/runs/{id}", "/runs?q=passed%3Dfalse"])
def test_pages_show_the_verdict_on_the_newest_revision(
    store: Store, pages: ShowPages, failing: Score, path: str
):
    """The reason for the fail is in the list and on the page of the run."""
    text = pages(store).get(path.format(id=failing.trajectory_id)).text

    assert "no refund" in text
