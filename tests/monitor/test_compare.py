"""`oteval monitor compare`: figures before and after a deployment."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oteval.cli import common
from oteval.store import Store

from ..commands import Run
from ..make import keep
from .histories import HOUR, History

CONFIG = """
evaluators:
  - {name: e, type: tool_errors}
monitors:
  - {evaluator: e, group_by: [agent, version]}
  - {measure: loops}
"""


@pytest.fixture
def deployed(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Run, set[str], set[str]]:
    """Return commands after a deployment that broke one of two tool sequences, and its runs."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    with Store(tmp_path / "oteval.duckdb") as store:
        history = History(store, step=HOUR // 2)
        old = history.scored(80, 0.95, "look", "pay") + history.scored(80, 0.95, "look")
        at = history.now
        bad = []
        for _ in range(40):
            history.scored(1, 0.95, "look")
            bad += history.scored(1, 0.3, "look", "pay")
    assert oteval("monitor", "mark", "release", "--at", iso(at)).status == 0
    monkeypatch.setattr(common, "now_ns", lambda: history.now)
    return oteval, {trajectory.id for trajectory in old}, {trajectory.id for trajectory in bad}


def iso(time_ns: int) -> str:
    """Return a time as the options take it."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat()


def test_a_worse_release_is_found_with_its_slice_and_runs(
    deployed: tuple[Run, set[str], set[str]],
):
    """The figures have intervals, the broken sequence is the worst slice, and the status is 1."""
    oteval, old, bad = deployed

    done = oteval("monitor", "compare", "--before", "release", "--json")

    quality, loops = done.rows
    assert done.status == 1
    assert (quality["verdict"], loops["verdict"]) == ("worse", "no evidence")
    before, after = quality["before"], quality["after"]
    assert before["low"] < before["mean"] < before["high"]
    assert after["high"] < before["low"]
    delta, low, high = quality["change"]
    assert low < delta < high < 0
    assert "other days of the week" in done.err
    assert quality["group"] == {"agent": "a"}
    assert quality["slices"][0]["dimension"] == "tools"
    assert quality["slices"][0]["value"] == "look > pay"
    assert set(quality["runs_after"]) <= bad
    assert set(quality["runs_before"]) <= old
    assert "look > pay" in oteval("monitor", "compare", "--before", "release").out


def test_some_hours_after_a_deployment_are_too_few(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nobody knows yet how far the level wanders: the verdict says so, without a p-value."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    with Store(tmp_path / "oteval.duckdb") as store:
        history = History(store, step=HOUR // 2)
        history.scored(80, 0.95, "look")
        at = history.now
        history.scored(40, 0.5, "look")
    monkeypatch.setattr(common, "now_ns", lambda: history.now)

    done = oteval("monitor", "compare", "--before", iso(at), "--json")

    assert done.status == 3
    assert {(row["verdict"], row["p"]) for row in done.rows} == {("too few days", None)}
    assert "2 figures: less than a day" in done.err


def test_rare_variants_of_unchanged_traffic_are_no_change(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Most sequences of tools occur once or twice, and the shares of new ones are equal."""
    (tmp_path / "oteval.yaml").write_text("monitors: [{measure: new_variants}]\n")
    rng = random.Random(2)
    weights = [1 / rank for rank in range(1, 2000)]
    with Store(tmp_path / "oteval.duckdb") as store:
        history = History(store, step=HOUR // 4)
        variants = rng.choices(range(1, 2000), weights, k=768)
        runs = [history.run_at(number, f"t{variant}") for number, variant in enumerate(variants)]
        keep(store, *runs)
        history.count = len(runs)
    monkeypatch.setattr(common, "now_ns", lambda: history.now)

    done = oteval("monitor", "compare", "--before", iso(history.now - 96 * HOUR), "--json")

    (row,) = done.rows
    assert row["verdict"] == "no evidence"
    assert abs(row["before"]["mean"] - row["after"]["mean"]) < 0.1
    assert row["before"]["mean"] > 0.3


def test_a_wrong_time_names_marks_and_times(oteval: Run, tmp_path: Path):
    """A text that is neither a mark nor a time is one line and status 2."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    Store(tmp_path / "oteval.duckdb").close()

    done = oteval("monitor", "compare", "--before", "relaese")

    assert done.status == 2
    assert "no mark has this name either" in done.err
