"""Checks of monitors over real stores: alerts and notifications."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oteval.model import Score
from oteval.monitor.monitor_checks import check, exit_status
from oteval.monitor.status import MonitorStatus
from oteval.store import Store

from ..make import ROOT, score
from .histories import DAY, HOUR, MINUTE, SECOND, START, History, config

QUALITY = "{evaluator: e, group_by: agent, notify: [ops]}"


def only(statuses: list[MonitorStatus]) -> MonitorStatus:
    """Return the only status of a check."""
    (status,) = statuses
    return status


def test_a_drop_is_one_alert_and_its_end_is_one_more():
    """An alert names the change, and many checks notify one start and one end."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        assert only(check(store, watched, history.now)).state == "ok"

        dropped = history.now
        states = []
        for _ in range(3):
            history.scored(20, 0.3)
            states.append(only(check(store, watched, history.now)).state)
        for _ in range(4):
            history.scored(30, 1.0)
            states.append(only(check(store, watched, history.now)).state)

        assert set(states) <= {"ok", "warn", "alert", "recovered"}
        assert states[2] == "alert"
        assert states[-1] in ("recovered", "ok")
        alert, resolved = (
            json.loads(notification.payload) for notification in store.outbox.notifications()
        )
        assert [alert["event"], resolved["event"]] == ["alert", "resolved"]
        assert alert["since_from_ns"] - HOUR <= dropped <= alert["since_to_ns"] + HOUR
        assert alert["since_from_ns"] <= alert["since_ns"] <= alert["since_to_ns"]
        assert alert["before"] > 0.9 > alert["after"]
        assert alert["group"] == {"agent": "a"}
        runs = store.trajectories.of(alert["runs"])
        assert len(runs) == 5
        assert all(run.end_ns >= alert["since_ns"] for run in runs.values())
        assert resolved["episode"] == alert["episode"]


@pytest.mark.slow
def test_each_group_is_judged_alone():
    """One agent's drop does not touch the others, and each group has a baseline."""
    with Store() as store:
        watched = config(QUALITY)
        good = History(store, "good")
        bad = History(store, "bad", first=100_000)
        for history in (good, bad):
            history.scored(400, 0.95)
        good.scored(60, 0.95)
        bad.scored(60, 0.3)

        states = {status.group["agent"]: status.state for status in check(store, watched, good.now)}

        assert states == {"good": "ok", "bad": "alert"}
        assert [json.loads(n.payload)["group"] for n in store.outbox.notifications()] == [
            {"agent": "bad"}
        ]


def test_before_a_baseline_a_group_is_learning():
    """Too few observations are never ok, and the reason is shown."""
    with Store() as store:
        history = History(store)
        assert only(check(store, config(QUALITY), START)).progress == "no observations"
        history.scored(100, 0.9)

        status = only(check(store, config(QUALITY), history.now))

        assert (status.state, status.observations) == ("learning", 100)
        assert exit_status([status]) == 3


def test_a_conversation_is_one_observation():
    """The turns of a conversation are averaged, and observed once the conversation is idle."""
    with Store() as store:
        history = History(store, step=2 * MINUTE)
        watched = config(QUALITY)
        history.scored(4, 1.0, conversation_id="c1")
        assert only(check(store, watched, history.now)).observations == 0
        history.scored(4, 0.0, conversation_id="c2")

        status = only(check(store, watched, history.now + 11 * MINUTE))

        assert status.observations == 2
        history.scored(2, 1.0, conversation_id="c1")
        assert only(check(store, watched, history.now + DAY)).observations == 2


def test_a_long_conversation_is_closed_after_an_hour():
    """A conversation that is never idle is observed after an hour."""
    with Store() as store:
        history = History(store, step=2 * MINUTE)
        history.scored(40, 1.0, conversation_id="endless")

        status = only(check(store, config(QUALITY), history.now))

        assert status.observations == 1


