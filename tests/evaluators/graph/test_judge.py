"""Judges of graph trajectories, asked through a plain function."""

from __future__ import annotations

from typing import Any

import pytest

from oteval import (
    GRAPH_TRAJECTORY_ACCURACY_PROMPT,
    InputError,
    create_async_graph_trajectory_llm_as_judge,
    create_graph_trajectory_llm_as_judge,
    graph_of,
)
from oteval.evaluators.graph.judge import thread_of
from oteval.model import Message
from oteval.reconstruct import reconstruct

from ...make import run
from ...reconstruct.builders import capture

GRAPH = {"inputs": [], "results": [{"a": "first"}, {}], "steps": [["x", "y"], ["__interrupt__"]]}


class Asked:
    """A judge that keeps what it was told and passes everything."""

    def __init__(self) -> None:
        self.told = ""

    def __call__(self, messages: Any, _schema: Any) -> dict[str, Any]:
        """Keep the messages and answer."""
        self.told = "\n".join(str(message["content"]) for message in messages)
        return {"reasoning": "fine", "score": True}


def test_the_judge_is_shown_the_thread() -> None:
    """Inputs, nodes and results of each turn reach the judge; its verdict is the result."""
    judge = Asked()
    evaluate = create_graph_trajectory_llm_as_judge(judge=judge)

    found = evaluate(inputs=["ask one", "__resuming__"], outputs=GRAPH, reference_outputs=GRAPH)

    assert (found["key"], found["score"]) == ("graph_trajectory_accuracy", True)
    assert set(found) == {"key", "score", "comment", "metadata"}
    assert judge.told.count("ask one") == 1
    for shown in ("__resuming__", "__interrupt__", "first"):
        assert shown in judge.told


async def test_the_asynchronous_judge_does_the_same() -> None:
    """It is awaited and returns the same verdict under the key that was chosen."""
    judge = Asked()
    evaluate = create_async_graph_trajectory_llm_as_judge(judge=judge, feedback_key="path")

    found = await evaluate(inputs={"inputs": ["ask one", "two"]}, outputs=GRAPH)

    assert (found["key"], found["score"]) == ("path", True)
    assert "ask one" in judge.told


def test_a_prompt_of_ones_own_may_show_the_thread_and_the_inputs() -> None:
    """`{thread}`, `{inputs}` and keywords are filled in; without hardening as words."""
    judge = Asked()
    evaluate = create_graph_trajectory_llm_as_judge(
        prompt="{rule}\n{thread}\n{inputs}", judge=judge, harden=False
    )

    evaluate(inputs=["p", "q"], outputs=GRAPH, rule="Be strict.")

    assert judge.told == (
        'Be strict.\nTurn 1\n  input: "p"\n  nodes: x -> y\n  result: {"a":"first"}\n\n'
        'Turn 2\n  input: "q"\n  nodes: __interrupt__\n  result: {}\n["p","q"]'
    )


def test_inputs_that_are_no_list_stand_apart() -> None:
    """One question about a whole thread is shown beside it."""
    judge = Asked()

    create_graph_trajectory_llm_as_judge(judge=judge)(inputs="the whole task", outputs=GRAPH)

    assert "the whole task" in judge.told


def test_a_trajectory_is_judged_by_its_conversation() -> None:
    """What was said, the nodes and the answers come from the traces."""
    made = run(1, Message("user", "q"), Message("assistant", "r"), steps=(("a", "b"),))
    judge = Asked()

    create_graph_trajectory_llm_as_judge(judge=judge)(outputs=made)

    assert thread_of(made, "outputs") == [
        {
            "input": {"messages": [{"role": "user", "content": "q"}]},
            "nodes": ["a", "b"],
            "result": {"messages": [{"role": "assistant", "content": "r"}]},
        }
    ]
    assert '"nodes"' in judge.told


def test_what_an_extraction_returns_has_its_inputs() -> None:
    """Inputs beside the outputs are those of the turns."""
    thread = thread_of({"inputs": ["p", "q"], "outputs": GRAPH}, "outputs")

    assert [turn["input"] for turn in thread] == ["p", "q"]


def test_a_captured_run_reaches_the_judge() -> None:
    """A graph reconstructed from a real trace is shown with its subgraph."""
    runs = [found for found in reconstruct(*capture("langgraph_openinference")) if found.steps]
    third = max(runs, key=lambda found: len(graph_of(found)["steps"][-1]))
    judge = Asked()

    create_graph_trajectory_llm_as_judge(judge=judge)(outputs=third)

    assert "tools:model" in judge.told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": None}, "outputs is None"),
        ({"outputs": {"messages": []}}, "outputs has no steps"),
        ({"outputs": GRAPH, "inputs": ["p"]}, "inputs has 1 entries for 2 turns"),
        (
            {"outputs": {**GRAPH, "results": [1]}},
            "outputs.results has 1 entries for 2 turns",
        ),
        ({"outputs": GRAPH, "reference_outputs": {}}, "reference_outputs has no steps"),
    ],
)
def test_what_cannot_be_shown_is_refused(options: dict[str, Any], message: str) -> None:
    """The text names the side, and nobody is asked."""
    judge = Asked()

    with pytest.raises(InputError, match=message):
        create_graph_trajectory_llm_as_judge(judge=judge)(**options)

    assert judge.told == ""


def test_the_prompt_shows_the_thread() -> None:
    """The bundled prompt has the variables that are filled in."""
    for name in ("{thread}", "{inputs}", "{reference_outputs}"):
        assert name in GRAPH_TRAJECTORY_ACCURACY_PROMPT
