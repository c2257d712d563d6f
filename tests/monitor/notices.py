"""Notifications of an alert and its resolution, as checks queue them."""

from __future__ import annotations

import json
from typing import Any

from oteval.store import Notification

from .histories import HOUR, MINUTE, START

__all__ = ["NOW", "notification", "payload"]

NOW = START + 10 * HOUR


def payload(event: str = "alert", **fields: Any) -> dict[str, Any]:
    """Return the payload of a notification about refunds of one agent."""
    found = {
        "event": event,
        "episode": "3a9aebce01234567",
        "monitor": "refund-policy",
        "measure": "pass_rate",
        "evaluator": "refund-policy",
        "version": "2",
        "group": {"agent": "support", "attributes.user.plan": "free"},
        "state": "alert" if event == "alert" else "recovered",
        "side": "worse",
        "figure": "pass rate",
        "since_ns": START + 2 * HOUR,
        "since_from_ns": START + 2 * HOUR - 20 * MINUTE,
        "since_to_ns": START + 2 * HOUR + 30 * MINUTE,
        "before": 0.952,
        "after": 0.83,
        "before_interval": [0.941, 0.96],
        "after_interval": [0.795, 0.861],
        "observations": 52,
        "alarm_ns": START + 4 * HOUR,
        "ended_ns": None if event == "alert" else START + 9 * HOUR,
        "end_reason": None if event == "alert" else "recovered",
        "runs": ["r1", "r2", "r3", "r4"],
        "marks": [{"time_ns": START + 2 * HOUR, "kind": "version", "name": "shop 1.4.2"}],
    }
    return found | fields


def notification(
    event: str = "alert", destination: str = "hook", *, created_ns: int = NOW, **fields: Any
) -> Notification:
    """Return a notification that waits in the outbox."""
    body = payload(event, **fields)
    return Notification(
        notification_id=f"{body['episode']}-{event}",
        destination=destination,
        episode_id=body["episode"],
        event=event,
        payload=json.dumps(body),
        runs=body["runs"],
        created_ns=created_ns,
        next_ns=created_ns,
    )
