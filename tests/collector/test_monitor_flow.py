"""End to end: an agent that breaks, `oteval serve`, Debian's Alertmanager and a webhook.

The agent's runs carry the times of the last weeks, and are sent within a minute. `make test-live`
runs it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served, until

from ..monitor.histories import HOUR, MINUTE
from ..otlp_endpoint import Downstream, listening
from ..past_agent import BROKEN, GOOD, PastAgent
from .conftest import asked, heard

pytestmark = [pytest.mark.live, pytest.mark.slow]

SECRET = "a secret of both"
RULES = """
evaluators:
  - {{name: refund-order, type: tool_order, rules: [look_up before refund]}}
monitors:
  - {{evaluator: refund-order, group_by: agent, notify: [pager, ticket]}}
notify:
  pager: {{alertmanager: '{pager}'}}
  ticket: {{webhook: {{url: '{ticket}/ticket', secret: '${{TICKET_SECRET}}'}}}}
completion: {{quiet: 200ms}}
"""
PARTS = ("storage", "listener", "decoder")
LONG = 300.0  # seconds


@pytest.fixture
def ticket() -> Iterator[Downstream]:
    """Return the receiver of the webhook."""
    with listening() as found:
        yield found


def test_a_broken_agent_is_one_alert_and_its_repair_one_resolution(
    alertmanager: str, receiver: Downstream, ticket: Downstream, tmp_path: Path
) -> None:
    """Ten SIGKILLs in between change nothing; the alert dates the change and names runs."""
    (tmp_path / "oteval.yaml").write_text(RULES.format(pager=alertmanager, ticket=ticket.url))
    secret, begun = {"TICKET_SECRET": SECRET}, time.time()
    server = Served(tmp_path, "--monitor-interval", "200ms", environment=secret)
    chance = random.Random(5)
    kills = iter(PARTS * 3 + PARTS[:1])

    def killed() -> threading.Thread:
        """Kill a part of the server at some moment from now on."""
        wait = chance.uniform(0, 1.5)
        thread = threading.Timer(wait, lambda: server.kill(next(kills)))
        thread.start()
        return thread

    try:
        agent = PastAgent(server, 400 + 40 + 100)
        for count in (200, 120, 80):
            thread = killed()
            agent.work(count, GOOD)
            thread.join()
        _checked(server, 400)
        assert ticket.requests == []

        broken_ns = agent.now - 30 * MINUTE
        for _ in range(3):
            thread = killed()
            agent.work(10, BROKEN, batch=5)
            thread.join()
        agent.work(10, BROKEN)
        until(lambda: _ids(ticket), LONG)
        until(lambda: heard(receiver) == ["firing"], LONG)
        (alert,) = asked(alertmanager, "/api/v2/alerts")
        for _ in range(2):
            killed().join()
        _checked(server, 440)

        for count in (40, 60):
            thread = killed()
            agent.work(count, GOOD)
            thread.join()
        until(lambda: len(_ids(ticket)) == 2, LONG)
        until(lambda: heard(receiver) == ["firing", "resolved"], LONG)
        assert next(kills, None) is None
        (state,) = _checked(server, 540)
        past = [json.loads(line) for line in _run(server, "monitor", "backtest", "--json")]
        said = json.loads(ticket.bodies("/ticket")[0])["data"]
        shown, before = (
            [json.loads("".join(_run(server, "show", name, "--json"))) for name in said[key]]
            for key in ("runs", "runs_before")
        )
    finally:
        assert server.stop() == 0

    # One alert and one resolution; a repetition after a kill has the same id and the same body.
    bodies = {_genuine(headers, body): body for _, headers, body in ticket.requests}
    assert len(set(ticket.bodies("/ticket"))) == 2
    sent = [int(headers["webhook-timestamp"]) for _, headers, _ in ticket.requests]
    assert begun - 1 <= min(sent) <= max(sent) <= time.time()
    (opened, ended) = (json.loads(body) for body in bodies.values())
    assert (opened["type"], ended["type"]) == ("monitor.alert", "monitor.resolved")
    assert opened["data"]["episode"] == ended["data"]["episode"]
    assert heard(receiver) == ["firing", "resolved"]
    assert alert["annotations"]["notification"] == opened["id"]
    assert alert["labels"]["agent"] == "clerk"
    # The time of the change, and the runs that show it.
    data = opened["data"]
    assert data["since_from_ns"] <= broken_ns <= data["since_to_ns"]
    assert data["since_to_ns"] - data["since_from_ns"] <= 24 * HOUR
    assert shown
    assert before
    for one in shown:
        assert (one["start_ns"] > broken_ns, _tools(one)) == (True, list(BROKEN))
    for one in before:
        assert (one["start_ns"] < broken_ns, _tools(one)) == (True, list(GOOD))
    # The same as without any kill.
    (replayed,) = past
    assert replayed["episode"] == data["episode"]
    assert replayed["change_ns"] == data["since_ns"]
    assert replayed["end_reason"] == "recovered"
    assert state["episodes"] == []


def _checked(server: Served, runs: int) -> list[dict[str, Any]]:
    """Wait until a number of runs has been observed, and return the groups."""

    def groups() -> list[dict[str, Any]] | None:
        done = server.cli("monitor", "status", "--json")
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return found if found and found[0]["observations"] == runs else None

    return list(until(groups, LONG))


def _run(server: Served, *arguments: str) -> list[str]:
    """Return the lines of a command's output."""
    done = server.cli(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _tools(shown: dict[str, Any]) -> list[str]:
    """Return the tools that a run called, in order."""
    return [
        part["function"]["name"]
        for message in shown["messages"]
        for part in message.get("tool_calls", ())
    ]


def _ids(ticket: Downstream) -> set[str]:
    return {headers["webhook-id"] for _, headers, _ in list(ticket.requests)}


def _genuine(headers: dict[str, str], body: bytes) -> str:
    """Return the id of a request, whose signature must be right."""
    name, sent = headers["webhook-id"], headers["webhook-timestamp"]
    digest = hmac.new(SECRET.encode(), f"{name}.{sent}.".encode() + body, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    return name
