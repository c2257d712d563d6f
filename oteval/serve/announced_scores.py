"""Score runs that this process recorded, and announce the scores to the listeners of evaluators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..evaluators import observed, unheard
from ..model import Score, Selection
from ..scoring import Config, load_config, require_evaluators, score as score_stored
from ..store import Store

__all__ = ["AnnouncedVerdict", "config_and_folder", "score_and_announce"]

# One evaluator's verdict on one revision of a run: trajectory id, revision, evaluator, version.
AnnouncedVerdict = tuple[str, int, str, str]


def config_and_folder(config: str | Path | Config, base: str | Path | None) -> tuple[Config, Path]:
    """A configuration, read from its file if necessary, and the base directory of its paths.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """
    if isinstance(config, Config):
        return require_evaluators(config), Path(base or ".")
    rules = require_evaluators(load_config(config), config)
    return rules, Path(base) if base is not None else Path(config).parent


def score_and_announce(
    store: Store,
    config: Config,
    base: Path,
    selection: Selection,
    announced: set[AnnouncedVerdict] | None = None,
) -> list[Score]:
    """Score stored runs, and announce each score to the listeners of evaluators.

    Args:
        store: The store of the scores.
        config: The evaluators.
        base: Base directory for paths in the configuration.
        selection: The runs.
        announced: The verdicts announced so far; they are not announced again, and new ones are
            added.

    Raises:
        ConfigError: The configuration is invalid.
    """
    with unheard():
        scores = list(score_stored(store, config, base, selection))
    announced = set() if announced is None else announced
    for score in scores:
        verdict = (score.trajectory_id, score.rev, score.evaluator, score.version)
        if verdict not in announced:
            announced.add(verdict)
            observed(_result(score))
    return scores


def _result(score: Score) -> dict[str, Any]:
    """A score in the form of an evaluator's result."""
    verdict = score.score if score.passed is None else score.passed
    metadata = {**score.metadata, "status": score.status}
    return {
        "key": score.evaluator,
        "score": verdict,
        "value": score.label or None,
        "comment": score.comment or None,
        "metadata": metadata,
    }
