from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
import scipy.stats
from hypothesis import given, strategies as st

from oteval import (
    ComparativeResults,
    ConfigError,
    NotFound,
    NothingEvaluated,
    OtevalError,
    Store,
    evaluate,
    evaluate_comparative,
)
from oteval.model import Example, Run, Vote
from oteval.scoring.experiments.votes import answer_of, pairs_of

from ...make import keep, run as make_run
from .conftest import Make


def greater(outputs: list[float]) -> list[float]:
    """Prefer the greater output, in whichever order."""
    return outputs


def first_place(outputs: list[float]) -> list[float]:
    """Prefer what is shown first."""
    return [1.0] + [0.0] * (len(outputs) - 1)


def two(made: Make, a: list[float], b: list[float]) -> list[Any]:
    return [made("a", a), made("b", b)]


def test_the_better_system_wins(made: Make, store: Store):
    """Win rate, ties, interval and p-value follow from the preferences."""
    found = evaluate_comparative(
        two(made, [1] * 9 + [0] * 3, [0] * 9 + [0, 0, 1]), [greater], store=store
    )

    (pair,) = found.pairs()
    assert (pair.wins_a, pair.wins_b, pair.ties, pair.errors, pair.examples) == (9, 1, 2, 0, 12)
    assert pair.win_rate == pytest.approx(10 / 12)
    assert pair.p_value == pytest.approx(scipy.stats.binomtest(9, 10).pvalue)
    assert pair.interval is not None
    assert pair.interval.low < 10 / 12 < pair.interval.high <= 1
    assert (pair.flip_rate, pair.first_rate, pair.verdict()) == (0, 0.5, "a")
    assert len(found.votes) == 24


def test_a_judge_that_prefers_a_position_prefers_no_system(made: Make, store: Store):
    """Its answers in both orders contradict each other: all are ties, and the flip rate is 1."""
    experiments = two(made, [1] * 10, [0] * 10)

    (both,) = evaluate_comparative(experiments, [first_place], store=store).pairs()
    (fixed,) = evaluate_comparative(experiments, [first_place], order="fixed", store=store).pairs()

    assert (both.ties, both.win_rate, both.p_value) == (10, 0.5, 1)
    assert (both.flip_rate, both.first_rate, both.verdict()) == (1, 1, "no evidence")
    assert (fixed.wins_a, fixed.flip_rate, fixed.verdict()) == (10, None, "a")


def test_a_random_order_depends_on_the_seed(made: Make, store: Store):
    """Each example is asked about once, in an order that the seed determines."""
    experiments = two(made, [1] * 40, [0] * 40)

    def shown(**options: Any) -> list[bool]:
        found = evaluate_comparative(experiments, [greater], store=store, **options)
        assert len(found.votes) == 40
        names = {run.id for item in found.items for run in item.runs[:1]}
        return [vote.shown[0] in names for vote in found.votes]

    one = shown(order="random", seed=1)
    assert one == shown(randomize_order=True, seed=1) != shown(order="random", seed=2)
    assert 8 < sum(one) < 32


def test_evaluators_get_the_arguments_they_name(made: Make, store: Store):
    """Outputs and runs are lists in the order shown; a positional pair is runs and example."""
    seen: list[Any] = []

    def named(inputs: Any, outputs: Any, reference_outputs: Any, runs: Any, example: Any) -> Any:
        seen.append((inputs, outputs, reference_outputs, [r.outputs for r in runs], example.id))
        return {"key": "k", "scores": {run.id: 1 for run in runs}, "comment": "same"}

    def positional(pair: list[Run], one: Example) -> list[int]:
        seen.append((one.id, [run.outputs for run in pair]))
        return [1, 0]

    async def keywords(*, outputs: Any, **extra: Any) -> list[int]:
        seen.append((outputs, sorted(extra)))
        return [1, 0]

    found = evaluate_comparative(
        two(made, ["x"], ["y"]), [named, positional, keywords], max_concurrency=1, store=store
    )

    assert seen == [
        (0, ["x", "y"], None, ["x", "y"], "e0"),
        (0, ["y", "x"], None, ["y", "x"], "e0"),
        ("e0", ["x", "y"]),
        ("e0", ["y", "x"]),
        (["x", "y"], ["inputs", "reference_outputs"]),
        (["y", "x"], ["inputs", "reference_outputs"]),
    ]
    assert [pair.key for pair in found.pairs()] == ["k", "positional", "keywords"]
    assert found.votes[0].comment == "same"


RUNS = [Run("r1", "x", "e"), Run("r2", "x", "e")]


