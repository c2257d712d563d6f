"""Notifications at real endpoints of each kind, and their texts."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from oteval.monitor.notification.delivery import DeliveryResult
from oteval.monitor.notification.formats import signature
from oteval.monitor.notification.kinds import deliver
from oteval.monitor.notification.text import message
from oteval.scoring.config.monitors import NotifyDestination

from ..otlp_endpoint import Downstream, listening
from .histories import HOUR, MINUTE
from .notices import NOW, payload

SECRET = "correct horse/battery@staple"


@pytest.fixture
def there() -> Iterator[Downstream]:
    """Return an endpoint that notifications are sent to."""
    with listening() as found:
        yield found


def send(event: str, kind: str, settings: Any, **environment: str) -> DeliveryResult:
    """Deliver a notification to a destination with some settings."""
    destination = NotifyDestination.model_validate({kind: settings})
    return deliver(
        payload(event), destination, key="k-1", now_ns=NOW, environment=environment, version="1"
    )


def test_text_names_the_change_its_time_and_runs_that_show_it():
    """The message has figures and times with intervals, marks and a few runs."""
    shown = message(payload())

    assert shown.title == (
        "Alert: refund-policy [agent=support, attributes.user.plan=free] got worse"
    )
    assert shown.text.splitlines() == [
        "pass rate fell from 95.2% (94.1% to 96.0%) to 83.0% (79.5% to 86.1%), in 52 conversations",
        "Since: 2026-09-21 16:13 UTC (between 2026-09-21 15:53 UTC and 2026-09-21 16:43 UTC)",
        "Deployed around then: shop 1.4.2 (2026-09-21 16:13 UTC)",
        "Runs since: r1, r2, r3 and 1 more",
        "Episode: 3a9aebce01234567; refund-policy version 2",
    ]
    assert "- **Runs since:** r1, r2, r3 and 1 more" in shown.markdown


def test_text_of_a_resolution_and_of_silence():
    """A resolution names the end and how long it lasted; silence has no figures."""
    resolved = message(payload("resolved"))
    silent = message(payload(side="silent", before=None, after=None, runs=[], marks=[]))

    assert resolved.title.startswith("Resolved: refund-policy")
    assert "Ended: 2026-09-21 23:13 UTC after 7 h" in resolved.text
    assert silent.title.endswith("has no data")
    assert silent.text.startswith("Silent since: ")


def test_text_shows_slices_and_escapes_names_from_agents():
    """Slices have figures; names that come from agents can neither format nor control."""
    worst = {"dimension": "tools", "value": "look > refund\n", "before": 0.95, "after": 0.41}
    slices = [{**worst, "observations": 52, "p": 0.01}]
    odd = message(payload(group={"agent": "a\n**b**\x1b[2J"}, slices=slices))

    assert "Where: tools=look > refund: 95.0% to 41.0% (52 conversations)" in odd.text
    assert r"look \> refund" in odd.markdown
    assert "\n" not in odd.title
    assert "\x1b" not in odd.title
    assert r"\[2J" in message(payload(marks=[{"time_ns": 0, "name": "x[2J"}])).markdown


def test_a_payload_without_optional_parts_has_a_text():
    """Intervals, slices, marks and versions may be missing."""
    bare = payload(runs=[], marks=[], version=None, before_interval=None, after_interval=None)

    assert "from 95.2% to 83.0%" in message(bare).text


def test_webhook_is_signed_and_a_receiver_can_verify_it(there: Downstream):
    """The signature covers the id, the time and the body; the secret is not sent."""
    settings = {"url": f"{there.url}/a b?c=1", "secret": "${HOOK}", "headers": {"X-A": "${A}"}}

    result = send("alert", "webhook", settings, HOOK=SECRET, A="1")

    assert result.is_delivered
    ((path, headers, body),) = there.requests
    held = {name.lower(): value for name, value in headers.items()}
    signed = f"{held['webhook-id']}.{held['webhook-timestamp']}.".encode() + body
    digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()
    assert held["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert held["webhook-timestamp"] == str(NOW // 10**9)
    assert (path, held["x-a"], held["idempotency-key"]) == ("/a%20b?c=1", "1", "k-1")
    found = json.loads(body)
    assert (found["id"], found["type"]) == ("k-1", "monitor.alert")
    assert found["data"] == payload()
    assert SECRET not in f"{headers}{body!r}"


def test_signature_is_that_of_the_specification():
    """The example of the Standard Webhooks specification has its signature."""
    assert (
        signature(
            b'{"test": 2432232314}',
            key="msg_p5jXN8AQM9LWM0D4loKWxJek",
            timestamp="1614265330",
            secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_attempts_have_the_same_body(there: Downstream):
    """A receiver sees one notification, however often it is sent."""
    destination = NotifyDestination.model_validate({"webhook": f"{there.url}/x"})
    for minute in range(3):
        deliver(payload(), destination, key="k-1", now_ns=NOW + minute * MINUTE, environment={})

    assert len(set(there.bodies("/x"))) == 1


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, True), (404, True), (408, False), (429, False), (500, False), (302, False)],
)
def test_statuses_are_refusals_or_failures(there: Downstream, status: int, refused: bool):
    """Errors of the request are for good; those of the server and redirects are not."""
    there.answers = [(status, {"Retry-After": "90000", "Location": f"{there.url}/else"})]

    result = send("alert", "webhook", f"{there.url}/secret-path?token=secret")

    assert not result.is_delivered
    assert result.is_refused == refused
    assert result.retry_after == 86400.0
    assert str(status) in result.error
    assert "secret" not in result.error
    assert there.requests == []


def test_retry_after_may_be_a_time(there: Downstream):
    """A time counts from the response's own date, whatever this machine's clock says."""
    there.answers = [(503, {"Retry-After": "Fri, 01 Jan 2100 00:00:00 GMT"})]

    assert send("alert", "webhook", f"{there.url}/x").retry_after == 86400.0


@pytest.mark.parametrize(
    ("settings", "environment", "said"),
    [
        ({"url": "http://u:secret@127.0.0.1:1/secret?secret"}, {}, "http://127.0.0.1:1"),
        ({"url": "http://127.0.0.1:1", "headers": {"X": "${H}"}}, {"H": "a\nsecret"}, "header"),
        ({"url": "http://127.0.0.1:1", "secret": "${GONE}"}, {}, "GONE"),
        ({"url": "http://127.0.0.1:1", "secret": "${S}"}, {"S": "whsec_secret"}, "base64"),
    ],
)
def test_errors_have_no_secrets(settings: Any, environment: dict[str, str], said: str):
    """An unreachable host or a wrong setting is an error that names no secret."""
    result = send("alert", "webhook", settings, **environment)

    assert not result.is_delivered
    assert said in result.error
    assert "secret" not in result.error.replace("the secret begins", "")


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"url": "http://127.0.0.1:1", "headers": {"X": "${H}"}}, "a\nsecret"),
        ({"url": "grpc://127.0.0.1:1", "headers": {"X": "${H}"}}, "a\nsecret"),
    ],
)
def test_errors_of_log_events_have_no_secrets(settings: Any, value: str):
    """The clients of OTLP quote URLs and headers in their errors, which are not shown."""
    result = send("alert", "log_event", settings, H=value)

    assert not result.is_delivered
    assert result.error
    assert "secret" not in result.error


@pytest.mark.parametrize("kind", ["webhook", "log_event"])
def test_a_destination_that_answers_byte_by_byte_is_given_up(kind: str):
    """The time limit is that of the whole request: a destination cannot hold up the others."""
    is_done = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"HTTP/1.1 ")
            while not is_done.wait(0.01):
                connection.sendall(b"a")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        result = send("alert", kind, {"url": url, "timeout": 0.3})
        is_done.set()
        thread.join()

    assert not result.is_delivered
    assert not result.is_refused


def test_alertmanager_identifies_an_alert_by_its_labels(there: Downstream):
    """An alert and its resolution have the same labels and start; only the end differs."""
    settings = {"url": there.url, "labels": {"team": "a"}, "resolve_timeout": "1h"}
    for event in ("alert", "resolved"):
        assert send(event, "alertmanager", settings).is_delivered

    alert, resolved = (json.loads(body)[0] for body in there.bodies("/api/v2/alerts"))

    assert alert["labels"] == resolved["labels"] == {
        "alertname": "OtevalMonitor",
        "monitor": "refund-policy",
        "measure": "pass_rate",
        "evaluator": "refund-policy",
        "side": "worse",
        "severity": "warning",
        "agent": "support",
        "attributes_user_plan": "free",
        "team": "a",
    }  # fmt: skip
    assert alert["startsAt"] == resolved["startsAt"] == "2026-09-21T18:13:20.000Z"
    assert (alert["endsAt"], resolved["endsAt"]) == (
        "2026-09-22T01:13:20.000Z",
        "2026-09-21T23:13:20.000Z",
    )
    assert alert["annotations"]["runs"] == "r1 r2 r3 r4"


def test_log_event_names_the_change(there: Downstream):
    """A log event has the state, the change with its interval, and the runs."""
    for event in ("alert", "resolved"):
        assert send(event, "log_event", there.url).is_delivered

    alert, resolved = there.log_records()
    found = {one.key: one.value for one in alert.attributes}
    assert alert.event_name == resolved.event_name == "oteval.monitor.alert"
    assert (alert.severity_text, resolved.severity_text) == ("WARN", "INFO")
    assert resolved.time_unix_nano - alert.time_unix_nano == 5 * HOUR
    assert found["oteval.monitor.state"].string_value == "alert"
    assert found["oteval.monitor.after.low"].double_value == 0.795
    assert found["oteval.monitor.change.time"].string_value == "2026-09-21T16:13:20.000Z"
    assert found["oteval.trajectory.ids"].array_value.values[0].string_value == "r1"
    assert found["gen_ai.agent.name"].string_value == "support"


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_apprise_sends_a_message(there: Downstream):
    """Apprise's JSON service gets the title, the text and the kind of event."""
    url = there.url.replace("http://", "json://user:${PASSWORD}@")

    assert send("alert", "apprise", f"{url}/x", PASSWORD=SECRET).is_delivered
    assert send(
        "resolved", "apprise", "${URL}", URL=f"{there.url}/x".replace("http", "json")
    ).is_delivered

    everyone = payload(group={"agent": "@everyone"})
    to = NotifyDestination(apprise=[there.url.replace("http", "json")])
    assert deliver(everyone, to, key="k-2", now_ns=NOW, environment={}).is_delivered
    assert b"@everyone" not in there.requests.pop()[2]

    alert, resolved = map(json.loads, there.bodies("/x"))
    authorization = base64.b64encode(f"user:{SECRET}".encode()).decode()
    assert there.requests[0][1]["Authorization"] == f"Basic {authorization}"
    assert alert["title"].startswith("Alert: refund-policy")
    assert "pass rate fell from 95.2%" in alert["message"]
    assert (alert["type"], resolved["type"]) == ("warning", "success")


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")
def test_apprise_follows_no_redirects_and_names_no_secrets(
    there: Downstream, capfd: pytest.CaptureFixture[str]
):
    """A redirect is a failure, a 403 a refusal, and a URL is not shown."""
    url = f"{there.url}/secret".replace("http://", "json://user:secret@")
    there.answers = [(307, {"Location": f"{there.url}/other"}), (403, {})]

    moved, refused = send("alert", "apprise", url), send("alert", "apprise", url)
    unknown = send("alert", "apprise", "nosuch://secret")

    assert there.requests == []
    assert (moved.is_delivered, moved.is_refused, refused.is_refused) == (False, False, True)
    assert unknown.is_refused
    assert "403" in refused.error
    assert "secret" not in f"{moved.error}{refused.error}{unknown.error}{capfd.readouterr()}"
