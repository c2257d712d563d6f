"""Graph trajectories out of real LangGraph threads."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from typing import Any

import pytest

from oteval import (
    InputError,
    aextract_langgraph_trajectory_from_thread,
    create_graph_trajectory_match_evaluator,
    extract_langgraph_trajectory_from_snapshots,
    extract_langgraph_trajectory_from_thread,
)

from ...make import ROOT

threads = pytest.importorskip("tests.evaluators.graph.threads", reason="needs langgraph")

START = {"__start__": {"log": ["one"]}}
SECOND = {"__start__": {"log": ["two"]}}
NODES = ["__start__", "a", "b"]
STOPPED = ["__start__", "a", "ask", "__interrupt__"]

# What agentevals 0.0.9 extracts with langgraph 1.2.22: inputs, and the nodes of each turn.
EXPECTED: dict[str, tuple[list[Any], list[list[str]]]] = {
    "turns": ([START, SECOND], [NODES, NODES]),
    "interrupted": ([START], [STOPPED]),
    "resumed": (
        [START, "__resuming__", SECOND, "__resuming__"],
        [STOPPED, ["b"], STOPPED, ["b"]],
    ),
    "subgraph": (
        [START, {"__start__": {"log": ["one", "a"]}}],
        [["__start__", "a", "inner", "inner:__start__", "inner:x", "inner:y"], ["b"]],
    ),
    "command": ([START], [["__start__", "a", "c"]]),
    "sent": ([START], [["__start__", "split", "work", "work", "work", "join"]]),
    "failed": ([START], [NODES]),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_thread_is_what_agentevals_makes_of_it(name: str) -> None:
    """Inputs and nodes of each kind of thread are the ones that agentevals extracts."""
    graph = threads.THREADS[name]()

    found = extract_langgraph_trajectory_from_thread(graph, threads.CONFIG)

    inputs, steps = EXPECTED[name]
    assert found["inputs"] == inputs
    assert found["outputs"]["steps"] == steps
    assert len(found["outputs"]["results"]) == len(steps)


@pytest.mark.parametrize("name", threads.THREADS)
def test_every_thread_equals_agentevals(name: str) -> None:
    """Where agentevals is installed, everything it extracts is what oteval does."""
    theirs = pytest.importorskip("agentevals.graph_trajectory.utils")
    graph = threads.THREADS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        found = extract_langgraph_trajectory_from_thread(graph, threads.CONFIG)

        assert found == theirs.extract_langgraph_trajectory_from_thread(graph, threads.CONFIG)


@pytest.mark.parametrize("name", ["chat", "resumed", "subgraph", "sent"])
async def test_the_asynchronous_extraction_gives_the_same(name: str) -> None:
    """Threads read through `aget_state_history` give what those read through the other do."""
    graph = threads.THREADS[name]()

    found = await aextract_langgraph_trajectory_from_thread(graph, threads.CONFIG)

    assert found == extract_langgraph_trajectory_from_thread(graph, threads.CONFIG)


def test_results_are_the_last_message_or_the_state() -> None:
    """Of a chat only the last message is a turn's result; an interrupted turn has none."""
    chat = extract_langgraph_trajectory_from_thread(threads.chat(), threads.CONFIG)
    resumed = extract_langgraph_trajectory_from_thread(threads.resumed(), threads.CONFIG)

    assert chat["outputs"]["results"] == [
        {"messages": [{"role": "assistant", "content": "answer 1"}]},
        {"messages": [{"role": "assistant", "content": "answer 3"}]},
    ]
    assert resumed["outputs"]["results"][:2] == [{}, {"log": ["one", "a", "yes", "b"]}]


def test_a_thread_that_is_not_whole_is_warned_of() -> None:
    """Inputs that are not as many as results are said to be so."""
    graph = threads.subgraph_interrupted()

    with pytest.warns(UserWarning, match="5 inputs and 6 results"):
        extract_langgraph_trajectory_from_thread(graph, threads.CONFIG)


def test_the_turn_that_still_runs_is_left_out() -> None:
    """Snapshots newer than the last end are no turn yet, and no snapshots are no turns."""
    history = list(threads.turns().get_state_history(threads.CONFIG))

    found = extract_langgraph_trajectory_from_snapshots(history[1:])

    assert found["outputs"]["steps"] == [NODES]
    assert extract_langgraph_trajectory_from_snapshots([])["outputs"]["steps"] == []


def test_snapshots_are_only_read() -> None:
    """What LangGraph gave is as it was."""
    history = list(threads.chat().get_state_history(threads.CONFIG))
    before = copy.deepcopy(history)

    extract_langgraph_trajectory_from_snapshots(history)

    assert history == before


def test_what_was_extracted_can_be_matched() -> None:
    """The whole of what the extraction returns is a side of a match."""
    evaluate = create_graph_trajectory_match_evaluator()
    found = extract_langgraph_trajectory_from_thread(threads.turns(), threads.CONFIG)

    assert evaluate(outputs=found, reference_outputs={"steps": [NODES, NODES]})["score"] is True


def test_what_is_no_graph_or_snapshot_is_refused() -> None:
    """The error names what was given."""
    with pytest.raises(InputError, match="graph is a dict without get_state_history"):
        extract_langgraph_trajectory_from_thread({}, threads.CONFIG)
    with pytest.raises(InputError, match=r"snapshots\[0\] is a int without 'next'"):
        extract_langgraph_trajectory_from_snapshots([1])


def test_importing_loads_no_langchain() -> None:
    """Neither the extraction nor the judge of graphs loads LangChain, LangGraph or openai."""
    code = (
        "import sys, oteval; oteval.extract_langgraph_trajectory_from_thread;"
        "oteval.create_graph_trajectory_llm_as_judge;"
        "print(*{'langchain_core', 'langgraph', 'openai'} & set(sys.modules))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == ""
