"""Measures of runs that restate a check have the values of that check."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from oteval.evaluators.checks.budget import Budget, Latency
from oteval.evaluators.checks.loops import Loops
from oteval.evaluators.checks.tool_errors import ToolErrors
from oteval.evaluators.measures import CHECK_MEASURES
from oteval.evaluators.scorer import Scorer
from oteval.messages.call_outcome import outcome_of_message
from oteval.model import EvaluationResult, Message, ToolCall, Trajectory, Usage
from oteval.monitor.monitor_checks import check, source_of
from oteval.scoring.config import RUN_MEASURES
from oteval.store import ReadPosition, RunWindow, Store

from ..make import SOME_SEEDS, asks, call, gap, keep, run
from .histories import SECOND, START, History, config

_MOST = 10**9
# The check with the same figure as each measure. `length` counts messages of all roles, and
# variants are compared with a baseline's: no check has these figures.
CHECKS: dict[str, tuple[Any, Any]] = {
    "tool_errors": (ToolErrors(), lambda result: result.metadata["error_rate"]),
    "loops": (Loops(), lambda result: float(not result.passed)),
    "latency": (Latency(max_seconds=_MOST), lambda result: result.metadata["seconds"]),
    "tokens": (Budget(max_total_tokens=_MOST), lambda result: result.metadata["total_tokens"]),
    # The most expensive of several models counts.
    "cost": (Budget(max_cost=_MOST), lambda result: _most(result.metadata["cost"])),
}
OTHERS = {"length", "new_variants", "variant_shift"}
CALLING = {"tool_errors", "loops"}
WORDS = ("fine", "fine", "fine", "Error: no", "HTTP 500", "no error", None)


def _most(value: Any) -> float:
    return float(value[-1] if isinstance(value, list) else value)


def random_run(number: int, chance: random.Random) -> Trajectory:
    """Return a random run: calls may repeat, fail, lack results or arguments."""
    messages: list[Message] = [Message("user", "x")]
    for at in range(chance.randrange(10)):
        arguments = chance.choice([{}, {}, {"a": 1}, {"a": 1.0}, None])
        names = chance.choice(["a", "a", "ab", "abc"])
        name = chance.choice("ab") if chance.random() < 0.2 else names[at % len(names)]
        messages.append(asks(ToolCall(name, arguments, f"c{at}", "c" * 16)))
        if chance.random() < 0.95:
            # As reconstruction writes results: flagged if their text is that of an error.
            failed = chance.random() < 0.1
            result = Message("tool", chance.choice(WORDS), (), f"c{at}", is_error=failed)
            failed = outcome_of_message(result).failed
            messages.append(replace(result, is_error=failed))
    start = START + number * SECOND
    gaps = (gap("content_not_captured"),) if chance.random() < 0.1 else ()
    return run(
        number,
        *messages,
        gaps=gaps,
        start_ns=start,
        end_ns=start + chance.randrange(5 * SECOND),
        models=chance.choice([("gpt-4o",), ("gpt-4o", "gpt-4o-mini")]),
        usage=Usage(chance.randrange(9), chance.randrange(9), 0, model_calls=1),
        agent="a",
    )


def observed(store: Store, measure: str) -> dict[str, float]:
    """Return the values that a monitor of the measure reads, by run."""
    (settings,) = config(f"{{measure: {measure}}}").monitors
    source = source_of(settings)
    newest = store.observations.newest(source)
    rows, _ = store.observations.new_runs(source, ReadPosition(), newest)
    window = RunWindow("[]", 0, 1 << 62)
    (evidence,) = store.run_windows.latest(source, [window], most=_MOST)
    values = dict(zip(rows["trajectory_id"].to_pylist(), rows["value"].to_pylist(), strict=True))
    later = zip(evidence["trajectory_id"].to_pylist(), evidence["value"].to_pylist(), strict=True)
    assert dict(later) == pytest.approx(values)
    return values


def results(measure: str, runs: list[Trajectory]) -> dict[str, EvaluationResult]:
    """Return the results of the check of a measure, by run."""
    scorer = Scorer(name="", version="", evaluator=CHECKS[measure][0])
    return {run.id: scorer.score(run, reference=None, problem="", time_ns=0) for run in runs}


def test_every_measure_of_runs_is_known_here() -> None:
    """A new measure needs its check in this test, or a reason why no check has its figure."""
    assert set(RUN_MEASURES) == {*CHECKS, *OTHERS}
    assert set(CHECK_MEASURES) == CALLING


@pytest.mark.parametrize("seed", SOME_SEEDS)
@pytest.mark.parametrize("measure", CHECKS)
def test_a_measure_agrees_with_its_check(measure: str, seed: int) -> None:
    """The values of random runs are the check's; runs that it cannot evaluate have none."""
    chance = random.Random(seed)
    runs = [random_run(number, chance) for number in range(1, 121)]
    with Store() as store:
        keep(store, *runs)

        values = observed(store, measure)

        figure = CHECKS[measure][1]
        expected = {
            name: figure(result)
            for name, result in results(measure, list(store.trajectories.read())).items()
            if result.status == "ok"
        }
    if measure in CALLING:
        called = {run.id for run in runs if any(m.tool_calls for m in run.messages)}
        expected = {name: value for name, value in expected.items() if name in called}
        assert len(set(expected.values())) > 1
    assert values == pytest.approx(expected)


