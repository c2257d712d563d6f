"""Reports on stored runs: counted in SQL, they equal reports that read every run."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from oteval.base.errors import ConfigError, NothingEvaluated
from oteval.model import Message, Score, Trajectory, Usage
from oteval.model.selection import EVERYTHING, Selection, parse_condition
from oteval.scoring import refresh
from oteval.scoring.config import Gate
from oteval.store import Store, split_at, split_by
from oteval.views.report import (
    Report,
    ReportOptions,
    build,
    build_stored,
    from_keys,
    grouping,
    run_groups,
    stored_tallies,
)

from ...make import CAPTURES, asks, call, capture, gap, keep, run
from . import sample

_STATUSES = ("ok", "ok", "ok", "ok", "error", "not_evaluated")
_METADATA = (
    {}, {}, {"cost_usd": 0.25}, {"cost": 2}, {"cost_usd": True, "cost": 0.5}, {"cost_usd": -1},
    {"costs": "cost"}, {"cost_usd": "1", "cost": None},
)  # fmt: skip


_LONG = "long " * 401
_IMAGE = ({"type": "image", "url": "a", "scale": 1.0},)
_QUESTIONS = (
    [Message("user", "question 1")],
    [Message("user", "question\n1")],
    [Message("user", "question\r\n1\x85")],
    [Message("user", "question\u2028\n1")],
    [Message("user", " question  1\u3000")],
    [Message("system", "be kind"), Message("user", "question 1")],
    [Message("user", " \u3000"), Message("user", "\t\x1b[31mred\x00")],
    [Message("user"), Message("assistant", "hm"), Message("user", "question 2")],
    [Message("user")],
    [Message("user", ""), Message("user")],
    [Message("assistant", "unasked")],
    [],
    [Message("user", _LONG)],
    [Message("user", _LONG.replace(" ", "\n", 1))],
    [Message("user", f"{_LONG}end")],
    [Message("user", "look", parts=_IMAGE)],
    [Message("user", "look", parts=({**_IMAGE[0], "url": "b"},))],
    [Message("user", "look"), Message("user", "again", parts=_IMAGE)],
    [Message("user", "half \ud83d")],
    [Message("user", "whole"), asks(call("f", {"x": float("nan")}))],
)
_ATTRIBUTES = (
    *({},) * 6,
    {"test.case.id": " question 1\u3000"},
    {"test.case.id": "", "case_name": 7},
    {"case_name": "7"},
    {"example.id": True, "tier": 1},
    {"example.id": 1.5, "tier": True},
    {"test.case.id": None, "tier": "1"},
    {"test.case.id": "  ", "tier": "true"},
    {"case_name": ["a", 1], "tier": 1.0},
)


def _run(number: int, chance: random.Random, history: Trajectory | None) -> Trajectory:
    messages = [*chance.choice(_QUESTIONS)]
    earlier = len(history.messages) if history else 0
    for step in range(chance.randrange(4)):
        calls = [call(chance.choice("fgh"), {}, f"c{step}{at}") for at in range(1, 3)]
        messages.append(asks(*calls[: chance.randrange(1, 3)]))
        failed = chance.random() < 0.4
        messages.append(Message("tool", "x", (), f"c{step}1", is_error=failed))
    start = chance.choice([0, number, 10**18 + number * chance.randrange(10**12)])
    return run(
        number,
        *messages,
        agent=chance.choice(["", "a", "b"]),
        conversation_id=chance.choice(["", "x", "y"]),
        models=chance.choice([(), ("gpt-4o",), ("gpt-4o", "other"), ("none",)]),
        usage=Usage(
            chance.randrange(100), chance.randrange(9), chance.randrange(150), chance.randrange(2)
        ),
        gaps=(gap(),) * chance.randrange(2),
        attributes=chance.choice(_ATTRIBUTES),
        history=history,
        new_from=max(0, earlier - chance.randrange(3)),
        start_ns=start,
        end_ns=start + chance.choice([-1, 0, 5, chance.randrange(10**10)]),
        turn=chance.choice([1, 1, 2]),
    )


def _score(trajectory: Trajectory, evaluator: str, chance: random.Random) -> Score:
    status = chance.choice(_STATUSES)
    scored = status == "ok"
    return Score(
        trajectory.id, trajectory.root_span.trace_id, trajectory.root_span.span_id, evaluator,
        chance.choice("12"), status=status,
        score=chance.choice([None, 0.0, 1.0, chance.random()]) if scored else None,
        passed=chance.choice([None, True, False]) if scored else None,
        comment=chance.choice(["", "why"]), metadata=chance.choice(_METADATA),
    )  # fmt: skip


def _fill(store: Store, seed: int, runs: int = 30) -> None:
    """Store runs, with several scores of some evaluators on them."""
    chance = random.Random(seed)
    trajectories: list[Trajectory] = []
    for number in range(1, runs + 1):
        history = chance.choice(trajectories) if trajectories and chance.random() < 0.3 else None
        trajectories.append(_run(number, chance, history))
    keep(store, *trajectories)
    for _ in range(chance.randrange(1, 4)):
        store.scores.write(
            [
                _score(trajectory, evaluator, chance)
                for trajectory in trajectories
                for evaluator in ("x", "y", "z")
                if chance.random() < 0.6
            ]
        )


def _rounded(report: Report) -> Report:
    """Return a report without the last digits of means, which depend on the order of sums.

    The cost of models is left out: a last digit may decide how it is rounded.
    """
    return replace(
        report,
        figures=tuple(figure for figure in report.figures if figure[0] != "models' cost"),
        evaluators=tuple(
            replace(
                summary,
                mean=None if summary.mean is None else round(summary.mean, 9),
                low=round(summary.low, 9),
                high=round(summary.high, 9),
                p_value=None if summary.p_value is None else round(summary.p_value, 9),
            )
            for summary in sorted(report.evaluators, key=lambda s: (s.name, s.group))
        ),
        columns=tuple(sorted(report.columns, key=lambda column: (column.evaluator, column.group))),
        rows=tuple(replace(row, cells=tuple(sorted(row.cells, key=repr))) for row in report.rows),
        charts=tuple(
            replace(chart, series=_rounded_rates(chart.series))
            for chart in sorted(report.charts, key=lambda chart: chart.title)
        ),
        gates=tuple((group, replace(gate, comment="")) for group, gate in report.gates),
    )


def _rounded_rates(series: Any) -> Any:
    """Return the series of a chart by name, with rates without their last digits."""
    return [
        (name, [value and tuple(round(part, 9) for part in value) for value in values])
        if any(isinstance(value, tuple) for value in values)
        else (name, values)
        for name, values in sorted(series)
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.slow
def test_counting_in_sql_gives_the_same_report(seed: int) -> None:
    """All figures, charts, rows and gates equal those of a report that reads every run."""
    selection = (EVERYTHING, Selection(limit=17), Selection(agents=("a",)))[seed % 3]
    options = ReportOptions(
        evaluators=("x", "z") if seed % 2 else (),
        gates=(Gate(evaluator="x", min_pass_rate=0.5), Gate(evaluator="z", min_score=0.4)),
        most_rows=(1000, 7)[seed % 2],
    )
    with Store() as store:
        _fill(store, seed)
        read = build(sample.read(store, selection=selection), options, made_ns=1)
        runs = store.statistics.of(selection, options.evaluators)
        items = from_keys(store, runs.worst(options.most_rows))
        counted = build_stored(runs, items, options, made_ns=1)

        tallies = stored_tallies(runs)

    assert _rounded(counted) == _rounded(read)
    assert {name: tally.passed for name, tally in tallies.items()} == {
        evaluator.name: evaluator.passed for evaluator in read.evaluators
    }


_GROUPS = (
    grouping("agent"), grouping("model"), grouping("attributes.tier"), grouping("hour"),
    split_at(10**18, "before", "after"), split_by(parse_condition("calls>1"), "many", "others"),
    split_by(parse_condition("errors>0"), "errors", "others"),
    split_by(parse_condition("asked~question"), "asked", "others"),
    split_by(parse_condition("attributes.tier=1"), "gold", "others"),
)  # fmt: skip
_SELECTIONS = (
    EVERYTHING,
    Selection(limit=40),
    Selection(conditions=(parse_condition("tool!=h"),)),
    Selection(conditions=(parse_condition("asked~[a-z]"),), limit=30),
)


@pytest.mark.parametrize("seed", range(18))
@pytest.mark.slow
def test_groups_compared_in_sql_give_the_same_report(seed: int) -> None:
    """Cases, differences and all figures of groups equal those of a report that reads every run."""
    group, selection = _GROUPS[seed % len(_GROUPS)], _SELECTIONS[seed % 4]
    case = ("", "test.case.id")[seed % 2]
    groups = run_groups(group, case)
    options = ReportOptions(
        is_grouped=True,
        evaluators=("x", "z") if seed % 3 else (),
        gates=(Gate(evaluator="x", min_pass_rate=0.5),),
        most_rows=(1000, 9)[seed % 2],
    )
    with Store() as store:
        _fill(store, seed, runs=60)
        items = sample.read(store, group, case=case, selection=selection)
        runs = store.statistics.of(selection, options.evaluators, groups)
        if len(runs.groups) > 12:
            with pytest.raises(ConfigError, match="at most 12"):
                build_stored(runs, (), options)
            return
        read = build(items, options, made_ns=1)
        worst = from_keys(store, runs.worst(options.most_rows), groups)
        counted = build_stored(runs, worst, options, made_ns=1)

    assert counted.groups == read.groups
    assert _rounded(counted) == _rounded(read)


@pytest.mark.slow
def test_captures_compared_in_sql_give_the_same_report(store: Store) -> None:
    """For real captures, groups, cases and rows equal those of a report that reads every run."""
    for name in CAPTURES:
        store.spans.write(*capture(name))
    refresh(store)
    trajectories = list(store.trajectories.read())
    chance = random.Random(7)
    store.scores.write([_score(trajectory, "x", chance) for trajectory in trajectories])
    options = ReportOptions(is_grouped=True, evaluators=("x",))

    for condition in ("tool~e", "asked~the", "calls>1"):
        group = split_by(parse_condition(condition), condition, "others")
        groups = run_groups(group)
        runs = store.statistics.of(EVERYTHING, ("x",), groups)
        counted = build_stored(runs, from_keys(store, runs.worst(1000), groups), options, 1)

        assert _rounded(counted) == _rounded(build(sample.read(store, group), options, made_ns=1))


def test_a_baseline_that_no_run_has_is_named(store: Store) -> None:
    """An unknown group is an error, and a selection without runs gives no report."""
    groups = run_groups(grouping("agent"))
    options = ReportOptions(is_grouped=True, baseline="none")

    with pytest.raises(NothingEvaluated):
        build_stored(store.statistics.of(EVERYTHING, (), groups), (), options)
    _fill(store, 1)
    with pytest.raises(ConfigError, match="--baseline 'none' is not one of the compared groups"):
        build_stored(store.statistics.of(EVERYTHING, (), groups), (), options)


def test_sample_reports_are_equal(store: Store) -> None:
    """A report with hostile texts is the same, its evaluators in the same order."""
    sample.fill(store, 6, evil=True)
    runs = store.statistics.of(EVERYTHING)

    counted = build_stored(runs, from_keys(store, runs.worst(10)), ReportOptions(), made_ns=1)

    read = build(sample.read(store), ReportOptions(most_rows=10), made_ns=1)
    assert [evaluator.name for evaluator in counted.evaluators] == [
        evaluator.name for evaluator in read.evaluators
    ]
    assert counted.rows == read.rows
    assert (counted.figures, counted.tools) == (read.figures, read.tools)


def test_failures_are_those_of_the_newest_scores(store: Store) -> None:
    """The list has each evaluator's newest score, by run, unless it is a pass."""
    _fill(store, 5)
    runs = store.statistics.of(EVERYTHING)
    expected = [
        (item.id, verdict.evaluator)
        for item in sample.read(store)
        for verdict in item.verdicts
        if verdict.state in ("fail", "error", "none")
    ]

    failures = [(failure.trajectory_id, failure.evaluator) for failure in runs.failures(1000)]

    assert failures == expected
    assert [(failure.trajectory_id, failure.evaluator) for failure in runs.failures(3)] == expected[
        :3
    ]


def test_nothing_selected_is_said(store: Store) -> None:
    """A store without runs gives no report."""
    runs = store.statistics.of(EVERYTHING)

    with pytest.raises(NothingEvaluated):
        build_stored(runs, from_keys(store, runs.worst(5)), ReportOptions())
