"""A check of what a run used: steps, calls, tokens and money.

- **steps**: the model's messages.
- **tool calls**: calls of tools.
- **model calls**, **tokens**: as the spans of the run's own model calls report them; input tokens
  include cached ones. What sub-agents use counts for them, not for who called them.
- **cost**: tokens times the price of the model that answered, in US dollars. Where several models
  answered, a trace's sums do not tell which used how many, so the cost lies between that at the
  prices of the cheapest and of the dearest; it is over the limit, or within, only when both are.

What is seen to be over is a failure; to pass, nothing that counts may be unseen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import Any, ClassVar

from ...errors import ConfigError
from ...model import Trajectory, Usage
from .. import judge
from ..judge.costs import Prices, make_prices
from .base import Check, Found, NotEvaluated, Seen, number, whole

__all__ = ["Budget", "create_budget_evaluator"]

_TABLE = Prices()


@dataclass(frozen=True)
class Budget(Check):
    """Fails where a run used more than it may; a limit that is None is none.

    Attributes:
        key: The score's name.
        max_steps: Messages of the model.
        max_tool_calls: Calls of tools.
        max_model_calls: Calls of models.
        max_input_tokens: Tokens read.
        max_output_tokens: Tokens written.
        max_total_tokens: Both.
        max_cost: US dollars.
        prices: The user's prices, and after them the table's.
    """

    type: ClassVar[str] = "budget"
    needs_messages: ClassVar[bool] = False

    key: str = "budget"
    max_steps: int | None = None
    max_tool_calls: int | None = None
    max_model_calls: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost: float | None = None
    prices: Prices = _TABLE

    def check(self, seen: Seen) -> Found:
        """Look for what is over its limit."""
        problems, figures, unseen = [], {}, []
        for name, limit in self.limits().items():
            try:
                least, most = _MEASURES[name](self, seen)
            except NotEvaluated as reason:
                unseen.append(str(reason))
                continue
            figures[name] = most if least == most else [least, most]
            if least > limit:
                over = f"at least {_shown(least)}" if least != most else _shown(least)
                problems.append(f"{name.replace('_', ' ')} {over} (at most {_shown(limit)})")
            elif most > limit:
                between = f"between {_shown(least)} and {_shown(most)}"
                unseen.append(f"the {name.replace('_', ' ')} is {between}, by model")
        if not problems:
            unseen += self._uncounted(seen)
            if unseen:
                raise NotEvaluated("; ".join(unseen))
        return Found(problems, {**figures, "limits": self.limits()})

    def limits(self) -> dict[str, float]:
        """Return the limits by what they limit."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            name.removeprefix("max_"): value
            for name, value in named.items()
            if name.startswith("max_") and value is not None
        }

    def _uncounted(self, seen: Seen) -> list[str]:
        """Return why messages or calls that count may not be among those that were counted."""
        if self.max_steps is not None and (lost := seen.lost()):
            return [f"{lost.code}: {lost.detail}"]
        if self.max_steps is not None or self.max_tool_calls is not None:
            try:
                seen.require_all_calls()
            except NotEvaluated as reason:
                return [str(reason)]
        return []

    def describe(self) -> dict[str, Any]:
        """Return the configuration as JSON values, for the hash that is its version."""
        described = {"type": self.type, "key": self.key, **self.limits()}
        if self.max_cost is not None:
            described["prices"] = {name: asdict(one) for name, one in self.prices.own.items()}
            described["table"] = _table_version()
        return described


def _table_version() -> str:
    data = resources.files(judge).joinpath("prices.json").read_bytes()
    return hashlib.blake2b(data, digest_size=6).hexdigest()


def _shown(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_Measure = Callable[[Budget, Seen], tuple[float, float]]
"""What a run used: the least and the most that it can be, equal where it is known."""


def _exact(count: Callable[[Seen], float]) -> _Measure:
    def measure(_: Budget, seen: Seen) -> tuple[float, float]:
        value = count(seen)
        return value, value

    return measure


def _runs(seen: Seen) -> tuple[Trajectory, ...]:
    """Return the runs whose usage is to be added up, all of which report one."""
    if not seen.runs:
        raise NotEvaluated("messages alone do not tell it; pass a Trajectory")
    return seen.runs


def _model_calls(seen: Seen) -> float:
    calls = sum(run.usage.model_calls for run in _runs(seen))
    if not calls:
        raise NotEvaluated("the trace shows no model call")
    return calls


def _usage(run: Trajectory) -> Usage:
    if not (run.usage.input_tokens or run.usage.output_tokens):
        raise NotEvaluated(f"the trace of run {run.id} reports no tokens")
    return run.usage


def _tokens(*kinds: str) -> _Measure:
    def count(seen: Seen) -> float:
        usages = [_usage(run) for run in _runs(seen)]
        return sum(int(getattr(usage, kind)) for usage in usages for kind in kinds)

    return _exact(count)


def _cost(budget: Budget, seen: Seen) -> tuple[float, float]:
    least = most = 0.0
    for run in _runs(seen):
        usage = _usage(run)
        if not run.models:
            raise NotEvaluated(f"the trace of run {run.id} does not name the model that answered")
        costs = [_paid(budget.prices, model, usage) for model in run.models]
        least, most = least + min(costs), most + max(costs)
    return least, most


def _paid(prices: Prices, model: str, usage: Usage) -> float:
    price = prices.of(model)
    if price is None:
        raise NotEvaluated(f"the model {model!r} has no price; give it in prices")
    return price.cost(usage.input_tokens, usage.output_tokens, usage.cached_tokens)


_MEASURES: dict[str, _Measure] = {
    "steps": _exact(lambda seen: sum(m.role == "assistant" for m in seen.messages)),
    "tool_calls": _exact(lambda seen: len(seen.calls)),
    "model_calls": _exact(_model_calls),
    "input_tokens": _tokens("input_tokens"),
    "output_tokens": _tokens("output_tokens"),
    "total_tokens": _tokens("input_tokens", "output_tokens"),
    "cost": _cost,
}


def create_budget_evaluator(
    *,
    max_steps: int | None = None,
    max_tool_calls: int | None = None,
    max_model_calls: int | None = None,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    max_total_tokens: int | None = None,
    max_cost: float | None = None,
    prices: Any = None,
    feedback_key: str = "budget",
) -> Budget:
    """Create an evaluator that fails where a run used more than it may.

    Args:
        max_steps: How many messages the model may write.
        max_tool_calls: How many calls of tools it may make.
        max_model_calls: How many calls of models the run may make.
        max_input_tokens: How many tokens the models may read, cached ones included.
        max_output_tokens: How many tokens the models may write.
        max_total_tokens: How many of both.
        max_cost: How much the tokens may cost, in US dollars.
        prices: Prices by model, in US dollars per million tokens, before those of the table that
            judges use: ``{"my-model": {"input": 0.25, "output": 2.0, "cached_input": 0.025}}``;
            ``cached_input`` may be left out.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: There is no limit, a limit is no number, or a price is none.
    """
    counts = {
        "max_steps": max_steps,
        "max_tool_calls": max_tool_calls,
        "max_model_calls": max_model_calls,
        "max_input_tokens": max_input_tokens,
        "max_output_tokens": max_output_tokens,
        "max_total_tokens": max_total_tokens,
    }
    checked = {name: whole(v, name) for name, v in counts.items() if v is not None}
    if not checked and max_cost is None:
        raise ConfigError(f"give at least one limit: {', '.join(counts)} or max_cost")
    cost = None if max_cost is None else number(max_cost, "max_cost")
    return Budget(feedback_key, **checked, max_cost=cost, prices=make_prices(prices))
