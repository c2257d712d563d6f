"""Monitors in a server: checked beside scoring, and never at its expense."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.served import Served, until
from oteval.base.errors import ConfigError
from oteval.cli import cli
from oteval.scoring.config import Config, load_config, parse_config
from oteval.serve.monitor_worker import MonitorWorker
from oteval.store import Store

from ..make import ROOT
from ..monitor.histories import HOUR, START, History
from ..monitor.notices import notification
from ..otlp_endpoint import Downstream

EVALUATORS = "evaluators: [{name: e, type: tool_errors}]\n"
NOTHING = parse_config(EVALUATORS)


def watched(url: str = "http://127.0.0.1:1") -> Config:
    """Return a configuration whose monitor notifies a webhook."""
    return parse_config(rules(url))


def rules(url: str) -> str:
    """Return the text of that configuration."""
    return (
        f"{EVALUATORS}monitors: [{{evaluator: e, group_by: agent, notify: hook}}]\n"
        f"notify: {{hook: {{webhook: {{url: '{url}/x', timeout: 60s}}}}}}\n"
    )


def recent(store: Store) -> History:
    """Return a history of 460 runs until now, of which the last 60 are bad."""
    count = (time.time_ns() - START) // HOUR - 460
    made = History(store, count=count, first=1 - count)
    made.scored(400, 0.95)
    made.scored(60, 0.3)
    return made


@contextmanager
def working(store: Store, config: Any) -> Iterator[tuple[MonitorWorker, CollectorRegistry]]:
    """Run a worker that checks all the time while the block lasts."""
    registry = CollectorRegistry()
    worker = MonitorWorker(store, config, registry, interval=0.05)
    try:
        yield worker, registry
    finally:
        worker.close(60)


def text(registry: CollectorRegistry) -> str:
    """Return the metrics."""
    return generate_latest(registry).decode()


def test_monitors_are_checked_once_the_configuration_has_them(
    store: Store, downstream: Downstream
) -> None:
    """A reloaded configuration is in force at the next check; its alert is delivered once."""
    recent(store)
    config = NOTHING
    with working(store, lambda: config) as (worker, registry):
        assert worker.state() == {}
        config = watched(downstream.url)
        until(lambda: downstream.bodies("/x"), 60)
        until(lambda: 'oteval_monitor_checks_total{status="ok"} 1.0' not in text(registry), 60)

        state = worker.state()
        assert (state["error"], state["groups"]) == (None, {"e": {"alert": 1}})
        assert (state["waiting"], state["refused"], state["problems"]) == (0, 0, [])
        shown = text(registry)
        assert 'oteval_monitor_groups{monitor="e",state="alert"} 1.0' in shown
        assert 'oteval_notifications_total{destination="hook",status="delivered"} 1.0' in shown

        config = NOTHING
        until(lambda: worker.state() == {}, 60)
    assert len(downstream.bodies("/x")) == 1


def test_the_last_monitor_that_is_removed_ends_its_episode(
    store: Store, downstream: Downstream, tmp_path: Path
) -> None:
    """Also without another monitor, its resolution is delivered, and nothing is reported."""
    recent(store)
    path = tmp_path / "oteval.yaml"
    path.write_text(rules(downstream.url))
    config = load_config(path)
    with working(store, lambda: config) as (worker, _):
        until(lambda: downstream.bodies("/x"), 60)
        path.write_text(EVALUATORS + rules(downstream.url).splitlines()[-1])
        config = load_config(path)
        until(lambda: len(downstream.bodies("/x")) == 2, 60)
        until(lambda: worker.state() == {}, 60)

    bodies = [json.loads(body) for body in downstream.bodies("/x")]
    assert [one["type"] for one in bodies] == ["monitor.alert", "monitor.resolved"]


def test_a_failing_check_is_named_once_and_ends(
    store: Store, downstream: Downstream, caplog: pytest.LogCaptureFixture
) -> None:
    """A failure is counted each time, logged once, and does not keep notifications back."""
    store.outbox.queue([notification()])
    store._connection.execute("ALTER TABLE monitor_groups RENAME TO hidden")
    config = watched(downstream.url)

    with caplog.at_level(logging.INFO), working(store, lambda: config) as (worker, registry):
        until(lambda: 'checks_total{status="failed"} 3.0' in text(registry), 60)
        (problem,) = worker.state()["problems"]
        assert "monitors are not checked: Catalog Error" in problem
        assert len(downstream.bodies("/x")) == 1
        store._connection.execute("ALTER TABLE hidden RENAME TO monitor_groups")
        until(lambda: worker.state()["error"] is None, 60)
        until(lambda: worker.state()["problems"] == [], 60)

    errors = [one.message for one in caplog.records if one.levelno >= logging.ERROR]
    assert [one.partition(":")[0] for one in errors] == ["monitors are not checked"]
    assert "monitors are checked again" in caplog.messages


def test_a_failing_destination_is_named_until_it_accepts(
    store: Store, downstream: Downstream, caplog: pytest.LogCaptureFixture
) -> None:
    """Failures and refusals are in the state and the metrics; the log has each once."""
    downstream.answers = [(500, {}), (403, {})]
    store.outbox.queue([notification(created_ns=1, next_ns=0)])
    config = watched(downstream.url)

    with working(store, lambda: config) as (worker, registry):
        until(lambda: worker.state().get("waiting") == 1, 60)
        (problem,) = worker.state()["problems"]
        assert problem.startswith("notifications for hook wait: ")
        # As if the delay had passed.
        (waiting,) = store.outbox.waiting()
        store.outbox.failed(waiting, "later", 0)
        until(lambda: worker.state()["refused"] == 1, 60)
        assert worker.state()["problems"] == [
            "1 notification refused; `oteval monitor status` names them"
        ]
        shown = text(registry)
        assert 'oteval_notifications_total{destination="hook",status="failed"} 1.0' in shown
        assert 'oteval_notifications_undelivered{status="refused"} 1.0' in shown
        assert store.outbox.send_again(0) == 1
        until(lambda: worker.state()["problems"] == [], 60)
    assert len(downstream.bodies("/x")) == 1
    assert len([one for one in caplog.records if "hook" in one.message]) == 2


def test_a_check_that_is_running_is_undone_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing interrupts a long query; nothing of the check is stored."""
    begun = threading.Event()

    def check(store: Store, *_: object) -> None:
        with store.monitors.check(7):
            begun.set()
            store._connection.execute("SELECT count(*) FROM range(1000000000000) a").fetchall()

    monkeypatch.setattr("oteval.monitor.check", check)
    config = watched()
    worker = MonitorWorker(store, lambda: config, CollectorRegistry(), interval=60)
    assert begun.wait(60)

    worker.close(60)

    assert store.monitors.last_check_ns() == 0
    assert not [one for one in threading.enumerate() if one.name == "monitors"]


