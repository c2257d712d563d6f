from __future__ import annotations

import random
from io import StringIO

import pytest
import scipy.stats
from rich.console import Console

from oteval import (
    ConfigError,
    ExperimentResults,
    NotFound,
    NothingEvaluated,
    Store,
    compare_experiments,
    evaluate,
)
from oteval.model import Dataset, Example, Experiment, Feedback, Run
from oteval.scoring import experiments
from oteval.scoring.experiments import Comparison, Difference, ResultRow
from oteval.views import comparison_markdown, comparison_view

from .conftest import Make


def passed(outputs: float) -> bool:
    return outputs >= 0.5


def score(outputs: float) -> float:
    return outputs


def only(comparison: Comparison, key: str) -> Difference:
    return next(difference for difference in comparison.differences if difference.key == key)


def test_compare_has_a_second_name():
    """`oteval.compare` matches two trajectories, so that this function is `compare_experiments`."""
    assert compare_experiments is experiments.compare


def test_passes_are_compared_with_mcnemars_test(made: Make):
    """Runs are paired by example; the examples that only one of them passed decide."""
    a = made("a", [1] * 30 + [0] * 10, passed)
    b = made("b", [1] * 20 + [0] * 10 + [1] * 1 + [0] * 9, passed)

    difference = only(compare_experiments(a, b), "passed")

    assert (difference.only_a, difference.only_b, difference.pairs) == (10, 1, 40)
    assert difference.test == "mcnemar"
    assert difference.p_value == pytest.approx(scipy.stats.binomtest(1, 11).pvalue)
    assert difference.delta == pytest.approx(-0.225)
    assert difference.interval.low < -0.225 < difference.interval.high < 0
    assert difference.verdict == "regressed"
    assert difference.changed[0] == ("e20", 1, 0)


def stored(name: str, passes: list[bool]) -> ExperimentResults:
    """Return an experiment with a verdict on each example."""
    rows = []
    for at, is_passed in enumerate(passes):
        verdict = Feedback(
            f"{name}{at}",
            "passed",
            "1",
            "passed",
            status="ok",
            score=float(is_passed),
            passed=is_passed,
        )
        run = Run(f"{name}{at}", name, f"e{at}")
        rows.append(ResultRow(run, Example(f"e{at}", at), (verdict,)))
    examples = tuple(row.example for row in rows)
    return ExperimentResults(Experiment(name, name), Dataset("d", examples), tuple(rows))


def test_more_than_a_thousand_passes_are_compared():
    """Binomial coefficients beyond a float are no obstacle."""
    a = stored("a", [True] * 900 + [False] * 200)
    b = stored("b", [True] * 850 + [False] * 250)

    difference = only(compare_experiments(a, b), "passed")

    assert (difference.pairs, difference.verdict) == (1_100, "regressed")
    assert 0 < difference.detectable < 0.05


def test_a_shift_of_scores_is_found(made: Make):
    """A shift of all scores is found, although the scores themselves vary far more."""
    chance = random.Random(1)
    first = [chance.random() * 0.8 for _ in range(120)]
    second = [value + 0.05 + chance.gauss(0, 0.05) for value in first]

    difference = only(
        compare_experiments(made("a", first, score), made("b", second, score)), "score"
    )

    assert difference.test == "gaffke"
    assert difference.verdict == "improved"
    assert difference.p_value < 0.01
    assert difference.interval.low < 0.05 < difference.interval.high


def test_equal_systems_of_many_examples_show_no_evidence(made: Make):
    """If a difference of the margin would have been detected, the verdict is no evidence."""
    chance = random.Random(2)
    first = [chance.random() for _ in range(200)]
    second = [min(1, max(0, value + chance.gauss(0, 0.05))) for value in first]

    difference = only(
        compare_experiments(made("a", first, score), made("b", second, score)), "score"
    )

    assert difference.verdict == "no evidence"
    assert difference.detectable < 0.05 == difference.margin


@pytest.mark.parametrize("size", [4, 30])
def test_few_examples_are_inconclusive(made: Make, size: int):
    """An undetectable difference is not ruled out, even if nothing differs."""
    outputs = [float(n % 3 > 0) for n in range(size)]

    difference = only(
        compare_experiments(made("a", outputs, passed), made("b", outputs, passed)), "passed"
    )

    assert (difference.delta, difference.p_value) == (0, 1)
    assert difference.detectable > 0.05
    assert difference.verdict == "inconclusive"


