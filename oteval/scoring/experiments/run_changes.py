"""The runs that broke between two experiments, and the runs that got better, one by one.

Statistics (`comparison`) say whether a figure differs over all runs. They need several runs, but a
broken run is a fact, however few runs there are. A run **broke** if

- it failed, and the run before did not (unless something else failed, such as the model's server),
- a verdict turned from pass to fail, or
- a score got worse by the figure's margin or more (the smallest difference that matters).

A run got **better** in the opposite cases, if it did not break as well. With repetitions, the share
of passes or the mean score of an example's runs counts. A figure without a verdict on a side is
**unevaluated**: it is listed with its reason and counts neither as better nor as the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

from ...evaluators import AlignedPair, first_difference, mean
from ...model import Feedback
from .paired_examples import RunGroup
from .results import ExperimentResults, ResultRow

__all__ = ["COMPLETED", "FigureChange", "RunChange", "RunChanges", "Unevaluated", "run_changes"]

COMPLETED = "completed"
"""The figure that compares how many runs did not fail."""

_ROUNDING = 1e-9


class _FigureRule(Protocol):
    """The parts of a figure's difference that decide about single runs."""

    @property
    def key(self) -> str: ...
    @property
    def margin(self) -> float: ...
    @property
    def lower_is_better(self) -> bool: ...


@dataclass(frozen=True)
class FigureChange:
    """A figure that changed on the runs of an example.

    Attributes:
        key: The figure.
        before: Its mean over the runs of the first experiment.
        now: Its mean over the runs of the second.
        change: By how much it got better; negative if it got worse.
        reason: Why it is worse now, or was worse before; "" if the evaluator gives no reason.
    """

    key: str
    before: float
    now: float
    change: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"key": self.key, "before": self.before, "now": self.now, "reason": self.reason}


@dataclass(frozen=True)
class RunChange:
    """An example whose runs broke or got better.

    Attributes:
        kind: ``broke`` or ``better``.
        id: The id of the example; for a repeated session, of the session.
        question: Its question.
        figures: The figures that say so, the greatest change first.
        before: The run of the first experiment.
        now: The run of the second; with repetitions, the one that changed most.
        runs: The number of runs of the second.
        changed_runs: How many of these have a figure that changed in the same direction.
    """

    kind: Literal["broke", "better"]
    id: str
    question: str
    figures: tuple[FigureChange, ...]
    before: ResultRow
    now: ResultRow
    runs: int = 1
    changed_runs: int = 1

    @cached_property
    def divergence(self) -> AlignedPair | None:
        """The first messages of both runs that differ, in their calls if any calls do."""
        first, second = self.before.run.trajectory, self.now.run.trajectory
        if first is None or second is None:
            return None
        return first_difference(first.messages, second.messages)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        pair = self.divergence
        return {
            "row": self.kind,
            "id": self.id,
            "question": self.question,
            "figures": [figure.as_dict() for figure in self.figures],
            "runs": self.runs,
            "changed_runs": self.changed_runs,
            "run_before": self.before.run.trajectory_id or self.before.run.id,
            "run_now": self.now.run.trajectory_id or self.now.run.id,
            "first_difference": None
            if pair is None
            else {
                "at_before": pair.left_at,
                "at_now": pair.right_at,
                "before": pair.left.as_dict() if pair.left else None,
                "now": pair.right.as_dict() if pair.right else None,
            },
        }


@dataclass(frozen=True)
class Unevaluated:
    """Examples on which a figure cannot be compared, for one reason.

    Attributes:
        key: The figure; "" if a whole run is missing or failed.
        experiment: The name of the experiment without a verdict.
        reason: Why.
        ids: The ids of the examples.
        questions: Their questions.
    """

    key: str
    experiment: str
    reason: str
    ids: tuple[str, ...]
    questions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "row": "not_evaluated",
            "key": self.key or None,
            "experiment": self.experiment,
            "reason": self.reason,
            "ids": list(self.ids),
            "questions": list(self.questions),
        }