def test_a_check_waits_for_another_one_and_goes_on(store: Store) -> None:
    """While another program checks, the check is repeated; then it succeeds without an error."""
    recent(store)
    other = store.sibling()
    config = watched()
    with other.monitors.check(1):
        registry = CollectorRegistry()
        worker = MonitorWorker(store, lambda: config, registry, interval=60)
        until(lambda: worker._is_checking, 60)
    until(lambda: worker.state().get("groups"), 60)
    worker.close(60)
    other.close()

    assert worker.state()["error"] is None
    assert len(store.monitors.episodes()) == 1


ABSENT = """
import sys, threading
from prometheus_client import CollectorRegistry
from oteval.scoring.config import parse_config
from oteval.serve.monitor_worker import MonitorWorker
from oteval.store import Store
looked = threading.Semaphore(0)
config = parse_config("evaluators: [{name: e, type: tool_errors}]")
registry = CollectorRegistry()
with Store(":memory:") as store:
    worker = MonitorWorker(store, lambda: looked.release() or config, registry, interval=0.01)
    for _ in range(3):
        looked.acquire()
    worker.close(60)
    assert store.monitors.last_check_ns() == 0
loaded = [name for name in sys.modules if name.startswith(("oteval.monitor.", "apprise"))]
loaded = [name for name in loaded if name != "oteval.monitor.requirements"]
print(loaded, list(registry.collect()))
"""