def test_lower_may_be_better(made: Make):
    """Fewer seconds are an improvement; the margin is relative for values outside 0 to 1."""
    first = [10.0 + n % 3 for n in range(60)]
    second = [value - 1 - (n % 2) / 10 for n, value in enumerate(first)]
    a, b = made("a", first, score), made("b", second, score)

    difference = only(compare_experiments(a, b, lower_is_better=["score"]), "score")

    assert difference.verdict == "improved"
    assert difference.margin == pytest.approx(0.05 * 11)
    assert only(compare_experiments(a, b), "score").verdict == "regressed"
    assert only(compare_experiments(a, b, margin={"score": 3}), "score").margin == 3


def test_p_values_of_many_metrics_are_adjusted_together(made: Make):
    """One small p-value among twenty metrics of equal systems is not significant."""

    def metrics(outputs: int) -> list[dict[str, object]]:
        chance = random.Random(outputs)
        return [{"key": f"m{n}", "score": chance.random()} for n in range(20)]

    a = made("a", list(range(40)), metrics)
    b = made("b", list(range(100, 140)), metrics)

    comparison = compare_experiments(a, b)

    least = min(comparison.differences, key=lambda difference: difference.p_value)
    assert least.p_value < 0.1
    assert least.p_adjusted >= min(1, 2 * least.p_value)
    assert not comparison.regressed


def test_repetitions_belong_to_their_example(made: Make):
    """Ten repetitions of six examples are six pairs; the test uses the examples' shares."""
    first, second = [0.9, 0.8, 0.7, 0.6, 0.4, 0.3], [0.8, 0.75, 0.6, 0.55, 0.3, 0.1]
    a = made("a", first, score, num_repetitions=10)
    b = made("b", second, score, num_repetitions=10)

    difference = only(compare_experiments(a, b), "score")
    unrepeated = only(
        compare_experiments(made("c", first, score), made("d", second, score)), "score"
    )

    assert difference.pairs == 6
    assert difference.p_value == pytest.approx(unrepeated.p_value)


def test_passes_with_repetitions_have_pass_k(store: Store):
    """The difference has pass@k and pass^k of both experiments."""

    def results(name: str, every: int) -> ExperimentResults:
        calls: dict[int, int] = {}

        def target(inputs: int) -> bool:
            calls[inputs] = calls.get(inputs, 0) + 1
            return calls[inputs] % every == 0

        data = [{"id": str(n), "inputs": n} for n in range(8)]
        options = {"num_repetitions": 4, "name": name, "store": store, "max_concurrency": 1}
        return evaluate(target, data, [lambda outputs: outputs], **options)

    difference = compare_experiments(results("a", 1), results("b", 2)).differences[0]

    assert difference.test == "gaffke"
    assert difference.only_a is None
    assert difference.pass_hat[4] == (1, 0)
    assert difference.pass_at[1] == pytest.approx((1, 0.5))
    assert difference.verdict == "regressed"


def test_failed_runs_do_not_count_as_zero(made: Make):
    """A failed run is in no pair and no mean; a separate figure counts failures."""
    a = made("a", [1.0] * 20, score)
    b = made("b", [ValueError()] * 8 + [1.0] * 12, score)

    comparison = compare_experiments(a, b)

    difference = only(comparison, "score")
    assert (difference.pairs, difference.mean_b) == (12, 1.0)
    assert (difference.lost_a, difference.lost_b) == (0, 8)
    completion = only(comparison, "completed")
    assert (completion.mean_a, completion.mean_b, completion.verdict) == (1, 0.6, "regressed")


def test_stored_experiments_are_compared_by_name(made: Make, store: Store):
    """Names and results may be mixed; figures that only one has are listed."""
    made("a", [0.5] * 8, score)
    b = made("b", [0.5] * 8, score, passed)

    comparison = compare_experiments("a", b, store=store)

    assert [difference.key for difference in comparison.differences] == ["score"]
    assert (comparison.only_a, comparison.only_b) == ((), ("passed",))
    assert comparison.as_dict()["differences"][0]["verdict"] == comparison.differences[0].verdict
    with pytest.raises(NotFound, match="no experiment 'c'"):
        compare_experiments("a", "c", store=store)


