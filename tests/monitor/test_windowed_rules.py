"""The threshold and the two-window rule: known values, any partition, and refusals."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import hypergeom

from oteval.base.errors import InputError
from oteval.monitor.detector import Detector
from oteval.monitor.windowed_rules import Threshold, TwoWindows, fisher

MINUTE_NS = 60_000_000_000

RULES: dict[str, Callable[[], Detector]] = {
    "threshold": lambda: Threshold(below=0.9),
    "two windows": lambda: TwoWindows(level=0.05),
}


def test_fishers_test_equals_scipys():
    """The one-sided p-value is the upper tail of the hypergeometric distribution."""
    rng = np.random.default_rng(0)
    size, before_size = rng.integers(0, 60, 200), rng.integers(0, 1500, 200)
    failures, before = rng.binomial(size, 0.1), rng.binomial(before_size, 0.08)

    expected = hypergeom.sf(failures - 1, size + before_size, failures + before, size)

    np.testing.assert_allclose(
        fisher(failures, size, before, before_size), expected, rtol=1e-6, atol=1e-9
    )


def test_fishers_test_by_hand():
    """The lady tasting tea: all four right has the probability 1/70."""
    assert fisher(4, 4, 0, 4)[0] == pytest.approx(1 / 70)
    assert fisher(0, 0, 0, 0)[0] == 1.0


def test_threshold_alerts_while_the_last_hour_is_below():
    """Six failures in an hour of sixty scores are .9, the seventh is below; later it recovers."""
    values = np.ones(200)
    values[100:107] = 0.0
    times = np.arange(200) * MINUTE_NS

    found = Threshold(below=0.9).update(values, times)

    assert [(alarm.kind, alarm.index) for alarm in found] == [("alert", 106), ("recovered", 160)]
    assert found[0].after == pytest.approx(53 / 60)
    assert found[0].observations == 60
    assert found[0].change_from_ns <= times[100] <= found[0].change_to_ns


def test_threshold_waits_for_enough_observations():
    """One failure is not an hour's mean where at least ten observations are asked for."""
    detector = Threshold(below=0.9, least=10)

    assert detector.update([0.0] * 9, np.arange(9)) == []
    assert [alarm.index for alarm in detector.update([0.0], [9])] == [9]
    assert detector.alerting
    assert detector.evidence == 1.0


def test_two_windows_find_a_burst_of_failures():
    """After a day with 2% failures, an hour of failures is found within a few."""
    rng = np.random.default_rng(1)
    values = (rng.random(1560) < 0.98).astype(float)
    values[1500:] = 0.0

    found = TwoWindows().update(values, np.arange(1560) * MINUTE_NS)

    assert [alarm.kind for alarm in found] == ["alert"]
    assert 1500 < found[0].index < 1510


@settings(max_examples=15)
@given(st.sampled_from(sorted(RULES)), st.data())
def test_any_partition_and_restart_give_the_alarms_of_one_pass(
    name: str, data: st.DataObject
) -> None:
    """Chunks of any size, late times included, with the state through JSON, change nothing."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    values = (rng.random(400) < 0.85).astype(float)
    times = (np.arange(400) * 7 + rng.integers(-20, 20, 400)) * MINUTE_NS
    cuts = sorted(data.draw(st.lists(st.integers(0, 400), max_size=6)))
    expected = RULES[name]().update(values, times)

    found, state = [], RULES[name]().state()
    for first, last in zip([0, *cuts], [*cuts, 400], strict=True):
        part = RULES[name]()
        part.restore(json.loads(json.dumps(state)))
        found += part.update(values[first:last], times[first:last])
        state = part.state()

    assert found == expected


@pytest.mark.parametrize("name", sorted(RULES))
def test_values_outside_are_refused(name: str) -> None:
    """NaN is an error, not an observation."""
    with pytest.raises(InputError, match="between 0 and 1"):
        RULES[name]().update([float("nan")], [0])
