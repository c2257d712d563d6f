"""The evidence of alerts: figures with intervals, the worst slices, and runs that show it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.monitor.monitor_checks import check
from oteval.monitor.notification.text import message
from oteval.store import Store

from .histories import HOUR, SECOND, History, config

QUALITY = "{evaluator: e, group_by: agent, notify: [ops]}"


def notice(store: Store) -> dict[str, Any]:
    """Return the payload of the one notification in the outbox."""
    (found,) = store.outbox.notifications()
    payload: dict[str, Any] = json.loads(found.payload)
    return payload


def passed(store: Store) -> dict[str, bool | None]:
    """Return whether each stored run passed."""
    return {one.trajectory_id: one.passed for one in store.scores.read()}


def test_a_notification_names_failing_runs_since_and_passing_runs_before():
    """Checks of ten runs each find the same runs as one check of all."""
    bodies = []
    for step in (10, 60):
        with Store() as store:
            history, watched = History(store), config(QUALITY)
            history.scored(400, 0.95)
            check(store, watched, history.now)
            for _ in range(60 // step):
                history.scored(step, 0.4)
                check(store, watched, history.now)

            found = notice(store)

            verdicts, runs = passed(store), store.trajectories.of(found["runs"])
            assert len(found["runs"]) == len(found["runs_before"]) == 5
            assert not any(verdicts[name] for name in found["runs"])
            assert all(verdicts[name] for name in found["runs_before"])
            assert all(run.start_ns >= found["since_ns"] - HOUR for run in runs.values())
            for moment in ("before", "after"):
                low, high = found[f"{moment}_interval"]
                assert low < found[moment] < high
            assert found["before_interval"][0] > found["after_interval"][1]
            bodies.append(found)
            (episode,) = store.monitors.episodes()
            assert (episode.runs, episode.runs_before) == (found["runs"], found["runs_before"])
    assert bodies[0] == bodies[1]


def test_the_worst_slice_is_named_and_shown():
    """Runs that fail because of one model name it, with its figures; others show nothing."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(200, 0.97, "look", models=["gpt-5"])
        history.scored(200, 0.97, "look", models=["mini"])
        check(store, watched, history.now)
        for _ in range(25):
            history.scored(2, 0.97, "look", models=["gpt-5"])
            history.scored(2, 0.1, "look", models=["mini"])

        (status,) = check(store, watched, history.now)

        found = notice(store)
        (worst,) = found["slices"]
        assert (worst["dimension"], worst["value"]) == ("model", "mini")
        assert worst["before"] > 0.9 > 0.5 > worst["after"]
        assert worst["p"] < 0.05
        runs = store.trajectories.of(found["runs"])
        assert {run.models for run in runs.values()} == {("mini",)}
        assert "Where: model=mini: 9" in message(found).text
        (shown,) = status.as_dict()["episodes"]
        assert shown["slices"] == found["slices"]
        assert shown["after_interval"] == found["after_interval"]
        assert (shown["runs"], shown["runs_before"]) == (found["runs"], found["runs_before"])


def test_a_new_version_is_compared_with_runs_of_the_old_one():
    """Grouped by version, the usual runs are those of the version before."""
    with Store() as store:
        history = History(store)
        watched = config("{evaluator: e, group_by: [agent, version], notify: [ops]}")
        history.scored(400, 0.95, attributes={"service.version": "1"})
        check(store, watched, history.now)
        history.scored(40, 0.2, attributes={"service.version": "2"})
        check(store, watched, history.now)

        found = notice(store)

        versions = {
            moment: {
                run.attributes["service.version"] for run in store.trajectories.of(names).values()
            }
            for moment, names in (("before", found["runs_before"]), ("since", found["runs"]))
        }
        assert versions == {"before": {"1"}, "since": {"2"}}


@pytest.mark.slow
def test_examples_of_runs_show_their_measure():
    """Slow runs show latency, and new orders of tools show variants, also in conversations."""
    with Store() as store:
        history = History(store)
        watched = config(
            "{measure: latency, notify: [ops]}", "{measure: new_variants, notify: [ops]}"
        )
        history.runs(200, "look", "refund")
        history.runs(200, "look", "refund")
        slow = []
        for number in range(80):
            talk = f"talk {number}"
            history.runs(1, "look", "refund", conversation_id=talk)
            late = {"conversation_id": talk, "start_ns": history.now - 20 * SECOND}
            slow += [one.id for one in history.runs(1, "refund", "look", **late)]
        check(store, watched, history.now)

        payloads = [json.loads(one.payload) for one in store.outbox.notifications()]
        assert {one["measure"] for one in payloads} == {"latency", "new_variants"}
        for one in payloads:
            assert len(one["runs"]) == 5
            assert set(one["runs"]) <= set(slow)
            assert not set(one["runs_before"]) & set(slow)


@pytest.mark.slow
def test_deleted_runs_are_forgotten_and_others_stay():
    """Deleting one example removes its id alone, from the episode and the notification."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        check(store, watched, history.now)
        found = notice(store)
        gone = [found["runs"][0], found["runs_before"][1]]

        traces = [run.root_span.trace_id for run in store.trajectories.of(gone).values()]
        store.deletion.delete(traces)

        (episode,), kept = store.monitors.episodes(), notice(store)
        assert not set(gone) & set(json.dumps(kept).split('"'))
        assert episode.runs == kept["runs"] == found["runs"][1:]
        assert episode.runs_before == kept["runs_before"]
        assert len(kept["runs_before"]) == 4
        (row,) = store.outbox.notifications()
        assert row.runs == [*kept["runs"], *kept["runs_before"]]
        assert {**found, "runs": [], "runs_before": []} == {**kept, "runs": [], "runs_before": []}


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule",
    [
        "measure: error_rate",
        "measure: pass_rate, direction: both",
        "detector: {type: threshold, below: .8, window: 1d}",
        "detector: {type: two_windows, window: 1d, reference: 10d}",
        "where: {conditions: ['calls<1']}",
    ],
)
def test_every_rule_has_evidence(rule: str):
    """Each detector and condition gives figures with intervals and runs of both times."""
    with Store() as store:
        history = History(store)
        watched = config(f"{{evaluator: e, notify: [ops], {rule}}}")
        history.scored(400, 0.95)
        check(store, watched, history.now)
        fields = {"status": "error"} if "error_rate" in rule else {}
        history.scored(40, 0.2, **fields)
        check(store, watched, history.now)

        found = notice(store)

        assert found["runs"]
        assert found["runs_before"]
        for moment in ("before", "after"):
            low, high = found[f"{moment}_interval"]
            assert low <= found[moment] <= high
        assert not set(found["runs"]) & set(found["runs_before"])
