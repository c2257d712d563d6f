"""A pass rate has one value and one interval on pages, in the terminal, in reports and over MCP."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oteval import evaluate
from oteval.evaluators.stats import pass_rate
from oteval.model.selection import EVERYTHING
from oteval.scoring import ScoreCounts, variants
from oteval.store import Store
from oteval.views.mcp.workspace import Workspace
from oteval.views.report import ReportOptions, build_stored, from_keys

from ..mcp.conftest import asking
from .conftest import ShowPages, put, run, score
from .test_evaluators import plain

RATE = pass_rate(2, 1, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with four runs: two pass, one fails, and one could not be judged."""
    path = tmp_path / "rates.duckdb"
    with Store(path) as store:
        runs = [run(number) for number in range(1, 6)]
        put(store, *runs)
        outcomes = [{}, {}, {"passed": False, "score": 0.0}]
        outcomes += [{"status": name, "passed": None, "score": None} for name in UNJUDGED]
        scores = [
            score(trajectory, "calls", **more)
            for trajectory, more in zip(runs, outcomes, strict=True)
        ]
        store.scores.write(scores)
        evaluate(
            lambda inputs: inputs,
            [{"id": str(number), "inputs": number} for number in range(4)],
            [right],
            name="halves",
            store=store,
        )
    return path


UNJUDGED = ("error", "not_evaluated")


def right(outputs: int) -> bool:
    """Pass half of the examples."""
    return outputs < 2


def test_the_rate_is_exact():
    """Two of four are .5, within the exact interval, which contains Wilson's."""
    assert tuple(RATE) == pytest.approx((0.5, 0.0676, 0.9324), abs=1e-4)


@pytest.mark.parametrize("page", ["/", "/evaluators", "/evaluators/calls", "/variants"])
def test_pages_show_it(path: Path, pages: ShowPages, page: str):
    """The overview, the evaluators and the variants have the rate with its interval."""
    with Store(path) as store:
        text = plain(pages(store).get(page).text)

    assert re.search(r"50(\.0)?% 6\.8% to 93\.2%", text), text


def test_reports_and_the_terminal_show_it(path: Path):
    """The tables of evaluators and variants and the HTML report agree."""
    with Store(path) as store:
        selected = store.statistics.of(EVERYTHING)
        items = from_keys(store, selected.worst(9))
        [summary] = build_stored(selected, items, ReportOptions()).evaluators
        [variant] = variants(store).rows
        scored = ScoreCounts()
        scored.add_stored(store)

    assert (summary.pass_rate, summary.low, summary.high) == RATE
    assert (variant["pass_rate"], *variant["pass_rate_interval"]) == RATE
    assert scored.tallies["calls"].rate == RATE


async def test_tools_of_agents_show_it(path: Path, tmp_path: Path):
    """Variants and experiments over MCP have the rounded rate and interval."""
    ask = asking(Workspace(str(path), str(tmp_path / "oteval.yaml")))

    [variant] = (await ask("list_variants")).rows
    [experiment] = (await ask("list_experiments")).rows

    expected = [round(end, 4) for end in RATE]
    for row in (variant, *experiment["scores"]):
        assert [row["pass_rate"], *row["interval_95"]] == expected


def test_the_list_and_the_page_of_an_experiment_agree(path: Path, pages: ShowPages):
    """The list and the page have the interval over examples."""
    with Store(path) as store:
        client = pages(store)
        listed = plain(client.get("/experiments").text)
        link = re.search(r'href="(/experiments/[^"?]+)', client.get("/experiments").text)
        assert link is not None
        page_text = plain(client.get(link[1]).text)

    assert re.search(r"50(\.0)?% 6\.8% to 93\.2%", listed), listed
    assert "[0.068, 0.932]" in page_text
