"""Answers to which run is better: what they mean, and what they come to over all examples.

For two systems an answer prefers one or is a tie. Asked in both orders, answers that disagree are
a tie: a judge that only likes the first place prefers nobody. Examples are what is counted; an
example's repetitions are averaged before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

from ..evaluators.stats import (
    Interval,
    Tallied,
    benjamini_hochberg,
    clopper_pearson,
    paired_permutation,
    rank,
)
from ..evaluators.stats.rates import mean
from ..model import Run, Vote
from .plain import plain

__all__ = ["Answer", "Pair", "Standing", "answer_of", "pairs_of", "standings"]


class Answer(NamedTuple):
    """What a pairwise evaluator returned.

    Attributes:
        key: The question's name.
        scores: A score for each run, in the order in which they were shown.
        comment: Why.
        metadata: Figures that reproduce it.
    """

    key: str
    scores: tuple[float, ...]
    comment: str
    metadata: Mapping[str, Any]


def answer_of(value: Any, shown: Sequence[Run], name: str) -> Answer:
    """Return the answer that a return value means.

    Args:
        value: ``{key, scores: {run_id: score} | [score, ...], comment}``, or a list of scores.
        shown: The runs, in the order in which they were shown.
        name: The key of an answer that has none: the evaluator's name.

    Raises:
        TypeError: It means none; the text says why.
    """
    if isinstance(value, (list, tuple)):
        value = {"scores": value}
    elif not isinstance(value, Mapping) and hasattr(value, "scores"):
        names = ("key", "scores", "comment", "metadata")
        value = {each: getattr(value, each, None) for each in names}
    if not isinstance(value, Mapping):
        raise TypeError(f"returned {_short(value)}; it must have a score for each run")
    metadata = plain(value.get("metadata") or {})
    if not isinstance(metadata, dict):
        raise TypeError(f"returned metadata that is no dict: {_short(metadata)}")
    scores = value.get("scores")
    if scores is None:
        raise TypeError(str(metadata.get("error") or f"returned no scores: {_short(value)}"))
    if isinstance(scores, Mapping):
        scores = _in_order({str(key): score for key, score in scores.items()}, shown)
    if not isinstance(scores, (list, tuple)) or len(scores) != len(shown):
        raise TypeError(f"returned {_short(scores)} for {len(shown)} runs")
    comment = value.get("comment") or ""
    if isinstance(comment, Mapping):
        comment = "; ".join(f"{key}: {text}" for key, text in comment.items())
    numbers = tuple(_number(score) for score in scores)
    return Answer(str(value.get("key") or name), numbers, str(comment), metadata)


def _in_order(scores: Mapping[str, Any], shown: Sequence[Run]) -> list[Any]:
    for run in shown:
        if run.id not in scores:
            raise TypeError(f"gave run {run.id} no score")
    if len(scores) != len(shown):
        raise TypeError("gave a score to a run that it was not shown")
    return [scores[run.id] for run in shown]


def _number(score: Any) -> float:
    if isinstance(score, str) or score is None:
        raise TypeError(f"returned the score {score!r}, which is no number")
    try:
        number = float(score)
    except (TypeError, ValueError):
        raise TypeError(f"returned the score {_short(score)}, which is no number") from None
    if not math.isfinite(number):
        raise TypeError(f"returned the score {number}")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


@dataclass(frozen=True)
class Pair:
    """Two systems, and whom an evaluator prefers.

    Attributes:
        key: The question's name.
        a: The first system's name.
        b: The second's.
        examples: How many examples have an answer.
        wins_a: The examples on which a is better; those with repetitions count as shares.
        wins_b: Those on which b is.
        ties: Those on which neither is.
        errors: Comparisons that failed.
        win_rate: The wins of a and half the ties, over all examples.
        interval: Its 95% interval, the exact one (Clopper-Pearson's).
        p_value: That of no preference: an exact sign test, of repetitions a permutation test.
        p_adjusted: The same, adjusted for all pairs and questions of the comparison.
        flip_rate: The share of comparisons asked in both orders whose answers disagree; None
            where none were.
        first_rate: How often the one shown first is preferred, ties aside; None without any.
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

    def verdict(self, alpha: float = 0.05) -> str:
        """Return who is better: ``a``, ``b``, or ``no evidence``."""
        if self.win_rate is None or self.p_adjusted > alpha:
            return "no evidence"
        return "a" if self.win_rate > 0.5 else "b"

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        found["interval"] = list(self.interval) if self.interval else None
        return {**found, "verdict": self.verdict()}


@dataclass(frozen=True)
class Standing:
    """A system's place among three or more.

    Attributes:
        key: The question's name.
        name: The system.
        strength: The logarithm of its Bradley-Terry strength; all add up to 0.
        interval: Its 95% interval.
    """

    key: str
    name: str
    strength: float
    interval: Interval

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "key": self.key,
            "experiment": self.name,
            "strength": self.strength,
            "interval": list(self.interval),
        }


Item = tuple[str, int]
# An item's runs in the order of the systems.
Runs = Mapping[Item, Sequence[Run]]


