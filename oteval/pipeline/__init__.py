"""The stages put together: what the command line and other programs call.

`loader` brings files into a store, `reconstructing` makes trajectories of them, `scoring` scores
them, `exporter` writes them out. Nothing is decided here; each stage owns its logic.
"""

from __future__ import annotations

from ..evaluators.alignment import Pair, align, first_divergence
from ..evaluators.gates import GateResult, Tally, worst_first
from ..reconstruct import Explanation, SpanAccount
from .deletion import DeletionPlan, delete_traces, plan_deletion
from .exporter import export_jsonl, export_parquet
from .loader import FileReport, LoadReport, load
from .reconstructing import Places, Refreshed, explain, refresh, refresh_traces
from .references import read_messages
from .retention import archive_before, delete_expired, retention_tick
from .scoring import ScoreRun, check_gates, prepare, score, score_trajectories, variants

__all__ = [
    "DeletionPlan",
    "Explanation",
    "FileReport",
    "GateResult",
    "LoadReport",
    "Pair",
    "Places",
    "Refreshed",
    "ScoreRun",
    "SpanAccount",
    "Tally",
    "align",
    "archive_before",
    "check_gates",
    "delete_expired",
    "delete_traces",
    "explain",
    "export_jsonl",
    "export_parquet",
    "first_divergence",
    "load",
    "plan_deletion",
    "prepare",
    "read_messages",
    "refresh",
    "refresh_traces",
    "retention_tick",
    "score",
    "score_trajectories",
    "variants",
    "worst_first",
]
