"""LangSmith: its `evaluate` takes our evaluators as they are, its marked tests hear of them.

The real client is used; what it sends goes to a server on loopback.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import oteval

from .conftest import Project
from .langsmith_server import LangSmithServer, langsmith_server

pytestmark = pytest.mark.slow

langsmith = pytest.importorskip("langsmith")

WANTED = [{"role": "assistant", "tool_calls": [{"name": "look_up", "args": {}}]}]
GRAPH = {"inputs": [], "results": [], "steps": [["a"]]}


def says_yes(messages: Any, schema: Any) -> dict[str, Any]:
    return {"reasoning": "because", "score": True}


def is_down(messages: Any, schema: Any) -> dict[str, Any]:
    raise RuntimeError("the judge is down")


EVALUATORS: list[tuple[str, Callable[[], Any]]] = [
    ("trajectory_strict_match", lambda: oteval.trajectory_strict_match),
    ("trajectory_unordered_match", lambda: oteval.trajectory_unordered_match),
    ("trajectory_subset", lambda: oteval.trajectory_subset),
    ("trajectory_superset", lambda: oteval.trajectory_superset),
    (
        "trajectory_in_order_match",
        lambda: oteval.create_trajectory_match_evaluator(trajectory_match_mode="in_order"),
    ),
    ("loops", oteval.create_loop_evaluator),
    ("trajectory_accuracy", lambda: oteval.create_trajectory_llm_as_judge(judge=says_yes)),
    (
        "score",
        lambda: oteval.create_llm_as_judge(prompt="{inputs} {outputs}", judge=says_yes),
    ),
]
ASYNC: list[tuple[str, Callable[[], Any]]] = [
    ("trajectory_subset", lambda: oteval.trajectory_subset_async),
    ("trajectory_strict_match", oteval.create_async_trajectory_match_evaluator),
    ("trajectory_accuracy", lambda: oteval.create_async_trajectory_llm_as_judge(judge=says_yes)),
]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmithServer]:
    """Return a running stand-in for LangSmith."""
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    with langsmith_server() as running:
        yield running


@pytest.fixture
def client(server: LangSmithServer) -> Iterator[Any]:
    """Return a client of it."""
    client = langsmith.Client(api_url=server.url, api_key="no-key", auto_batch_tracing=False)
    yield client
    client.close()


def example(reference: Any) -> Any:
    return langsmith.schemas.Example(
        id=uuid.uuid4(),
        dataset_id=uuid.uuid4(),
        created_at=datetime.now(UTC),
        inputs={"question": "q"},
        outputs=reference if isinstance(reference, dict) else {"messages": reference},
    )


def results(rows: Any) -> list[Any]:
    return [result for row in rows for result in row["evaluation_results"]["results"]]


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
@pytest.mark.parametrize(("key", "make"), EVALUATORS, ids=[key for key, _ in EVALUATORS])
def test_langsmith_evaluate_takes_an_evaluator_as_it_is(
    client: Any, key: str, make: Callable[[], Any]
):
    """The evaluator itself is handed over; its key, verdict and comment come out."""
    rows = client.evaluate(
        lambda inputs: {**inputs, "messages": WANTED},
        data=[example(WANTED)],
        evaluators=[make()],
        upload_results=False,
    )

    (result,) = results(rows)

    assert (result.key, result.score) == (key, True)


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
@pytest.mark.parametrize(("key", "make"), ASYNC, ids=[key for key, _ in ASYNC])
def test_langsmith_aevaluate_takes_an_async_evaluator(
    client: Any, key: str, make: Callable[[], Any]
):
    """Coroutine functions are recognised and awaited."""

    async def target(inputs: dict[str, Any]) -> dict[str, Any]:
        return {"messages": WANTED}

    async def run() -> list[Any]:
        rows = await client.aevaluate(
            target, data=[example(WANTED)], evaluators=[make()], upload_results=False
        )
        return results([row async for row in rows])

    (result,) = asyncio.run(run())

    assert (result.key, result.score) == (key, True)


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
def test_graphs_failures_and_errors_come_out(client: Any):
    """A graph matches, a miss has its comment, and a judge that is down has no score."""
    rows = client.evaluate(
        lambda inputs: {**inputs, "messages": [], **GRAPH},
        data=[example({"messages": WANTED, **GRAPH})],
        evaluators=[
            oteval.graph_trajectory_strict_match,
            oteval.trajectory_superset,
            oteval.create_trajectory_llm_as_judge(judge=is_down),
        ],
        upload_results=False,
    )

    by_key = {result.key: result for result in results(rows)}

    assert by_key["graph_trajectory_strict_match"].score is True
    assert by_key["trajectory_superset"].score is False
    assert "look_up" in by_key["trajectory_superset"].comment
    assert by_key["trajectory_accuracy"].score is None
    assert "the judge is down" in by_key["trajectory_accuracy"].comment


def test_results_reach_langsmith(client: Any, server: LangSmithServer):
    """With results uploaded, our feedback arrives at the server."""
    client.evaluate(
        lambda inputs: {**inputs, "messages": WANTED},
        data=[example(WANTED)],
        evaluators=[oteval.trajectory_superset],
        experiment_prefix="p",
        blocking=True,
    )
    client.flush()

    assert [(record["key"], record["score"]) for record in server.feedback] == [
        ("trajectory_superset", True)
    ]


@pytest.fixture
def project(project: Project) -> Project:
    """A project whose pytest has all plugins that are installed."""
    project.blocked = ()
    return project


MARKED = """
import pytest
from langsmith import testing
import oteval

