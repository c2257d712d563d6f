"""The pipeline: functions that connect the stages, for the command line and other programs.

- `load` reads files into a store; `refresh` reconstructs the trajectories of new spans, and
  `explain` shows how each span of a trace was used.
- `score` and `score_trajectories` run the evaluators of a configuration; `check_gates` compares the
  results with its gates.
- `export_jsonl` and `export_parquet` write a store's contents to files.
- `plan_deletion` and `delete_traces` delete traces; `delete_expired` and `archive_due` apply the
  retention periods of a configuration.

Each stage owns its logic; this package only connects them, and decides which stored
verdicts are used again. The classes and functions of `oteval.evaluators`
and `oteval.reconstruct` in `__all__` are part of the results of these functions, or of the views on
them.
"""

from __future__ import annotations

from ..evaluators.alignment import AlignedPair, align, first_divergence
from ..evaluators.gates import GateResult, Tally, worst_first
from ..reconstruct import Explanation, SpanAccount
from .deletion import DeletionPlan, delete_traces, plan_deletion
from .evaluation import ScoreRun, check_gates, prepare, score, score_trajectories, variants
from .exporter import export_jsonl, export_parquet
from .loader import FileReport, LoadReport, load
from .reconstruction import RefreshResult, TraceLocator, explain, refresh, refresh_traces
from .references import read_messages
from .retention import archive_before, archive_due, delete_expired

__all__ = [
    "AlignedPair",
    "DeletionPlan",
    "Explanation",
    "FileReport",
    "GateResult",
    "LoadReport",
    "RefreshResult",
    "ScoreRun",
    "SpanAccount",
    "Tally",
    "TraceLocator",
    "align",
    "archive_before",
    "archive_due",
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
    "score",
    "score_trajectories",
    "variants",
    "worst_first",
]