def test_experiments_without_a_common_example_are_refused(made: Make, store: Store):
    """Without pairs there is an error, not an empty comparison."""
    a = made("a", [0.5] * 3, score)
    other = [{"id": f"x{n}", "inputs": n} for n in range(3)]
    b = evaluate(lambda _: 1.0, other, [score], store=store)

    with pytest.raises(NothingEvaluated, match="no scores of the same example"):
        compare_experiments(a, b)
    with pytest.raises(ConfigError, match="must be between 0 and 1"):
        compare_experiments(a, a, alpha=5)


def test_equal_results_have_an_interval_with_a_width(made: Make):
    """Ten examples without a difference have intervals with a width, within -1 to 1."""
    comparison = compare_experiments(made("a", [1] * 10, passed), made("b", [1] * 10, passed))

    low, high = only(comparison, "passed").interval or (0, 0)
    assert -0.5 < low < -0.1
    assert 0.1 < high < 0.5
    assert comparison.a.summary()[0].interval == pytest.approx((0.6915, 1.0), abs=1e-3)


def printed(comparison: Comparison) -> str:
    console = Console(width=100, file=StringIO())
    console.print(comparison_view(comparison))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_few_examples_say_how_many_more_are_needed(made: Make):
    """No test finds anything with three pairs; the view, Markdown and JSON say so."""
    comparison = compare_experiments(made("a", [1, 1, 0], passed), made("b", [0, 0, 0], passed))

    assert only(comparison, "passed").needed == 3
    assert comparison.as_dict()["differences"][0]["needed"] == 3
    assert "3 examples; more examples needed: 3" in printed(comparison)
    assert "more examples needed: 3" in comparison_markdown(comparison)


def test_few_examples_begin_with_what_is_certain(made: Make):
    """The runs that changed come first; one line says that statistics need more examples."""
    a = made("a", [1, 1, 0], passed, score)
    b = made("b", [0, 1, 0], passed, score)

    comparison = compare_experiments(a, b)
    lines = printed(comparison).splitlines()

    assert lines[0].startswith("✗ e0: ")
    assert "1 of 3 runs broke, 2 did not change." in lines
    assert sum("more examples needed" in line for line in lines) == 1
    assert "too few for statistics: 3 examples; more examples needed: 3 (passed, score)" in lines
    assert not any("∞" in line for line in lines)
    markdown = comparison_markdown(comparison)
    assert markdown.index("✗ e0: ") < markdown.index("| score |")
    assert comparison.as_dict()["differences"][0]["worse"] == 1


def test_rare_losses_are_no_improvement(made: Make):
    """Small gains on nearly all examples do not outweigh a loss that the sample may lack."""
    first = [0.5] * 20
    second = [0.52] * 20

    difference = only(
        compare_experiments(made("a", first, score), made("b", second, score)), "score"
    )

    assert difference.verdict == "inconclusive"
    assert difference.interval.low < 0 < difference.interval.high
    assert difference.p_value > 0.05


@pytest.mark.parametrize("metrics", [1, 4, 20])
def test_a_verdict_is_what_the_interval_says(made: Make, metrics: int):
    """With several figures the intervals are wider, so that none contradicts its verdict."""
    chance = random.Random(metrics)
    shifts = [chance.choice([0, 0, 0.08, 0.3]) for _ in range(metrics)]

    def scores(outputs: int) -> list[dict[str, object]]:
        draw = random.Random(outputs)
        return [
            {"key": f"m{n}", "score": draw.random() * 0.6 + (outputs >= 100) * shift}
            for n, shift in enumerate(shifts)
        ]

    a = made("a", list(range(30)), scores)
    b = made("b", list(range(100, 130)), scores)

    comparison = compare_experiments(a, b)

    for difference in comparison.differences:
        excludes = not difference.interval.low <= 0 <= difference.interval.high
        assert excludes == (difference.verdict in ("improved", "regressed"))
        assert excludes == (difference.p_adjusted <= 0.05)
        assert difference.confidence == comparison.differences[0].confidence >= 0.95


def test_equal_values_without_bounds_have_no_interval(made: Make):
    """Equal differences in seconds do not bound other differences."""
    comparison = compare_experiments(made("a", [3.0] * 70, score), made("b", [5.0] * 70, score))

    difference = only(comparison, "score")
    assert (difference.interval, difference.p_value, difference.verdict) == (
        None,
        None,
        "inconclusive",
    )
    assert comparison.as_dict()["differences"][0]["interval"] is None
    assert "too similar for statistics; more examples needed" in comparison_markdown(comparison)
