"""Tables fit whatever terminal there is, whatever traces hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rich.cells import cell_len

from oteval.cli.common import out
from oteval.model import Message
from oteval.store import Store

from ..make import asks, call, gap, keep, run, score
from .conftest import Run

HARD = {
    "long": "an agent whose name is " + "very " * 60 + "long",
    "unbroken": "n" * 300,
    "wide": "予約エージェント" * 20,
    "emoji": "👩‍👩‍👧‍👦🇩🇪" * 30,
    "hostile": "[red]\x1b[2J\u202e\n\n\tx" * 10,
    "empty": "",
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with runs of hard names, one with 300 scores."""
    path = tmp_path_factory.mktemp("widths") / "oteval.duckdb"
    with Store(path) as store:
        for number, text in enumerate(HARD.values(), 1):
            made = run(
                number,
                Message("system", text),
                Message("user", text),
                asks(call(text or "f", {"a": text}, "c")),
                Message("tool", text, (), "c", text, is_error=True),
                agent=text,
                service=text,
                conversation_id=text,
                models=(text,),
                gaps=(gap(), gap("redacted")),
            )
            keep(store, made)
        names = [f"evaluator-{number}" for number in range(300)]
        store.scores.write([score(1, evaluator=name) for name in names])
        hard = HARD.values()
        store.scores.write([score(2, evaluator=t or "e", comment=t, label=t) for t in hard])
    return path


@pytest.fixture
def made(oteval: Run, database: Path) -> Run:
    """Return the command in a folder with a copy of the database."""
    shutil.copy(database, "oteval.duckdb")
    return oteval


def assert_fits(printed: str, width: int) -> None:
    """Assert that no line is wider than the terminal, ends in spaces or has an escape."""
    for line in printed.splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip(" ")
    assert "\x1b" not in printed


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", ["variants", "show", "diff"])
def test_no_line_is_wider_than_the_terminal(
    made: Run, monkeypatch: pytest.MonkeyPatch, command: str, width: int
):
    """Groups, single runs and comparisons fit, and no line has spaces at its end."""
    monkeypatch.setenv("COLUMNS", str(width))
    ids = {"show": [run(n).id for n in range(1, 7)], "diff": [run(1).id, run(2).id, run(5).id]}

    done = made(command, *ids.get(command, ()))

    assert done.status == (command == "diff")
    assert_fits(done.out, width)


@pytest.mark.parametrize("command", ["trajectories", "scores"])
def test_lists_fit_a_narrow_terminal(made: Run, monkeypatch: pytest.MonkeyPatch, command: str):
    """Even where their rows take several lines."""
    monkeypatch.setenv("COLUMNS", "60")

    done = made(command)

    assert done.status == 0
    assert_fits(done.out, 60)


@pytest.mark.parametrize("width", [80, 120])
def test_a_run_and_a_score_are_one_line_each(
    made: Run, monkeypatch: pytest.MonkeyPatch, width: int
):
    """Whatever its cells hold, a row fits and does not wrap, and its id is never cut."""
    monkeypatch.setenv("COLUMNS", str(width))

    trajectories, scored = made("trajectories"), made("scores")

    assert trajectories.status == scored.status == 0
    assert_fits(trajectories.out, width)
    assert_fits(scored.out, width)
    runs, scores = trajectories.out.splitlines(), scored.out.splitlines()
    assert [line[:8] for line in runs[1:7]] == [run(n).id[:8] for n in range(1, 7)]
    assert runs[7:] == ["", "✓ pass"]
    assert "✓" in runs[1]
    assert len(scores) == 1 + 300 + len(HARD)


def test_a_pipe_has_200_columns(made: Run, monkeypatch: pytest.MonkeyPatch):
    """Piped without a usable COLUMNS, tables are as wide as they need, up to 200 columns."""
    monkeypatch.setenv("COLUMNS", "wide")

    lines = made("trajectories").out.splitlines()

    assert 120 < max(map(cell_len, lines)) <= 200


@pytest.mark.parametrize("given", ["", "0", "-5", "wide", "٨٠", "1e3"])
@pytest.mark.usefixtures("capsys")
def test_a_width_that_is_none_is_ignored(monkeypatch: pytest.MonkeyPatch, given: str):
    """A COLUMNS that is not a number of columns counts as none."""
    monkeypatch.setenv("COLUMNS", given)

    assert out().width == 200


@pytest.mark.parametrize("width", ["1", "10", "30"])
def test_a_tiny_terminal_is_no_error(made: Run, monkeypatch: pytest.MonkeyPatch, width: str):
    """Even if nothing fits, every command prints its results."""
    monkeypatch.setenv("COLUMNS", width)

    assert made("trajectories").status == made("scores").status == 0
    assert made("show", run(1).id).status == 0
    assert made("diff", run(1).id, run(2).id).status == 1


def test_services_stand_in_for_agents_that_are_not_known(oteval: Run):
    """The service is a column only where a run has no agent."""
    with Store("oteval.duckdb") as store:
        keep(store, run(1, Message("user", "q"), agent="bot", service="shop"))
    with_agent = oteval("trajectories").out
    with Store("oteval.duckdb") as store:
        keep(store, run(2, Message("user", "q"), agent="", service="shop"))
    without = oteval("trajectories").out

    assert "service" not in with_agent
    assert "shop" not in with_agent
    assert "service" in without.splitlines()[0]
    assert "shop" in without.splitlines()[2]


def test_one_of_a_thing_is_singular(oteval: Run):
    """Counts beside the tables are in the right number."""
    with Store("oteval.duckdb") as store:
        keep(store, run(1, Message("user", "x" * 1001)))
        store.scores.write([score(1)])

    assert oteval("trajectories").err == "oteval: 1 trajectory; oteval show ID shows one\n"
    assert oteval("scores").err == "oteval: 1 score\n"
    assert oteval("variants").err == "oteval: 1 variant in 1 run\n"
    assert "(1 more character)" in oteval("show", run(1).id).out
    assert oteval("reference", "add", run(1).id).out.startswith(f"reference {run(1).id}: 1 message")
    assert oteval("reference", "list").err == "oteval: 1 reference\n"
    assert oteval("dataset", "add", "d").out.endswith(": 1 example, added\n")
    assert oteval("dataset", "list").err == "oteval: 1 dataset\n"
    assert oteval("export", "--jsonl", "x").err == "oteval: x: 1 trajectory\n"
