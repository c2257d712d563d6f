"""The benchmark of monitors: its streams, and the rows of its table."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import monitor, monitor_months, monitor_store


def test_the_conditions_are_all_combinations():
    """Three traffics, three variations and four dependences."""
    assert len({str(each) for each in monitor.CONDITIONS}) == 36
    assert str(monitor.CONDITIONS[0]) == "0.1/min, none, r = 0"


@pytest.mark.parametrize("variation", monitor.VARIATIONS)
def test_pass_rates_have_the_usual_mean(variation: str) -> None:
    """Variation moves the pass rate by up to .04 around .95."""
    rates = monitor.pass_rates(
        monitor.Condition(1.0, variation, 0.0), 14_400, np.random.default_rng(0)
    )

    assert rates.mean() == pytest.approx(0.95, abs=0.01)
    assert 0.91 - 1e-9 <= rates.min() <= rates.max() <= 0.99 + 1e-9


def test_a_condition_gives_its_rows():
    """False alarms and two delays for a condition, with the targets where they apply."""
    measured = {
        "conditions": [monitor.one_condition(monitor.CONDITIONS[3], 2)],
        "beyond": [monitor.one_condition(monitor.BEYOND[5], 1)],
        "months": [],
    }

    rows = monitor.rows(measured)

    assert [row.figure for row in rows[:3]] == [
        "1/min, none, r = 0: false alarms per 10,000 scores",
        "1/min, none, r = 0: scores until a drop to 0.85 is found",
        "1/min, none, r = 0: scores until a drop to 0.90 is found",
    ]
    assert rows[0].target == "at most 1.00"
    assert rows[1].target == "at most 203"
    assert rows[2].target == ""
    assert "threshold" in rows[0].other
    assert rows[-1].figure.startswith("beyond the targets: 1/min, incidents")


def test_months_of_other_traffic_have_rows():
    """A month without an alert that was not said holds its target; r = 0 has delays too."""
    names = [month.name for month in monitor_months.MONTHS]
    assert len(set(names)) == len(names)
    chosen = [names.index(name) for name in ("0.1/min, r = 0", "0.1/min, hours of .08")]
    months = [monitor_months.one_month(monitor_months.MONTHS[index], 1) for index in chosen]

    rows = monitor_months.month_rows(months)

    assert [row.figure.partition(": ")[0] for row in rows] == [
        *["a month, 0.1/min, r = 0"] * 3,
        "a month, 0.1/min, hours of .08",
    ]
    assert rows[0].held


@pytest.mark.slow
def test_the_benchmark_of_many_groups_reads_all_of_them():
    """A small store is filled and checked: every agent has a state, and new scores are read."""
    figures = monitor_store.measure(scores=4_000, groups=5)

    assert (figures["groups"], sum(figures["states"].values())) == (5, 5)
    assert len(figures["costs"]) == 3
    assert next(row.figure for row in monitor_store.rows(figures)).startswith("4,000 scores")
