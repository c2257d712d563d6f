"""Runs that are scored in batches get the scores that they would get one by one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from oteval.base.clients.otlp_client import HttpClient
from oteval.model import Score
from oteval.scoring.decide import Decider
from oteval.scoring.score_events import EventRun, event_request
from oteval.serve.batch_scorer import BatchScorer
from oteval.serve.destinations import ScoreDestinations
from oteval.serve.publish.events import EventExporter
from oteval.serve.publish.metrics import ScoringMetrics
from oteval.store import Store

from ..make import CAPTURES, capture, chat
from .conftest import Clock, Driver

MOST = CAPTURES[::8]
REFERENCE = [
    {"role": "user", "content": "x"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get_order", "arguments": "{}"}}
        ],
    },
    {"role": "assistant", "content": "done"},
]
RULES = """
evaluators:
  - {name: names, type: trajectory_match, mode: superset, tool_args: ignore, reference: r.json}
  - {name: exact, type: trajectory_match, tool_args: exact, reference: r.json}
  - {name: errors, type: tool_errors}
  - {name: fast, type: latency, max: 1s}
  - {name: some, type: latency, max: 60s, sample: 0.5}
  - {name: few, type: tool_errors, where: {model: none}}
"""


class Events(EventExporter):
    """Events that are recorded instead of sent."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, HttpClient("http://127.0.0.1:9"), threaded=False)
        self.sent: list[str] = []

    def emit(self, scores: Iterable[tuple[Score, EventRun]]) -> None:
        """Record the events."""
        for resource in event_request(scores).resource_logs:
            self.sent += map(str, resource.scope_logs[0].log_records)


def scored(folder: Path) -> tuple[list[Score], dict[str, float], list[str]]:
    """Score captured runs and chats live.

    Returns:
        The scores, the metrics that count them, and their events.
    """
    folder.mkdir()
    (folder / "r.json").write_text(json.dumps(REFERENCE))
    events = Events(folder / "events")
    attach = ScoreDestinations(ScoringMetrics(), events=events)
    attach.metrics.register_events()
    with Store(folder / "traces.duckdb") as store:
        driver = Driver(store, folder, Clock())
        driver.rules(RULES)
        driver.start(attach)
        for name in MOST:
            spans, logs = capture(name)
            store.spans.write((), logs)
            driver.came(*spans)
        driver.came(*(chat(n, 1, [("user", "hi")], f"hello {n}") for n in range(1, 30)))
        driver.run(600)
        scores = sorted(driver.scores(), key=lambda score: (score.trajectory_id, score.evaluator))
        assert driver.scoring is not None
        driver.scoring.close()
    names = ("oteval_scores_total", "oteval_verdicts_total", "oteval_pass_rate", "oteval_score_sum")
    lines = [line.rsplit(" ", 1) for line in attach.metrics.text().decode().splitlines()]
    counts = {name: float(value) for name, value in lines if name.startswith(names)}
    return scores, counts, sorted(events.sent)


def decided_rows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the evaluators of the runs that are decided in batches from now on."""
    decided: list[str] = []
    decide = Decider.decide

    def recorded(self: Decider, *rest: Any) -> Any:
        runs = decide(self, *rest)
        decided.extend(runs.rows["evaluator"].to_pylist())
        return runs

    monkeypatch.setattr(Decider, "decide", recorded)
    return decided


def test_scores_metrics_and_events_are_those_of_single_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Matches and checks, samples and filters: each score and each count is the same."""
    decided = decided_rows(monkeypatch)
    batch, counted, events = scored(tmp_path / "batch")
    assert decided
    monkeypatch.setattr(BatchScorer, "configure", lambda *_, **__: None)
    single, counted_singly, single_events = scored(tmp_path / "single")

    assert batch == single
    assert {score.evaluator for score in batch} == {"names", "exact", "errors", "fast", "some"}
    assert counted == counted_singly
    assert events == single_events


def test_an_evaluator_that_cannot_decide_is_run_on_each_run(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in the decision of a batch loses no score, and each run has exactly one."""

    def fails(*_: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(Decider, "decide", fails)
    driver.rules("evaluators: [{name: errors, type: tool_errors}]")
    driver.start()
    driver.came(*(chat(number, 1, [("user", "hi")], f"hello {number}") for number in range(1, 4)))
    driver.run(6)

    assert [row[4] for row in driver.rows()] == ["ok"] * 3


def test_scores_are_stored_in_the_order_of_the_runs(driver: Driver) -> None:
    """Passes and failures alternate as in the runs, since monitors look for dependence in it."""
    driver.rules("evaluators: [{name: tokens, type: budget, max_total_tokens: 100}]")
    driver.start()
    used = [{"gen_ai.usage.input_tokens": 10 + number % 2 * 1000} for number in range(12)]
    driver.came(
        *(chat(n + 1, 1, [("user", "hi")], f"hello {n}", **each) for n, each in enumerate(used))
    )
    driver.run(20)
    runs, scores = (
        driver.store._connection.execute(f"SELECT {columns} ORDER BY seq").fetchall()
        for columns in ("trajectory_id FROM trajectories", "trajectory_id, passed FROM scores")
    )

    assert {passed for _, passed in scores} == {True, False}
    assert [(name,) for name, _ in scores] == runs


def test_evaluators_that_a_monitor_watches_run_on_each_run(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All scores are stored in the order of the runs, also if some runs must be read."""
    decided = decided_rows(monkeypatch)
    driver.rules(
        "evaluators: [{name: a, type: tool_errors}, {name: b, type: tool_errors}]\n"
        "monitors: [{evaluator: a}]"
    )
    driver.start()
    driver.came(*(chat(number, 1, [("user", "hi")], f"hello {number}") for number in range(1, 4)))
    driver.run(6)

    assert [row[4] for row in driver.rows()] == ["ok"] * 6
    assert set(decided) == {"b"}
