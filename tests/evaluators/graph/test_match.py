"""Graph trajectories against references."""

from __future__ import annotations

import copy
import inspect
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import (
    ConfigError,
    InputError,
    create_async_graph_trajectory_match_evaluator,
    create_graph_trajectory_match_evaluator,
    graph_of,
    graph_trajectory_strict_match,
    graph_trajectory_strict_match_async,
)
from oteval.evaluators.spec import MODES
from oteval.model import Message
from oteval.reconstruct import reconstruct

from ...make import run
from ...reconstruct.builders import capture

turns = st.lists(st.lists(st.sampled_from("abc"), max_size=5), max_size=3)


def graph(*steps: list[str]) -> dict[str, Any]:
    """Return a graph trajectory."""
    return {"inputs": [], "results": [], "steps": [list(step) for step in steps]}


def result(out: Any, ref: Any, mode: str = "strict", **options: Any) -> dict[str, Any]:
    """Return the result of a match."""
    evaluate = create_graph_trajectory_match_evaluator(trajectory_match_mode=mode, **options)
    return evaluate(outputs=out, reference_outputs=ref)


def passes(out: Any, ref: Any, mode: str) -> Any:
    """Return the score of a match of turns."""
    return result({"steps": out}, {"steps": ref}, mode)["score"]


@pytest.mark.parametrize(
    ("out", "ref", "modes"),
    [
        ([["a", "b"]], [["a", "b"]], {*MODES}),
        ([["b", "a"]], [["a", "b"]], {"unordered", "subset", "superset"}),
        ([["a", "x", "b"]], [["a", "b"]], {"superset", "in_order"}),
        ([["a"]], [["a", "b"]], {"subset"}),
        ([["a", "a"]], [["a"]], {"superset", "in_order"}),
        ([["a"], ["b"]], [["a"]], {"superset", "in_order"}),
        ([["a"]], [["a"], ["b"]], {"subset"}),
        ([["a"], ["b"]], [["b"], ["a"]], set()),
        ([["a", "b"]], [["a"], ["b"]], set()),
        ([], [], {*MODES}),
        ([["a"]], [], {"superset", "in_order"}),
    ],
)
def test_modes(out: list[list[str]], ref: list[list[str]], modes: set[str]) -> None:
    """Each mode passes what its definition says, turn by turn."""
    assert {mode for mode in MODES if passes(out, ref, mode) is True} == modes


@given(turns, turns)
def test_modes_imply_each_other(out: list[list[str]], ref: list[list[str]]) -> None:
    """Strict implies the others, in_order superset; unordered is subset and superset."""
    strict, unordered, subset, superset, in_order = (passes(out, ref, mode) for mode in MODES)

    assert not strict or (unordered and in_order)
    assert unordered == (subset and superset)
    assert not in_order or superset
    assert strict == (out == ref)


@given(turns, turns, st.sampled_from(MODES))
def test_figures_add_up(out: list[list[str]], ref: list[list[str]], mode: str) -> None:
    """Counts, alignment and comment agree with each other and with the verdict."""
    found = result({"steps": out}, {"steps": ref}, mode)

    figures = found["metadata"]
    flat_out, flat_ref = [*chain(*out)], [*chain(*ref)]
    assert figures["matched"] + figures["extra"] == len(flat_out)
    assert figures["matched"] + figures["missing"] == len(flat_ref)
    assert all(flat_out[i] == flat_ref[j] for i, j in figures["alignment"])
    assert (found["comment"] is None) == found["score"] == (figures["turn"] is None)
    assert figures["turns"] == [len(out), len(ref)]


@given(turns, st.sampled_from(MODES))
def test_everything_matches_itself(steps: list[list[str]], mode: str) -> None:
    """A trajectory is its own reference in every mode."""
    assert passes(steps, steps, mode)


@pytest.mark.parametrize(
    ("out", "ref", "mode", "comment"),
    [
        (
            [["a"], ["a", "x"]],
            [["a"], ["a", "b"]],
            "strict",
            "turn 1: node 1: 'x' in the output, 'b' in the reference",
        ),
        (
            [["a"]],
            [["a", "b"]],
            "strict",
            "turn 0: node 1: the output's turn ends where the other side goes on with 'b' "
            "(1 node against the reference's 2)",
        ),
        (
            [["a"]],
            [["a"], ["b"]],
            "strict",
            "turn 1: the output ends where the other side goes on with 'b' "
            "(1 turn against the reference's 2)",
        ),
        (
            [["a", "x"]],
            [["a", "b", "c"]],
            "unordered",
            "turn 0: missing 2 nodes: 'b', 'c'; extra 1 node: 'x'",
        ),
        ([["a", "x"]], [["a", "b"]], "subset", "turn 0: extra 1 node: 'x'"),
        ([["a", "x"]], [["a", "b"]], "superset", "turn 0: missing 1 node: 'b'"),
        (
            [["b", "a"]],
            [["a", "b"]],
            "in_order",
            "turn 0: every node runs, but not in the reference's order: 'a'",
        ),
    ],
)
def test_comments(out: Any, ref: Any, mode: str, comment: str) -> None:
    """A failure names the turn and the nodes that differ."""
    found = result({"steps": out}, {"steps": ref}, mode)["comment"]

    assert found == comment


