"""Graph trajectories, and the forms in which people store them.

A **graph trajectory** is ``{"inputs": [...], "results": [...], "steps": [[node, ...], ...]}``: for
each turn of a thread its input, its result, and the names of its nodes in execution order. Accepted
are such a dict, the result of the LangGraph extraction (that dict under ``outputs``), any object
with ``steps``, and our own `Trajectory`. Each run of its conversation is a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ...base.errors import InputError
from ...messages import field_of
from ...model import Message, Trajectory
from ..evaluator import runs_of

__all__ = ["GraphTrajectory", "Turns", "graph_of", "read_turns", "unwrapped"]

Turns = list[list[str]]
"""The nodes of each turn."""


class GraphTrajectory(TypedDict):
    """A thread in graph form.

    Attributes:
        inputs: The inputs, one entry per turn.
        results: The results, one entry per turn.
        steps: The nodes of each turn, in execution order.
    """

    inputs: list[Any]
    results: list[Any]
    steps: Turns


def graph_of(trajectory: Trajectory) -> GraphTrajectory:
    """The graph form of a conversation reconstructed from traces.

    Args:
        trajectory: Its last run.

    Returns:
        A turn for each run: the user's messages, the model's last message, and the nodes. If the
        trace shows no node of a run, the run's turn has no nodes.
    """
    graph: GraphTrajectory = {"inputs": [], "results": [], "steps": []}
    for run in runs_of(trajectory):
        own = run.own_messages
        graph["inputs"].append(_said([m for m in own if m.role == "user"]))
        graph["results"].append(_said([m for m in own if m.role == "assistant"][-1:]))
        graph["steps"].append([node for step in run.steps for node in step])
    return graph


def _said(messages: Sequence[Message]) -> dict[str, Any]:
    return {"messages": [message.as_dict() for message in messages]} if messages else {}


def unwrapped(value: Any, name: str) -> Any:
    """A graph trajectory in dict form, taken from a value in any form.

    Args:
        value: A graph trajectory in any form.
        name: Its name in error messages.

    Raises:
        InputError: The value contains no graph trajectory.
    """
    if value is None:
        raise InputError(f"{name} is None; pass a graph trajectory: a dict with 'steps'")
    if isinstance(value, Trajectory):
        return graph_of(value)
    if isinstance(value, Mapping) and "steps" not in value and value.get("outputs") is not None:
        return unwrapped(value["outputs"], f"{name}.outputs")
    return value


def read_turns(value: Any, name: str) -> Turns:
    """The nodes of each turn of a graph trajectory.

    Args:
        value: A graph trajectory in any form.
        name: Its name in error messages.

    Returns:
        A list of node names for each turn; it shares no list with the caller's value.

    Raises:
        InputError: The value cannot be read as a graph trajectory, or its trace does not show which
            nodes ran; the text names the place.
    """
    inner = unwrapped(value, name)
    steps = field_of(inner, "steps")
    if steps is None:
        keys = ", ".join(map(repr, inner)) if isinstance(inner, Mapping) else type(inner).__name__
        raise InputError(f"{name} has no steps ({keys or 'empty'}); pass a dict with 'steps'")
    turns = _turns(steps, f"{name}.steps")
    if isinstance(value, Trajectory):
        for turn, run in zip(turns, runs_of(value), strict=True):
            if not turn:
                raise InputError(f"{name}: the trace of run {run.id} shows no nodes")
    return turns


def _turns(steps: Any, name: str) -> Turns:
    if not isinstance(steps, (list, tuple)):
        raise InputError(f"{name} is a {type(steps).__name__}; a list of turns was expected")
    turns: Turns = []
    for i, turn in enumerate(steps):
        if not isinstance(turn, (list, tuple)):
            raise InputError(
                f"{name}[{i}] is a {type(turn).__name__}; a turn is a list of node names"
            )
        for j, node in enumerate(turn):
            if not isinstance(node, str):
                raise InputError(
                    f"{name}[{i}][{j}] is a {type(node).__name__}; a node's name was expected"
                )
        turns.append(list(turn))
    return turns