WANTED = [{"role": "assistant", "tool_calls": [{"name": "look_up", "args": {}}]}]

@pytest.mark.langsmith
def test_it():
    testing.log_outputs({"messages": WANTED})
    result = oteval.trajectory_superset(outputs=WANTED, reference_outputs=WANTED)
    assert result["score"]

@pytest.mark.langsmith
async def test_async():
    result = await oteval.trajectory_subset_async(outputs=[], reference_outputs=WANTED)
    assert result["score"]
"""


@pytest.mark.parametrize("switched", [(), ("-p", "no:oteval")], ids=["plugin", "no-plugin"])
def test_a_test_marked_for_langsmith_logs_feedback(
    project: Project, server: LangSmithServer, switched: tuple[str, ...]
):
    """Evaluators log themselves there, with our plugin and without it."""
    project.write(test_it=MARKED)

    printed = project.run(
        *switched,
        env={
            "LANGSMITH_ENDPOINT": server.url,
            "LANGSMITH_API_KEY": "no-key",
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_TEST_SUITE": "suite",
        },
    )

    assert project.status == 0, printed
    logged = {(record["key"], record.get("score")) for record in server.feedback}
    assert {("trajectory_superset", True), ("trajectory_subset", True), ("pass", 1)} <= logged


def test_offline_a_marked_test_runs_as_any_other(project: Project, server: LangSmithServer):
    """With tracking switched off nothing is sent, and evaluators work."""
    project.write(test_it=MARKED)

    printed = project.run(
        env={"LANGSMITH_ENDPOINT": server.url, "LANGSMITH_TEST_TRACKING": "false"}
    )

    assert project.status == 0, printed
    assert server.requests == []


def test_both_marks_can_stand_together(project: Project, server: LangSmithServer):
    """One test logs to both, each evaluator once."""
    project.write(
        test_it=MARKED.replace(
            "@pytest.mark.langsmith", "@pytest.mark.oteval\n@pytest.mark.langsmith"
        )
    )

    printed = project.run(
        "--oteval-output",
        env={
            "LANGSMITH_ENDPOINT": server.url,
            "LANGSMITH_API_KEY": "no-key",
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_TEST_SUITE": "suite",
        },
    )

    assert project.status == 0, printed
    assert "trajectory_superset" in printed
    assert [record["key"] for record in server.feedback].count("trajectory_superset") == 1


def test_without_tracing_a_marked_test_still_passes(project: Project, server: LangSmithServer):
    """Where LangSmith could not take feedback, the evaluator does not fail for it."""
    project.write(test_it=MARKED.replace('testing.log_outputs({"messages": WANTED})', "pass"))

    printed = project.run(
        env={
            "LANGSMITH_ENDPOINT": server.url,
            "LANGSMITH_API_KEY": "no-key",
            "LANGSMITH_TRACING": "false",
            "LANGSMITH_TEST_SUITE": "suite",
        },
    )

    assert project.status == 0, printed
    assert "trajectory_superset" not in {record["key"] for record in server.feedback}


@pytest.mark.filterwarnings("ignore:'upload_results' parameter is in beta")
def test_a_target_may_return_a_list(client: Any):
    """LangSmith hands evaluators such outputs as ``{"output": [...]}``."""
    rows = client.evaluate(
        lambda _: list(WANTED),
        data=[example(WANTED)],
        evaluators=[oteval.trajectory_strict_match, oteval.trajectory_superset],
        upload_results=False,
    )

    assert [result.score for result in results(rows)] == [True, True]
