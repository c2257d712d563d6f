"""Checks without anything new: they write nothing, and what the time brings is not missed."""

from __future__ import annotations

import json

from oteval.monitor.monitor_checks import check
from oteval.store import Store

from .histories import DAY, MINUTE, History, config

WATCHED = config("{evaluator: e, group_by: agent, notify: [ops], no_data: {notify: true}}")


def test_a_check_without_anything_new_writes_nothing():
    """It returns the same states; the first check after a new score reads it."""
    with Store() as store:
        history = History(store)
        history.scored(420, 0.95)
        first = check(store, WATCHED, history.now)

        again = check(store, WATCHED, history.now + MINUTE)

        assert again == first
        assert store.monitors.last_check_ns() == history.now
        history.scored(1, 1.0)
        (later,) = check(store, WATCHED, history.now)
        assert later.observations == 421


def test_what_the_time_brings_is_not_missed():
    """An open conversation is closed, a silent group alerts, and a snooze that ends notifies."""
    with Store() as store:
        history = History(store, step=MINUTE)
        history.scored(3, 1.0, conversation_id="c")
        check(store, WATCHED, history.now)
        (before,) = check(store, WATCHED, history.now + 5 * MINUTE)
        (after,) = check(store, WATCHED, history.now + 10 * MINUTE)
        assert (before.observations, after.observations) == (0, 1)

        store.monitors.snooze("e", None, history.now + 2 * DAY, "ann", history.now)
        for days in (1, 1.5, 3, 4):
            check(store, WATCHED, history.now + round(days * DAY))
        (alert,) = store.outbox.notifications()
        assert json.loads(alert.payload)["side"] == "silent"
        assert alert.created_ns == history.now + 3 * DAY


def test_changed_settings_are_in_force_without_anything_new():
    """A shorter time of silence counts at the next check."""
    with Store() as store:
        history = History(store)
        history.scored(20, 1.0)
        check(store, WATCHED, history.now)
        strict = config(
            "{evaluator: e, group_by: agent, notify: [ops], no_data: {after: 10m, notify: true}}"
        )

        (status,) = check(store, strict, history.now + 20 * MINUTE)

        assert status.state == "no_data"
        assert [one.event for one in store.outbox.notifications()] == ["alert"]
