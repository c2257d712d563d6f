"""Deployments that notifications name: those of the group's services, near the change."""

from __future__ import annotations

import json

import pytest

from oteval.monitor.monitor_checks import check
from oteval.monitor.notices import notice
from oteval.store import Store, StoredEpisode, StoredMark

from .histories import DAY, HOUR, MINUTE, START, History, config

GROUPED = "{{evaluator: e, group_by: {by}, notify: [ops]}}"


def mark(time_ns: int, name: str, service: str = "", version: str = "") -> StoredMark:
    """Return a mark of a time."""
    return StoredMark(time_ns, "version" if version else "mark", name, service, version, time_ns)


def names_of_marks(store: Store) -> list[str]:
    """Return the marks that the one notification in the outbox names."""
    (notification,) = store.outbox.notifications()
    return [named["name"] for named in json.loads(notification.payload)["marks"]]


@pytest.mark.parametrize(("by", "service"), [("agent", "s"), ("service", "s"), ("user", "s")])
def test_only_services_of_the_group_are_named(by: str, service: str):
    """Deployments of a service that only another agent runs on are left out."""
    with Store() as store:
        history, watched = History(store), config(GROUPED.format(by=by))
        history.scored(400, 0.95, service=service, user="u")
        check(store, watched, history.now)
        changed_ns = history.now
        for marked in (
            mark(changed_ns, "own", service),
            mark(changed_ns, "prompt 12"),
            mark(changed_ns, "foreign", "billing"),
        ):
            store.monitors.add_mark(marked)
        history.scored(40, 0.1, service=service, user="u")
        check(store, watched, history.now)

        assert names_of_marks(store) == ["own", "prompt 12"]


def test_silence_names_deployments_of_the_agents_services():
    """An agent that falls silent has no evidence, but its runs name its services."""
    with Store() as store:
        history = History(store)
        watched = config(
            "{evaluator: e, group_by: agent, no_data: {after: 2h, notify: true}, notify: [ops]}"
        )
        history.scored(400, 0.95, service="s")
        check(store, watched, history.now)
        for name, service in (("own", "s"), ("foreign", "billing")):
            store.monitors.add_mark(mark(history.now - HOUR, name, service))
        check(store, watched, history.now + 3 * HOUR)

        assert names_of_marks(store) == ["own"]


def episode(first_ns: int, changed_ns: int, last_ns: int, group: str = '["a"]') -> StoredEpisode:
    """Return an episode with the interval of its change."""
    return StoredEpisode(
        episode_id="e1",
        monitor="e",
        group=group,
        version="",
        side="worse",
        alarm_ns=last_ns,
        change_ns=changed_ns,
        change_from_ns=first_ns,
        change_to_ns=last_ns,
        before=0.95,
        after=0.5,
        observations=20,
        opened_ns=last_ns,
    )


def test_marks_are_near_the_interval_and_the_likely_time():
    """An hour before the interval is near; two weeks before never is, however long the interval."""
    (settings,) = config(GROUPED.format(by="agent")).monitors
    changed_ns = START + 20 * DAY
    marks = [
        mark(changed_ns - 14 * DAY, "two weeks before"),
        mark(changed_ns - 2 * HOUR, "two hours before"),
        mark(changed_ns - 50 * MINUTE, "shortly before"),
        mark(changed_ns + MINUTE, "in the interval"),
        mark(changed_ns + 9 * MINUTE, "later"),
    ]

    def named(first_ns: int) -> list[str]:
        marked_episode = episode(first_ns, changed_ns, changed_ns + 5 * MINUTE)
        return [each["name"] for each in notice(settings, marked_episode, "alert", marks)["marks"]]

    assert named(changed_ns - 5 * MINUTE) == ["shortly before", "in the interval"]
    assert named(START) == ["two hours before", "shortly before", "in the interval"]


def test_a_group_of_a_version_names_its_own_deployment():
    """Grouped by version, the deployment of another version is not named."""
    (settings,) = config(GROUPED.format(by="[agent, version]")).monitors
    marks = [mark(START, "s 1", "s", "1"), mark(START, "s 2", "s", "2"), mark(START, "prompt 12")]
    group_episode = episode(START, START, START + HOUR, '["a", "2"]')

    payload = notice(settings, group_episode, "alert", marks, {"s"})

    assert [each["name"] for each in payload["marks"]] == ["s 2", "prompt 12"]
