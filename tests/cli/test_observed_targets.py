"""`oteval eval --target` scores the calls that it sees the target make, whatever it returns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

import oteval as package
from oteval import Store

from .conftest import Run

QUESTIONS = ("Refund order 7", "Refund order 8", "Refund order 9", "Refund order 10")
MODULE = """
import asyncio
import threading

import oteval
from tests.agent import answer

RETURNED = [
    {"role": "user", "content": "Refund"},
    {"role": "assistant", "tool_calls": [{"name": "look_up", "args": {}}]},
    {"role": "tool", "content": "done"},
    {"role": "assistant", "content": "Refunded."},
]

def text(inputs):
    return answer(inputs["question"], "look_up", "refund")

async def coroutine(inputs):
    await asyncio.sleep(0)
    return await asyncio.to_thread(text, inputs)

def thread(inputs):
    results = []
    worker = threading.Thread(target=lambda: results.append(text(inputs)))
    worker.start()
    worker.join()
    return results[0]

def hides_a_call(inputs):
    text(inputs)
    return RETURNED[:1] + RETURNED[-1:]

def captures_itself(inputs):
    with oteval.capture() as captured:
        text(inputs)
    return captured.trajectory

class Graph:
    def invoke(self, inputs):
        return {"answer": text(inputs)}

graph = Graph()

def says_more(inputs):
    return {"messages": RETURNED}

def differs(inputs):
    answer(inputs["question"], "refund")
    return RETURNED

def two_agents(inputs):
    answer(inputs["question"], "refund", name="one")
    return answer("And " + inputs["question"], name="two")

def silent(inputs):
    return "Refunded."

def polished(inputs):
    text(inputs)
    return "Dear customer, it is refunded."

def fails(inputs):
    text(inputs)
    raise ValueError("no network")

def asks_a_model(outputs):
    worker = threading.Thread(target=answer, args=("Is this right?", "delete"))
    worker.start()
    worker.join()
    return True

def own_question(inputs, trajectory):
    return trajectory.messages[0].content == inputs["question"]
"""
CONFIG = """
evaluators:
  - {name: no-refund, type: forbidden_tools, forbidden: [refund]}
  - {name: no-delete, type: forbidden_tools, forbidden: [delete]}
"""


@pytest.fixture
def desk(oteval: Run, tmp_path: Path) -> Iterator[Run]:
    """The command in a folder with targets, questions and evaluators."""
    (tmp_path / "desk.py").write_text(MODULE)
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    lines = [json.dumps({"inputs": {"question": question}}) for question in QUESTIONS]
    (tmp_path / "questions.jsonl").write_text("\n".join(lines))
    yield oteval
    sys.modules.pop("desk", None)


def evaluated(desk: Run, target: str, *options: str) -> list[Any]:
    """The rows of an experiment on a target."""
    name = f"{target}{len(options)}"
    command = ("eval", "--data", "questions.jsonl", "--target", f"desk:{target}", "--name", name)
    return desk(*command, *options, "--json").rows


def verdicts(rows: list[Any], key: str) -> list[tuple[str, bool | None]]:
    """The statuses and verdicts of an evaluator."""
    entries = [entry for row in rows for entry in row["feedback"] if entry["key"] == key]
    return [(entry["status"], entry["passed"]) for entry in entries]


@pytest.mark.parametrize(
    "target", ["text", "coroutine", "thread", "hides_a_call", "captures_itself", "graph"]
)
def test_a_target_is_scored_on_the_calls_that_it_made(desk: Run, target: str) -> None:
    """A forbidden call counts although the target returns only its answer; the run is stored."""
    rows = evaluated(desk, target)

    assert verdicts(rows, "no-refund") == [("ok", False)] * len(QUESTIONS)
    assert verdicts(rows, "no-delete") == [("ok", True)] * len(QUESTIONS)
    with Store("oteval.duckdb") as store:
        stored = {run.id: run for run in store.trajectories.read()}
    assert len(stored) == len(QUESTIONS)
    for row in rows:
        run = stored[row["trajectory_id"]]
        assert run.messages[0].content == row["inputs"]["question"]
    assert desk("show", rows[0]["trajectory_id"]).status == 0


def test_calls_of_targets_that_run_at_once_stay_apart(desk: Run) -> None:
    """Each run has its own calls, and none of an evaluator that asks a model meanwhile."""
    options = ("--call", "desk:asks_a_model", "--call", "desk:own_question", "--concurrency", "4")
    rows = evaluated(desk, "thread", "-c", "oteval.yaml", *options)

    assert verdicts(rows, "own_question") == [("ok", True)] * len(QUESTIONS)
    assert verdicts(rows, "no-delete") == [("ok", True)] * len(QUESTIONS)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("silent", "the target was not observed: it used no instrumented library"),
        ("two_agents", "the target ran 2 agents (one, two): mark it with @oteval.agent"),
        ("differs", "the target made calls that it did not return: refund"),
    ],
)
def test_a_target_that_was_not_observed_has_no_verdict(desk: Run, target: str, reason: str) -> None:
    """Evaluators that need calls give the reason, and never a pass."""
    rows = evaluated(desk, target)

    for key in ("no-refund", "no-delete"):
        assert verdicts(rows, key) == [("not_evaluated", None)] * len(QUESTIONS)
    assert all(reason in entry["comment"] for row in rows for entry in row["feedback"])


def test_returned_messages_count_if_they_show_more(desk: Run) -> None:
    """An agent elsewhere is scored on the messages that it returned."""
    rows = evaluated(desk, "says_more")

    assert verdicts(rows, "no-refund") == [("ok", True)] * len(QUESTIONS)
    assert [row["trajectory_id"] for row in rows] == [None] * len(QUESTIONS)


def test_the_answer_is_the_one_that_the_target_returned(desk: Run, tmp_path: Path) -> None:
    """Code that changes the model's answer is a part of the target."""
    config = "evaluators: [{name: e, type: required_text, texts: [Dear customer]}]"
    (tmp_path / "answer.yaml").write_text(config)

    rows = evaluated(desk, "polished", "-c", "answer.yaml")

    assert verdicts(rows, "e") == [("ok", True)] * len(QUESTIONS)


