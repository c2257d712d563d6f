"""Answers to which run is better, and the preferences that follow from them over all examples.

For two systems, an answer prefers one of them or is a tie. If a question is asked in both orders,
contradictory answers are a tie, so a judge that always likes the first place prefers neither. Each
example counts once: its repetitions are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

from ...evaluators import (
    ExampleVotes,
    Interval,
    benjamini_hochberg,
    difference_interval,
    difference_p_value,
    mean,
    rank,
    selected_confidence,
)
from ...model import Run, Vote
from .feedback import short_form
from .outputs import json_form

__all__ = ["Pair", "PairwiseAnswer", "Standing", "answer_of", "pairs_of", "standings"]


class PairwiseAnswer(NamedTuple):
    """The answer of a pairwise evaluator.

    Attributes:
        key: The question's name.
        scores: A score for each run, in the order in which they were shown.
        comment: The reason.
        metadata: Figures that reproduce the answer.
    """

    key: str
    scores: tuple[float, ...]
    comment: str
    metadata: Mapping[str, Any]


def answer_of(value: Any, runs: Sequence[Run], name: str) -> PairwiseAnswer:
    """The return value of a pairwise evaluator as an answer.

    Args:
        value: ``{key, scores: {run_id: score} | [score, ...], comment}``, or a list of scores.
        runs: The runs, in the order in which the evaluator saw them.
        name: The evaluator's name, the key of an answer without a key.

    Raises:
        TypeError: It is not an answer.
    """
    if isinstance(value, (list, tuple)):
        value = {"scores": value}
    elif not isinstance(value, Mapping) and hasattr(value, "scores"):
        names = ("key", "scores", "comment", "metadata")
        value = {field_name: getattr(value, field_name, None) for field_name in names}
    if not isinstance(value, Mapping):
        raise TypeError(f"returned {short_form(value)}; it must have a score for each run")
    metadata = json_form(value.get("metadata") or {})
    if not isinstance(metadata, dict):
        raise TypeError(f"returned metadata that is not a dict: {short_form(metadata)}")
    scores = value.get("scores")
    if scores is None:
        raise TypeError(str(metadata.get("error") or f"returned no scores: {short_form(value)}"))
    if isinstance(scores, Mapping):
        scores = _in_order({str(key): score for key, score in scores.items()}, runs)
    if not isinstance(scores, (list, tuple)) or len(scores) != len(runs):
        raise TypeError(f"returned {short_form(scores)} for {len(runs)} runs")
    comment = value.get("comment") or ""
    if isinstance(comment, Mapping):
        comment = "; ".join(f"{key}: {text}" for key, text in comment.items())
    numbers = tuple(_number(score) for score in scores)
    return PairwiseAnswer(str(value.get("key") or name), numbers, str(comment), metadata)


def _in_order(scores: Mapping[str, Any], runs: Sequence[Run]) -> list[Any]:
    for run in runs:
        if run.id not in scores:
            raise TypeError(f"returned no score for run {run.id}")
    if len(scores) != len(runs):
        raise TypeError("returned a score for a run that it was not shown")
    return [scores[run.id] for run in runs]


def _number(score: Any) -> float:
    if isinstance(score, str) or score is None:
        raise TypeError(f"returned the score {score!r}, which is not a number")
    try:
        number = float(score)
    except (TypeError, ValueError):
        raise TypeError(f"returned the score {short_form(score)}, which is not a number") from None
    if not math.isfinite(number):
        raise TypeError(f"returned the score {number}")
    return number


@dataclass(frozen=True)
class Pair:
    """Two systems, and an evaluator's preference between them.

    Attributes:
        key: The question's name.
        a: The first system's name.
        b: The second system's name.
        examples: How many examples have an answer.
        wins_a: The examples on which a is better. Examples with repetitions count as fractions.
        wins_b: The examples on which b is better.
        ties: The examples on which neither is better.
        errors: How many comparisons failed.
        win_rate: The wins of a and half the ties, divided by the examples.
        interval: The interval of `win_rate`. It excludes one half exactly if one system is better.
        p_value: The p-value of no preference. Without repetitions, it is the p-value of the exact
            sign test.
        p_adjusted: The p-value, adjusted for all pairs and questions of the comparison.
        flip_rate: The share of contradictory answers among comparisons that were asked in both
            orders; None if none were.
        first_rate: How often the run shown first is preferred, without ties; None if never asked.
        confidence: The confidence of `interval`, the same for all pairs and questions.
    """

    key: str
    a: str
    b: str
    examples: int
    wins_a: float
    wins_b: float
    ties: float
    errors: int
    win_rate: float | None
    interval: Interval | None
    p_value: float
    p_adjusted: float
    flip_rate: float | None
    first_rate: float | None
    confidence: float = 0.95

    def verdict(self) -> str:
        """Which system is better: ``a``, ``b``, or ``no evidence``."""
        if self.interval is None or self.interval.low <= 0.5 <= self.interval.high:
            return "no evidence"
        return "a" if self.interval.low > 0.5 else "b"

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        form = {name: getattr(self, name) for name in self.__dataclass_fields__}
        form["interval"] = list(self.interval) if self.interval else None
        return {**form, "verdict": self.verdict()}


@dataclass(frozen=True)
class Standing:
    """The rank of a system among three or more.

    Attributes:
        key: The question's name.
        name: The system.
        strength: The logarithm of its Bradley-Terry strength. The strengths of all systems add up
            to 0.
        interval: The 95% confidence interval of `strength`.
    """

    key: str
    name: str
    strength: float
    interval: Interval

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "key": self.key,
            "experiment": self.name,
            "strength": self.strength,
            "interval": list(self.interval),
        }


# An example's id and a repetition.
ComparedKey = tuple[str, int]
# The runs that are compared, in the order of the systems.
Runs = Mapping[ComparedKey, Sequence[Run]]


def pairs_of(names: Sequence[str], runs: Runs, votes: Iterable[Vote]) -> list[Pair]:
    """The preference between every two systems, for every evaluator.

    Args:
        names: The systems.
        runs: The runs that were compared.
        votes: The answers.
    """
    pairs: list[Pair] = []
    preferences: list[Sequence[float]] = []
    for key, members in _by_evaluator(votes).items():
        for i, j in combinations(range(len(names)), 2):
            pair, means = _pair(key, (names[i], names[j]), (i, j), runs, members)
            pairs.append(pair)
            preferences.append(means)
    p_values = [pair.p_value for pair in pairs]
    confidence = selected_confidence(p_values)
    return [
        replace(
            pair,
            p_adjusted=p,
            interval=_win_rate_interval(means, confidence),
            confidence=confidence,
        )
        for pair, means, p in zip(pairs, preferences, benjamini_hochberg(p_values), strict=True)
    ]


def _win_rate_interval(preferences: Sequence[float], confidence: float) -> Interval | None:
    """The interval of the win rate, which is 0 to 1 where a preference is -1 to 1."""
    if not preferences:
        return None
    interval = difference_interval(preferences, bounded=True, confidence=confidence)
    return interval and Interval((1 + interval.low) / 2, (1 + interval.high) / 2)


def _by_evaluator(votes: Iterable[Vote]) -> dict[str, dict[ComparedKey, list[Vote]]]:
    """The votes by key and compared runs; a failure of an evaluator counts for its key."""
    keys: dict[str, str] = {}
    votes_by_key: dict[str, dict[ComparedKey, list[Vote]]] = {}
    all_votes = list(votes)
    for vote in all_votes:
        if vote.status == "ok":
            keys.setdefault(vote.evaluator, vote.key)
    for vote in all_votes:
        key = keys.get(vote.evaluator, vote.key)
        item = (vote.example_id, vote.repetition)
        votes_by_key.setdefault(key, {}).setdefault(item, []).append(vote)
    return votes_by_key


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


class _PairAnswers(NamedTuple):
    """The answers about two runs: 1 prefers the first, -1 the second, 0 neither."""

    answers: list[int]
    firsts: list[bool]
    failed: bool

    @property
    def preference(self) -> int | None:
        if self.failed or not self.answers:
            return None
        return self.answers[0] if len(set(self.answers)) == 1 else 0


def _answers(pair: Sequence[Run], votes: Sequence[Vote]) -> _PairAnswers:
    first_id, second_id = pair[0].id, pair[1].id
    answers, firsts, failed = [], [], False
    for vote in votes:
        if first_id not in vote.shown or second_id not in vote.shown:
            continue
        if vote.status != "ok":
            failed = True
            continue
        answer = _sign(vote.score_of(first_id) - vote.score_of(second_id))
        answers.append(answer)
        if answer:
            is_in_order = vote.shown.index(first_id) < vote.shown.index(second_id)
            firsts.append((answer > 0) == is_in_order)
    return _PairAnswers(answers, firsts, failed)


def _pair(
    key: str,
    names: tuple[str, str],
    at: tuple[int, int],
    runs: Runs,
    votes: Mapping[ComparedKey, Sequence[Vote]],
) -> tuple[Pair, Sequence[float]]:
    """A pair without its interval, and the mean preference of each example."""
    by_example: dict[str, list[int]] = {}
    errors, twice, flips = 0, 0, 0
    firsts: list[bool] = []
    for item, members in runs.items():
        pair_answers = _answers([members[n] for n in at], votes.get(item, ()))
        firsts += pair_answers.firsts
        preference = pair_answers.preference
        if preference is None:
            errors += pair_answers.failed
            continue
        by_example.setdefault(item[0], []).append(preference)
        twice += len(pair_answers.answers) > 1
        flips += len(set(pair_answers.answers)) > 1
    means = [mean(preferences) for preferences in by_example.values()]
    total = len(means)
    wins = [_share(preferences, 1) for preferences in by_example.values()]
    losses = [_share(preferences, -1) for preferences in by_example.values()]
    won = sum((1 + value) / 2 for value in means)
    p_value = difference_p_value(means, bounded=True)
    p_value = 1.0 if p_value is None else p_value
    pair = Pair(
        key=key,
        a=names[0],
        b=names[1],
        examples=total,
        wins_a=sum(wins),
        wins_b=sum(losses),
        ties=total - sum(wins) - sum(losses),
        errors=errors,
        win_rate=won / total if total else None,
        interval=None,
        p_value=p_value,
        p_adjusted=p_value,
        flip_rate=flips / twice if twice else None,
        first_rate=sum(firsts) / len(firsts) if firsts else None,
    )
    return pair, means


def _share(preferences: Sequence[int], sign: int) -> float:
    return preferences.count(sign) / len(preferences)


def standings(
    names: Sequence[str], runs: Runs, votes: Iterable[Vote], seed: int = 0
) -> list[Standing]:
    """The Bradley-Terry ranking of the systems, the best first, for every evaluator.

    An evaluator is left out if its votes do not connect all systems.
    """
    ranked = []
    for key, members in _by_evaluator(votes).items():
        examples: dict[str, ExampleVotes] = {}
        for item, item_runs in runs.items():
            tallied = examples.setdefault(item[0], _blank(len(names)))
            _count(tallied, item_runs, members.get(item, ()))
        try:
            ranking, intervals = rank(list(examples.values()), seed=seed)
        except ValueError:
            continue
        rows = zip(names, ranking.strengths, intervals, strict=True)
        of_key = [Standing(key, *row) for row in rows]
        ranked += sorted(of_key, key=lambda standing: -standing.strength)
    return ranked


def _blank(size: int) -> ExampleVotes:
    return ExampleVotes([[0.0] * size for _ in range(size)], [[0.0] * size for _ in range(size)])


def _count(tallied: ExampleVotes, runs: Sequence[Run], votes: Sequence[Vote]) -> None:
    for i, j in combinations(range(len(runs)), 2):
        preference = _answers([runs[i], runs[j]], votes).preference
        if preference == 0:
            tallied.ties[i][j] += 1
            tallied.ties[j][i] += 1
        elif preference is not None:
            winner, loser = (i, j) if preference > 0 else (j, i)
            tallied.wins[winner][loser] += 1