def pairs_of(names: Sequence[str], runs: Runs, votes: Iterable[Vote]) -> list[Pair]:
    """Return what the votes come to for every two systems and every evaluator.

    Args:
        names: The systems.
        runs: What was compared.
        votes: The answers.
    """
    found = []
    for key, members in _by_evaluator(votes).items():
        for i, j in combinations(range(len(names)), 2):
            found.append(_pair(key, (names[i], names[j]), (i, j), runs, members))
    adjusted = benjamini_hochberg([pair.p_value for pair in found])
    return [
        Pair(**{**pair.__dict__, "p_adjusted": p}) for pair, p in zip(found, adjusted, strict=True)
    ]


def _by_evaluator(votes: Iterable[Vote]) -> dict[str, dict[Item, list[Vote]]]:
    """Return the votes by key and item; an evaluator's failures count for its key."""
    keys: dict[str, str] = {}
    found: dict[str, dict[Item, list[Vote]]] = {}
    known = list(votes)
    for vote in known:
        if vote.status == "ok":
            keys.setdefault(vote.evaluator, vote.key)
    for vote in known:
        key = keys.get(vote.evaluator, vote.key)
        item = (vote.example_id, vote.repetition)
        found.setdefault(key, {}).setdefault(item, []).append(vote)
    return found


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


class _Asked(NamedTuple):
    """An item's answers about two systems: 1 prefers the first, -1 the second, 0 neither."""

    answers: list[int]
    firsts: list[bool]
    failed: bool

    @property
    def preference(self) -> int | None:
        if self.failed or not self.answers:
            return None
        return self.answers[0] if len(set(self.answers)) == 1 else 0


def _asked(pair: Sequence[Run], votes: Sequence[Vote]) -> _Asked:
    one, two = pair[0].id, pair[1].id
    answers, firsts, failed = [], [], False
    for vote in votes:
        if one not in vote.shown or two not in vote.shown:
            continue
        if vote.status != "ok":
            failed = True
            continue
        answer = _sign(vote.score_of(one) - vote.score_of(two))
        answers.append(answer)
        if answer:
            one_is_first = vote.shown.index(one) < vote.shown.index(two)
            firsts.append((answer > 0) == one_is_first)
    return _Asked(answers, firsts, failed)


def _pair(
    key: str,
    names: tuple[str, str],
    at: tuple[int, int],
    runs: Runs,
    votes: Mapping[Item, Sequence[Vote]],
) -> Pair:
    by_example: dict[str, list[int]] = {}
    errors, twice, flips = 0, 0, 0
    firsts: list[bool] = []
    for item, members in runs.items():
        asked = _asked([members[n] for n in at], votes.get(item, ()))
        firsts += asked.firsts
        preference = asked.preference
        if preference is None:
            errors += asked.failed
            continue
        by_example.setdefault(item[0], []).append(preference)
        twice += len(asked.answers) > 1
        flips += len(set(asked.answers)) > 1
    means = [mean(found) for found in by_example.values()]
    total = len(means)
    wins = [_share(found, 1) for found in by_example.values()]
    losses = [_share(found, -1) for found in by_example.values()]
    won = sum((1 + value) / 2 for value in means)
    p_value = paired_permutation(means).p_value
    return Pair(
        *(key, *names, total, sum(wins), sum(losses), total - sum(wins) - sum(losses), errors),
        win_rate=won / total if total else None,
        interval=clopper_pearson(won, total) if total else None,
        p_value=p_value,
        p_adjusted=p_value,
        flip_rate=flips / twice if twice else None,
        first_rate=sum(firsts) / len(firsts) if firsts else None,
    )


def _share(found: Sequence[int], wanted: int) -> float:
    return found.count(wanted) / len(found)


def standings(
    names: Sequence[str], runs: Runs, votes: Iterable[Vote], seed: int = 0
) -> list[Standing]:
    """Return the Bradley-Terry ranking of the systems, the best first, for every evaluator.

    An evaluator whose votes do not connect the systems has no ranking.
    """
    found = []
    for key, members in _by_evaluator(votes).items():
        examples: dict[str, Tallied] = {}
        for item, each in runs.items():
            tallied = examples.setdefault(item[0], _blank(len(names)))
            _count(tallied, each, members.get(item, ()))
        try:
            ranking, intervals = rank(list(examples.values()), seed=seed)
        except ValueError:
            continue
        rows = zip(names, ranking.strengths, intervals, strict=True)
        of_key = [Standing(key, *row) for row in rows]
        found += sorted(of_key, key=lambda standing: -standing.strength)
    return found


def _blank(size: int) -> Tallied:
    return Tallied([[0.0] * size for _ in range(size)], [[0.0] * size for _ in range(size)])


def _count(tallied: Tallied, runs: Sequence[Run], votes: Sequence[Vote]) -> None:
    for i, j in combinations(range(len(runs)), 2):
        preference = _asked([runs[i], runs[j]], votes).preference
        if preference == 0:
            tallied.ties[i][j] += 1
            tallied.ties[j][i] += 1
        elif preference is not None:
            winner, loser = (i, j) if preference > 0 else (j, i)
            tallied.wins[winner][loser] += 1
