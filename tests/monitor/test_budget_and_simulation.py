"""The budget of false alarms over groups that come and go, and simulations of rules."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.baselines import Baseline
from oteval.monitor.detector import DAY_NS, Detector, spending
from oteval.monitor.e_detector import EDetector
from oteval.monitor.simulation import lowered, simulate
from oteval.monitor.windowed_rules import Threshold

MINUTE_NS = 60_000_000_000


def test_live_groups_share_the_budget_at_every_moment():
    """However many groups are live, together they spend the budget, and never more."""
    for groups in (1, 2, 7, 1000):
        assert groups * spending(live_groups=groups) * 30 * DAY_NS == pytest.approx(1.0)
    assert spending(live_groups=0) == spending(live_groups=1)


def test_groups_that_come_and_go_stay_within_the_budget():
    """With all means at the floor, the worst case, alarms of 1 to 8 groups stay in the budget."""
    runs, alarms, rng = 10, 0, np.random.default_rng(0)
    for _ in range(runs):
        detectors: dict[int, EDetector] = {}
        for step in range(20):
            live = set(range(1 + abs((step % 15) - 7)))
            for group in live:
                detector = detectors.setdefault(group, EDetector(_at_floor(), spending=0.0))
                detector.spending = spending(1, 20_000 * MINUTE_NS, live_groups=len(live))
                times = (np.arange(1000) + step * 1000 + 1) * MINUTE_NS
                found = detector.update(pass_fail(np.full(1000, 0.93), 0.0, rng), times)
                alarms += sum(alarm.kind == "alert" for alarm in found)

    assert alarms <= runs + 3 * np.sqrt(runs)


def test_lowered_values_have_the_lower_mean():
    """Dropped passes lower the mean by the size that was asked for."""
    rng = np.random.default_rng(2)
    values = (rng.random(50_000) < 0.9).astype(float)

    assert values.mean() - lowered(values, 0.1, rng).mean() == pytest.approx(0.1, abs=0.01)
    assert lowered(np.zeros(3), 0.1, rng).tolist() == [0.0, 0.0, 0.0]


def test_dependent_passes_have_the_asked_mean():
    """Keeping the last value changes neither the mean nor the set of values."""
    values = pass_fail(np.full(200_000, 0.9), 0.6, np.random.default_rng(3))

    assert values.mean() == pytest.approx(0.9, abs=0.01)
    assert np.corrcoef(values[1:], values[:-1])[0, 1] == pytest.approx(0.6, abs=0.03)


def test_a_simulation_compares_rules_on_the_users_history():
    """The e-detector is quiet where the threshold is not, and both find a large drop."""
    rng = np.random.default_rng(4)
    history = (rng.random(4000) < 0.95).astype(float)

    def e_detector(found: Baseline) -> Detector:
        return EDetector(found, spending=spending())

    def threshold(_: Baseline) -> Detector:
        return Threshold(below=0.9)

    rules = {"e-detector": e_detector, "threshold": threshold}
    times = np.arange(4000) * MINUTE_NS

    quiet, loud = simulate(history, times, rules, drops=[0.3], streams=6, checks=2000)

    assert (quiet.name, quiet.streams, quiet.observations) == ("e-detector", 6, 12_000)
    assert quiet.per_30_days <= 4 < loud.per_30_days
    assert quiet.drops[0].found == 1.0
    assert quiet.drops[0].observations is not None
    assert quiet.drops[0].observations < 60
    assert quiet.drops[0].time_ns == pytest.approx(quiet.drops[0].observations * MINUTE_NS)
    assert simulate(history, times, rules, drops=[0.3], streams=6, checks=2000) == [quiet, loud]


def test_resampled_history_keeps_its_daily_cycle():
    """A group that fails at night, every night, raises no false alarms in a simulation."""
    rng = np.random.default_rng(5)
    times = np.arange(6000) * MINUTE_NS
    night = (times % DAY_NS) < DAY_NS // 3
    history = pass_fail(np.where(night, 0.75, 0.97), 0.0, rng)

    def e_detector(found: Baseline) -> Detector:
        return EDetector(found, spending=spending())

    (found,) = simulate(
        history, times, {"e-detector": e_detector}, drops=[0.2], streams=5, checks=4000
    )

    assert found.streams == 5
    assert found.false_alarms <= 1
    assert found.drops[0].found == 1.0


def test_a_history_too_short_for_a_baseline_gives_no_streams():
    """Nothing is simulated, and nothing fails."""
    (found,) = simulate([1.0, 0.0], [0, MINUTE_NS], {"t": lambda _: Threshold(below=0.9)})

    assert (found.streams, found.false_alarms, found.per_30_days) == (0, 0, 0.0)
    assert found.drops[0].observations is None


def _at_floor() -> Baseline:
    return Baseline(
        size=1000,
        effective_size=1000.0,
        mean=0.95,
        variance=0.0475,
        floor=0.93,
        autocorrelation_time=1.0,
        block=1,
        block_reason="a test",
        dispersion=1.0,
        start_ns=0,
        end_ns=1000 * MINUTE_NS,
    )