@dataclass(frozen=True)
class RunChanges:
    """How the runs of two experiments changed, one by one.

    Attributes:
        broke: The examples that broke, the greatest change first.
        better: The examples that got better, the greatest change first.
        unevaluated: The figures and runs that could not be compared.
        same: How many examples have a verdict on both sides that did not change.
    """

    broke: tuple[RunChange, ...]
    better: tuple[RunChange, ...]
    unevaluated: tuple[Unevaluated, ...]
    same: int

    def as_dicts(self) -> list[dict[str, Any]]:
        """The JSON forms, in the order in which they are shown, and their counts."""
        rows = [row.as_dict() for row in (*self.broke, *self.better)]
        rows += [row.as_dict() for row in self.unevaluated]
        counts = {"broke": len(self.broke), "better": len(self.better), "same": self.same}
        incomparable = len({name for row in self.unevaluated for name in row.ids})
        return [*rows, {"row": "counts", **counts, "not_evaluated": incomparable}]


def run_changes(
    sides: tuple[ExperimentResults, ExperimentResults],
    groups: Sequence[RunGroup],
    rules: Sequence[_FigureRule],
) -> RunChanges:
    """How the runs of two experiments changed.

    Args:
        sides: The experiments.
        groups: Their runs, by example.
        rules: The figures that both have.
    """
    verdicts = _Verdicts(sides[0]), _Verdicts(sides[1])
    rule_by_key = {rule.key: rule for rule in rules}
    changes: list[RunChange] = []
    same = 0
    for group in groups:
        figures, is_compared = _figures(group, verdicts, rules)
        if figures:
            changes.append(_run_change(group, figures, verdicts, rule_by_key))
        else:
            same += is_compared
    changes.sort(key=_greatest_first)
    return RunChanges(
        broke=tuple(change for change in changes if change.kind == "broke"),
        better=tuple(change for change in changes if change.kind == "better"),
        unevaluated=tuple(_unevaluated(groups, verdicts, (sides[0].name, sides[1].name))),
        same=same,
    )


def _greatest_first(change: RunChange) -> float:
    return -max(abs(figure.change) for figure in change.figures)


class _Verdicts:
    """The feedback of an experiment, by figure and run.

    Attributes:
        keys: The figures.
    """

    def __init__(self, results: ExperimentResults) -> None:
        self._by_key: dict[str, dict[str, Feedback]] = {
            key: {row.run.id: feedback for row, feedback in members}
            for key, members in results.feedback().items()
        }
        self.keys = tuple(self._by_key)

    def of(self, key: str, row: ResultRow) -> Feedback | None:
        """The feedback on a run."""
        return self._by_key.get(key, {}).get(row.run.id)

    def numbers(self, key: str, rows: Sequence[ResultRow]) -> list[Feedback]:
        """The feedback on some runs that has a number."""
        entries = (self.of(key, row) for row in rows)
        return [entry for entry in entries if entry is not None and _has_number(entry)]


def _has_number(feedback: Feedback) -> bool:
    return feedback.status == "ok" and feedback.score is not None


def _figures(
    group: RunGroup, verdicts: tuple[_Verdicts, _Verdicts], rules: Sequence[_FigureRule]
) -> tuple[list[FigureChange], bool]:
    """The figures of an example that changed, and whether any figure was compared.

    If any figure got worse, these are the figures that did.
    """
    if not group.before or not group.now:
        return [], False
    changes, is_compared = [_completed(group)], False
    for rule in rules:
        before = verdicts[0].numbers(rule.key, group.before)
        now = verdicts[1].numbers(rule.key, group.now)
        if before and now:
            is_compared = True
            changes.append(_figure_change(rule, before, now))
    figures = sorted(filter(None, changes), key=lambda figure: figure.change)
    if figures and figures[0].change > 0:
        return figures[::-1], is_compared
    return [figure for figure in figures if figure.change < 0], is_compared


def _completed(group: RunGroup) -> FigureChange | None:
    made = [[row for row in rows if row.run.was_made] for rows in (group.before, group.now)]
    if not all(made):
        return None
    before, now = (mean([float(not row.run.error) for row in rows]) for rows in made)
    if before == now:
        return None
    error = next((row.run.error for row in made[1] if row.run.error), "")
    return FigureChange(COMPLETED, before, now, now - before, error)


