"""Debian's Alertmanager receives an alert and its resolution.

`make test-live` runs it. OTEVAL_ALERTMANAGER names the program where it is not on the path.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import until
from oteval.config.monitors import NotifyDestination
from oteval.monitor.notification import deliver

from ..monitor.histories import HOUR, MINUTE
from ..monitor.notices import payload
from ..otlp_endpoint import Downstream, listening
from .test_flow import free_port, program

pytestmark = pytest.mark.live

ROUTES = """
route: {{receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: '{url}/hook', send_resolved: true}}]}}]
"""


@pytest.fixture
def receiver() -> Iterator[Downstream]:
    """Return where Alertmanager sends its own notifications."""
    with listening() as found:
        yield found


@pytest.fixture
def alertmanager(receiver: Downstream, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an Alertmanager."""
    path = program(
        "OTEVAL_ALERTMANAGER",
        "",
        "prometheus-alertmanager" if shutil.which("prometheus-alertmanager") else "alertmanager",
    )
    (tmp_path / "routes.yml").write_text(ROUTES.format(url=receiver.url))
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            path,
            f"--config.file={tmp_path}/routes.yml",
            f"--storage.path={tmp_path}/data",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _is_ready(url), 30)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def test_an_alert_is_raised_once_and_resolved(alertmanager: str, receiver: Downstream):
    """Repetitions are one alert; the resolution ends it, and its receiver hears of both."""
    pager = NotifyDestination.model_validate({"alertmanager": alertmanager})
    now = time.time_ns()
    times = {"alarm_ns": now - HOUR, "since_ns": now - 2 * HOUR}
    for repetition in range(3):
        body = payload(**times)
        result = deliver(body, pager, key="e-alert", now_ns=now + repetition * MINUTE)
        assert result.is_delivered, result.error

    (alert,) = _asked(alertmanager, "/api/v2/alerts")
    assert alert["status"]["state"] in ("active", "unprocessed")
    assert alert["labels"]["monitor"] == "refund-policy"
    assert alert["labels"]["attributes_user_plan"] == "free"
    assert "pass rate fell from 95.2%" in alert["annotations"]["description"]
    until(lambda: _heard(receiver) == ["firing"], 30)

    over = payload("resolved", **times, ended_ns=now - MINUTE)
    assert deliver(over, pager, key="e-resolved", now_ns=now).is_delivered

    until(lambda: _asked(alertmanager, "/api/v2/alerts") == [], 30)
    until(lambda: _heard(receiver) == ["firing", "resolved"], 30)


def _heard(receiver: Downstream) -> list[str]:
    """Return the states of the alerts that Alertmanager notified, in order."""
    bodies = map(json.loads, receiver.bodies("/hook"))
    return [alert["status"] for body in bodies for alert in body["alerts"]]


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _asked(url: str, path: str) -> Any:
    with urllib.request.urlopen(url + path, timeout=5) as response:
        return json.load(response)