@pytest.mark.parametrize(
    ("value", "scores"),
    [
        ([1, 0], (1, 0)),
        ((True, False), (1, 0)),
        ({"scores": [0.5, 0.25], "key": "k"}, (0.5, 0.25)),
        ({"scores": {"r2": 1, "r1": 0}}, (0, 1)),
        (SimpleNamespace(key="k", scores={"r1": 1, "r2": 0}, comment={"r1": "good"}), (1, 0)),
    ],
)
def test_what_a_pairwise_evaluator_may_return(value: Any, scores: tuple[float, float]):
    """Scores by run or in order, in a dict, a list or an object."""
    assert answer_of(value, RUNS, "e").scores == scores


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "must have a score for each run"),
        (1, "must have a score for each run"),
        ([1], "for 2 runs"),
        ([1, None], "score None"),
        ([1, "0"], "score '0'"),
        ([1, math.nan], "score nan"),
        ([1, [2]], "not a number"),
        ({"key": "k"}, "returned no scores"),
        ({"scores": None, "metadata": {"error": "429"}}, "429"),
        ({"scores": {"r1": 1}}, "returned no score for run r2"),
        ({"scores": {"r1": 1, "r2": 0, "r3": 0}}, "not shown"),
        ({"scores": [1, 0], "metadata": 3}, "metadata that is not a dict"),
    ],
)
def test_an_invalid_answer_is_an_error(value: Any, why: str):
    """A return value without a score for each run is an error with the reason."""
    with pytest.raises(TypeError, match=why):
        answer_of(value, RUNS, "e")


def test_a_failed_answer_leaves_out_its_example(made: Make, store: Store):
    """It does so in either order; the other examples count."""

    def sometimes(outputs: list[int]) -> list[int]:
        if outputs == [0, 3]:
            raise ValueError("no")
        return [1, 1]

    found = evaluate_comparative(two(made, [3, 4, 5], [0, 0, 0]), [sometimes, greater], store=store)

    failing, good = found.pairs()
    assert (failing.errors, failing.examples) == (1, 2)
    assert (good.errors, good.examples, good.wins_a) == (0, 3, 3)
    assert [vote.comment for vote in found.votes if vote.status == "error"] == ["ValueError: no"]
    assert found.errors == 1
    with pytest.raises(OtevalError, match="'sometimes': ValueError: no"):
        evaluate_comparative(["a", "b"], [sometimes], on_error="raise", store=store)


def test_a_resumed_comparison_repeats_only_failures(made: Make, store: Store):
    """Answers are not asked for again."""
    seen: list[Any] = []
    fails = True

    def judge(outputs: list[int]) -> list[int]:
        seen.append(outputs)
        if fails and outputs[0] == 2:
            raise ValueError
        return outputs

    experiments = two(made, [1, 2, 3], [0, 0, 0])
    evaluate_comparative(experiments, [judge], name="c", store=store)
    fails, seen = False, []
    found = evaluate_comparative(["a", "b"], [judge], name="c", resume=True, store=store)

    assert seen == [[2, 0]]
    assert found.pairs()[0].wins_a == 3
    assert len(store.experiments.votes(found.experiment.id)) == 6
    with pytest.raises(ConfigError, match="'c' exists already"):
        evaluate_comparative(experiments, [judge], name="c", store=store)


def test_evaluate_compares_experiments(made: Make, store: Store):
    """`evaluate([a, b])` is the same as `evaluate_comparative([a, b])`."""
    two(made, [1, 1], [0, 0])

    found = evaluate(["a", "b"], evaluators=[greater], order="fixed", seed=3, store=store)

    assert isinstance(found, ComparativeResults)
    assert (found.names, len(found.votes), found.seed) == (("a", "b"), 2, 3)
    assert found.to_dicts()[0]["outputs"] == {"a": 1, "b": 0}
    assert next(iter(found))["votes"][0]["shown"] == ["a", "b"]


def test_only_examples_of_all_experiments_are_compared(made: Make, store: Store):
    """Runs that failed or have no counterpart are counted, not compared."""
    a = made("a", [1, 2, ValueError(), 4])
    b = made("b", [0, 0, 0])

    found = evaluate_comparative([a, b], [greater], store=store)

    assert (len(found), found.unpaired) == (2, 3)


def test_three_systems_are_ranked(made: Make, store: Store):
    """All three are shown at once; the ranking and every pair have intervals."""
    chance = random.Random(0)
    levels = {"weak": 0.0, "middle": 0.3, "strong": 0.6}
    made_ones = [
        made(name, [level + chance.random() for _ in range(60)]) for name, level in levels.items()
    ]

    found = evaluate_comparative(made_ones, [greater], store=store)

    ranking = found.ranking()
    assert [standing.name for standing in ranking] == ["strong", "middle", "weak"]
    for standing in ranking:
        assert standing.interval.low <= standing.strength <= standing.interval.high
    assert sum(standing.strength for standing in ranking) == pytest.approx(0, abs=1e-6)
    assert [(pair.a, pair.b) for pair in found.pairs()] == [
        ("weak", "middle"),
        ("weak", "strong"),
        ("middle", "strong"),
    ]
    assert found.pairs()[1].verdict() == "b"
    assert all(pair.p_adjusted >= pair.p_value for pair in found.pairs())


