"""Graph trajectories: which nodes of a graph ran in each turn, matched, judged, and extracted."""

from __future__ import annotations

from .forms import GraphTrajectory, graph_of
from .judge import (
    create_async_graph_trajectory_llm_as_judge,
    create_graph_trajectory_llm_as_judge,
)
from .langgraph import (
    aextract_langgraph_trajectory_from_thread,
    extract_langgraph_trajectory_from_snapshots,
    extract_langgraph_trajectory_from_thread,
)
from .match import (
    GraphMatch,
    create_async_graph_trajectory_match_evaluator,
    create_graph_trajectory_match_evaluator,
    graph_trajectory_strict_match,
    graph_trajectory_strict_match_async,
)

__all__ = [
    "GraphMatch",
    "GraphTrajectory",
    "aextract_langgraph_trajectory_from_thread",
    "create_async_graph_trajectory_llm_as_judge",
    "create_async_graph_trajectory_match_evaluator",
    "create_graph_trajectory_llm_as_judge",
    "create_graph_trajectory_match_evaluator",
    "extract_langgraph_trajectory_from_snapshots",
    "extract_langgraph_trajectory_from_thread",
    "graph_of",
    "graph_trajectory_strict_match",
    "graph_trajectory_strict_match_async",
]
