"""Where the runs of a report come from."""

from __future__ import annotations

import pytest

from oteval.base.errors import ConfigError, NotFound
from oteval.model import Message
from oteval.model.selection import parse_condition
from oteval.store import Store, split_at, split_by
from oteval.views.report import ReportOptions, build, from_experiments, pairwise_of
from oteval.views.report.sources import NONE, grouping

from ...make import keep, run, score
from . import sample


@pytest.mark.parametrize(
    ("by", "group"),
    [
        ("agent", "a"),
        ("service", "s"),
        ("model", "m1, m2"),
        ("version", "v7"),
        ("attributes.tier", "gold"),
        ("attributes.none", NONE),
        ("day", "2026-11-18"),
        ("hour", "2026-11-18 11:00"),
        ("week", "2026-W47"),
    ],
)
def test_runs_are_grouped_by_what_is_asked(store: Store, by: str, group: str) -> None:
    """Each way to compare has its groups, and what a run lacks is a group of its own."""
    attributes = {"service.version": "v7", "tier": "gold"}
    start = sample.START_NS
    keep(store, run(1, models=("m1", "m2"), attributes=attributes, start_ns=start, end_ns=start))

    (item,) = sample.read(store, grouping(by))

    assert item.group == group


def test_an_unknown_way_to_compare_is_refused() -> None:
    """The error lists what there is."""
    with pytest.raises(ConfigError, match=r"--by 'colour': there are agent, .*attributes\.KEY"):
        grouping("colour")


def test_runs_can_be_split_by_time_or_condition(store: Store) -> None:
    """Before and after a time, and where a condition holds, are two groups."""
    keep(store, run(1), run(2), run(3))
    by_time = split_at(3, "before T", "from T")
    by_turn = split_by(parse_condition("turn=1"), "turn=1", "others")

    assert [i.group for i in sample.read(store, by_time)] == ["before T"] * 2 + ["from T"]
    assert {i.group for i in sample.read(store, by_turn)} == {"turn=1"}


def test_cases_pair_by_id_or_by_what_was_asked(store: Store) -> None:
    """Runs of the same case are in one row, whatever version ran it."""
    sample.fill(store, 4)
    items = list(sample.read(store, grouping("version")))

    report = build(items, ReportOptions(is_grouped=True))

    assert len(report.rows) == 4
    assert all(len(row.runs) == 2 for row in report.rows)
    assert {item.case for item in items} == {f"case-{n:02}" for n in range(4)}


def test_experiments_are_groups(store: Store) -> None:
    """Each experiment is a group, its examples are cases, and a run that failed shows as one."""
    sample.experiments(store, 6)

    experiments, items = from_experiments(store, ["baseline", "candidate"])

    assert [experiment.name for experiment in experiments] == ["baseline", "candidate"]
    report = build(items, ReportOptions(is_grouped=True, baseline="baseline"))
    assert report.groups == ("baseline", "candidate")
    assert len(report.rows) == 6
    assert ("runs that failed", "2", "") in report.figures
    broken = next(row for row in report.rows if row.detail == "example-03")
    assert broken.badness < 2
    assert next(cell.text for cell in broken.cells).endswith("/2")


def test_an_experiment_that_is_not_there_is_said(store: Store) -> None:
    """A missing experiment, one named twice and a comparison are errors that say what to do."""
    sample.experiments(store, 2)

    with pytest.raises(NotFound, match="no experiment 'x'"):
        from_experiments(store, ["x"])
    with pytest.raises(ConfigError, match="the same experiment twice"):
        from_experiments(store, ["baseline", "x-baseline"])
    with pytest.raises(ConfigError, match="a-comparison is a comparison"):
        from_experiments(store, ["a-comparison"])


def test_pairwise_answers_that_disagree_are_flips(store: Store) -> None:
    """What was asked in both orders and answered differently is a tie with a flip badge."""
    sample.experiments(store, 20)
    experiments, _ = from_experiments(store, ["baseline", "candidate"])

    (pairwise,) = pairwise_of(store, experiments)

    assert pairwise.names == ("baseline", "candidate")
    flips = [duel for duel in pairwise.duels if duel.is_flipped]
    assert flips
    for duel in flips:
        assert duel.winner == ""
        (first_order, first_scores), (second_order, second_scores) = duel.asked
        assert first_order == second_order[::-1]
        assert first_scores == second_scores
    assert [duel.winner for duel in pairwise.duels].count(None) == pairwise.errors == 1
    assert pairwise.flip_rate == pytest.approx(len(flips) / 19)
    assert sum(pairwise.wins) + pairwise.ties == 19


def test_outputs_that_are_messages_are_shown_once(store: Store) -> None:
    """What the trajectory tells is not told again as the run's outputs; inputs always are."""
    sample.experiments(store, 2)

    _, items = from_experiments(store, ["baseline"])

    assert all(item.trajectory and item.outputs is None for item in items)
    assert all(item.inputs for item in items)


def test_runs_without_a_question_or_case_are_unpaired(store: Store) -> None:
    """What the traces do not hold pairs nothing: such runs have rows of their own, no p-value."""
    runs = [
        run(n, Message("user", None), Message("assistant", "x"), models=(f"m{n % 2}",))
        for n in range(1, 21)
    ]
    keep(store, *runs)
    store.scores.write([score(n, passed=n % 2 == 0, score=float(n % 2 == 0)) for n in range(1, 21)])

    items = list(sample.read(store, grouping("model")))
    report = build(items, ReportOptions(is_grouped=True))

    assert [item.case for item in items] == [trajectory.id for trajectory in runs]
    assert len(report.rows) == 20
    assert {evaluator.paired for evaluator in report.evaluators} == {0}
    assert {evaluator.p_value for evaluator in report.evaluators} == {None}
    assert ("unpaired runs", "20", "no question captured, and no case id") in report.figures


def test_only_whole_questions_pair_runs(store: Store) -> None:
    """Questions that differ in their end or in an image are not one case; equal ones are."""
    long = "x" * 3000
    looks = [{"type": "image", "url": url} for url in ("a", "b", "a")]
    keep(
        store,
        *(run(n, Message("user", long + end)) for n, end in enumerate(("1", "2", "1"), 1)),
        *(run(n, Message("user", "look", parts=(part,))) for n, part in enumerate(looks, 4)),
    )

    cases = [item.case for item in sample.read(store)]

    assert cases[0] == cases[2] != cases[1]
    assert cases[3] == cases[5] != cases[4]
