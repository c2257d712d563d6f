"""Names of groups come from senders: any number of them causes few notifications and few rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.monitor.idle import GONE_NS
from oteval.monitor.monitor_checks import check
from oteval.monitor.notification.formats import alert_body, alert_labels, webhook_body
from oteval.monitor.notification.text import message
from oteval.store import Store

from ..make import keep, run
from .histories import HOUR, SECOND, START, config
from .notices import NOW, payload

WATCHED = (
    "{name: m, measure: latency, group_by: [agent], notify: [ops, pager],"
    " no_data: {after: 1h, notify: true}}"
)


def named_runs(store: Store, count: int, *, first: int = 0, start_ns: int = START) -> None:
    """Write runs that each have an agent of their own."""
    fields = {"start_ns": start_ns, "end_ns": start_ns + SECOND}
    numbers = range(first, first + count)
    keep(store, *[run(number + 1, agent=f"agent-{number}", **fields) for number in numbers])


def waiting(store: Store) -> list[dict[str, Any]]:
    """Return the payloads of the notifications to one destination."""
    found = [one for one in store.outbox.notifications() if one.destination == "ops"]
    return [json.loads(one.payload) for one in found]


def test_hundreds_of_names_too_many_cause_one_notification(store: Store):
    """All of them fall silent at once: one alert counts them and names some."""
    watched = config(WATCHED)
    named_runs(store, 1200)
    check(store, watched, START + SECOND)
    check(store, watched, START + 3 * HOUR)
    check(store, watched, START + 4 * HOUR)

    (alert,) = waiting(store)

    # The thousand groups of the monitor, and that of all others.
    assert alert["summary"]["count"] == 1001
    assert alert["summary"]["left_out"] == 991
    assert alert["group"] == {}
    shown = message(alert)
    assert shown.title == "Alert: m: 1,001 groups have no data"
    assert "; and 996 more" in shown.text


def test_groups_beyond_the_most_are_watched_together(store: Store):
    """The first groups stay, all later names are one group, which says so."""
    watched = config(f"{WATCHED[:-1]}, max_groups: 3}}")
    named_runs(store, 2)
    check(store, watched, START + SECOND)
    named_runs(store, 50, first=2, start_ns=START + HOUR)
    found = check(store, watched, START + HOUR + SECOND)

    counts = {one.group["agent"]: one.observations for one in found}
    assert sorted(counts) == ["(other groups)", "agent-0", "agent-1", "agent-2"]
    assert counts["(other groups)"] == 49


def test_few_groups_have_a_notification_each(store: Store):
    """Up to ten alerts of a check are separate, as are their ends."""
    watched = config(WATCHED)
    named_runs(store, 10)
    check(store, watched, START + SECOND)
    check(store, watched, START + 3 * HOUR)
    alerts = waiting(store)

    assert len(alerts) == 10
    assert not any("summary" in one for one in alerts)


def test_an_alert_about_many_groups_ends(store: Store):
    """When its groups are gone there is one resolution, of the same alert."""
    watched = config(WATCHED)
    named_runs(store, 40)
    check(store, watched, START + SECOND)
    check(store, watched, START + 3 * HOUR)
    check(store, watched, START + GONE_NS + HOUR)

    alert, resolved = sorted(waiting(store), key=lambda one: str(one["event"]))

    assert (alert["event"], resolved["event"]) == ("alert", "resolved")
    assert resolved["summary"] == {**alert["summary"], "lasting": 0}
    assert alert_labels(resolved) == alert_labels(alert)
    assert message(resolved).title == "Resolved: m: an alert about 40 groups ended"


@pytest.mark.parametrize("event", ["alert", "resolved"])
def test_programs_get_valid_requests_about_many_groups(event: str):
    """Every kind of destination takes the payload, with names that format or control."""
    summary = {"groups": [{"agent": "**x**\x1b\n"}] * 10, "count": 3000, "left_out": 2990}
    found = payload(event, group={}, summary=summary)

    json.loads(webhook_body(found, "k"))
    (alert,) = json.loads(alert_body(found, key="k", now_ns=NOW, resolve_timeout=60.0))
    assert "agent" not in alert["labels"]
    assert "\x1b" not in message(found).text
    assert max(map(len, message(found).text.splitlines())) <= 510