def test_without_monitors_nothing_is_loaded() -> None:
    """Neither the detectors nor apprise are imported, and there are no metrics."""
    done = subprocess.run(
        [sys.executable, "-c", ABSENT],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=True,
    )

    assert done.stdout == "[] []\n"


def test_a_server_with_channels_of_apprise_needs_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not start, and one line names the extra."""
    monkeypatch.chdir(tmp_path)
    config = rules("http://127.0.0.1:1").partition("notify: {")[0]
    (tmp_path / "oteval.yaml").write_text(config + "notify: {hook: {apprise: ['json://h']}}\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)

    with pytest.raises(ConfigError, match=r'pip install "oteval\[monitor\]"'):
        cli.main(["serve"], standalone_mode=False)


@pytest.mark.parametrize("interval", ["0s", "soon"])
def test_an_interval_is_a_time(
    interval: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the option."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="--monitor-interval"):
        cli.main(["serve", "--monitor-interval", interval], standalone_mode=False)


def test_a_server_names_variables_that_are_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does so before it starts, and goes on: here to an option that is wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPS", raising=False)
    monitors = rules("http://127.0.0.1:1").partition("notify: {")[0]
    (tmp_path / "oteval.yaml").write_text(
        monitors + 'notify: {hook: {webhook: {url: "http://127.0.0.1:1", secret: "${OPS}"}}}\n'
    )

    with pytest.raises(ConfigError, match="--monitor-interval"):
        cli.main(["serve", "--monitor-interval", "0s"], standalone_mode=False)

    assert "notify.hook: the environment has no OPS; set it and start again" in (
        capsys.readouterr().err
    )


@pytest.mark.slow
def test_commands_of_monitors_beside_a_server(tmp_path: Path, downstream: Downstream) -> None:
    """All of them work on a served database, and neither checks nor deliveries are doubled."""
    with Store(tmp_path / "traces.duckdb") as store:
        recent(store)
    (tmp_path / "oteval.yaml").write_text(rules(downstream.url))
    server = Served(tmp_path, "--monitor-interval", "200ms")
    try:
        until(lambda: downstream.bodies("/x"), 60)
        state = until(lambda: server.state().get("monitors", {}).get("groups"), 60)
        assert state == {"e": {"alert": 1}}
        assert server.cli("monitor", "run", "--once").returncode == 1
        (shown,) = commands(server, "status", "--json")
        episode = shown["episodes"][0]["episode"]
        assert (shown["state"], shown["group"]) == ("alert", {"agent": "a"})
        said = [
            commands(server, "mark", "prompt 12"),
            commands(server, "acknowledge", episode[:8], "--by", "ann"),
            commands(server, "snooze", "e", "--for", "2h"),
        ]
        assert said == [["marked prompt 12"], [f"acknowledged {episode}"], ["e: no alerts for 2h"]]
        (shown,) = commands(server, "status", "--json")
        assert shown["episodes"][0]["acknowledged_by"] == "ann"
        assert shown["snoozed_until_ns"]
        assert b"oteval_monitor_groups{" in server.get("/metrics")[1]
    finally:
        assert server.stop() == 0
    assert len(downstream.bodies("/x")) == 1


def commands(server: Served, *arguments: str) -> list[Any]:
    """Return the lines, or objects, that a command of monitors printed."""
    done = server.cli("monitor", *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines() or [
        line.removeprefix("oteval: ") for line in done.stderr.splitlines()
    ]
    return [json.loads(line) if line.startswith("{") else line for line in lines]
