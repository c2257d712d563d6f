"""The evaluators in force, from oteval.yaml, reloaded when the file or a reference changes.

A broken file changes nothing: the evaluators in force stay, and the log and the metrics report the
error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.errors import OtevalError
from ..base.files import file_stamp
from ..base.text import counted
from ..evaluators import FunctionEvaluator, Scorer
from ..scoring import (
    Config,
    EvaluatorSettings,
    Limits,
    PreparedEvaluator,
    load_config,
    parse_config,
    prepare,
    read_config,
)
from ..store import Store

__all__ = ["EvaluatorRules", "LiveEvaluator"]

_log = logging.getLogger(__name__)
_DEFAULT_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class LiveEvaluator:
    """An evaluator as live scoring runs it.

    Attributes:
        settings: Its entry in the configuration.
        prepared: Its scorer and its references.
        limits: Its limits.
        timeout: The seconds after which a call is abandoned.
        is_slow: Whether its calls may take long, so that they run in threads.
    """

    settings: EvaluatorSettings
    prepared: PreparedEvaluator
    limits: Limits
    timeout: float
    is_slow: bool

    @property
    def scorer(self) -> Scorer:
        """The scorer."""
        return self.prepared.scorer

    @property
    def key(self) -> tuple[str, str]:
        """Its name and version."""
        return self.scorer.name, self.scorer.version

    def is_like(self, candidate: LiveEvaluator) -> bool:
        """Whether this evaluator equals another one of its version, so that calls may go on."""
        return (self.settings, self.limits, self.timeout) == (
            candidate.settings,
            candidate.limits,
            candidate.timeout,
        )


def _live_evaluator(
    settings: EvaluatorSettings, prepared: PreparedEvaluator, budget: Limits | None
) -> LiveEvaluator:
    """An evaluator with its limits: from ``budgets``, else from its entry."""
    limits = budget or Limits()
    if "concurrency" not in limits.model_fields_set and prepared.is_asked:
        limits = limits.model_copy(update={"concurrency": prepared.concurrency})
    cost = settings.evaluator.cost_per_day
    if cost is not None and limits.max_cost_per_day is None:
        limits = limits.model_copy(update={"max_cost_per_day": cost})
    own = settings.evaluator.time_limit
    # An evaluator that times out by itself returns the better reason, so it gets a little longer.
    timeout = limits.timeout or (own + 5.0 if own else _DEFAULT_TIMEOUT)
    return LiveEvaluator(settings, prepared, limits, timeout, settings.evaluator.is_slow)


class EvaluatorRules:
    """The configuration in force and its evaluators.

    Attributes:
        config: The configuration.
        evaluators: Its evaluators, in the order of the file.
        error: The error of the last attempt to read the file; "" when it succeeded.
        loads: How often a configuration was put in force.
        failures: How often reading the file failed.

    Args:
        path: The file.
        store: The store of named references.
        config: A configuration to use instead of the file; it is never reloaded.
        copy: A copy of the last valid file, to fall back on when the file is broken at the start.
        is_optional: Whether the file may be missing; until it exists, nothing is evaluated.

    Raises:
        ConfigError: The file cannot be read, or is invalid.
    """

    def __init__(
        self,
        path: str | Path,
        store: Store,
        config: Config | None = None,
        *,
        copy: Path | None = None,
        is_optional: bool = False,
    ) -> None:
        self._path = Path(path)
        # Judges look up cached answers from their own threads.
        self._store = store.sibling()
        self._is_fixed = config is not None
        self._stamp = self._current_stamp()
        self.error = ""
        self.loads, self.failures = 1, 0
        try:
            if is_optional and not self._path.exists() and not (copy and copy.exists()):
                config = Config.model_construct(evaluators=[])
            self.config = config or load_config(self._path)
            self.evaluators = self._prepared(self.config)
        except OtevalError as error:
            if copy is None or not copy.exists():
                raise
            self.config = parse_config(read_config(copy), str(copy))
            self.evaluators = self._prepared(self.config)
            self.error = str(error)
            self.failures += 1
            _log.error("the last valid configuration is in force: %s", error)

    def check(self) -> bool:
        """Reload the file if it, or a stored reference, has changed.

        Returns:
            Whether other evaluators are in force.
        """
        if self._is_fixed:
            return False
        return self._current_stamp() != self._stamp and self.reload()

    def reload(self) -> bool:
        """Reload the file and its references; return whether other evaluators are in force."""
        if self._is_fixed:
            return False
        self._stamp = self._current_stamp()
        try:
            config = load_config(self._path)
            evaluators = self._prepared(config)
        except Exception as error:
            # No mistake in the file, or in the code that it names, may end the storage process.
            if not isinstance(error, OtevalError):
                _log.exception("%s", self._path)
            self.error = str(error) or type(error).__name__
            self.failures += 1
            _log.error("the old rules stay in force: %s", error)
            return False
        self.config, self.evaluators, self.error = config, evaluators, ""
        self.loads += 1
        _log.info("%s: %s in force", self._path, counted(len(evaluators), "evaluator"))
        return True

    def _current_stamp(self) -> tuple[object, object]:
        return file_stamp(self._path), self._store.references.stamp()

    def spent(self, evaluator: str, since_ns: int) -> float:
        """The cost (US dollars) of an evaluator's calls to judges since a time."""
        return self._store.judge_calls.spent(evaluator, since_ns)

    def flush(self) -> None:
        """Write the judges' answers to the store."""
        self._store.judge_calls.flush()

    def close(self) -> None:
        """Close the evaluators' connections and the store."""
        for evaluator in self.evaluators:
            evaluator.prepared.close()
        self._store.close()

    def _prepared(self, config: Config) -> Sequence[LiveEvaluator]:
        # Live scoring enforces the daily budget: the judge itself never sees the next day begin.
        prepared = prepare(config, self._store, self._path.parent, is_budgeted=False)
        before = [
            evaluator
            for evaluator in getattr(self, "evaluators", ())
            if isinstance(evaluator.settings.evaluator, FunctionEvaluator)
        ]
        live = []
        for settings, evaluator in zip(config.evaluators, prepared, strict=True):
            # A module is imported only once, so the version must match the imported code.
            scorer = next(
                (old.scorer for old in before if old.settings == settings), evaluator.scorer
            )
            evaluator = replace(evaluator, scorer=scorer)
            live.append(_live_evaluator(settings, evaluator, config.budgets.get(settings.name)))
        return live
