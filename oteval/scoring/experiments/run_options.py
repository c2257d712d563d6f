"""Options that experiments and comparisons share, and the progress that they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...base.errors import ConfigError
from ...model import reported_cost

__all__ = ["TIMEOUT", "OnError", "OnProgress", "Progress", "RunOptions", "refuse_client"]

TIMEOUT = 120.0


@dataclass
class Progress:
    """The progress of an experiment or comparison.

    Attributes:
        total: All runs of the experiment, or all questions of the comparison.
        done: How many of them are done, in this attempt or an earlier one.
        resumed: How many were done by an earlier attempt.
        errors: How many runs and evaluations failed.
        cached: How many answers of judges came from the cache.
        cost: The cost of judges (US dollars), as far as they report it.
    """

    total: int = 0
    done: int = 0
    resumed: int = 0
    errors: int = 0
    cached: int = 0
    cost: float = 0.0

    def add_cost(self, metadata: Mapping[str, Any]) -> None:
        """Count the cost that an evaluator reports in the metadata of its result."""
        self.cost += reported_cost(metadata) or 0.0
        cached = metadata.get("cached")
        if isinstance(cached, (bool, int)):
            self.cached += int(cached)


OnProgress = Callable[[Progress], None]
OnError = Literal["record", "raise"]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of an experiment or a comparison.

    Attributes:
        concurrency: How many runs or questions at once.
        timeout: Seconds that an evaluator may take; None for no limit.
        target_timeout: Seconds that the target may take; None for no limit.
        on_error: ``record`` stores a failure and continues; ``raise`` stops at the first one.
        on_progress: Called after each run or question.
    """

    concurrency: int | None = 5
    timeout: float | None = TIMEOUT
    target_timeout: float | None = None
    on_error: OnError = "record"
    on_progress: OnProgress | None = None

    def __post_init__(self) -> None:
        """Check `on_error`."""
        if self.on_error not in ("record", "raise"):
            raise ConfigError(f"on_error is {self.on_error!r}; it must be 'record' or 'raise'")

    @property
    def raises(self) -> bool:
        """Whether the first failure ends the run."""
        return self.on_error == "raise"

    def report(self, progress: Progress) -> None:
        """Report progress to the caller, who may have asked for it."""
        if self.on_progress:
            self.on_progress(progress)


def refuse_client(client: object) -> None:
    """Raise ConfigError for a LangSmith client, because nothing would be sent to it."""
    if client is not None:
        raise ConfigError(
            "client: results are kept in oteval's store, not sent to LangSmith; leave client out, "
            "or pass oteval's evaluators to langsmith.evaluate"
        )
