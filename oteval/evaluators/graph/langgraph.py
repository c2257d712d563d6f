"""Graph trajectories from LangGraph's checkpoints.

LangGraph keeps the state of a **thread** after each step as a **snapshot**; a thread's history is
its snapshots, newest first. A turn ends if a snapshot has nothing left to run, or if a task was
interrupted. Snapshots of subgraphs have a separate namespace; their nodes are named ``node:inner``
after the node they ran in. The result equals that of agentevals 0.0.9.

Snapshots are recognised by their attributes. langgraph is not imported. langchain-core is imported
only if a snapshot contains one of its messages, so it is loaded already.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, TypedDict

from ...base.errors import InputError
from .forms import GraphTrajectory

__all__ = [
    "ExtractedLangGraphThreadTrajectory",
    "aextract_langgraph_trajectory_from_thread",
    "extract_langgraph_trajectory_from_snapshots",
    "extract_langgraph_trajectory_from_thread",
]

INTERRUPT = "__interrupt__"
RESUMING = "__resuming__"


class ExtractedLangGraphThreadTrajectory(TypedDict):
    """The inputs and the graph trajectory of a thread.

    Attributes:
        inputs: The input of each turn: ``{"__start__": input}``, or ``"__resuming__"``.
        outputs: The graph trajectory; its ``inputs`` are empty.
    """

    inputs: list[Any]
    outputs: GraphTrajectory


def extract_langgraph_trajectory_from_snapshots(
    snapshots: Iterable[Any],
) -> ExtractedLangGraphThreadTrajectory:
    """The graph trajectory of a thread from its snapshots.

    Args:
        snapshots: LangGraph's ``StateSnapshot`` objects, newest first, as
            ``graph.get_state_history(config)`` returns them.

    Returns:
        ``inputs`` and ``outputs``. A turn's result is ``{}`` if it was interrupted, the last
        message if the state has ``messages``, and the state otherwise.

    Raises:
        InputError: An item is not a snapshot.
    """
    history = list(snapshots)
    inputs: list[Any] = []
    trajectory: GraphTrajectory = {"inputs": [], "results": [], "steps": []}
    for i, snapshot in enumerate(history):
        _check(snapshot, i)
        interrupted = _is_interrupted(snapshot)
        if interrupted or not snapshot.next:
            trajectory["results"].append({} if interrupted else _result(snapshot.values))
            trajectory["steps"].append([])
        if not trajectory["steps"]:
            continue  # the newest turn still runs
        trajectory["steps"][-1] += _nodes(snapshot)
        if snapshot.metadata is not None and snapshot.metadata.get("source") == "input":
            inputs.extend({task.name: task.result} for task in snapshot.tasks)
        elif i + 1 < len(history) and _is_interrupted(history[i + 1]):
            inputs.append(RESUMING)
    _turn_around(inputs, trajectory)
    if len(inputs) != len(trajectory["results"]):
        warnings.warn(
            f"the thread has {len(inputs)} inputs and {len(trajectory['results'])} results; "
            "the trajectory may be incomplete",
            stacklevel=2,
        )
    return {"inputs": inputs, "outputs": trajectory}


def _check(snapshot: Any, index: int) -> None:
    for name in ("next", "tasks", "values", "metadata", "config"):
        if not hasattr(snapshot, name):
            raise InputError(
                f"snapshots[{index}] is a {type(snapshot).__name__} without {name!r}; "
                "pass the result of graph.get_state_history(config)"
            )


def _is_interrupted(snapshot: Any) -> bool:
    return any(task.interrupts for task in snapshot.tasks)


def _nodes(snapshot: Any) -> list[str]:
    """The nodes of a snapshot's tasks, each after the mark of its interrupt."""
    namespace = (snapshot.config.get("configurable") or {}).get("checkpoint_ns") or ""
    outer, inside, _ = namespace.partition(":")
    prefix = f"{outer}:" if inside else ""
    nodes = []
    for task in snapshot.tasks:
        if task.interrupts:
            nodes.append(INTERRUPT)
        nodes.append(f"{prefix}{task.name}")
    return nodes


def _result(values: Any) -> Any:
    """The result of a turn: its state, with only the last message."""
    messages = values.get("messages") if isinstance(values, dict) else None
    if not isinstance(messages, list) or not messages:
        return values
    last = messages[-1]
    if not (hasattr(last, "type") and hasattr(last, "content")):
        return {"messages": [last]}
    from langchain_core.messages import BaseMessage
    from langchain_core.messages.utils import convert_to_openai_messages

    return {
        "messages": convert_to_openai_messages([last]) if isinstance(last, BaseMessage) else [last]
    }


def _turn_around(inputs: list[Any], trajectory: GraphTrajectory) -> None:
    """Reverse the order, so that the oldest turn comes first."""
    inputs.reverse()
    trajectory["results"].reverse()
    trajectory["steps"].reverse()
    for turn in trajectory["steps"]:
        turn.reverse()


def extract_langgraph_trajectory_from_thread(
    graph: Any, config: Mapping[str, Any]
) -> ExtractedLangGraphThreadTrajectory:
    """The graph trajectory of a thread, its subgraphs' steps included.

    Args:
        graph: A compiled LangGraph graph with a checkpointer.
        config: The thread: ``{"configurable": {"thread_id": ...}}``.

    Returns:
        ``inputs`` and ``outputs``, as `extract_langgraph_trajectory_from_snapshots` returns them.

    Raises:
        InputError: The graph has no state history.
    """
    _check_graph(graph, "get_state_history")
    return extract_langgraph_trajectory_from_snapshots(_history(graph, config))


async def aextract_langgraph_trajectory_from_thread(
    graph: Any, config: Mapping[str, Any]
) -> ExtractedLangGraphThreadTrajectory:
    """Extract the trajectory of a thread with an asynchronous checkpointer.

    Args:
        graph: A compiled LangGraph graph with a checkpointer.
        config: The thread: ``{"configurable": {"thread_id": ...}}``.

    Returns:
        ``inputs`` and ``outputs``, as `extract_langgraph_trajectory_from_snapshots` returns them.

    Raises:
        InputError: The graph has no state history.
    """
    _check_graph(graph, "aget_state_history")
    return extract_langgraph_trajectory_from_snapshots(
        [snapshot async for snapshot in _ahistory(graph, config)]
    )


def _check_graph(graph: Any, method: str) -> None:
    if not hasattr(graph, method):
        raise InputError(
            f"graph is a {type(graph).__name__} without {method}; pass a compiled LangGraph graph"
        )


def _history(graph: Any, config: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a thread's snapshots newest first, snapshots of subgraphs before their parents'."""
    for snapshot in graph.get_state_history(config):
        for inner in _subgraphs(snapshot):
            yield from _history(graph, inner)
        yield snapshot


async def _ahistory(graph: Any, config: Mapping[str, Any]) -> AsyncIterator[Any]:
    async for snapshot in graph.aget_state_history(config):
        for inner in _subgraphs(snapshot):
            async for below in _ahistory(graph, inner):
                yield below
        yield snapshot


def _subgraphs(snapshot: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the configurations of the subgraphs that a snapshot's tasks ran."""
    for task in snapshot.tasks:
        state = task.state
        if isinstance(state, Mapping) and (state.get("configurable") or {}).get("checkpoint_ns"):
            yield state
