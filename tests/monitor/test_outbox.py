"""The outbox on a real store: order, retries, repetition and refusals; the time is an argument."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oteval.monitor.monitor_checks import check
from oteval.monitor.notification.delivery import DeliveryResult
from oteval.monitor.notification.outbox import Outbox, retry_delay
from oteval.scoring.config import parse_config
from oteval.scoring.config.monitors import NotifyDestination
from oteval.store import Store, StoredEpisode

from ..commands import Run, oteval
from ..make import ROOT
from ..otlp_endpoint import Downstream, listening
from .histories import HOUR, MINUTE, SECOND, History
from .notices import NOW, notification

__all__ = ["oteval"]


@pytest.fixture
def there() -> Iterator[Downstream]:
    """Return an endpoint that notifications are sent to."""
    with listening() as found:
        yield found


@pytest.fixture
def store() -> Iterator[Store]:
    """Return an empty store in memory."""
    with Store() as found:
        yield found


def outbox(store: Store, **destinations: Any) -> Outbox:
    """Return an outbox with destinations, without jitter."""
    found = {
        name: NotifyDestination.model_validate(settings) for name, settings in destinations.items()
    }
    return Outbox(store.outbox, found, chance=lambda: 1.0)


def kinds(there: Downstream) -> list[str]:
    """Return the types of the webhook requests that were accepted, in order."""
    return [json.loads(body)["type"] for body in there.bodies("/x")]


def test_a_notification_is_delivered_once(store: Store, there: Downstream):
    """Further calls, also by another process, send nothing."""
    store.outbox.queue([notification()])
    for minute in range(3):
        outbox(store, hook={"webhook": f"{there.url}/x"}).pump(NOW + minute * MINUTE)

    assert kinds(there) == ["monitor.alert"]
    assert store.outbox.waiting() == []
    assert store.outbox.notifications()[0].sent_ns == NOW


def test_two_programs_deliver_a_notification_once(store: Store, there: Downstream):
    """While one program sends a notification, another one that delivers leaves it alone."""
    store.outbox.queue([notification(), notification("resolved", created_ns=NOW + 1)])
    other = outbox(store.sibling(), hook={"webhook": f"{there.url}/x"})
    seen = []

    def send(body: Any, to: NotifyDestination, key: str, now_ns: int) -> DeliveryResult:
        seen.append(other.pump(NOW + 1))
        return DeliveryResult(True)

    destinations = {"hook": NotifyDestination.model_validate({"webhook": f"{there.url}/x"})}
    done = Outbox(store.outbox, destinations, send=send).pump(NOW + 1)

    assert [result.is_delivered for _, result in done] == [True, True]
    assert (seen, kinds(there)) == ([[], []], [])


KILLED = """
import os, signal, sys
from oteval.scoring.config.monitors import NotifyDestination
from oteval.monitor.notification.outbox import Outbox
from oteval.store import Store
path, url, now = sys.argv[1:]
store = Store(path, create=False)
store.outbox.sent = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
hook = NotifyDestination.model_validate({"webhook": url})
Outbox(store.outbox, {"hook": hook}).pump(int(now))
"""


@pytest.mark.slow
def test_a_kill_after_a_delivery_repeats_it_with_its_id(there: Downstream, tmp_path: Path):
    """SIGKILL between a delivery and its note: a minute later, the same id and body come again."""
    path, url = tmp_path / "x.duckdb", f"{there.url}/x"
    with Store(path) as store:
        store.outbox.queue([notification()])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), url, str(NOW)],
        cwd=ROOT,
        check=False,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL

    with Store(path) as store:
        sender = outbox(store, hook={"webhook": url})
        early = sender.pump(NOW + 59 * SECOND)
        late = [sender.pump(NOW + seconds * SECOND) for seconds in (61, 200)]

    assert (early, [len(one) for one in late]) == ([], [1, 0])
    first, second = there.bodies("/x")
    assert first == second
    assert len({headers["webhook-id"] for _, headers, _ in there.requests}) == 1


def test_failures_are_retried_later_and_in_order(store: Store, there: Downstream):
    """A resolution waits until its alert is delivered, however often that fails."""
    store.outbox.queue([notification("resolved", created_ns=NOW + 1), notification()])
    there.answers = [(500, {}), (503, {})]
    sender = outbox(store, hook={"webhook": f"{there.url}/x"})

    assert len(sender.pump(NOW + 1)) == 1
    assert sender.pump(NOW + 9 * SECOND) == []
    assert len(sender.pump(NOW + 11 * SECOND)) == 1
    assert "503" in (store.outbox.waiting()[0].error or "")
    assert sender.pump(NOW + 30 * SECOND) == []
    assert len(sender.pump(NOW + 32 * SECOND)) == 2

    assert kinds(there) == ["monitor.alert", "monitor.resolved"]


def test_a_new_alert_of_a_group_waits_for_the_resolution_before_it(store: Store, there: Downstream):
    """Otherwise the late resolution would end the new alert at a receiver."""
    first = [notification(), notification("resolved", created_ns=NOW + 1)]
    store.outbox.queue([*first, notification(episode="other", created_ns=NOW + 2)])
    there.answers = [(200, {}), (500, {})]
    sender = outbox(store, hook={"webhook": f"{there.url}/x"})

    sender.pump(NOW + 3)
    assert kinds(there) == ["monitor.alert"]
    sender.pump(NOW + MINUTE)

    assert kinds(there) == ["monitor.alert", "monitor.resolved", "monitor.alert"]


def test_retry_after_holds_all_notifications_of_a_destination(store: Store, there: Downstream):
    """A busy destination is left alone for the time that it asks for; others are not."""
    store.outbox.queue([notification(), notification(monitor="b", episode="b")])
    store.outbox.queue([notification(destination="other")])
    there.answers = [(429, {"Retry-After": "600"})]
    with listening() as other:
        sender = outbox(
            store,
            hook={"webhook": f"{there.url}/x"},
            other={"webhook": f"{other.url}/x"},
        )

        sender.pump(NOW)
        sender.pump(NOW + 9 * MINUTE)

        assert (kinds(there), kinds(other)) == ([], ["monitor.alert"])
        assert len(sender.pump(NOW + 10 * MINUTE)) == 2


def test_a_refusal_is_final_and_stops_nothing_else(store: Store, there: Downstream):
    """A refused notification is kept with its error and is not sent again."""
    store.outbox.queue([notification(), notification("resolved", created_ns=NOW + 1)])
    there.answers = [(403, {})]
    sender = outbox(store, hook={"webhook": f"{there.url}/x"})

    sender.pump(NOW + 1)
    sender.pump(NOW + 100 * HOUR)

    (refused,) = store.outbox.refused()
    assert refused.event == "alert"
    assert "403" in (refused.error or "")
    assert kinds(there) == ["monitor.resolved"]


def test_a_destination_that_was_removed_is_a_refusal(store: Store):
    """A notification for a name that is gone does not wait forever."""
    store.outbox.queue([notification(destination="gone")])

    outbox(store).pump(NOW)

    assert "'gone'" in (store.outbox.refused()[0].error or "")


def test_a_failing_url_of_a_list_is_retried_alone(store: Store):
    """Of two Apprise URLs, the one that accepted the message does not get it again."""
    seen: list[str] = []

    def send(body: Any, to: NotifyDestination, key: str, now_ns: int) -> DeliveryResult:
        (url,) = to.apprise or []
        seen.append(url)
        return DeliveryResult(url != "json://b" or len(seen) > 2, "down")

    store.outbox.queue([notification(destination="people")])
    both = {"people": NotifyDestination(apprise=["json://a", "json://b"])}
    for minute in range(3):
        # Each by a process of its own.
        Outbox(store.outbox, both, send=send).pump(NOW + minute * MINUTE)

    assert seen == ["json://a", "json://b", "json://b"]
    assert store.outbox.waiting() == []


def test_an_alert_is_repeated_at_an_alertmanager_until_its_episode_ends(
    store: Store, there: Downstream
):
    """It is repeated each minute, not more often, and not after the end."""
    alert = notification(destination="pager")
    episode = StoredEpisode(
        alert.episode_id, "refund-policy", "[]", "", "worse", NOW, NOW, NOW, NOW, 1.0, 0.0, 9, NOW
    )
    store.monitors.put_episodes([episode])
    store.outbox.queue([alert])
    sender = outbox(store, pager={"alertmanager": there.url})

    for second in (0, 30, 60, 90, 120):
        sender.pump(NOW + second * SECOND)
    store.monitors.put_episodes([_ended(episode)])
    store.outbox.queue([notification("resolved", "pager")])
    for second in (180, 240, 300):
        sender.pump(NOW + second * SECOND)

    alerts = [json.loads(body)[0] for body in there.bodies("/api/v2/alerts")]
    assert len(alerts) == 4
    assert len({json.dumps(one["labels"]) + one["startsAt"] for one in alerts}) == 1
    assert [one["endsAt"] > alerts[0]["startsAt"] for one in alerts] == [True] * 4


def _ended(episode: StoredEpisode) -> StoredEpisode:
    return replace(episode, ended_ns=NOW + HOUR, closed_ns=NOW + HOUR, end_reason="recovered")


def test_delays_double_up_to_an_hour():
    """The delay grows from 5 to 10 seconds up to half an hour to an hour, and never overflows."""
    assert [retry_delay(n, 1.0) for n in (0, 1, 2, 9, 10**6)] == [10, 20, 40, 3600, 3600]
    assert retry_delay(0, 0.0) == 5.0


def test_a_check_and_the_outbox_deliver_one_alert_and_one_resolution(
    store: Store, there: Downstream
):
    """From scores to a webhook: a drop is notified once, and its end once."""
    watched = parse_config(
        "evaluators: [{name: e, type: tool_errors}]\n"
        "monitors: [{evaluator: e, group_by: agent, notify: hook}]\n"
        f"notify: {{hook: {{webhook: '{there.url}/x'}}}}\n"
    )
    history, sender = History(store), Outbox(store.outbox, watched.notify)
    history.scored(400, 0.95)
    for share, count in ((0.3, 60), (1.0, 120)):
        history.scored(count, share)
        check(store, watched, history.now)
        check(store, watched, history.now)
        sender.pump(history.now)
        sender.pump(history.now)

    alert, resolved = (json.loads(body) for body in there.bodies("/x"))
    assert [alert["type"], resolved["type"]] == ["monitor.alert", "monitor.resolved"]
    assert alert["data"]["episode"] == resolved["data"]["episode"]
    assert "pass rate fell from" in alert["text"]


def test_commands_deliver_and_show_failures(oteval: Run, there: Downstream):
    """`monitor run --once` delivers; `monitor status` names a notification that was refused."""
    Path("oteval.yaml").write_text(
        "evaluators: [{name: e, type: tool_errors}]\n"
        "monitors: [{measure: latency, notify: hook}]\n"
        f"notify: {{hook: {{webhook: '{there.url}/x'}}}}\n"
    )
    with Store("oteval.duckdb") as store:
        store.outbox.queue([notification(), notification("resolved", created_ns=NOW + 1)])
    there.answers = [(401, {})]

    ran = oteval("monitor", "run", "--once")
    shown = oteval("monitor", "status")

    assert (ran.status, shown.status) == (3, 0), ran.err
    assert "refused" in ran.err
    assert "hook: 3a9aebce01234567-alert was refused" in shown.err
    assert "401" in shown.err
    assert kinds(there) == ["monitor.resolved"]

    there.answers = [(403, {})]
    again = [oteval("monitor", "resend") for _ in range(2)]

    assert [one.status for one in again] == [2, 0]
    assert "was refused" in again[0].err
    assert "1 refused notification sent again" in again[1].err + again[1].out
    assert kinds(there) == ["monitor.resolved", "monitor.alert"]
