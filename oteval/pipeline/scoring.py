"""What a store holds, scored as a configuration says, and the gates over the scores."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import ConfigError, OtevalError
from ..evaluate.gates import GateResult, Tally, check_gate
from ..evaluate.scorer import Scorer, version_of
from ..model import Score, Trajectory
from ..selection import EVERYTHING, Selection
from ..store import Store
from .judges import judge_of
from .references import References, references_of

__all__ = ["ScoreRun", "check_gates", "prepare", "score", "variants"]

_PAGE = 1000


@dataclass(frozen=True)
class Prepared:
    """A scorer and where its references come from."""

    scorer: Scorer
    references: References


def prepare(config: Config, store: Store, base: Path) -> list[Prepared]:
    """Return the scorers of a configuration, their references read.

    Args:
        config: The configuration.
        store: Where references by name or trajectory are.
        base: The folder that paths of the configuration are relative to.

    Raises:
        ConfigError: A reference or function cannot be had, or an argument is wrong.
    """
    prepared = []
    for rule in config.evaluators:
        try:
            references = references_of(rule.reference, store, base)
            judge, description = judge_of(rule, base)
        except OtevalError as error:
            raise ConfigError(f"evaluator {rule.name!r}: {error}") from error
        described = {**description, "reference": references.fingerprint, "scope": rule.scope}
        scorer = Scorer(
            name=rule.name,
            version=version_of(described),
            judge=judge,
            where=rule.where.selection(),
            sample=rule.sample,
            scope=rule.scope,
        )
        prepared.append(Prepared(scorer, references))
    return prepared


@dataclass
class ScoreRun:
    """What scoring came to, filled in while it goes on.

    Attributes:
        tallies: The counts by evaluator, in the configuration's order.
        trajectories: How many trajectories were looked at.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    trajectories: int = 0

    @property
    def evaluated(self) -> int:
        """How many scores have a verdict."""
        return sum(counted.evaluated for counted in self.tallies.values())


def score(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection = EVERYTHING,
    run: ScoreRun | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[Score]:
    """Score trajectories, keep the scores in the store, and yield them.

    Args:
        store: The store.
        config: What to evaluate.
        base: The folder that paths of the configuration are relative to.
        selection: Which trajectories.
        run: Counts what happens.
        on_progress: Called with the number of trajectories done.

    Raises:
        ConfigError: A reference or function cannot be had, or an argument is wrong.
    """
    prepared = prepare(config, store, base)
    run = run if run is not None else ScoreRun()
    run.tallies.update({one.scorer.name: Tally(one.scorer.name) for one in prepared})
    fresh: list[Score] = []
    try:
        for trajectory in store.trajectories.read(selection):
            run.trajectories += 1
            for one in prepared:
                if one.scorer.wants(trajectory, config.salt):
                    found = _score_one(one, trajectory)
                    run.tallies[found.evaluator].add(found)
                    fresh.append(found)
                    yield found
            if len(fresh) >= _PAGE:
                store.scores.write(fresh)
                fresh = []
            if on_progress:
                on_progress(run.trajectories)
    finally:
        # What came before Ctrl-C is kept.
        store.scores.write(fresh)


def _score_one(one: Prepared, trajectory: Trajectory) -> Score:
    reference, problem = one.references.of(trajectory)
    return one.scorer.score(trajectory, reference, problem, time.time_ns())


def check_gates(config: Config, run: ScoreRun) -> list[GateResult]:
    """Return whether each gate of a configuration held."""
    return [
        check_gate(
            run.tallies.get(gate.evaluator, Tally(gate.evaluator)),
            min_pass_rate=gate.min_pass_rate,
            min_score=gate.min_score,
            min_evaluated=gate.min_evaluated,
            max_errors=gate.max_errors,
        )
        for gate in config.gates
    ]


def variants(
    store: Store, selection: Selection = EVERYTHING, evaluator: str | None = None
) -> list[dict[str, Any]]:
    """Return the tool sequences that runs took, most frequent first.

    Args:
        store: The store.
        selection: Which trajectories.
        evaluator: The evaluator whose pass rate to add; all of them when None.

    Returns:
        A row per sequence: ``tools``, ``count``, ``share``, ``errors`` (runs with a failed call),
        ``passed`` and ``judged`` (the newest score of each evaluator), ``example`` (an id).
    """
    newest: dict[str, dict[str, bool | None]] = {}
    for found in store.scores.read(selection):
        if evaluator in (None, found.evaluator):
            newest.setdefault(found.trajectory_id, {})[found.evaluator] = found.passed
    counts: Counter[tuple[str, ...]] = Counter()
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for trajectory in store.trajectories.read(selection):
        own = trajectory.own_messages
        tools = tuple(call.name for message in own for call in message.tool_calls)
        row = rows.setdefault(
            tools,
            {"tools": list(tools), "errors": 0, "passed": 0, "judged": 0, "example": trajectory.id},
        )
        counts[tools] += 1
        outcomes = newest.get(trajectory.id, {}).values()
        verdicts = [passed for passed in outcomes if passed is not None]
        row["errors"] += any(message.is_error for message in own)
        row["passed"] += sum(verdicts)
        row["judged"] += len(verdicts)
    total = sum(counts.values())
    return [
        {**rows[tools], "count": count, "share": count / total}
        for tools, count in counts.most_common()
    ]
