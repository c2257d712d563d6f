"""A ranking: Bradley-Terry strengths from wins and ties."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from .rates import Interval, mean

__all__ = ["ExampleVotes", "Ranking", "bradley_terry", "rank"]

# With fewer wins added to a draw, fitting takes long and changes nothing that matters.
_LEAST_PRIOR = 0.01

Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Ranking:
    """The strengths of some systems.

    Attributes:
        strengths: The logarithm of each system's strength; their mean is 0. A system beats
            another with odds of ``exp(difference)``, ties aside.
        theta: The tendency to tie, from 1 (never) upwards.
        prior: The number of wins added each way to every compared pair.
    """

    strengths: tuple[float, ...]
    theta: float
    prior: float


@dataclass(frozen=True)
class ExampleVotes:
    """The votes on one example, counted.

    Attributes:
        wins: ``wins[i][j]``: the number of times i beat j.
        ties: ``ties[i][j]``: the number of ties; symmetric.
    """

    wins: list[list[float]]
    ties: list[list[float]]


def bradley_terry(
    wins: Matrix,
    ties: Matrix | None = None,
    *,
    prior: float | None = None,
    tolerance: float = 1e-8,
    rounds: int = 10_000,
) -> Ranking:
    """Bradley-Terry strengths, with ties by Rao and Kupper's model.

    Source: D. R. Hunter, "MM algorithms for generalized Bradley-Terry models", Annals of
    Statistics 32 (2004), section 4 for ties; the model is P. V. Rao and L. L. Kupper's (1967):
    i beats j with g_i / (g_i + theta * g_j). The strengths exist only if no group of systems wins
    every comparison with the rest. If a group does, half a win each way is added to every pair.

    Args:
        wins: ``wins[i][j]``: the number of times i beat j.
        ties: ``ties[i][j]``: the number of ties; symmetric.
        prior: The number of wins to add each way; by default 0.5 if necessary, else 0.
        tolerance: The largest change of a logarithm at convergence.
        rounds: The most iterations.

    Raises:
        ValueError: There are fewer than two systems, or nothing connects two of them.
    """
    size = len(wins)
    if size < 2:
        raise ValueError("a ranking needs at least two systems")
    tied = ties if ties is not None else [[0.0] * size for _ in range(size)]
    cells = range(size)
    # A tie counts as a win for both; the model's theta makes up for it.
    scored = [[wins[i][j] + tied[i][j] if i != j else 0.0 for j in cells] for i in cells]
    played = [[scored[i][j] + scored[j][i] for j in cells] for i in cells]
    if not _connected(played):
        raise ValueError("some systems were never compared with the others, even indirectly")
    if prior is None:
        prior = 0.0 if _connected(scored) else 0.5
    scored = [[scored[i][j] + (prior if played[i][j] else 0.0) for j in cells] for i in cells]
    total_ties = sum(tied[i][j] for i in range(size) for j in range(i))
    return _fitted(scored, total_ties, prior, tolerance, rounds)


def _connected(scored: Matrix) -> bool:
    """Whether wins connect each system to each other one."""
    size = len(scored)

    def reached(forward: bool) -> int:
        visited, open_ = {0}, [0]
        while open_:
            i = open_.pop()
            for j in range(size):
                if j not in visited and (scored[i][j] if forward else scored[j][i]) > 0:
                    visited.add(j)
                    open_.append(j)
        return len(visited)

    return reached(True) == size and reached(False) == size


def _fitted(scored: Matrix, ties: float, prior: float, tolerance: float, rounds: int) -> Ranking:
    size = len(scored)
    theta = 1.0 if not ties else 1.5
    logs = [0.0] * size
    for _ in range(rounds):
        strengths = [math.exp(value) for value in logs]
        fresh = [math.log(_updated(i, scored, strengths, theta)) for i in range(size)]
        centre = mean(fresh)
        fresh = [value - centre for value in fresh]
        moved = max(abs(a - b) for a, b in zip(fresh, logs, strict=True))
        logs = fresh
        if ties:
            before, theta = theta, _tie_parameter(scored, logs, theta, ties)
            moved = max(moved, abs(theta - before))
        if moved < tolerance:
            break
    return Ranking(tuple(logs), theta, prior)


def _updated(i: int, scored: Matrix, strengths: Sequence[float], theta: float) -> float:
    """A system's strength after one step."""
    own = strengths[i]
    won, weight = 0.0, 0.0
    for j, opponent in enumerate(strengths):
        if i != j:
            won += scored[i][j]
            weight += scored[i][j] / (own + theta * opponent)
            weight += theta * scored[j][i] / (theta * own + opponent)
    return won / weight


