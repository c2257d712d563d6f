"""Measures of variants: baselines are measured out of sample, so that usual traffic is usual."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from oteval.monitor.baselines import Learning
from oteval.monitor.detector import DAY_NS, Ints
from oteval.monitor.groups import allowance_of, learn_sides, update, watch
from oteval.monitor.observations import Observations
from oteval.monitor.scales import fit
from oteval.scoring.config import MonitorSettings

MINUTE_NS = 60_000_000_000


@pytest.mark.parametrize("measure", ["new_variants", "variant_shift"])
@pytest.mark.parametrize("exponent", [1.5, 1.1, 1.0])
def test_unchanged_traffic_with_many_rare_variants_raises_no_alert(
    measure: str, exponent: float
) -> None:
    """With Zipf's law, new variants never end, but come at the rate that was learned."""
    for seed in (1, 2):
        assert _alerts(measure, _zipf(exponent, 15_000, seed)) == 0


def test_more_new_variants_are_found():
    """A tenth of the runs with variants that nobody had seen are an alert."""
    variants = _zipf(1.5, 8_000, 3)
    strange = np.random.default_rng(4).random(len(variants)) < 0.1
    strange[:6_000] = False

    assert _alerts("new_variants", np.where(strange, -np.arange(len(variants)), variants)) == 1


def test_the_baseline_has_the_share_of_new_variants_that_later_runs_have():
    """It is that of Good and Turing: here a twentieth of the runs has a variant of its own."""
    variants = np.where(np.arange(2_000) % 20 == 0, np.arange(2_000), -1)
    baseline = _observations(variants)
    scale = fit("new_variants", "worse", baseline)

    assert scale.baseline_values(baseline).mean() == pytest.approx(0.95)
    assert scale.values(baseline).mean() == 1.0


def test_a_burst_of_one_variant_counts_as_unseen():
    """All runs of a batch in the baseline are new to the rest of it."""
    variants = np.where(np.arange(2_400) // 50 == 30, 7, -1)
    baseline = _observations(variants)

    values = fit("new_variants", "worse", baseline).baseline_values(baseline)

    assert values.mean() == pytest.approx(1 - 50 / 2_400)


def _zipf(exponent: float, size: int, seed: int) -> Ints:
    shares = np.cumsum(np.arange(1, 200_001) ** -exponent)
    rng = np.random.default_rng(seed)
    return np.searchsorted(shares / shares[-1], rng.random(size)).astype(np.int64)


def _observations(variants: Ints) -> Observations:
    count = len(variants)
    zeros = np.zeros(count, np.int64)
    return Observations(
        values=np.zeros(count),
        times=np.arange(count) * MINUTE_NS,
        variants=variants,
        sizes=np.ones(count, np.int64),
        versions=zeros,
        version_names=("",),
        runs=pa.nulls(count, pa.string()),
    )


def _alerts(measure: str, variants: Ints) -> int:
    settings = MonitorSettings(measure=measure)
    observed = _observations(variants)
    learned = learn_sides(settings, observed, 20 * DAY_NS)
    assert not isinstance(learned, Learning)
    sides, taken = learned
    watched = watch(settings, sides, allowance=allowance_of(settings, 1))
    changes = update(watched, observed.after(taken))
    return sum(change.alarm.kind == "alert" for change in changes)
