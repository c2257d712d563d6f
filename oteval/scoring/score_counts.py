"""The counts of a scoring, by evaluator, and the gates that they reach.

Verdicts requested from models, and verdicts that were used again, are also counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from ..evaluators import GateResult, Tally, check_gate, worst_first
from ..model import EvaluationResult, Score, Status
from .config import Gate

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["GateResult", "ListOrder", "ScoreCounts", "Tally", "check_gates", "worst_first"]


@dataclass
class ListOrder:
    """Runs that failed a match with calls that differ only in the order of a list.

    Attributes:
        runs: How many.
        lists: The dotted paths of the lists.
    """

    runs: int = 0
    lists: set[str] = field(default_factory=set)


@dataclass
class ScoreCounts:
    """The counts of a scoring, updated while it runs.

    Attributes:
        tallies: The counts by evaluator, in the configuration's order.
        trajectories: The number of trajectories.
        asked: The number of scores by language models, including cached answers.
        reused: The number of scores that the store had already.
        cache_hits: The number of scores from cached answers.
        cost: The cost of the answers in US dollars, as far as prices are known.
        list_order: The failed matches with calls that differ only in the order of a list.
        versions: The versions of the evaluators, by name.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    trajectories: int = 0
    asked: int = 0
    reused: int = 0
    cache_hits: int = 0
    cost: float = 0.0
    list_order: dict[str, ListOrder] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def evaluated(self) -> int:
        """How many scores have a verdict."""
        return sum(counted.evaluated for counted in self.tallies.values())

    @property
    def errors(self) -> int:
        """How many evaluations failed."""
        return sum(counted.errors for counted in self.tallies.values())

    def add(self, score: Score, *, reused: bool = False) -> None:
        """Count a score."""
        self.add_results(score.evaluator, score)
        self.reused += reused
        if not reused:
            self.asked += "asked_as" in score.metadata
            self.cache_hits += score.metadata.get("cached") is True
            self.cost += score.cost or 0.0

    def add_results(self, evaluator: str, result: EvaluationResult, runs: int = 1) -> None:
        """Count the same result of an evaluator for some runs."""
        self.tallies.setdefault(evaluator, Tally(evaluator)).add(result, runs)
        lists = result.metadata.get("reordered")
        if result.passed is False and isinstance(lists, dict) and lists:
            list_order = self.list_order.setdefault(evaluator, ListOrder())
            list_order.runs += runs
            list_order.lists.update(path for paths in lists.values() for path in paths)

    def add_stored(self, store: Store) -> None:
        """Count the current scores of a store; trajectories are not counted."""
        for tally in store.scores.tallied():
            result = EvaluationResult(
                status=cast("Status", tally.status),
                score=tally.score,
                passed=tally.passed,
                metadata=tally.metadata,
            )
            self.add_results(tally.evaluator, result, tally.runs)
            self.asked += tally.asked
            self.cache_hits += tally.cached
            self.cost += tally.cost


def check_gates(gates: Iterable[Gate], tallies: Mapping[str, Tally]) -> list[GateResult]:
    """Check whether each gate is reached.

    Args:
        gates: The gates of a configuration.
        tallies: The counts by evaluator. A gate of an evaluator without counts is not reached.
    """
    return [
        check_gate(
            tallies.get(gate.evaluator, Tally(gate.evaluator)),
            min_pass_rate=gate.min_pass_rate,
            min_score=gate.min_score,
            min_evaluated=gate.min_evaluated,
            max_errors=gate.max_errors,
        )
        for gate in gates
    ]
