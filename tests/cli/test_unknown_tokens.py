"""Tokens that a trace does not report are unknown on every surface, and so is their cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oteval import evaluate
from oteval.evaluators.checks.budget import create_budget_evaluator
from oteval.model import Trajectory, Usage
from oteval.store import Store

from ..commands import Run
from ..make import keep, run, score
from ..test_current_verdict import START, client_of

SECOND = 10**9
KNOWN, SILENT = Usage(1000, 200, model_calls=1), Usage(model_calls=1)


def made(number: int, usage: Usage) -> Trajectory:
    """Return a run of an agent with one model."""
    start = START + number * SECOND
    return run(number, agent="shop", models=("gpt-4o",), usage=usage, start_ns=start,
               end_ns=start + SECOND)  # fmt: skip


RUNS = (made(1, KNOWN), made(2, SILENT), made(3, Usage(output_tokens=5, model_calls=1)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with a run that reports its tokens, and two that do not."""
    path = tmp_path / "runs.duckdb"
    with Store(path) as store:
        keep(store, *RUNS)
    return path


def test_lists_have_no_figure_for_runs_without_tokens(path: Path, oteval: Run):
    """JSON has null, tables are empty, and no condition finds them."""
    columns = ("--columns", "input_tokens,tokens,cost")
    rows = oteval("trajectories", "--db", path, "--json", *columns).rows
    silent = [row for row in rows if row["trajectory_id"] != RUNS[0].id]
    for row in silent:
        assert (row["input_tokens"], row["tokens"], row["cost"]) == (None, None, None)
    assert sum(row["cost"] is not None for row in rows) == 1
    for condition in ("input_tokens<1", "tokens<10", "output_tokens<10", "input_tokens!=3"):
        text = oteval("trajectories", "--db", path, "--json", "--where", condition).out
        assert RUNS[1].id not in text
        assert RUNS[2].id not in text


def test_a_sum_over_unknown_costs_is_a_lower_bound(path: Path, oteval: Run):
    """Variants, the overview and the report tell of how many runs the cost is known."""
    (row,) = oteval("variants", "--db", path, "--json").rows
    assert (row["priced"], row["count"], row["input_tokens"]) == (1, 3, 1000)
    with Store(path) as store, client_of(store) as client:
        overview = client.get("/").text
        variants = client.get("/variants").text
        run_page = client.get(f"/runs/{RUNS[1].id}").text
    assert "(1 of 3)" in overview
    assert "at least $" in overview
    assert "(1 of 3)" in variants
    assert "at list prices" not in run_page
    out = path.parent / "report.html"
    assert oteval("report", "--db", path, "--html", out).status == 0
    report = out.read_text("utf-8")
    assert "unknown for 2 runs" in report
    assert "at least $" in report


def test_a_run_without_tokens_is_not_shown_with_none(path: Path, oteval: Run):
    """The view of a run says that its tokens were not reported."""
    assert "not reported, 1 model call" in oteval("show", "--db", path, RUNS[1].id).out
    assert "1,000 in, 200 out, 1 model call" in oteval("show", "--db", path, RUNS[0].id).out


def test_the_cost_of_judges_is_a_lower_bound_if_some_is_unknown(path: Path, oteval: Run):
    """On the page of evaluators, in the report and with experiments."""
    costs = ({"cost_usd": 0.25}, {"cost_usd": None}, {"cost": 0.5})
    with Store(path) as store:
        store.scores.write(
            [
                score(at, evaluator="judge", metadata=metadata)
                for at, metadata in enumerate(costs, start=1)
            ]
        )
        data = [{"id": str(at), "inputs": at, "outputs": "x"} for at in range(3)]

        def asked(inputs: int) -> dict[str, Any]:
            return {"key": "judged", "score": True, "metadata": costs[inputs]}

        evaluate(str, data, [asked], store=store, name="exp")
        with client_of(store) as client:
            pages = [
                client.get(page).text
                for page in ("/evaluators", "/experiments", "/experiments/exp")
            ]
    for page in pages:
        assert "at least $0.75" in page

    oteval("report", "--db", path, "--html", path.parent / "report.html")
    report = (path.parent / "report.html").read_text("utf-8")
    assert "unknown for 1 verdict" in report


@pytest.mark.parametrize("limit", ["max_input_tokens", "max_total_tokens", "max_cost"])
def test_checks_know_as_much_as_columns(limit: str):
    """Only the run with tokens is within a budget."""
    check = create_budget_evaluator(**{limit: 5000})

    assert [check(outputs=each)["score"] for each in RUNS] == [True, None, None]
