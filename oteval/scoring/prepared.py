"""The evaluators of a configuration, ready to score: with their references, files and prices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import ConfigError, OtevalError
from ..evaluators import Evaluator, Scorer, version_of
from ..model import Score, Trajectory
from .config import Config, EvaluatorSettings, Limits
from .references import References, read_json, references_of
from .resources import JobLimits, resources_of

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["PreparedEvaluator", "prepare"]


@dataclass(frozen=True)
class PreparedEvaluator:
    """A scorer, and the source of its references."""

    scorer: Scorer
    references: References

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator."""
        return self.scorer.evaluator

    @property
    def concurrency(self) -> int:
        """How many trajectories may be evaluated at once."""
        return self.evaluator.concurrency

    @property
    def is_asked(self) -> bool:
        """Whether it calls language models, whose verdicts cost money and are reused."""
        return self.evaluator.asks_models

    def score(self, trajectory: Trajectory, time_ns: int) -> Score:
        """The score of a trajectory with its reference, also if the evaluator fails."""
        reference, problem = self.references.of(trajectory)
        return self.scorer.score(trajectory, reference, problem, time_ns)

    def close(self) -> None:
        """Close the connections that the evaluator opened."""
        self.evaluator.close()


def prepare(
    config: Config,
    store: Store | None,
    base: Path,
    *,
    again: bool = False,
    is_budgeted: bool = True,
    job: JobLimits | None = None,
) -> list[PreparedEvaluator]:
    """The scorers of a configuration, their references read.

    Args:
        config: The configuration.
        store: The store with references by name or trajectory, and with the answers of language
            models; None if no evaluator needs them.
        base: The folder for relative paths in the configuration.
        again: Whether to ask language models again, ignoring cached answers.
        is_budgeted: Whether evaluators keep their own budgets; a server keeps them itself.
        job: The answers and limits that the processes of a job share; they replace the store's.

    Raises:
        ConfigError: References or functions cannot be loaded, or options are wrong; the message has
            a line for each evaluator.
    """
    prepared: list[PreparedEvaluator] = []
    faults: list[str] = []
    for settings in config.evaluators:
        try:
            references = references_of(settings, store, base)
            resources = resources_of(
                settings, base, store, again=again, is_budgeted=is_budgeted, job=job
            )
            evaluator = _with_files(settings, base).prepare(resources)
            evaluator.check_prices(_cost_limits(settings, config.budgets.get(settings.name)))
        except OtevalError as error:
            position = config.position_of(settings.name)
            faults.append(f"{position}evaluator {settings.name!r}: {error}")
            continue
        described = {
            **evaluator.describe(),
            **evaluator.describe_verdict(),
            "reference": references.fingerprint,
            "scope": settings.scope,
        }
        scorer = Scorer(
            name=settings.name,
            version=version_of(described),
            evaluator=evaluator,
            where=settings.where.selection(),
            sample=settings.sample,
            scope=settings.scope,
        )
        prepared.append(PreparedEvaluator(scorer, references))
    if faults:
        raise ConfigError.of(faults)
    return prepared


def _with_files(settings: EvaluatorSettings, base: Path) -> Evaluator:
    """An evaluator with the options from JSON files."""
    evaluator = settings.evaluator
    for option, path in settings.files.items():
        value = read_json(base / path)
        try:
            evaluator = replace(evaluator, **{option: value})
        except ConfigError as error:
            raise ConfigError(f"{base / path}: {error}") from None
    return evaluator


def _cost_limits(settings: EvaluatorSettings, limits: Limits | None) -> list[str]:
    """The settings that limit an evaluator's cost, besides its own options."""
    if limits is None or limits.max_cost_per_day is None:
        return []
    return [f"budgets.{settings.name}.max_cost_per_day"]
