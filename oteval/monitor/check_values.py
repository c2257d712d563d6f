"""The values of runs for a measure that a check defines.

As in scoring, outlines decide most runs; the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ..evaluators.measures import CheckMeasure
from ..evaluators.outline import CallArguments, Unread, run_of
from ..evaluators.scorer import Scorer
from ..model import EvaluationResult, Outline
from ..selection import EVERYTHING
from ..store.outlines import Outlines
from ..store.trajectories import Trajectories

__all__ = ["check_values"]

# Runs whose outlines are grouped at a time, to limit memory.
_AT_ONCE = 20_000


def check_values(
    measure: CheckMeasure, runs: pa.Table, outlines: Outlines, trajectories: Trajectories
) -> dict[str, float]:
    """Return the values of runs by their ids; a run that is not evaluated has none.

    Args:
        measure: The measure.
        runs: The ``trajectory_id`` and ``start_ns`` of current runs.
        outlines: Reads their outlines.
        trajectories: Reads runs that their outlines do not decide.
    """
    keys = runs.select(["trajectory_id", "start_ns"]).sort_by("start_ns")
    values_by_run: dict[str, float] = {}
    for first in range(0, len(keys), _AT_ONCE):
        page = keys.slice(first, _AT_ONCE)
        for name, result in _results(measure, page, outlines, trajectories):
            if result.status == "ok":
                values_by_run[name] = measure.value(result)
    return values_by_run


def _results(
    measure: CheckMeasure, keys: pa.Table, outlines: Outlines, trajectories: Trajectories
) -> Iterator[tuple[str, EvaluationResult]]:
    scorer = Scorer(name="", version="", evaluator=measure.check)
    request = measure.check.outline_request(())
    decided: set[str] = set()
    if request is not None:
        for outline in outlines.read(keys, request, EVERYTHING).to_pylist():
            names = [run["trajectory_id"] for run in outline.pop("runs")]
            result = _outlined(scorer, outline)
            if result is not None:
                decided.update(names)
                yield from ((name, result) for name in names)
    left = pa.array([name not in decided for name in keys["trajectory_id"].to_pylist()], pa.bool_())
    for run in trajectories.at(keys.filter(left)):
        yield run.id, scorer.score(run, reference=None, problem="", time_ns=0)


def _outlined(scorer: Scorer, outline: Outline) -> EvaluationResult | None:
    """Return the result of runs with an outline, or None if they must be read."""
    try:
        run = run_of(outline, CallArguments())
    except Unread:
        return None
    return scorer.outlined_result(run, outline, reference=None, problem="")
