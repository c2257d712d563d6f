"""Reports on stored runs: counted in SQL, they equal reports that read every run."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oteval.config import Gate
from oteval.errors import NothingEvaluated
from oteval.model import Message, Score, Trajectory, Usage
from oteval.selection import EVERYTHING, Selection
from oteval.show.html import (
    Report,
    ReportOptions,
    build,
    build_stored,
    from_keys,
    from_store,
    stored_tallies,
)
from oteval.store import Store

from ...make import asks, call, gap, keep, run
from . import sample

_STATUSES = ("ok", "ok", "ok", "ok", "error", "not_evaluated")
_METADATA = (
    {}, {}, {"cost_usd": 0.25}, {"cost": 2}, {"cost_usd": True, "cost": 0.5}, {"cost_usd": -1},
    {"costs": "cost"}, {"cost_usd": "1", "cost": None},
)  # fmt: skip


def _run(number: int, chance: random.Random) -> Trajectory:
    messages = [Message("user", f"question {chance.randrange(4)}")]
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
        start_ns=start,
        end_ns=start + chance.choice([-1, 0, 5, chance.randrange(10**10)]),
    )


def _score(one: Trajectory, evaluator: str, chance: random.Random) -> Score:
    status = chance.choice(_STATUSES)
    scored = status == "ok"
    return Score(
        one.id, one.root_span.trace_id, one.root_span.span_id, evaluator,
        chance.choice("12"), status=status,
        score=chance.choice([None, 0.0, 1.0, chance.random()]) if scored else None,
        passed=chance.choice([None, True, False]) if scored else None,
        comment=chance.choice(["", "why"]), metadata=chance.choice(_METADATA),
    )  # fmt: skip


def _fill(store: Store, seed: int, runs: int = 30) -> None:
    """Store runs, with several scores of some evaluators on them."""
    chance = random.Random(seed)
    made = [_run(number, chance) for number in range(1, runs + 1)]
    keep(store, *made)
    for _ in range(chance.randrange(1, 4)):
        store.scores.write(
            [
                _score(one, evaluator, chance)
                for one in made
                for evaluator in ("x", "y", "z")
                if chance.random() < 0.6
            ]
        )


def _rounded(report: Report) -> Report:
    """Return a report without the last digits of means, which depend on the order of sums."""
    return replace(
        report,
        evaluators=tuple(
            replace(one, mean=None if one.mean is None else round(one.mean, 9))
            for one in sorted(report.evaluators, key=lambda one: one.name)
        ),
        columns=tuple(sorted(report.columns, key=lambda one: one.evaluator)),
        rows=tuple(replace(row, cells=tuple(sorted(row.cells, key=repr))) for row in report.rows),
        charts=tuple(sorted(report.charts, key=lambda one: one.title)),
        gates=tuple((group, replace(gate, comment="")) for group, gate in report.gates),
    )


@pytest.mark.parametrize("seed", range(12))
def test_counting_in_sql_gives_the_same_report(seed: int) -> None:
    """All figures, charts, rows and gates equal those of reading every run, whatever is shown."""
    selection = (EVERYTHING, Selection(limit=17), Selection(agents=("a",)))[seed % 3]
    options = ReportOptions(
        evaluators=("x", "z") if seed % 2 else (),
        gates=(Gate(evaluator="x", min_pass_rate=0.5), Gate(evaluator="z", min_score=0.4)),
        most_rows=(1000, 7)[seed % 2],
    )
    with Store() as store:
        _fill(store, seed)
        read = build(from_store(store, selection), options, made_ns=1)
        runs = store.statistics.of(selection, options.evaluators)
        items = from_keys(store, runs.worst(options.most_rows))
        counted = build_stored(runs, items, options, made_ns=1)

        tallies = stored_tallies(runs)

    assert _rounded(counted) == _rounded(read)
    assert {name: one.passed for name, one in tallies.items()} == {
        one.name: one.passed for one in read.evaluators
    }


def test_sample_reports_are_equal(store: Store) -> None:
    """A report with hostile texts is the same, its evaluators in the same order."""
    sample.fill(store, 6, evil=True)
    runs = store.statistics.of(EVERYTHING)

    counted = build_stored(runs, from_keys(store, runs.worst(10)), ReportOptions(), made_ns=1)

    read = build(from_store(store, EVERYTHING), ReportOptions(most_rows=10), made_ns=1)
    assert [one.name for one in counted.evaluators] == [one.name for one in read.evaluators]
    assert counted.rows == read.rows
    assert (counted.figures, counted.tools) == (read.figures, read.tools)


def test_failures_are_those_of_the_newest_scores(store: Store) -> None:
    """The list has the newest score of each evaluator that is no pass, by run."""
    _fill(store, 5)
    runs = store.statistics.of(EVERYTHING)
    wanted = [
        (item.id, verdict.evaluator)
        for item in from_store(store, EVERYTHING)
        for verdict in item.verdicts
        if verdict.state in ("fail", "error", "none")
    ]

    found = [(one.trajectory_id, one.evaluator) for one in runs.failures(1000)]

    assert found == wanted
    assert [(one.trajectory_id, one.evaluator) for one in runs.failures(3)] == wanted[:3]


def test_nothing_selected_is_said(store: Store) -> None:
    """A store without runs gives no report."""
    runs = store.statistics.of(EVERYTHING)

    with pytest.raises(NothingEvaluated):
        build_stored(runs, from_keys(store, runs.worst(5)), ReportOptions())