def test_the_run_of_a_target_that_failed_can_be_looked_at(desk: Run) -> None:
    """Its calls before the failure are stored."""
    rows = evaluated(desk, "fails")

    assert [row["error"] for row in rows] == ["ValueError: no network"] * len(QUESTIONS)
    assert len({row["trajectory_id"] for row in rows} - {None}) == len(QUESTIONS)


def test_an_evaluator_that_is_added_later_sees_the_calls(desk: Run, tmp_path: Path) -> None:
    """A resumed experiment reads the stored runs."""
    for target in ("text", "two_agents"):
        assert verdicts(evaluated(desk, target), "no-refund")
    late = CONFIG.replace("no-refund", "late")
    (tmp_path / "oteval.yaml").write_text(late)

    for target, expected in (("text", ("ok", False)), ("two_agents", ("not_evaluated", None))):
        command = ("eval", "--data", "questions.jsonl", "--target", f"desk:{target}")
        rows = desk(*command, "--name", f"{target}0", "--resume", "--json").rows
        assert verdicts(rows, "late") == [expected] * len(QUESTIONS)


def test_secrets_are_removed_before_anything_is_stored(desk: Run, tmp_path: Path) -> None:
    """The rules of the configuration apply to the spans of the target."""
    (tmp_path / "oteval.yaml").write_text(f"{CONFIG}redact: [{{pattern: 'order \\d+'}}]\n")

    rows = evaluated(desk, "text")

    with Store("oteval.duckdb") as store:
        messages = [run.messages[0].content for run in store.trajectories.read()]
    assert verdicts(rows, "no-refund") == [("ok", False)] * len(QUESTIONS)
    assert messages == ["Refund [redacted]"] * len(QUESTIONS)


def test_the_function_in_python_observes_as_well(desk: Run, tmp_path: Path) -> None:
    """`oteval.evaluate` needs no code of the target either."""
    sys.path.insert(0, str(tmp_path))
    try:
        import desk as module  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(tmp_path))

    results = package.evaluate(
        module.text,
        data=[{"inputs": {"question": question}} for question in QUESTIONS],
        evaluators=[package.create_forbidden_tools_evaluator(forbidden=["refund"])],
        store=":memory:",
    )

    assert [row.feedback[0].passed for row in results] == [False] * len(QUESTIONS)
    assert desk("trajectories", "--json").rows == []


def test_a_recorded_command_stores_each_span_once(desk: Run, tmp_path: Path) -> None:
    """`oteval run -- oteval eval`, `instrument` and a provider of the target go together."""
    (tmp_path / "own.py").write_text(
        "import oteval\n"
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "oteval.instrument()\n"
        "trace.set_tracer_provider(TracerProvider())\n"
        "from desk import captures_itself\n"
    )
    oteval = [sys.executable, "-m", "oteval"]
    command = [
        *(*oteval, "run", "--", *oteval, "eval", "--data", "questions.jsonl"),
        *("--target", "own:captures_itself", "--name", "recorded"),
    ]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Overriding" not in done.stderr
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / "oteval.duckdb") as store:
        spans, _ = store.spans.count()
        runs = list(store.trajectories.read())
    # The span of the example, the agent, three model calls and two tools.
    assert spans == 7 * len(QUESTIONS)
    assert [len(run.messages) for run in runs] == [6] * len(QUESTIONS)


def test_requests_after_an_experiment_are_sent_as_before() -> None:
    """The instrumentations of HTTP clients, which add a header to requests, are off again."""
    methods = httpx.HTTPTransport.handle_request, requests.Session.send
    during = []

    def target(inputs: dict[str, Any]) -> str:
        during.append((httpx.HTTPTransport.handle_request, requests.Session.send))
        return f"Hello {inputs}"

    package.evaluate(target, data=[{"inputs": {"question": "Hi"}}], evaluators=[])

    assert during[0] != methods
    assert (httpx.HTTPTransport.handle_request, requests.Session.send) == methods
