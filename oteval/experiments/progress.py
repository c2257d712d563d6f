"""What goes on, for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Progress"]


@dataclass
class Progress:
    """How far an experiment or comparison is.

    Attributes:
        total: How many runs, or questions, there are.
        done: How many of them are done, those of an earlier attempt included.
        resumed: How many had been done by an earlier attempt.
        errors: How many runs and evaluations failed.
        cached: How many answers of judges came out of the cache.
        cost: What judges cost, in US dollars, as far as they say.
    """

    total: int = 0
    done: int = 0
    resumed: int = 0
    errors: int = 0
    cached: int = 0
    cost: float = 0.0

    def note(self, metadata: Mapping[str, Any]) -> None:
        """Count what an evaluator says of its own cost."""
        cost = metadata.get("cost_usd")
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            self.cost += cost
        cached = metadata.get("cached")
        if isinstance(cached, (bool, int)):
            self.cached += int(cached)
