"""Measure the agreement between a judge and people, and estimate the pass rate people would find.

A **label** is a person's verdict on a run. If several people labelled a run, their majority counts,
and a tie is left out. **Agreement** is the share of labelled runs on which judge and people have
the same verdict; **kappa** is the agreement in excess of chance, given their base rates. The
**corrected pass rate** estimates the pass rate of people over all runs: the judge's rate, corrected
by the labelled runs (PPI++). A judge's **self-consistency** is the share of its repeated votes that
agree with its majority; its **flip rate** is the share of runs with both verdicts.

Runs without a verdict of the judge, because it failed or did not evaluate them, are counted and
left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...evaluators import FEWEST, Corrected, Interval, Kappa, clopper_pearson, cohen_kappa, ppi_mean
from ...model import Label, Score

__all__ = [
    "Calibration",
    "Consistency",
    "Disagreement",
    "GrowthPoint",
    "agreement_growth",
    "calibrate",
    "consistency",
    "majority_labels",
]


@dataclass(frozen=True)
class Disagreement:
    """A run on which people and the judge disagree.

    Attributes:
        trajectory_id: The run.
        people: Whether people pass it.
        judge: Whether the judge passes it.
        comment: The judge's reason.
        note: The people's notes.
    """

    trajectory_id: str
    people: bool
    judge: bool
    comment: str
    note: str

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "trajectory_id": self.trajectory_id,
            "people": self.people,
            "judge": self.judge,
            "comment": self.comment or None,
            "note": self.note or None,
        }


@dataclass(frozen=True)
class Consistency:
    """The agreement of a judge with itself in repeated evaluations.

    Attributes:
        runs: How many runs have several votes.
        votes: How many votes they have.
        agreeing: The share of votes that agree with their run's majority.
        flipped: The share of runs with both verdicts.
        interval: The confidence interval of `flipped`.
    """

    runs: int
    votes: int
    agreeing: float
    flipped: float
    interval: Interval

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "runs": self.runs,
            "votes": self.votes,
            "self_consistency": self.agreeing,
            "flip_rate": self.flipped,
            "flip_rate_interval": list(self.interval),
        }


@dataclass(frozen=True)
class Calibration:
    """The agreement of a judge with people.

    Attributes:
        evaluator: The judge's name.
        version: Its version.
        kappa: The agreement, with the confusion matrix of people (rows) and judge (columns).
        people_rate: The share of labelled runs that people pass, with its interval.
        judge_rate: The share of all judged runs that the judge passes, with its interval.
        corrected: The estimated pass rate of people over all runs; None with a single label.
        disagreements: The runs on which they disagree.
        unjudged: How many labelled runs have no verdict of the judge.
        tied: How many labelled runs have a tie between people.
        consistency: The judge's agreement with itself, if it evaluated runs repeatedly.
    """

    evaluator: str
    version: str
    kappa: Kappa
    people_rate: tuple[float, Interval]
    judge_rate: tuple[float, Interval]
    corrected: Corrected | None
    disagreements: tuple[Disagreement, ...]
    unjudged: int
    tied: int
    consistency: Consistency | None = None

    @property
    def labelled(self) -> int:
        """How many runs have both verdicts."""
        return self.kappa.confusion.total

    @property
    def needed(self) -> int:
        """How many more labels are needed before the judge counts in the corrected rate."""
        return max(0, FEWEST - self.labelled)

    def count(self, people: bool, judge: bool) -> int:
        """How many runs have a pair of verdicts."""
        labels = self.kappa.confusion.labels
        if people not in labels or judge not in labels:
            return 0
        return self.kappa.confusion.counts[labels.index(people)][labels.index(judge)]

    def as_dict(self) -> dict[str, Any]:
        """The object that ``oteval judge calibrate --json`` prints."""
        corrected = self.corrected
        return {
            "evaluator": self.evaluator,
            "version": self.version,
            "labelled": self.labelled,
            "unjudged": self.unjudged,
            "tied": self.tied,
            "kappa": self.kappa.kappa,
            "kappa_interval": list(self.kappa.interval),
            "agreement": self.kappa.agreement,
            "agreement_by_chance": self.kappa.by_chance,
            "confusion": {
                f"people_{_word(people)}_judge_{_word(judge)}": self.count(people, judge)
                for people in (True, False)
                for judge in (True, False)
            },
            "people_pass_rate": self.people_rate[0],
            "people_pass_rate_interval": list(self.people_rate[1]),
            "judge_pass_rate": self.judge_rate[0],
            "judge_pass_rate_interval": list(self.judge_rate[1]),
            "corrected_pass_rate": corrected.mean if corrected else None,
            "corrected_pass_rate_interval": list(corrected.interval) if corrected else None,
            "judge_weight": corrected.weight if corrected else None,
            "corrected_pass_rate_method": corrected.method if corrected else None,
            "more_labels_needed": self.needed,
            "disagreements": [disagreement.as_dict() for disagreement in self.disagreements],
            "consistency": self.consistency.as_dict() if self.consistency else None,
        }


def _word(passed: bool) -> str:
    return "pass" if passed else "fail"


def calibrate(
    evaluator: str,
    version: str,
    labels: Iterable[Label],
    scores: Mapping[str, Score],
    verdicts: tuple[int, int] | None = None,
    *,
    confidence: float = 0.95,
    votes: Mapping[str, Sequence[bool]] | None = None,
) -> Calibration:
    """The agreement of a judge with people.

    Args:
        evaluator: The judge's name.
        version: Its version.
        labels: The labels of people.
        scores: The judge's current scores by trajectory id, at least of the labelled runs.
        verdicts: How many runs the judge passes, and how many it fails. If None, the verdicts in
            `scores` are counted.
        confidence: The confidence level of the intervals.
        votes: The judge's repeated verdicts, by trajectory id.

    Raises:
        ValueError: No labelled run has a verdict of the judge.
    """
    people, notes, tied = majority_labels(labels)
    judged = {name: score.passed for name, score in scores.items() if score.passed is not None}
    labelled = [name for name in people if name in judged]
    if not labelled:
        raise ValueError("no labelled run has a verdict of the judge")
    by_people = [people[name] for name in labelled]
    by_judge = [judged[name] for name in labelled]
    passes, fails = verdicts or (sum(judged.values()), len(judged) - sum(judged.values()))
    # Most runs have no label; their order does not count.
    unlabelled = [1.0] * (passes - sum(by_judge)) + [0.0] * (fails - len(labelled) + sum(by_judge))
    return Calibration(
        evaluator,
        version,
        kappa=cohen_kappa(by_people, by_judge, confidence),
        people_rate=_rate(by_people, confidence),
        judge_rate=(
            passes / (passes + fails),
            clopper_pearson(passes, passes + fails, confidence),
        ),
        corrected=(
            ppi_mean(_numbers(by_people), _numbers(by_judge), unlabelled, confidence=confidence)
            if len(labelled) > 1
            else None
        ),
        disagreements=tuple(
            Disagreement(name, people[name], judged[name], scores[name].comment, notes[name])
            for name in labelled
            if people[name] != judged[name]
        ),
        unjudged=len(people) - len(labelled),
        tied=tied,
        consistency=consistency(votes, confidence) if votes else None,
    )


def majority_labels(labels: Iterable[Label]) -> tuple[dict[str, bool], dict[str, str], int]:
    """The majority of labels for each run, the notes, and how many runs are tied."""
    votes: dict[str, list[bool]] = defaultdict(list)
    notes: dict[str, str] = defaultdict(str)
    for label in labels:
        votes[label.trajectory_id].append(label.passed)
        notes[label.trajectory_id] = "; ".join(
            filter(None, (notes[label.trajectory_id], label.note))
        )
    by_run = {
        name: 2 * sum(passed) > len(passed)
        for name, passed in votes.items()
        if 2 * sum(passed) != len(passed)
    }
    return by_run, notes, len(votes) - len(by_run)


def _numbers(verdicts: Sequence[bool]) -> list[float]:
    return [float(passed) for passed in verdicts]


def _rate(verdicts: Sequence[bool], confidence: float) -> tuple[float, Interval]:
    passed, total = sum(verdicts), len(verdicts)
    return passed / total, clopper_pearson(passed, total, confidence)


def consistency(
    votes: Mapping[str, Sequence[bool]], confidence: float = 0.95
) -> Consistency | None:
    """The agreement of a judge with itself; None if no run has more than one verdict.

    Args:
        votes: Its verdicts by trajectory id.
        confidence: The confidence level of the interval.
    """
    several = [list(verdicts) for verdicts in votes.values() if len(verdicts) > 1]
    if not several:
        return None
    total = sum(map(len, several))
    agreeing = sum(max(sum(verdicts), len(verdicts) - sum(verdicts)) for verdicts in several)
    flipped = sum(1 for verdicts in several if 0 < sum(verdicts) < len(verdicts))
    interval = clopper_pearson(flipped, len(several), confidence)
    return Consistency(len(several), total, agreeing / total, flipped / len(several), interval)


@dataclass(frozen=True)
class GrowthPoint:
    """The agreement of a judge with people when there were fewer labels.

    Attributes:
        labelled: How many runs had a label and a verdict.
        agreement: The share of these runs with equal verdicts.
        interval: Its confidence interval.
    """

    labelled: int
    agreement: float
    interval: Interval


def agreement_growth(
    labels: Sequence[Label],
    scores: Mapping[str, Score],
    *,
    points: int = 24,
    confidence: float = 0.95,
) -> list[GrowthPoint]:
    """How the agreement of a judge with people changed while labels came in.

    Args:
        labels: The labels of people, the oldest first.
        scores: The judge's current score of the labelled runs, by trajectory id.
        points: The most points; the last one has all labels.
        confidence: The confidence level of the intervals.
    """
    judged = {name: score.passed for name, score in scores.items() if score.passed is not None}
    judged_labels = [label for label in labels if label.trajectory_id in judged]
    ends = sorted({round(len(judged_labels) * (at + 1) / points) for at in range(points)} - {0})
    growth: list[GrowthPoint] = []
    for end in ends:
        people, _, _ = majority_labels(judged_labels[:end])
        if not people:
            continue
        same = sum(passed == judged[name] for name, passed in people.items())
        interval = clopper_pearson(same, len(people), confidence)
        growth.append(GrowthPoint(len(people), same / len(people), interval))
    return growth