def test_a_long_comment_is_cut() -> None:
    """However many turns and nodes differ, the comment stays short."""
    out, ref = graph(*[["x" * 1000] * 50] * 50), graph(*[["y"] * 50] * 50)

    for mode in MODES:
        comment = result(out, ref, mode)["comment"]
        assert len(comment) < 2000


def test_the_result_and_the_score_types() -> None:
    """The result has exactly four keys; a figure can be the score."""
    out, ref = graph(["a", "b"]), graph(["a", "c"])

    found = result(out, ref)

    assert set(found) == {"key", "score", "comment", "metadata"}
    assert found["key"] == "graph_trajectory_strict_match"
    assert found["score"] is False
    assert found["metadata"]["precision"] == 0.5
    assert result(out, ref, "superset", score_type="recall")["score"] == 0.5
    assert result(out, ref, "superset")["key"] == "graph_trajectory_superset_match"


async def test_the_fixed_functions_and_the_asynchronous_forms() -> None:
    """All forms give the same result, and frameworks see coroutine functions as such."""
    out, ref = graph(["a"]), graph(["b"])
    made = create_async_graph_trajectory_match_evaluator()

    expected = graph_trajectory_strict_match(outputs=out, reference_outputs=ref, more=1)

    assert await graph_trajectory_strict_match_async(outputs=out, reference_outputs=ref) == expected
    assert await made(outputs=out, reference_outputs=ref, more=1) == expected
    assert inspect.iscoroutinefunction(made)
    assert made.evaluator.describe()["mode"] == "strict"


def test_nothing_is_changed() -> None:
    """The caller's trajectories are as they were, and no list of theirs is in the result."""
    out, ref = graph(["a", "b"], ["c"]), graph(["a"], ["d"])
    before = copy.deepcopy((out, ref))

    for mode in MODES:
        result(out, ref, mode)

    assert (out, ref) == before


@pytest.mark.parametrize(
    ("out", "ref", "message"),
    [
        (graph(), None, "reference_outputs is None"),
        (None, graph(), "outputs is None"),
        ({}, graph(), "outputs has no steps"),
        ({"steps": None}, graph(), "outputs has no steps"),
        ({"messages": []}, graph(), "outputs has no steps .'messages'"),
        (graph(), {"outputs": {"inputs": []}}, "reference_outputs has no steps"),
        ({"steps": "a"}, graph(), "outputs.steps is a str; a list of turns was expected"),
        ({"steps": ["a"]}, graph(), r"outputs.steps\[0\] is a str; a turn is a list"),
        ({"steps": [["a", 1]]}, graph(), r"outputs.steps\[0\]\[1\] is a int; a node's name"),
        (7, graph(), "outputs has no steps .int"),
    ],
)
def test_what_is_no_graph_trajectory_is_refused(out: Any, ref: Any, message: str) -> None:
    """A missing side or missing steps are a ValueError that names the place, never a pass."""
    for mode in MODES:
        with pytest.raises(ValueError, match=message) as caught:
            result(out, ref, mode)
        assert isinstance(caught.value, InputError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trajectory_match_mode": "exact"}, "trajectory_match_mode: unknown value 'exact'"),
        ({"score_type": "f2"}, "score_type: unknown value 'f2'"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_evaluator_is_made(
    options: dict[str, Any], message: str
) -> None:
    """The text says what is known."""
    for make in (
        create_graph_trajectory_match_evaluator,
        create_async_graph_trajectory_match_evaluator,
    ):
        with pytest.raises(ConfigError, match=message):
            make(**options)


def test_a_conversation_has_a_turn_for_each_run() -> None:
    """The graph form of a trajectory holds its history's turns before its own."""
    first = run(1, Message("user", "q"), Message("assistant", "r"), steps=(("a", "b"),))
    second = run(2, Message("user", "s"), Message("assistant", "t"), steps=(("c",),))
    second = replace(second, history=first, new_from=2)

    found = graph_of(second)

    assert found["steps"] == [["a", "b"], ["c"]]
    assert found["inputs"][1] == {"messages": [{"role": "user", "content": "s"}]}
    assert found["results"][1] == {"messages": [{"role": "assistant", "content": "t"}]}
    assert result(second, graph(["a", "b"], ["c"]))["score"] is True


def test_a_run_whose_nodes_are_not_known_is_no_side_of_a_match() -> None:
    """A trace without nodes is refused, since no nodes would pass subset."""
    first, second = run(1), replace(run(2, steps=(("c",),)), history=run(1))

    with pytest.raises(InputError, match=f"the trace of run {first.id} shows no nodes"):
        result(second, graph(["c"]), "subset")


@pytest.mark.parametrize(
    "name", ["langgraph_openinference", "langgraph_langsmith", "langgraph_genai"]
)
def test_captured_runs_match_themselves_and_not_each_other(name: str) -> None:
    """Graphs reconstructed from real traces of LangGraph are compared like any others."""
    runs = [found for found in reconstruct(*capture(name)) if found.steps and not found.parent_id]

    for one in runs:
        assert result(one, graph_of(one))["score"] is True
    assert result(runs[0], runs[-1])["score"] is False
