"""The rules in force: oteval.yaml, read again when it changes.

A file that is broken changes nothing: the old rules stay, and the log and the metrics say so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config import (
    BaseRule,
    Config,
    JudgeRule,
    Limits,
    PythonRule,
    load_config,
    parse_config,
    read_config,
)
from ..errors import ConfigError, OtevalError
from ..evaluators.scorer import Scorer
from ..files import file_stamp
from ..pipeline import prepare
from ..pipeline.judges import refuse_unpriced
from ..pipeline.references import References
from ..pipeline.scoring import Prepared
from ..store import Store
from ..text import counted

__all__ = ["LiveRule", "Rules"]

_log = logging.getLogger(__name__)
_TIMEOUT = 60.0


@dataclass(frozen=True)
class LiveRule:
    """An evaluator in live scoring.

    Attributes:
        rule: Its part of the configuration.
        prepared: What scores, and where its references come from.
        limits: What it may use.
        timeout: After how many seconds a call is given up.
        is_slow: Whether it may take its time, so that it runs beside everything else.
    """

    rule: BaseRule
    prepared: Prepared
    limits: Limits
    timeout: float
    is_slow: bool

    @property
    def scorer(self) -> Scorer:
        """What scores."""
        return self.prepared.scorer

    @property
    def references(self) -> References:
        """Where its references come from."""
        return self.prepared.references

    @property
    def key(self) -> tuple[str, str]:
        """Its name and version."""
        return self.scorer.name, self.scorer.version

    def is_like(self, other: LiveRule) -> bool:
        """Return whether another rule of this version does the same, so that work can go on."""
        return (self.rule, self.limits, self.timeout) == (other.rule, other.limits, other.timeout)


def _live_rule(rule: BaseRule, prepared: Prepared, given: Limits | None) -> LiveRule:
    """Return a rule with its limits: those under ``budgets``, or else what the rule itself says."""
    limits = given or Limits()
    if "concurrency" not in limits.model_fields_set and prepared.is_asked:
        limits = limits.model_copy(update={"concurrency": prepared.concurrency})
    cost = _cost_per_day(rule)
    if cost is not None and limits.max_cost_per_day is None:
        limits = limits.model_copy(update={"max_cost_per_day": cost})
    own = getattr(rule, "timeout", None)
    # One that gives up by itself says better why, so it gets a little longer; a judge's is that
    # of each of its requests.
    requests = (1 + getattr(rule, "max_retries", 0)) * getattr(rule, "samples", 1)
    timeout = limits.timeout or (float(own) * requests + 5.0 if own else _TIMEOUT)
    fields = type(rule).model_fields
    return LiveRule(rule, prepared, limits, timeout, "timeout" in fields or "model" in fields)


def _cost_per_day(rule: BaseRule) -> float | None:
    """Return what a judge may cost a day; what a scoring may cost is meant by day, too.

    Live scoring never ends, so that a judge would stop for good once it had cost so much.
    """
    if not isinstance(rule, JudgeRule):
        return None
    costs = [cost for cost in (rule.max_cost, rule.max_cost_per_day) if cost is not None]
    return min(costs, default=None)


class Rules:
    """The rules in force.

    Attributes:
        config: The configuration they come from.
        live: The evaluators, in its order.
        error: Why the file could not be read when it was last tried, or "".
        loads: How often rules were taken.
        failures: How often they could not be.

    Args:
        path: The file.
        store: Where references by name or trajectory are.
        config: The configuration, instead of the file's; nothing is then read again.
        copy: The last configuration that could be read, for when the file's cannot.
        is_optional: Whether the file may be missing; there are no rules until it is there.

    Raises:
        ConfigError: The file cannot be read, or says what is not known.
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
        # Judges ask it for earlier answers from threads of their own.
        self._store = store.sibling()
        self._is_fixed = config is not None
        self._stamp = file_stamp(self._path)
        self.error = ""
        self.loads, self.failures = 1, 0
        try:
            if is_optional and self._stamp is None and not (copy and copy.exists()):
                config = Config.model_construct(evaluators=[])
            self.config = config or load_config(self._path)
            self.live = self._prepared(self.config)
        except OtevalError as error:
            if copy is None or not copy.exists():
                raise
            self.config = parse_config(read_config(copy), str(copy))
            self.live = self._prepared(self.config)
            self.error = str(error)
            self.failures += 1
            _log.error("the last good rules are in force: %s", error)

    def check(self) -> bool:
        """Read the file again if it has changed; return whether there are new rules."""
        if self._is_fixed:
            return False
        stamp = file_stamp(self._path)
        return stamp != self._stamp and self.reload()

    def reload(self) -> bool:
        """Read the file and all it refers to again; return whether there are new rules."""
        if self._is_fixed:
            return False
        self._stamp = file_stamp(self._path)
        try:
            config = load_config(self._path)
            live = self._prepared(config)
        except Exception as error:
            # Nothing that the file or what it refers to does may end the storing process.
            if not isinstance(error, OtevalError):
                _log.exception("%s", self._path)
            self.error = str(error) or type(error).__name__
            self.failures += 1
            _log.error("the old rules stay in force: %s", error)
            return False
        self.config, self.live, self.error = config, live, ""
        self.loads += 1
        _log.info("%s: %s in force", self._path, counted(len(live), "evaluator"))
        return True

    def spent(self, evaluator: str, since_ns: int) -> float:
        """Return what an evaluator's questions to judges have cost since a time (US dollars)."""
        return self._store.judge_calls.spent(evaluator, since_ns)

    def flush(self) -> None:
        """Write down the answers of judges."""
        self._store.judge_calls.flush()

    def close(self) -> None:
        """Close what evaluators and the store hold open."""
        for live in self.live:
            live.prepared.close()
        self._store.close()

    def _prepared(self, config: Config) -> Sequence[LiveRule]:
        # Days and their budgets are counted here: a judge of its own would never see the next.
        undated = [
            rule.model_copy(update={"max_cost_per_day": None, "max_cost": None})
            if isinstance(rule, JudgeRule)
            else rule
            for rule in config.evaluators
        ]
        bare = config.model_copy(update={"evaluators": undated})
        prepared = prepare(bare, self._store, self._path.parent)
        before = [one for one in getattr(self, "live", ()) if isinstance(one.rule, PythonRule)]
        live = []
        for rule, one in zip(config.evaluators, prepared, strict=True):
            # A function's module is imported once, so its version is that of the code it runs.
            scorer = next((old.scorer for old in before if old.rule == rule), one.scorer)
            one = replace(one, scorer=scorer)
            try:
                refuse_unpriced(rule, config.budgets.get(rule.name))
            except ConfigError as error:
                raise ConfigError(f"evaluator {rule.name!r}: {error}") from error
            live.append(_live_rule(rule, one, config.budgets.get(rule.name)))
        return live
