"""Debian's Alertmanager receives an alert and its resolution.

`make test-live` runs it. OTEVAL_ALERTMANAGER names the program where it is not on the path.
"""

from __future__ import annotations

import time

import pytest

from benchmarks.served import until
from oteval.monitor.notification.kinds import deliver
from oteval.scoring.config.monitors import NotifyDestination

from ..monitor.histories import HOUR, MINUTE
from ..monitor.notices import payload
from ..otlp_endpoint import Downstream
from .conftest import asked, heard

pytestmark = pytest.mark.live


def test_an_alert_is_raised_once_and_resolved(alertmanager: str, receiver: Downstream):
    """Repetitions are one alert; the resolution ends it, and its receiver hears of both."""
    pager = NotifyDestination.model_validate({"alertmanager": alertmanager})
    now = time.time_ns()
    times = {"alarm_ns": now - HOUR, "since_ns": now - 2 * HOUR}
    for repetition in range(3):
        body = payload(**times)
        result = deliver(body, pager, key="e-alert", now_ns=now + repetition * MINUTE)
        assert result.is_delivered, result.error

    (alert,) = asked(alertmanager, "/api/v2/alerts")
    assert alert["status"]["state"] in ("active", "unprocessed")
    assert alert["labels"]["monitor"] == "refund-policy"
    assert alert["labels"]["attributes_user_plan"] == "free"
    assert "pass rate fell from 95.2%" in alert["annotations"]["description"]
    until(lambda: heard(receiver) == ["firing"], 30)

    over = payload("resolved", **times, ended_ns=now - MINUTE)
    assert deliver(over, pager, key="e-resolved", now_ns=now).is_delivered

    until(lambda: asked(alertmanager, "/api/v2/alerts") == [], 30)
    until(lambda: heard(receiver) == ["firing", "resolved"], 30)
