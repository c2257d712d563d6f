"""The values of runs for a measure that a check defines: a feed of `oteval.scoring.decide`."""

from __future__ import annotations

import pyarrow as pa

from ..evaluators import CheckMeasure, Scorer
from ..model import EvaluationResult
from ..scoring import Decider, PreparedEvaluator, References, StoredPage
from ..store import Outlines, ReadPages, Trajectories

__all__ = ["check_values"]

# Runs whose outlines are grouped at a time, to limit memory.
_AT_ONCE = 20_000


def check_values(
    measure: CheckMeasure, runs: pa.Table, outlines: Outlines, trajectories: Trajectories
) -> dict[str, float]:
    """The values of runs by their ids; a run that is not evaluated has none.

    Args:
        measure: The measure.
        runs: The ``trajectory_id`` and ``start_ns`` of current runs.
        outlines: Reads their outlines.
        trajectories: Reads runs that their outlines do not decide.
    """
    scorer = Scorer(name="", version="", evaluator=measure.check)
    prepared, reading = PreparedEvaluator(scorer, References()), ReadPages()
    decider = Decider(prepared, salt="")
    keys = runs.select(["trajectory_id", "start_ns"]).sort_by("start_ns")
    results: dict[str, EvaluationResult] = {}
    for first in range(0, len(keys), _AT_ONCE):
        page = keys.slice(first, _AT_ONCE)
        decided = decider.decide(StoredPage(outlines, page, reading), time_ns=0)
        names, codes = decided.rows["trajectory_id"].to_pylist(), decided.codes.to_pylist()
        for name, code in zip(names, codes, strict=True):
            results[name] = decided.results[code]
        undecided = pa.array(sorted(decided.undecided), pa.int64())
        for run in trajectories.at(page.take(undecided)):
            results[run.id] = prepared.score(run, time_ns=0)
    return {
        name: measure.value(result) for name, result in results.items() if result.status == "ok"
    }
