"""Times that are wrong or late: clocks that step, and runs that come hours or days later."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from oteval.monitor.monitor_checks import check
from oteval.monitor.notices import notice
from oteval.monitor.notification.delivery import DeliveryResult
from oteval.monitor.notification.outbox import Outbox
from oteval.scoring.config.monitors import NotifyDestination
from oteval.store import Notification, Store, StoredMark

from .histories import DAY, HOUR, SECOND, START, History, config
from .notices import NOW, notification

QUALITY = "{evaluator: e, group_by: agent, notify: [ops]}"


def payloads(store: Store) -> list[dict[str, Any]]:
    """Return the payloads of all notifications."""
    return [json.loads(one.payload) for one in store.outbox.notifications()]


@pytest.mark.parametrize("order", ["shuffled", "reverse", "days late"])
def test_late_runs_keep_their_times_in_order(order: str):
    """However runs arrive, the change lies in its interval, and before the alarm and the end."""
    hours = [(hour, 0.95) for hour in range(400, 440)] + [(hour, 0.1) for hour in range(440, 500)]
    if order == "shuffled":
        random.Random(2).shuffle(hours)
    elif order == "reverse":
        hours.reverse()
    else:
        hours = hours[:40] + [(hour - 300, rate) for hour, rate in hours[40:]]
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        check(store, watched, history.now)
        history.late(hours)
        (status,) = check(store, watched, START + 501 * HOUR)
        assert status.state == "alert"
        assert status.episodes[0].runs
        history.late([(300 + hour, 1.0) for hour in range(150)])
        check(store, watched, START + 502 * HOUR)

        alert, resolved = payloads(store)

    for one in (alert, resolved):
        assert one["since_from_ns"] <= one["since_ns"] <= one["since_to_ns"]
        assert one["since_ns"] <= one["alarm_ns"]
    assert resolved["ended_ns"] >= resolved["alarm_ns"]


def test_a_clock_at_1970_does_not_date_a_change_back():
    """A machine that has lost its clock still names a change after the runs before it."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        check(store, watched, history.now)
        dropped = history.now
        history.scored(60, 0.1)

        (status,) = check(store, watched, 5 * SECOND)

        assert status.state == "alert"
        (alert,) = payloads(store)
        assert alert["since_from_ns"] >= dropped - 12 * HOUR
        assert status.last_ns >= dropped - HOUR


class Receiver:
    """Accepts notifications, unless it is down."""

    def __init__(self) -> None:
        self.is_down = False
        self.events: list[str] = []

    def receive(self, *sent: Any) -> DeliveryResult:
        """Note the id of a notification."""
        _payload, _destination, key, _now_ns = sent
        if self.is_down:
            return DeliveryResult(False, "down", retry_after=600.0)
        self.events.append(key)
        return DeliveryResult(True)


def outbox(store: Store, receiver: Receiver) -> Outbox:
    """Return an outbox with one destination, ``hook``."""
    destination = NotifyDestination.model_validate({"webhook": "http://127.0.0.1:1"})
    return Outbox(store.outbox, {"hook": destination}, send=receiver.receive, chance=lambda: 0.5)


def queue(store: Store, *waiting: Notification) -> None:
    """Put notifications into the outbox of a store."""
    store.outbox.queue(waiting)


def test_a_clock_that_was_years_ahead_does_not_hold_back_notifications():
    """The time of the next attempt, set by a wrong clock, is not waited for."""
    ahead = NOW + 3000 * DAY
    with Store() as store:
        receiver = Receiver()
        sender = outbox(store, receiver)
        queue(store, notification(created_ns=ahead))
        receiver.is_down = True
        sender.pump(ahead)
        receiver.is_down = False

        sender.pump(NOW)

        assert receiver.events == ["3a9aebce01234567-alert"]


def test_a_resolution_follows_its_alert_also_if_the_clock_has_stepped_back():
    """The end of an episode that was queued at an earlier time is sent second."""
    with Store() as store:
        receiver = Receiver()
        queue(store, notification(created_ns=NOW))
        queue(store, notification("resolved", created_ns=NOW - HOUR))

        outbox(store, receiver).pump(NOW)

        assert receiver.events == ["3a9aebce01234567-alert", "3a9aebce01234567-resolved"]


def test_an_alert_is_repeated_also_if_the_clock_has_stepped_back():
    """An Alertmanager would end the alert otherwise."""
    with Store() as store:
        receiver = Receiver()
        history, watched = History(store), config(QUALITY.replace("ops", "pager"))
        history.scored(400, 0.95)
        history.scored(60, 0.1)
        check(store, watched, history.now)
        destinations = {"pager": watched.notify["pager"]}
        sender = Outbox(store.outbox, destinations, send=receiver.receive, chance=lambda: 0.5)

        sender.pump(history.now)
        sender.pump(history.now - DAY)

        assert len(receiver.events) == 2


def test_a_snooze_of_a_wrong_clock_can_be_ended():
    """The newest snooze counts by its order, not by the time at which it was made."""
    with Store() as store:
        ahead = NOW + 3000 * DAY
        store.monitors.snooze("e", None, ahead + HOUR, "ann", ahead)
        store.monitors.snooze("e", None, NOW, "ann", NOW)

        assert store.monitors.snoozes(NOW + 1) == {}


def test_a_notice_names_the_nearest_marks_only():
    """A service whose version is different in every run does not fill a notification."""
    with Store() as store:
        history, watched = History(store), config(QUALITY)
        history.scored(400, 0.95)
        history.scored(60, 0.1)
        (status,) = check(store, watched, history.now)
        (episode,) = status.episodes
        marks = [
            StoredMark(episode.change_from_ns + number, "version", f"s {number}", "s", "", 0)
            for number in range(2000)
        ]

        found = notice(watched.monitors[0], episode, "alert", marks)["marks"]

        assert len(found) == 10
        assert found == sorted(found, key=lambda one: one["time_ns"])
