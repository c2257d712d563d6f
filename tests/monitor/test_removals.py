"""Monitors and destinations that leave the configuration: what is ended, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oteval.monitor.monitor_checks import check
from oteval.scoring.config import Config, load_config
from oteval.store import Store

from .histories import DAY, HOUR, MINUTE, OPS, History

ONE, OTHER = "{evaluator: e, name: one, notify: [ops]}", "{measure: length, name: other}"


def written(path: Path, *monitors: str, notify: str = OPS) -> Config:
    """Write a configuration file with some monitors, and load it."""
    lines = "".join(f"  - {one}\n" for one in monitors)
    path.write_text(f"evaluators:\n  - {{name: e, type: tool_errors}}\nmonitors:\n{lines}{notify}")
    return load_config(path)


@pytest.fixture
def alerting(tmp_path: Path) -> History:
    """A history whose monitor ``one`` of oteval.yaml alerts."""
    history = History(Store())
    history.scored(400, 0.95)
    history.scored(60, 0.3)
    (status,) = check(history.store, written(tmp_path / "oteval.yaml", ONE), history.now)
    assert status.state == "alert"
    return history


def events(store: Store) -> list[tuple[str, str | None]]:
    """Return the notifications of the monitor ``one``: event and reason."""
    found = [json.loads(one.payload) for one in store.outbox.notifications()]
    return [(one["event"], one["end_reason"]) for one in found]


def test_a_removed_monitor_ends_its_episode_once(alerting: History, tmp_path: Path):
    """The next check of the same file notifies the end; further checks notify nothing."""
    renamed = written(tmp_path / "oteval.yaml", OTHER)
    with alerting.store as store:
        for minutes in range(3):
            check(store, renamed, alerting.now + minutes * MINUTE)

        assert events(store) == [("alert", None), ("resolved", "the monitor was removed")]
        alert, resolved = (json.loads(one.payload) for one in store.outbox.notifications())
        assert resolved["episode"] == alert["episode"]
        assert resolved["group"] == alert["group"]
        assert store.outbox.firing() == []


def test_a_monitor_that_comes_back_alerts_again(alerting: History, tmp_path: Path):
    """Its baseline still holds, so what is bad is compared with what was usual."""
    path = tmp_path / "oteval.yaml"
    with alerting.store as store:
        check(store, written(path, OTHER), alerting.now)
        alerting.scored(60, 0.3)

        (status,) = check(store, written(path, ONE), alerting.now)

        assert (status.state, status.observations) == ("alert", 60)
        assert [event for event, _ in events(store)] == ["alert", "resolved", "alert"]


def test_another_file_does_not_end_episodes_at_once(alerting: History, tmp_path: Path):
    """Two files take turns for days; only when one is not used for two days, its episodes end."""
    one, other = load_config(tmp_path / "oteval.yaml"), written(tmp_path / "other.yaml", OTHER)
    with alerting.store as store:
        for hours in range(0, 96, 12):
            now = alerting.now + hours * HOUR
            check(store, other, now)
            check(store, one, now + MINUTE)
        # Nothing ran for a week, so nobody knows yet which file is not used any more.
        check(store, other, now + 7 * DAY)
        lasting = [one.side for one in store.monitors.episodes() if one.ended_ns is None]
        check(store, other, now + 9 * DAY)

        assert "worse" in lasting
        ends = [reason for event, reason in events(store) if event == "resolved"]
        assert set(ends) == {"the monitor was removed"}
        assert not [one for one in store.monitors.episodes() if one.ended_ns is None]


def test_a_removed_destination_gets_nothing_more(alerting: History, tmp_path: Path):
    """The end of an episode is queued for the destinations that still exist only."""
    pager = "notify: {pager: {webhook: 'http://127.0.0.1:1/y'}}\n"
    without = written(
        tmp_path / "oteval.yaml", ONE.replace("[ops]", "[pager]"), OTHER, notify=pager
    )
    with alerting.store as store:
        alerting.scored(120, 1.0)
        check(store, without, alerting.now)

        assert store.monitors.episodes("one")[0].end_reason == "recovered"
        assert events(store) == [("alert", None)]


def test_a_wrong_clock_does_not_shift_the_time_of_a_change(tmp_path: Path):
    """Runs of a machine whose clock is years ahead count as if they ended at the check."""
    watched = written(tmp_path / "oteval.yaml", ONE)
    with Store() as store:
        history = History(store)
        history.scored(400, 0.95)
        check(store, watched, history.now)
        for _ in range(4):
            ahead = history.now + 1000 * DAY
            history.scored(1, 0.3, start_ns=ahead, end_ns=ahead + MINUTE)
            history.scored(14, 0.3)
            check(store, watched, history.now)

        (alert,) = (json.loads(one.payload) for one in store.outbox.notifications())
        times = [alert[name] for name in ("since_ns", "since_to_ns", "alarm_ns")]
        assert max(times) <= history.now
