"""The tools about experiments: list_experiments and compare_experiments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from ...base.errors import ConfigError
from ...base.text import counted
from ...evaluators import Interval, pass_rate
from ...scoring import VERDICTS, Comparison, Difference, ResultRow, compare
from ...store import KeyCounts, ListedExperiment
from ..text import clock
from .arguments import McpTool, ToolArguments
from .results import DataBlock, given
from .workspace import Workspace

__all__ = ["EXPERIMENT_TOOLS"]

# The characters of an experiment, of a score that is compared, and of an example.
_EXPERIMENT, _DIFFERENCE, _EXAMPLE = 2000, 1500, 1200
_MOST = 200


class _ListExperiments(ToolArguments):
    count: int = Field(20, ge=1, le=100, description="The most experiments to return.")
    start: int = Field(0, ge=0, le=_MOST - 1, description="How many experiments to skip.")


def _list_experiments(workspace: Workspace, arguments: _ListExperiments) -> str:
    end = arguments.start + arguments.count
    with workspace.store() as store:
        # Reading one more than is shown reveals whether there are more.
        experiments = store.experiment_figures.newest(end + 1)
    block, next_start = DataBlock("experiments"), arguments.start
    for experiment in experiments[arguments.start : end]:
        if not block.add(_experiment_row(experiment), _EXPERIMENT):
            break
        next_start += 1
    if not experiments:
        return "The database has no experiments: oteval eval makes one."
    lines = [f"{counted(next_start - arguments.start, 'experiment')}, the newest first."]
    if next_start < len(experiments):
        more = (
            f"call again with start={next_start}"
            if next_start < _MOST
            else "oteval experiments has all"
        )
        lines.append(f"There are more: {more}.")
    return block.text(*lines)


def _experiment_row(experiment: ListedExperiment) -> dict[str, Any]:
    return given(
        {
            "experiment": experiment.name,
            "kind": experiment.kind if experiment.kind != "experiment" else None,
            "made": clock(experiment.created_ns),
            "description": experiment.description,
            "compared": list(experiment.compared),
            "dataset": experiment.dataset,
            "dataset_version": experiment.dataset_version[:8],
            "runs": experiment.runs,
            "runs_expected": None
            if experiment.expected == experiment.runs
            else experiment.expected,
            "failed_runs": experiment.errors,
            "votes": experiment.votes or None,
            "scores": [_key_row(key) for key in experiment.keys],
        }
    )


def _key_row(counts: KeyCounts) -> dict[str, Any]:
    rate = pass_rate(counts.passed_share, counts.failed_share)
    return given(
        {
            "score": counts.key,
            "pass_rate": None if rate.value is None else round(rate.value, 4),
            "interval_95": _ends(rate.interval),
            "mean": None if counts.mean is None else round(counts.mean, 4),
            "evaluated": counts.evaluated,
            "errors": counts.errors,
            "not_evaluated": counts.not_evaluated,
            "cost_usd": None if counts.cost is None else round(counts.cost, 6),
        }
    )


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(end, 4) for end in interval]


class _CompareExperiments(ToolArguments):
    baseline: str = Field(
        min_length=1, max_length=500, description="The experiment to compare with; or its prefix."
    )
    experiment: str = Field(
        min_length=1, max_length=500, description="The experiment, by name or prefix."
    )
    lower_is_better: list[str] = Field(
        [], max_length=50, description="Scores for which less is better."
    )
    score: str = Field("", max_length=500, description="Only the changed examples of this score.")
    start: int = Field(0, ge=0, description="How many changed examples to skip.")


def _compare_experiments(workspace: Workspace, arguments: _CompareExperiments) -> str:
    with workspace.store() as store:
        comparison = compare(
            arguments.baseline,
            arguments.experiment,
            lower_is_better=arguments.lower_is_better,
            store=store,
        )
    if comparison.a.experiment.id == comparison.b.experiment.id:
        raise ConfigError("baseline and experiment are the same: name two, or longer prefixes")
    differences = comparison.regressed_first
    if arguments.score:
        differences = [
            difference for difference in differences if difference.key == arguments.score
        ]
        if not differences:
            names = ", ".join(difference.key for difference in comparison.differences)
            raise ConfigError(f"score {arguments.score!r}: both experiments have {names}")
    block = DataBlock("comparison")
    if not arguments.start:
        for difference in differences:
            block.add(_difference_row(difference), _DIFFERENCE)
    changes = list(_changes(comparison, differences))
    start = arguments.start
    for row in changes[arguments.start :]:
        if not block.add(row, _EXAMPLE):
            break
        start += 1
    return block.text(*_lines(comparison, differences, len(changes), start))


def _lines(
    comparison: Comparison, differences: list[Difference], changes: int, next_start: int
) -> Iterator[str]:
    """Yield the lines about a comparison that contain no text of an experiment."""
    counts = [
        (sum(difference.verdict == word for difference in differences), word) for word in VERDICTS
    ]
    verdict_counts = ", ".join(f"{count} {word}" for count, word in counts if count)
    yield (
        f"{counted(len(differences), 'score')}: {verdict_counts} "
        f"(false discovery rate {comparison.alpha:g}); "
        f"{counted(changes, 'changed example')}, the worst of each score first."
    )
    if comparison.only_a or comparison.only_b:
        yield (
            f"{counted(len(comparison.only_a), 'score')} of the baseline alone, "
            f"{counted(len(comparison.only_b), 'score')} of the experiment alone."
        )
    if next_start < changes:
        yield f"There are more examples: call again with start={next_start}."


def _difference_row(difference: Difference) -> dict[str, Any]:
    return given(
        {
            "score": difference.key,
            "verdict": difference.verdict,
            "baseline": round(difference.mean_a, 4),
            "now": round(difference.mean_b, 4),
            "delta": round(difference.delta, 4),
            "interval": _ends(difference.interval),
            "confidence": round(difference.confidence, 4),
            "p_adjusted": None
            if difference.p_adjusted is None
            else round(difference.p_adjusted, 6),
            "examples": difference.pairs,
            "worse": len(difference.worse),
            "better": len(difference.better),
            "more_examples_needed": difference.needed or None,
            "lost_runs": [difference.lost_a, difference.lost_b]
            if difference.lost_a or difference.lost_b
            else None,
            "lower_is_better": difference.lower_is_better or None,
        }
    )


def _changes(comparison: Comparison, differences: list[Difference]) -> Iterator[dict[str, Any]]:
    """Yield the examples that changed, with the reason and the run of the experiment."""
    before, now = (
        {row.example.id: row for row in reversed(side.rows)}
        for side in (comparison.a, comparison.b)
    )
    for difference in differences:
        worse = len(difference.worse)
        for at, (example, first, second) in enumerate(difference.changed):
            row = now.get(example)
            yield given(
                {
                    "score": difference.key,
                    "example": row.example.title if row else example,
                    "change": "worse" if at < worse else "better",
                    "baseline": first,
                    "now": second,
                    "reason": _reason(now, example, difference.key)
                    or _reason(before, example, difference.key),
                    "run": row.run.trajectory_id if row else None,
                }
            )


def _reason(rows: Mapping[str, ResultRow], example: str, key: str) -> str:
    row = rows.get(example)
    if row is None:
        return ""
    return (
        next((feedback.comment for feedback in row.feedback if feedback.key == key), "")
        or row.run.error
    )


EXPERIMENT_TOOLS = (
    McpTool(
        "list_experiments",
        "List experiments, the newest first: dataset, runs, failed runs, and the pass rate or mean "
        "of each score.",
        _ListExperiments,
        _list_experiments,
    ),
    McpTool(
        "compare_experiments",
        "Compare an experiment with a baseline, example by example: which scores regressed or "
        "improved by statistics, and the examples that changed, with the reason and the run.",
        _CompareExperiments,
        _compare_experiments,
    ),
)
