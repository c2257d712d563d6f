"""The stages put together: what the command line and other programs call.

`loading` brings files into a store and reconstructs them, `scoring` scores what a store holds,
`exporting` writes it out. Nothing is decided here; each stage owns its logic.
"""

from __future__ import annotations

from ..evaluate.alignment import Pair, align, first_divergence
from ..evaluate.gates import GateResult, Tally
from .exporting import export_jsonl, export_parquet
from .loading import FileReport, LoadReport, load, refresh
from .scoring import ScoreRun, check_gates, prepare, read_messages, score, variants

__all__ = [
    "FileReport",
    "GateResult",
    "LoadReport",
    "Pair",
    "ScoreRun",
    "Tally",
    "align",
    "check_gates",
    "export_jsonl",
    "export_parquet",
    "first_divergence",
    "load",
    "prepare",
    "read_messages",
    "refresh",
    "score",
    "variants",
]
