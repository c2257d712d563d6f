"""Reviews: the length of blocks follows later observations, however checks divide them."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest

from oteval.monitor.baselines import Baseline, learn
from oteval.monitor.detector import Alarm
from oteval.monitor.monitor_checks import check
from oteval.monitor.reviews import ReviewedDetector
from oteval.store import Store

from .histories import DAY, HOUR, MINUTE, START, History, config

RATE = 1 / (30 * DAY)


def passes(size: int, keep: float, *, rate: float = 0.9, seed: int = 1) -> npt.NDArray[np.float64]:
    """Return passes and failures, each of which keeps the value before with some probability."""
    rng = np.random.default_rng(seed)
    values = (rng.random(size) < rate).astype(float)
    keeps_value = rng.random(size) < keep
    for index in range(1, size):
        if keeps_value[index]:
            values[index] = values[index - 1]
    return values


def times(size: int, first: int = 0) -> npt.NDArray[np.int64]:
    """Return the times of observations, one in four minutes."""
    return START + (first + np.arange(size, dtype=np.int64)) * 4 * MINUTE


def learned() -> Baseline:
    """Return the baseline of independent values."""
    baseline = learn(passes(2000, 0.0), times(2000))
    assert isinstance(baseline, Baseline)
    return baseline


def run(
    values: npt.NDArray[np.float64], at: npt.NDArray[np.int64], cuts: list[int]
) -> tuple[list[Alarm], ReviewedDetector]:
    """Return the alarms and the detector after values in parts, stored between the parts."""
    baseline = learned()
    detector = ReviewedDetector(baseline, spending=RATE)
    alarms = []
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        alarms += detector.update(values[start:end], at[start:end])
        state = json.loads(json.dumps(detector.state()))
        restored = ReviewedDetector(detector.baseline, spending=RATE)
        restored.restore(state)
        detector = restored
    return alarms, detector


def test_later_dependence_makes_blocks_longer():
    """After a week of dependent values blocks are longer; mean and floor stay frozen."""
    before = learned()
    _, detector = run(passes(4000, 0.6), times(4000, 2000), [])

    after = detector.baseline

    assert before.block < after.block <= 2 * before.block
    assert "later observations" in after.block_reason
    assert (after.mean, after.floor) == (before.mean, before.floor)


def test_a_decline_is_not_learned():
    """Values below the floor leave the baseline as it is, whether they alert or not."""
    alarms, detector = run(passes(4000, 0.6, rate=0.7), times(4000, 2000), [])

    assert alarms[0].kind == "alert"
    assert detector.baseline == learned()


def test_reviews_do_not_depend_on_the_cut():
    """The same values in other parts give the same alerts, recoveries and reviews."""
    rates = [(2500, 0.9), (300, 0.5), (4000, 0.97), (200, 0.4), (5000, 0.95)]
    values = np.concatenate([passes(size, 0.4, rate=rate, seed=size) for size, rate in rates])
    at = times(len(values), 2000)
    at[[1900, 7000]] += 9 * DAY
    rng = np.random.default_rng(2)

    whole = run(values, at, [])
    assert {alarm.kind for alarm in whole[0]} == {"alert", "recovered"}
    assert "later observations" in whole[1].baseline.block_reason
    for parts in (3, 40, 400):
        cuts = sorted(rng.integers(0, len(values), parts).tolist())
        alarms, detector = run(values, at, cuts)
        assert alarms == whole[0]
        assert detector.state()["review"] == whole[1].state()["review"]
        assert detector.baseline == whole[1].baseline


@pytest.mark.slow
def test_a_check_keeps_and_shows_the_review():
    """Status shows the reviewed block and its reason, and later checks use it."""
    with Store() as store:
        history = History(store, step=20 * MINUTE)
        watched = config("{evaluator: e, baseline: {span: 1h}}")
        history.scored(1500, 0.9)
        (first,) = check(store, watched, history.now)
        history.scored(1500, 0.9)
        (second,) = check(store, watched, history.now + HOUR)
        (third,) = check(store, watched, history.now + 2 * HOUR)

        reasons = [
            status.as_dict()["baselines"]["worse"]["block_reason"]
            for status in (first, second, third)
        ]
        assert "later" not in reasons[0]
        assert "later observations" in reasons[1]
        assert reasons[2] == reasons[1]