def test_late_scores_and_revisions_raise_no_alarm():
    """Bad scores of runs that were observed before are not observed again."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        runs = history.scored(400, 0.95)
        before = only(check(store, watched, history.now))

        again = [history.verdict(observed, 0.0, rev=1) for observed in runs[-200:]]
        store.scores.write(again)
        after = only(check(store, watched, history.now))

        assert (before.state, after.state) == ("ok", "ok")
        assert after.observations == before.observations == 400
        assert store.outbox.notifications() == []


def test_a_changed_evaluator_starts_a_new_baseline():
    """A stricter version of the evaluator raises no alarm, even during an episode."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        assert only(check(store, watched, history.now)).state == "alert"

        history.scored(50, 0.5, version="w")
        learning = only(check(store, watched, history.now))
        history.scored(350, 0.5, version="w")
        learned = only(check(store, watched, history.now))

        assert (learning.state, learned.state) == ("learning", "ok")
        assert learned.version == "w"
        events = [json.loads(notification.payload) for notification in store.outbox.notifications()]
        assert [event["event"] for event in events] == ["alert", "resolved"]
        assert events[1]["end_reason"] == "the evaluator was changed"


def test_a_new_version_of_the_agent_is_compared_with_the_one_before():
    """Grouped by version, a bad deployment alerts at once, beside the mark of the deployment."""
    with Store() as store:
        history = History(store)
        watched = config("{evaluator: e, group_by: [agent, version], notify: [ops]}")
        history.scored(400, 0.95, attributes={"service.version": "1"})
        check(store, watched, history.now)
        deployed = history.now
        history.scored(40, 0.3, attributes={"service.version": "2"})

        statuses = check(store, watched, history.now)

        assert {status.group["version"]: status.state for status in statuses}["2"] == "alert"
        (mark,) = store.monitors.marks()
        assert (mark.kind, mark.service, mark.version) == ("version", "s", "2")
        assert mark.time_ns == deployed
        (notice,) = store.outbox.notifications()
        assert json.loads(notice.payload)["marks"][0]["name"] == "s 2"


def test_silence_is_no_data():
    """A silent agent is never ok; with data again it is judged as before."""
    with Store() as store:
        history = History(store)
        watched = config("{evaluator: e, no_data: {after: 2h, notify: true}, notify: [ops]}")
        history.scored(400, 0.95)
        assert only(check(store, watched, history.now)).state == "ok"

        silent = only(check(store, watched, history.now + 3 * HOUR))
        assert (silent.state, exit_status([silent])) == ("no_data", 3)
        check(store, watched, history.now + 4 * HOUR)
        history.count += 100
        history.scored(20, 1.0)
        assert only(check(store, watched, history.now)).state == "ok"

        events = [json.loads(notification.payload) for notification in store.outbox.notifications()]
        assert [(event["event"], event["side"]) for event in events] == [
            ("alert", "silent"),
            ("resolved", "silent"),
        ]


def test_a_failing_judge_is_an_alert_of_errors_and_not_of_quality():
    """Scores with errors are not observations of quality."""
    with Store() as store:
        history = History(store)
        watched = config("{evaluator: e}", "{evaluator: e, measure: error_rate}")
        history.scored(400, 0.95)
        history.scored(60, 0.95, status="error")

        quality, errors = check(store, watched, history.now + HOUR)

        assert (quality.monitor, quality.state) == ("e", "no_data")
        assert (errors.monitor, errors.state) == ("e error_rate", "alert")
        assert quality.observations == 400


def test_a_clock_that_steps_back_changes_nothing():
    """Checks at earlier times do not forget or repeat anything."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        check(store, watched, history.now)
        expected = store.monitors.episodes()

        for step in (DAY, HOUR, 0, START):
            statuses = check(store, watched, history.now - step)
            assert only(statuses).state == "alert"

        assert store.monitors.episodes() == expected
        assert len(store.outbox.notifications()) == 1


@pytest.mark.slow
def test_a_run_of_a_wrong_clock_does_not_hide_silence():
    """A run from the far future does not count as a sign of life until then."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        now = history.now
        history.scored(1, 1.0, start_ns=now + 400 * DAY, end_ns=now + 400 * DAY + SECOND)
        check(store, watched, now + MINUTE)

        assert only(check(store, watched, now + 3 * DAY)).state == "no_data"


def test_shape_alerts_without_scores():
    """Runs with another order of tools raise an alert that needs no evaluator."""
    with Store() as store:
        history = History(store)
        watched = config("{measure: new_variants, notify: [ops, pager]}", "{measure: loops}")
        history.runs(200, "look", "refund")
        history.runs(200, "look")
        history.runs(40, "refund", "look")

        shape, loops = check(store, watched, history.now)

        assert (shape.state, loops.state) == ("alert", "ok")
        notices = store.outbox.notifications()
        assert {notice.destination for notice in notices} == {"ops", "pager"}
        payload = json.loads(notices[0].payload)
        assert payload["figure"] == "share of runs with a new tool sequence"
        assert payload["before"] < 0.01 < payload["after"]