def test_a_cycle_of_two_calls_is_a_loop() -> None:
    """A-B-A-B-A-B fails the check and counts in the measure."""
    with Store() as store:
        history = History(store)
        (plain,) = history.runs(1, "a", "b", "c")
        (circle,) = history.runs(1, *"ababab")

        assert observed(store, "loops") == {plain.id: 0.0, circle.id: 1.0}


def test_a_late_result_is_that_of_its_call() -> None:
    """A failure after the next call counts, and calls without results do not count as successes."""
    failed = Message("tool", "ValueError: no", (), "1", is_error=True)
    fine = Message("tool", "fine", (), "2")
    late = run(1, asks(call("a", {}, "1")), asks(call("b", {}, "2")), failed, fine, end_ns=START)
    unknown = run(2, asks(call("a", {}, "1")), end_ns=START)
    with Store() as store:
        keep(store, late, unknown)

        assert observed(store, "tool_errors") == {late.id: 0.5}


def test_a_run_without_tokens_has_no_cost() -> None:
    """Tokens that the trace does not report are not free."""
    usage = Usage(1000, 200, 0, model_calls=1)
    with Store() as store:
        history = History(store)
        history.runs(1, models=("gpt-4o",))
        (paid,) = history.runs(1, models=("gpt-4o",), usage=usage)

        assert set(observed(store, "cost")) == {paid.id}


def test_a_new_definition_of_the_check_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that was learned with another definition of the check is learned again."""
    watched = config("{measure: loops}")
    with Store() as store:
        history = History(store)
        history.runs(420, "a", "b")
        (before,) = check(store, watched, history.now)
        learned = store.monitors.monitors()["loops"].definition
        changed = replace(CHECK_MEASURES["loops"], check=Loops(max_repeats=9))
        measures = {**CHECK_MEASURES, "loops": changed}
        monkeypatch.setattr("oteval.monitor.monitor_checks.CHECK_MEASURES", measures)
        (after,) = check(store, watched, history.now)

        assert store.monitors.monitors()["loops"].definition != learned
    assert (before.observations, after.observations) == (420, 420)


@pytest.mark.parametrize("measure", ["loops", "tool_errors"])
def test_clean_runs_of_a_chosen_time_end_the_learning(measure: str):
    """A thousand runs without a fault are a baseline, though most of the time has few of them."""
    done = (asks(call("f", {}, "c")), Message("tool", "x", (), "c"))
    times = [START + at * SECOND for at in range(950)]
    times += [times[-1] + at * 1800 * SECOND for at in range(1, 50)]
    runs = [
        run(number, *done, agent="a", start_ns=at, end_ns=at + SECOND)
        for number, at in enumerate(times, start=1)
    ]
    period = "{from: 2026-09-01, until: 2026-09-23T12:00}"
    with Store() as store:
        keep(store, *runs)
        watched = config(f"{{measure: {measure}, baseline: {period}}}")
        (waiting,) = check(store, watched, times[-1])
        assert (waiting.state, waiting.progress) == (
            "learning",
            "the time of the baseline is not over",
        )
        later = times[-1] + 24 * 3600 * SECOND
        keep(store, run(2000, *done, agent="a", start_ns=later, end_ns=later + SECOND))

        (status,) = check(store, watched, later + SECOND)

    assert (status.state, status.recent) == ("ok", 0.0)


def test_a_group_says_what_it_waits_for():
    """Before the first attempt to learn, the status has the number of runs or the time."""
    with Store() as store:
        history = History(store, step=SECOND)
        watched = config("{measure: length}")
        history.runs(10, "f")
        assert check(store, watched, history.now)[0].progress == "10 of 300 observations"
        history.runs(300, "f")
        assert check(store, watched, history.now)[0].progress == "0.1 of 24 hours"
