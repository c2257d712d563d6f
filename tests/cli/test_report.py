"""``oteval report``."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.store import Store

from ..views.report import sample
from .conftest import Prepare, Run


def write_runs(_: Run) -> None:
    """Write runs of two versions of an agent into a database."""
    with Store("oteval.duckdb") as store:
        sample.fill(store, 6)


@pytest.fixture
def shown(prepare: Prepare) -> Run:
    """Return the command in a folder whose database holds two versions of an agent."""
    return prepare(write_runs)


def test_a_report_is_written(shown: Run) -> None:
    """The file is one HTML document, and one line states its size."""
    done = shown("report", "--html", "r.html", "--title", "The refund agent")

    page = Path("r.html").read_text("utf-8")
    assert done.status == 0
    assert "r.html: 12 rows, 12 runs" in done.err
    assert page.startswith("<!doctype html>")
    assert "<h1>The refund agent</h1>" in page
    assert not Path("r.html.partial").exists()


def test_versions_are_compared(shown: Run) -> None:
    """--by makes each row a case, and --baseline selects the baseline."""
    done = shown("report", "--html", "r.html", "--by", "version", "--baseline", "v2")

    page = Path("r.html").read_text("utf-8")
    assert "r.html: 6 rows, 12 runs" in done.err
    assert page.index('v2</span> <span class="tag">baseline') > 0
    assert "Only changed" in page


def test_filters_choose_the_runs(shown: Run) -> None:
    """The filters of other commands apply, and appear in the header."""
    done = shown("report", "--html", "r.html", "--where", "attributes.service.version=v1")

    assert "r.html: 6 rows, 6 runs" in done.err
    assert "attributes.service.version=v1" in Path("r.html").read_text("utf-8")


def test_a_time_or_a_condition_splits_the_runs(shown: Run) -> None:
    """--split compares before and after; --baseline alone takes a condition."""
    split = shown("report", "--html", "a.html", "--split", "2026-11-18T17:00")
    condition = shown("report", "--html", "b.html", "--baseline", "attributes.service.version=v1")

    assert (split.status, condition.status) == (0, 0)
    assert "from 2026-11-18T17:00" in Path("a.html").read_text("utf-8")
    assert "others" in Path("b.html").read_text("utf-8")


def test_experiments_are_reported_with_their_votes(oteval: Run) -> None:
    """--experiments compares experiments, and shows the pairwise comparison of the two."""
    with Store("oteval.duckdb") as store:
        sample.experiments(store, 8)

    done = oteval(
        "report",
        "--html",
        "r.html",
        "--experiments",
        "candidate",
        "--experiments",
        "baseline",
        "--baseline",
        "baseline",
    )

    page = Path("r.html").read_text("utf-8")
    assert done.status == 0
    assert "<b>candidate</b> against <b>baseline</b>" in page
    assert "flip rate" in page


def test_markdown_counts_and_lists_what_did_not_pass(shown: Run) -> None:
    """--md writes the counts by evaluator and the runs that did not pass."""
    done = shown("report", "--md", "r.md", "--evaluator", "refund-policy")

    text = Path("r.md").read_text("utf-8")
    assert done.status == 0
    assert "| refund-policy |" in text
    assert "quality" not in text
    assert "## Not passed" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give --html FILE or --md FILE"),
        (["--html", "r.html", "--by", "colour"], "--by 'colour': there are"),
        (["--html", "r.html", "--by", "version", "--baseline", "v9"], "not one of the compared"),
        (["--html", "r.html", "--by", "agent", "--split", "2026-11-20"], "exclude each other"),
        (["--html", "r.html", "--case", "test.case.id"], "write attributes.KEY"),
        (["--html", "no/r.html"], "no/r.html: cannot be written"),
        (["--html", "r.html", "--experiments", "x"], "no experiment 'x'"),
        (
            ["--html", "r.html", "--experiments", "x", "--since", "2h"],
            "--since selects stored runs",
        ),
    ],
)
def test_what_cannot_be_done_is_one_line(shown: Run, arguments: list[str], says: str) -> None:
    """A wrong argument gives exit status 2 and a message with the remedy."""
    done = shown("report", *arguments)

    assert done.status == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_nothing_to_report_has_its_own_status(shown: Run) -> None:
    """No run among those chosen is exit status 3, and no file is written."""
    done = shown("report", "--html", "r.html", "--agent", "nobody")

    assert done.status == 3
    assert not Path("r.html").exists()


def test_the_gates_are_shown(shown: Run) -> None:
    """Both reports show the gates of oteval.yaml, or of the file in -c."""
    config = "evaluators: [{name: %s, type: tool_errors}]\ngates: [{evaluator: %s}]\n"
    Path("oteval.yaml").write_text(config % ("gone", "gone"))
    Path("other.yaml").write_text(config % ("refund-policy", "refund-policy"))

    shown("report", "--html", "r.html", "--md", "r.md")
    shown("report", "--md", "other.md", "-c", "other.yaml")

    assert "gone" in Path("r.html").read_text("utf-8")
    assert "- gone: **failed** (evaluated 0 (at least 1): not met)" in Path("r.md").read_text()
    assert "- refund-policy: passed" in Path("other.md").read_text()
    assert shown("report", "--md", "r.md", "-c", "none.yaml").status == 2