def test_a_threshold_needs_no_baseline():
    """The mean of a window below a limit alerts from the first observations on."""
    with Store() as store:
        history = History(store, step=MINUTE)
        watched = config(
            "{evaluator: e, detector: {type: threshold, below: .9, window: 60m}}",
            "{measure: latency, detector: {type: threshold, above: 5, window: 60m}}",
        )
        history.scored(60, 1.0)
        assert [status.state for status in check(store, watched, history.now)] == ["ok", "ok"]

        history.scored(30, 0.5)
        assert [status.state for status in check(store, watched, history.now)] == ["alert", "ok"]


@pytest.mark.slow
def test_two_windows_compare_an_hour_with_the_day_before():
    """The rule of two windows can be chosen by its name."""
    with Store() as store:
        history = History(store, step=2 * MINUTE)
        watched = config("{evaluator: e, detector: two_windows, baseline: {scores: 20, span: 1h}}")
        history.scored(600, 0.95)
        assert only(check(store, watched, history.now)).state == "ok"

        history.scored(30, 0.1)
        assert only(check(store, watched, history.now)).state == "alert"


def test_conditions_are_checked_in_sql_and_in_python():
    """Attributes, exclusions and comparisons of `where` choose the runs that evaluators score."""
    with Store() as store:
        history = History(store)
        history.scored(5, 1.0, attributes={"env": "live", "n": 1})
        history.scored(5, 1.0, attributes={"env": "test", "n": 1})
        history.scored(5, 1.0, "refund", attributes={"env": "live", "n": 2})
        watched = config(
            "{name: one, evaluator: e, where: {attributes: {env: live}}}",
            "{name: two, evaluator: e, "
            "where: {attributes: {n: 1}, not: {attributes: {env: test}}}}",
            "{name: three, evaluator: e, where: {conditions: [tool=refund]}}",
            "{name: four, evaluator: e, where: {agent: [b, c]}}",
            "{name: five, evaluator: e, where: {attributes: {env: LIVE}}}",
            "{name: six, evaluator: e, where: {conditions: ['tool~^ref', 'attributes.env~l']}}",
            "{name: seven, evaluator: e, where: {not: {conditions: [asked~.]}}}",
        )

        statuses = check(store, watched, history.now)

        assert [status.observations for status in statuses] == [10, 5, 5, 0, 0, 5, 15]


def test_runs_of_several_models_are_a_group():
    """A run belongs to the group of all its models, as in reports."""
    with Store() as store:
        history = History(store)
        history.runs(2, models=("m", "n"))
        history.runs(3, models=("m",))

        statuses = check(store, config("{measure: latency, group_by: model}"), history.now)

        assert {status.group["model"]: status.observations for status in statuses} == {
            "m, n": 2,
            "m": 3,
        }


@pytest.mark.slow
def test_a_frozen_baseline_is_learned_from_its_period():
    """With from and until, only that time counts as normal."""
    with Store() as store:
        history = History(store, step=10 * MINUTE)
        history.scored(150, 0.5)
        history.scored(300, 0.95)
        history.scored(150, 0.5)
        watched = config(
            "{evaluator: e, baseline: {from: '2026-09-22T15:00', until: '2026-09-24T10:00'}}"
        )

        status = only(check(store, watched, history.now))

        baseline = status.baselines["worse"].baseline
        assert status.state == "alert"
        assert baseline is not None
        assert baseline.mean > 0.9