def _figure_change(
    rule: _FigureRule, before: Sequence[Feedback], now: Sequence[Feedback]
) -> FigureChange | None:
    means = [mean([entry.score or 0.0 for entry in side]) for side in (before, now)]
    difference = (means[1] - means[0]) * (-1 if rule.lower_is_better else 1)
    shares = [_pass_share(side) for side in (before, now)]
    if None not in shares and shares[0] != shares[1]:
        change = (shares[1] or 0.0) - (shares[0] or 0.0)
    elif difference and abs(difference) >= rule.margin - _ROUNDING:
        change = difference
    else:
        return None
    worst = min(now if change < 0 else before, key=lambda entry: _goodness(rule, entry))
    return FigureChange(rule.key, means[0], means[1], change, worst.comment)


def _pass_share(entries: Sequence[Feedback]) -> float | None:
    verdicts = [float(entry.passed) for entry in entries if entry.passed is not None]
    return mean(verdicts) if len(verdicts) == len(entries) else None


def _goodness(rule: _FigureRule, entry: Feedback) -> tuple[bool, float]:
    score = entry.score or 0.0
    return bool(entry.passed), -score if rule.lower_is_better else score


def _run_change(
    group: RunGroup,
    figures: Sequence[FigureChange],
    verdicts: tuple[_Verdicts, _Verdicts],
    rules: Mapping[str, _FigureRule],
) -> RunChange:
    is_worse = figures[0].change < 0
    rule = rules.get(figures[0].key)

    def goodness(row: ResultRow) -> tuple[bool, bool, float]:
        entry = verdicts[1].of(figures[0].key, row)
        if rule is None or entry is None or not _has_number(entry):
            return not row.run.error, not is_worse, 0.0
        return not row.run.error, *_goodness(rule, entry)

    ordered = sorted(group.now, key=goodness, reverse=not is_worse)
    extreme = goodness(ordered[0])
    return RunChange(
        kind="broke" if is_worse else "better",
        id=group.id,
        question=group.now[0].example.question,
        figures=tuple(figures),
        before=group.before[0],
        now=ordered[0],
        runs=len(ordered),
        changed_runs=sum(goodness(row) == extreme for row in ordered),
    )


def _unevaluated(
    groups: Sequence[RunGroup],
    verdicts: tuple[_Verdicts, _Verdicts],
    names: tuple[str, str],
) -> Iterator[Unevaluated]:
    """Yield the figures and runs that cannot be compared, one row for each reason."""
    reasons: dict[tuple[str, str, str], dict[str, str]] = {}
    for group in groups:
        question = (group.now or group.before)[0].example.question
        for key, side, reason in dict.fromkeys(_reasons(group, verdicts)):
            reasons.setdefault((key, names[side], reason), {})[group.id] = question
    for (key, name, reason), questions in reasons.items():
        yield Unevaluated(key, name, reason, tuple(questions), tuple(questions.values()))


def _reasons(
    group: RunGroup, verdicts: tuple[_Verdicts, _Verdicts]
) -> Iterator[tuple[str, int, str]]:
    """Yield the figures of an example without a verdict, the side that lacks it, and the reason."""
    for side, rows in enumerate((group.before, group.now)):
        if not rows:
            yield "", side, "no run of this example"
    if not group.before or not group.now:
        return
    for side, rows in enumerate((group.before, group.now)):
        for row in rows:
            if not row.run.was_made:
                yield "", side, row.run.error
    made = [row.run for row in (*group.before, *group.now) if row.run.was_made]
    if made and group.now[0].run.was_made and all(run.error for run in made):
        yield "", 1, f"the run failed before and now: {group.now[0].run.error}"
    for side, rows in ((1, group.now), (0, group.before)):
        for key in verdicts[side].keys:
            for row in rows:
                entry = verdicts[side].of(key, row)
                if not row.run.error and (entry is None or entry.status != "ok"):
                    other = verdicts[1].numbers(key, group.now)
                    if side == 1 or other:
                        yield key, side, "no result" if entry is None else _reason(entry, row)


def _reason(entry: Feedback, row: ResultRow) -> str:
    """The reason without the run's own ids, so that runs with one reason share a row."""
    reason = entry.comment
    for name in filter(None, (row.run.id, row.run.trajectory_id)):
        reason = reason.replace(f" {name}", "")
    return reason
