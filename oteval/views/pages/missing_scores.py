"""Why a run has no score by a configured evaluator: its filter, the sample, or the time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...base.text import listed
from ...evaluators import is_drawn
from ...model import Selection, Trajectory, column_values, items_of
from ...scoring import Config, EvaluatorSettings
from ..text import clean, clock, one_line, shorten

__all__ = ["MissingScore", "missing_scores", "unmet_filter"]


@dataclass(frozen=True, slots=True)
class MissingScore:
    """A configured evaluator that gave a run no score.

    Attributes:
        evaluator: Its name.
        reason: Why, in one sentence.
    """

    evaluator: str
    reason: str


def missing_scores(
    config: Config, run: Trajectory, scored: Collection[str]
) -> tuple[MissingScore, ...]:
    """The configured evaluators without a score on a run, with the reasons.

    Args:
        config: The configuration.
        run: The run.
        scored: The names of the evaluators that gave it a score.
    """
    return tuple(
        MissingScore(clean(settings.name), _reason(config, settings, run))
        for settings in config.evaluators
        if settings.name not in scored
    )


def _reason(config: Config, settings: EvaluatorSettings, run: Trajectory) -> str:
    unmet = unmet_filter(settings.where.selection(), run)
    if unmet:
        return unmet
    if not is_drawn(config.salt, settings.name, run.root_span.trace_id, settings.sample):
        return f"The trace is not in the sample: {settings.sample:.3g} of the traces are scored."
    since = f" since the run changed (revision {run.rev})" if run.rev > 1 else " yet"
    return f"Not scored{since}: oteval score, or the server once the trace has ended."


def unmet_filter(where: Selection, run: Trajectory) -> str:
    """The first part of a filter that a run does not match, as a sentence; "" if it does."""
    if where.matches(run):
        return ""
    return next(iter(_unmet(where, run)), "Its filter (where) leaves this run out.")


def _unmet(where: Selection, run: Trajectory) -> Iterator[str]:
    columns = column_values(run)
    for name, accepted in where.texts():
        actual = items_of(name, columns)
        if set(accepted).isdisjoint(actual):
            run_values = listed([_shown(value) for value in actual if value]) or "unknown"
            accepted_values = listed([*map(_shown, accepted)])
            yield f"It scores {name} {accepted_values}; this run's is {run_values}."
    if where.since_ns is not None and run.start_ns < where.since_ns:
        yield f"It scores runs from {clock(where.since_ns)} on."
    for key, values in where.attributes.items():
        if run.attributes.get(key) is None:
            yield f"It needs the attribute {_shown(key)}, which the run does not have."
        elif not Selection(attributes={key: values}).matches(run):
            run_value, allowed = _shown(str(run.attributes[key])), listed([*map(_shown, values)])
            yield f"It needs {_shown(key)} to be {allowed}; here it is {run_value}."
    for condition in where.conditions:
        if not condition.holds(run):
            text = f"{condition.name}{condition.operator}{condition.value}"
            yield f"The condition {_shown(text)} does not hold."
    if where.asked and not any(condition.holds(run) for condition in where.asked):
        yield "The question is not one of those it scores, or was not captured."
    if where.excluded is not None and where.excluded.matches(run):
        yield "Its filter (where.not) leaves this run out."


def _shown(text: str) -> str:
    return shorten(one_line(text), 80)
