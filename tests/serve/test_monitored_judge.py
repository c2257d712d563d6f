"""A judge that a real server asks: its outage and its changes, as monitors see them."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served, until

from ..model_server import Server, error, verdict
from ..otlp_endpoint import Downstream
from ..past_agent import GOOD, PastAgent

pytestmark = pytest.mark.slow

RULES = """
evaluators:
  - {{name: quality, type: judge, model: 'openai:m', base_url: '{judge}', max_retries: 0,
      max_concurrency: 16, variables: {{rubric: '{rubric}'}}}}
monitors:
  - {{evaluator: quality, notify: hook}}
  - {{evaluator: quality, measure: error_rate, notify: hook}}
notify: {{hook: {{webhook: '{hook}/x'}}}}
completion: {{quiet: 200ms}}
"""
LONG = 300.0  # seconds


@pytest.fixture
def served(
    tmp_path: Path, model_server: Server, downstream: Downstream
) -> Iterator[tuple[Served, Server, Downstream]]:
    """Return a server that asks a judge, the judge, and a webhook."""
    write(tmp_path, model_server, downstream, "Is it polite?")
    server = Served(tmp_path, "--monitor-interval", "200ms")
    yield server, model_server, downstream
    assert server.stop() == 0


def write(folder: Path, judge: Server, hook: Downstream, rubric: str) -> None:
    """Write the configuration."""
    text = RULES.format(judge=judge.url, hook=hook.url, rubric=rubric)
    (folder / "oteval.yaml").write_text(text)


def test_an_outage_is_an_alert_of_errors_and_a_change_of_the_judge_is_none(
    served: tuple[Served, Server, Downstream], tmp_path: Path
) -> None:
    """A judge that answers 500 alerts on errors, not on quality; another one starts anew."""
    server, judge, hook = served
    chance, asked = random.Random(3), itertools.count()
    # One in twenty fails, evenly, so that blocks stay short whatever the order of the answers.
    judge.script = lambda *_: verdict(next(asked) % 20 > 0)
    agent = PastAgent(server, 400 + 80 + 60)
    agent.work(400, GOOD)
    learned = observed(server, {"quality": 400, "quality error_rate": 400})
    assert learned["quality"]["baselines"]["worse"]["mean"] > 0.9

    judge.script = lambda *_: error(500, "down")
    agent.work(80, GOOD)
    until(lambda: hook.bodies("/x"), LONG)
    found = observed(server, {"quality": 400, "quality error_rate": 480})
    # The runs are of past weeks, so the silence of the verdicts counts as such.
    assert {name: one["state"] for name, one in found.items()} == {
        "quality": "no_data",
        "quality error_rate": "alert",
    }

    # A stricter judge: a third of the runs pass.
    judge.script = lambda *_: verdict(chance.random() < 0.3)
    write(tmp_path, judge, hook, "Is it brief?")
    until(lambda: state(server)["quality"]["version"] != learned["quality"]["version"], LONG)
    agent.work(60, GOOD)
    until(lambda: state(server)["quality"]["observations"] >= 60, LONG)
    found = state(server)
    assert found["quality"]["state"] in ("learning", "no_data")
    assert (found["quality"]["episodes"], found["quality"]["baselines"]) == ([], {})
    until(lambda: len(hook.bodies("/x")) > 1, LONG)
    bodies = [json.loads(body) for body in hook.bodies("/x")]
    assert {(one["data"]["measure"], one["type"]) for one in bodies} == {
        ("error_rate", "monitor.alert"),
        ("error_rate", "monitor.resolved"),
    }
    assert "the evaluator was changed" in bodies[1]["data"]["end_reason"]


def state(server: Served) -> dict[str, Any]:
    """Return the status of each monitor."""
    done = server.cli("monitor", "status", "--json")
    assert done.returncode == 0, done.stderr
    return {one["monitor"]: one for one in map(json.loads, done.stdout.splitlines())}


def observed(server: Served, counts: dict[str, int]) -> dict[str, Any]:
    """Wait until so many runs are observed, and return the status of each monitor."""

    def found() -> dict[str, Any] | None:
        shown = state(server)
        known = {name: one["observations"] for name, one in shown.items()}
        return shown if known == counts else None

    return dict(until(found, LONG))
