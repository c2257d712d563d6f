"""Samples of repeated sessions: does an outcome come from a change, or by chance?

A model varies, so one repetition shows little. With several **samples** of a session, the share of
passes has an exact interval. Without a change, the samples show whether the recorded outcome
repeats. With a change, each session has as many samples without it, and
Fisher's exact test compares the two shares. The p-values of all sessions and evaluators are
adjusted together (Benjamini-Hochberg).

Runs that were not evaluated have no outcome and do not count. If any run failed, ``completed`` is
an outcome as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ..evaluators import Interval, benjamini_hochberg, clopper_pearson, fisher_exact
from ..scoring import ExperimentResults

__all__ = ["SampleCount", "SampledOutcome", "sampled_outcomes"]

_ALPHA = 0.05
_COMPLETED = "completed"
SampleVerdict = Literal["repeats", "varies", "differs", "cause", "chance", "unknown"]


class SampleCount(NamedTuple):
    """How many samples passed.

    Attributes:
        passed: The samples that passed.
        total: The samples that passed or failed.
    """

    passed: int
    total: int

    @property
    def interval(self) -> Interval:
        """The 95% interval of the share."""
        return clopper_pearson(self.passed, self.total)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"passed": self.passed, "total": self.total, "interval": list(self.interval)}


@dataclass(frozen=True)
class SampledOutcome:
    """The outcomes of one session by one evaluator.

    Attributes:
        session: The id of the session.
        question: The first message of the user.
        key: The figure.
        recorded: Whether the recorded run passed; None if it has no verdict.
        samples: The samples of the repetition.
        unedited: The samples without the change; None without a change.
        p_value: The p-value that the shares with and without the change are equal, or None.
        p_adjusted: The p-value, adjusted for all sessions and figures.
    """

    session: str
    question: str
    key: str
    recorded: bool | None
    samples: SampleCount
    unedited: SampleCount | None = None
    p_value: float | None = None
    p_adjusted: float | None = None

    @property
    def verdict(self) -> SampleVerdict:
        """The conclusion from the samples.

        ``cause``: the change makes the difference. ``chance``: with and without the change, the
        samples do not differ by more than chance. Without a change: ``repeats``, ``varies`` or
        ``differs`` if all, some or none of the samples have the recorded outcome.
        """
        if self.unedited is not None:
            if self.p_adjusted is None:
                return "unknown"
            return "cause" if self.p_adjusted <= _ALPHA else "chance"
        if self.recorded is None or not self.samples.total:
            return "unknown"
        passed, total = self.samples
        same = passed if self.recorded else total - passed
        return "repeats" if same == total else "varies" if same else "differs"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "row": "samples",
            "session": self.session,
            "question": self.question,
            "key": self.key,
            "recorded": self.recorded,
            "samples": self.samples.as_dict(),
            "unchanged": self.unedited.as_dict() if self.unedited else None,
            "p_value": self.p_value,
            "p_adjusted": self.p_adjusted,
            "verdict": self.verdict,
        }


def sampled_outcomes(
    recorded: ExperimentResults, new: ExperimentResults, unedited: ExperimentResults | None
) -> list[SampledOutcome]:
    """The outcomes of all sessions, by evaluator; those that the change causes come first.

    Args:
        recorded: The experiment of the recorded runs.
        new: The experiment of the samples.
        unedited: The experiment of the samples without the change; None without a change.
    """
    experiments = [results for results in (recorded, new, unedited) if results is not None]
    counts_failed = any(results.errors for results in experiments)
    before, without = _counts(recorded), _counts(unedited)
    questions = {row.example.id: row.example.question for row in new}
    outcomes = []
    for (session, key), samples in _counts(new).items():
        verdicts = before.get((session, key), SampleCount(0, 0))
        outcome = SampledOutcome(
            session,
            questions[session],
            key,
            bool(verdicts.passed) if verdicts.total else None,
            samples,
        )
        if unedited is not None:
            other = without.get((session, key), SampleCount(0, 0))
            p_value = fisher_exact(*samples, *other) if samples.total and other.total else None
            outcome = replace(outcome, unedited=other, p_value=p_value)
        if key != _COMPLETED or counts_failed:
            outcomes.append(outcome)
    adjusted = iter(benjamini_hochberg([o.p_value for o in outcomes if o.p_value is not None]))
    outcomes = [
        outcome if outcome.p_value is None else replace(outcome, p_adjusted=next(adjusted))
        for outcome in outcomes
    ]
    return sorted(outcomes, key=lambda outcome: outcome.verdict != "cause")


def _counts(results: ExperimentResults | None) -> Mapping[tuple[str, str], SampleCount]:
    """How many runs of each example passed, by figure; figures without verdicts are left out."""
    counts: dict[tuple[str, str], SampleCount] = {}
    for name, key, passed in _verdicts(results) if results is not None else ():
        before = counts.get((name, key), SampleCount(0, 0))
        counts[name, key] = SampleCount(before.passed + passed, before.total + 1)
    return counts


def _verdicts(results: ExperimentResults) -> Iterator[tuple[str, str, bool]]:
    for key, members in results.feedback().items():
        for row, feedback in members:
            if feedback.status == "ok" and feedback.passed is not None:
                yield row.example.id, key, feedback.passed
    for row in results:
        yield row.example.id, _COMPLETED, not row.run.error