def _tie_parameter(scored: Matrix, logs: Sequence[float], theta: float, ties: float) -> float:
    strengths = [math.exp(value) for value in logs]
    total = sum(
        scored[i][j] * strengths[j] / (strengths[i] + theta * strengths[j])
        for i in range(len(logs))
        for j in range(len(logs))
        if i != j
    )
    ratio = ties / total
    return ratio + math.sqrt(1 + ratio * ratio)


def rank(
    examples: Sequence[ExampleVotes],
    *,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> tuple[Ranking, list[Interval]]:
    """The ranking over some examples' votes, and each strength's interval.

    The intervals come from a Bayesian bootstrap over examples, since an example's votes between
    several systems are not independent. Source: D. B. Rubin, "The Bayesian bootstrap", Annals of
    Statistics 9 (1981). Each draw weighs the examples anew and adds some wins each way to every
    compared pair, half a win on average. For two systems, the result is Jeffreys' interval. So the
    interval of a system that always wins has a width, and shrinks as examples are added.

    Args:
        examples: Each example's votes.
        confidence: The intervals' confidence.
        resamples: The number of draws.
        seed: Makes the draws repeatable.

    Raises:
        ValueError: `examples` is empty, or some systems were never compared, even indirectly.
    """
    if not examples:
        raise ValueError("a ranking needs votes")
    overall = _ranked(examples, None)
    draw = random.Random(seed)  # noqa: S311
    drawn: list[tuple[float, ...]] = []
    for _ in range(resamples):
        drawn.append(_drawn(examples, draw))
    tail = (1 - confidence) / 2
    intervals = []
    for at, value in enumerate(overall.strengths):
        ordered = sorted(strengths[at] for strengths in drawn) or [value]
        low = ordered[max(0, int(tail * (len(ordered) - 1)) - 1)]
        high = ordered[min(len(ordered) - 1, math.ceil((1 - tail) * (len(ordered) - 1)) + 1)]
        intervals.append(Interval(min(low, value), max(high, value)))
    return overall, intervals


def _drawn(examples: Sequence[ExampleVotes], draw: random.Random) -> tuple[float, ...]:
    """The strengths of one draw of the Bayesian bootstrap."""
    size = len(examples[0].wins)
    wins = [[0.0] * size for _ in range(size)]
    ties = [[0.0] * size for _ in range(size)]
    for example in examples:
        weight = draw.expovariate(1.0)
        for i in range(size):
            for j in range(size):
                wins[i][j] += weight * example.wins[i][j]
                ties[i][j] += weight * example.ties[i][j]
    for i in range(size):
        for j in range(i):
            if wins[i][j] or wins[j][i] or ties[i][j]:
                wins[i][j] += max(_LEAST_PRIOR, draw.gammavariate(0.5, 1.0))
                wins[j][i] += max(_LEAST_PRIOR, draw.gammavariate(0.5, 1.0))
    return bradley_terry(wins, ties, prior=0.0, tolerance=1e-4).strengths


def _ranked(examples: Sequence[ExampleVotes], prior: float | None) -> Ranking:
    size = len(examples[0].wins)
    cells = range(size)
    wins = [[sum(example.wins[i][j] for example in examples) for j in cells] for i in cells]
    ties = [[sum(example.ties[i][j] for example in examples) for j in cells] for i in cells]
    return bradley_terry(wins, ties, prior=prior, tolerance=1e-5)
