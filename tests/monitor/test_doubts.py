"""Doubts: where the budget is not promised, status, alerts and simulations say why."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.dependent_passes import pass_fail
from oteval.monitor.detector import DAY_NS, Floats, Ints
from oteval.monitor.monitor_checks import check
from oteval.monitor.notification.text import message
from oteval.monitor.observations import Observations
from oteval.monitor.simulation import simulate_group
from oteval.scoring.config import MonitorSettings
from oteval.store import Store
from oteval.views.monitors import doubt_lines

from .histories import MINUTE, History, config
from .notices import payload

YOUNG = "less than two weeks were seen"


def test_a_young_baseline_is_named_in_status_and_in_the_alert():
    """A day has no weekend: the status and the notification say so until two weeks were seen."""
    with Store() as store:
        history = History(store, step=MINUTE)
        watched = config("{evaluator: e, notify: [ops]}")
        history.scored(1700, 0.95)
        (before,) = check(store, watched, history.now)
        history.scored(60, 0.2)

        (after,) = check(store, watched, history.now)

        learned = before.as_dict()["baselines"]["worse"]
        assert learned["is_promised"] is False
        assert learned["doubts"][0].startswith(YOUNG)
        (line,) = doubt_lines([before])
        assert line.startswith(f"e: the budget of false alarms is not promised: {YOUNG}")
        assert after.state == "alert"
        (notice,) = store.outbox.notifications()
        assert json.loads(notice.payload)["doubts"][0].startswith(YOUNG)
        assert YOUNG in message(json.loads(notice.payload)).text


def test_a_baseline_of_two_weeks_is_promised():
    """Hourly runs learn for two weeks, and there is nothing to add."""
    with Store() as store:
        history = History(store)
        history.scored(400, 0.95)

        (status,) = check(store, config("{evaluator: e}"), history.now)

        learned = status.as_dict()["baselines"]["worse"]
        assert (learned["is_promised"], learned["doubts"]) == (True, [])


def test_an_alert_without_doubts_has_no_line_about_them():
    """The line is there only where there is a reason."""
    assert "not promised" not in message(payload()).text
    assert "not promised: hours" in message(payload(doubts=["hours differ"])).text


@pytest.mark.parametrize(("spread", "is_doubted"), [(0.1, True), (0.0, False)])
def test_a_simulation_has_the_doubts_of_the_baseline(spread: float, is_doubted: bool) -> None:
    """Hours that differ at random are a reason of its own."""
    hours = np.random.default_rng(1).uniform(-spread, spread, 24 * 4)
    values = pass_fail(0.88 + np.repeat(hours, 300), 0.0, np.random.default_rng(2))
    settings = MonitorSettings(evaluator="e", measure="score")

    (simulation,) = simulate_group(
        settings, "[]", _observations(values), groups=1, drops=[0.2], streams=1
    )

    assert any("the level wanders" in doubt for doubt in simulation.doubts) == is_doubted
    assert simulation.as_dict()["doubts"] == simulation.doubts


def _observations(values: Floats) -> Observations:
    zeros: Ints = np.zeros(len(values), np.int64)
    return Observations(
        values=values,
        times=DAY_NS * 20_000 + np.arange(len(values)) * MINUTE // 5,
        variants=np.empty(0, np.int64),
        sizes=zeros,
        versions=zeros,
        version_names=("",),
        runs=pa.nulls(len(values), pa.string()),
    )