def test_a_pairwise_judge_is_asked_about_every_two_runs(made: Make, store: Store):
    """A judge that can only compare two runs never sees three."""
    sizes = []

    def judge(outputs: list[int]) -> list[int]:
        sizes.append(len(outputs))
        return outputs

    judge.only_pairs = True  # type: ignore[attr-defined]
    found = evaluate_comparative(
        [made("a", [3]), made("b", [2]), made("c", [1])], [judge], store=store
    )

    assert sizes == [2] * 6
    assert [pair.wins_a for pair in found.pairs()] == [1, 1, 1]
    assert [standing.name for standing in found.ranking()] == ["a", "b", "c"]


def test_repetitions_are_averaged_within_their_example(made: Make, store: Store):
    """Ten equal answers about one example have the weight of one."""
    a = made("a", [1], num_repetitions=10)
    b = made("b", [0], num_repetitions=10)

    (pair,) = evaluate_comparative([a, b], [greater], store=store).pairs()

    assert (pair.examples, pair.wins_a, pair.p_value) == (1, 1, 1)


def test_nested_trajectories_are_loaded_on_request(store: Store):
    """Runs of stored trajectories have all their turns; other runs stay as they are."""
    kept = [
        make_run(1, attributes={"test.case.id": "c"}),
        make_run(2, attributes={"test.case.id": "c"}),
    ]
    keep(store, *kept)
    experiments = [evaluate([one], store=store) for one in kept]
    names = [one.name for one in experiments]
    seen = []

    def judge(runs: list[Run]) -> list[int]:
        seen.append([run.trajectory.agent if run.trajectory else None for run in runs])
        return [0, 0]

    evaluate_comparative(names, [judge], order="fixed", store=store)
    evaluate_comparative(names, [judge], order="fixed", load_nested=True, store=store)

    assert seen == [[None, None], ["a", "a"]]


@pytest.mark.parametrize(
    ("experiments", "options", "error", "why"),
    [
        (["a"], {}, ConfigError, "two or more different"),
        (["a", "a"], {}, ConfigError, "two or more different"),
        (["a", "b"], {"order": "up"}, ConfigError, "order is 'up'"),
        (["a", "b"], {"evaluators": []}, ConfigError, "evaluators are missing"),
        (["a", "z"], {}, NotFound, "no experiment 'z'"),
        (["a", "failed"], {}, NothingEvaluated, "no example in common"),
    ],
)
def test_wrong_arguments_are_refused_at_once(
    made: Make, store: Store, experiments: Any, options: Any, error: Any, why: str
):
    """A wrong argument is an error before any evaluator is called."""
    two(made, [1], [2])
    made("failed", [ValueError()])

    with pytest.raises(error, match=why):
        evaluate_comparative(experiments, **{"evaluators": [greater], **options}, store=store)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_swapping_the_systems_mirrors_the_result(scores: list[tuple[int, int]]):
    """Wins become losses, the win rate becomes its complement, and the p-value stays the same."""
    runs = {
        (str(n), 0): [Run(f"{side}{n}", side, str(n)) for side in "ab"] for n in range(len(scores))
    }
    votes = [
        Vote("c", "e", "v", "e", example, 0, shown=(first.id, second.id), scores=given)
        for (example, _), (a, b) in runs.items()
        for given, (first, second) in (
            (scores[int(example)], (a, b)),
            (scores[int(example)][::-1], (b, a)),
        )
    ]
    mirrored = {place: members[::-1] for place, members in runs.items()}

    (one,) = pairs_of(["a", "b"], runs, votes)
    (other,) = pairs_of(["b", "a"], mirrored, votes)

    assert (one.wins_a, one.wins_b, one.ties) == (other.wins_b, other.wins_a, other.ties)
    assert one.win_rate == pytest.approx(1 - (other.win_rate or 0))
    assert one.p_value == pytest.approx(other.p_value)


def test_langsmiths_arguments_are_accepted(store: Store):
    """`evaluate((a, b), client=None)` compares; a client is refused, as nothing is sent to it."""
    first = evaluate(lambda inputs: inputs, data=[{"inputs": {"n": 1}}], name="a", store=store)
    second = evaluate(lambda inputs: inputs, data=[{"inputs": {"n": 1}}], name="b", store=store)

    compared = evaluate((first, second), evaluators=[first_place], client=None, store=store)

    assert len(compared) == 1
    with pytest.raises(ConfigError, match="not sent to LangSmith"):
        evaluate((first, second), evaluators=[first_place], client=object(), store=store)