@pytest.mark.slow
def test_snoozed_and_acknowledged_episodes_are_not_notified():
    """A snooze delays the alert of a lasting episode; an acknowledgement drops it."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        check(store, watched, history.now)
        until_ns = history.now + 5 * DAY
        store.monitors.snooze("e", group=None, until_ns=until_ns, actor="ann", now_ns=1)
        history.scored(60, 0.3)
        check(store, watched, history.now)
        assert store.outbox.notifications() == []

        (episode,) = store.monitors.episodes()
        assert store.monitors.acknowledge(episode.episode_id[:6], "ann", 2) == episode.episode_id
        check(store, watched, history.now + 6 * DAY)
        assert store.outbox.notifications() == []

        (episode,) = store.monitors.episodes()
        assert (episode.acknowledged_by, episode.ended_ns) == ("ann", None)


@pytest.mark.slow
def test_a_changed_monitor_starts_over():
    """Another definition forgets the groups and ends the episode."""
    with Store() as store:
        history = History(store)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        check(store, config(QUALITY), history.now)

        statuses = check(
            store, config("{evaluator: e, group_by: service, notify: [ops]}"), history.now
        )

        assert only(statuses).group == {"service": "s"}
        first, second = store.monitors.episodes()
        assert {first.end_reason, second.end_reason} == {"the monitor was changed", None}


@pytest.mark.slow
def test_parts_of_a_history_give_the_same_as_the_whole():
    """However checks divide the scores, episodes and baselines are the same."""

    def episodes(parts: list[int]) -> list[object]:
        with Store() as store:
            history, watched = History(store), config(QUALITY)
            rates = [0.95] * 40 + [0.3] * 6 + [1.0] * 14
            for size in parts:
                for _ in range(size):
                    history.scored(10, rates.pop(0))
                check(store, watched, history.now)
            stored = store.monitors.episodes()
            return [
                (episode.episode_id, episode.change_ns, episode.ended_ns, episode.after)
                for episode in stored
            ]

    whole = episodes([60])

    assert len(whole) == 1
    assert episodes([1, 29, 11, 3, 6, 10]) == whole


KILLED = """
import os, signal, sys
from oteval.store import Store
from tests.monitor.histories import config
from oteval.monitor import monitor_checks as checks
path, now, step = sys.argv[1:]
store = Store(path, create=False)
state = store.monitors
def killed(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
if step == "commit":
    real = state.check
    from contextlib import contextmanager
    @contextmanager
    def check(now_ns):
        with real(now_ns):
            yield
            if state.monitors().get("e"):
                killed()
    state.check = check
else:
    setattr(store.outbox if step == "queue" else state, step, killed)
checks.check(store, config("{evaluator: e, group_by: agent, notify: [ops]}"), int(now))
"""


@pytest.mark.slow
def test_a_killed_check_changes_nothing(tmp_path: Path):
    """After a SIGKILL at any step, the next check gives the same state as without it."""
    path, plain = tmp_path / "s.duckdb", tmp_path / "plain.duckdb"
    for file in (path, plain):
        with Store(file) as store:
            history = History(store)
            history.scored(400, 0.95)
            check(store, config(QUALITY), history.now)
            history.scored(60, 0.3)
    for step in ("put_groups", "put_episodes", "queue", "put_monitor", "commit"):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(path), str(history.now), step],
            cwd=ROOT,
            check=False,
            timeout=300,
        )
        assert done.returncode == -signal.SIGKILL, step

    states = []
    for file in (path, plain):
        with Store(file) as store:
            assert store.outbox.notifications() == []
            check(store, config(QUALITY), history.now)
            check(store, config(QUALITY), history.now)
            states.append(
                (
                    store.monitors.groups("e"),
                    store.monitors.episodes(),
                    store.outbox.notifications(),
                )
            )
    assert states[0] == states[1]
    assert len(states[0][2]) == 1


@pytest.mark.slow
def test_deleted_runs_leave_no_trace_in_monitors():
    """A deletion removes the ids of runs from episodes, notices and open conversations."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        check(store, watched, history.now)
        history.scored(60, 0.3)
        history.scored(2, 0.5, conversation_id="open")
        check(store, watched, history.now)
        (episode,) = store.monitors.episodes()
        assert episode.runs

        traces = [trajectory.root_span.trace_id for trajectory in store.trajectories.read()]
        store.deletion.delete(traces)

        (episode,) = store.monitors.episodes()
        (notice,) = store.outbox.notifications()
        assert (episode.runs, notice.runs, json.loads(notice.payload)["runs"]) == ([], [], [])
        assert only(check(store, watched, history.now + HOUR)).state == "alert"


def test_a_score_of_nothing_known_is_ignored():
    """Scores of deleted runs, and values that are not finite, are not observations."""
    with Store() as store:
        history = History(store)
        history.scored(3, 1.0)
        lost: Score = score(999)
        odd = history.scored(1, 1.0, version="v")[0]
        store.scores.write([lost, history.verdict(odd, 1.0, passed=None, score=float("nan"))])

        assert only(check(store, config("{evaluator: e, measure: score}"), history.now)).state == (
            "learning"
        )
