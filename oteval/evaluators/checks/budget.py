"""Checks of the steps, calls, tokens, money and time that a run used.

- **steps**: the model's messages.
- **tool calls**: calls of tools.
- **model calls**, **tokens**: as the spans of the run's own model calls report them; input tokens
  include cached ones. The usage of sub-agents counts for their own runs.
- **cost**: tokens times the price of the model that answered, in US dollars. If several models
  answered, a trace's sums do not show the tokens of each model. The cost then lies between two
  bounds: all tokens at the prices of the cheapest model, and all tokens at the prices of the
  dearest model. It is over the limit, or within the limit, only if both bounds are.
- **seconds**: the duration of a run's root span. The duration of a conversation is the sum of its
  runs, without the time that the user takes. The duration of a tool is the duration of its span.

A run fails if the trace shows more than a limit. It passes only if the trace shows everything that
counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

from ...base.errors import ConfigError
from ...base.times import seconds_between
from ...model import (
    COLUMNS,
    Fact,
    OutlineRequest,
    Price,
    Prices,
    Reference,
    ToolCall,
    Trajectory,
    Usage,
    list_version,
    make_prices,
)
from ..factories import with_options_of
from ..options import (
    PYTHON_ONLY,
    InConfig,
    NonNegativeFloat,
    NonNegativeInt,
    Seconds,
    describe_options,
    options_of,
)
from . import Check, EvaluationContext, EvaluationResult, NotEvaluated, is_counted, listed

__all__ = [
    "Budget",
    "Cost",
    "Latency",
    "create_budget_evaluator",
    "create_latency_evaluator",
]


@dataclass(frozen=True, kw_only=True)
class Budget(Check):
    """Fails if a run exceeded a limit; None means no limit.

    Attributes:
        max_steps: How many messages the model may write.
        max_tool_calls: How many calls of tools it may make.
        max_model_calls: How many calls of models the run may make.
        max_input_tokens: How many tokens the models may read, including cached tokens.
        max_output_tokens: How many tokens the models may write.
        max_total_tokens: How many tokens the models may read and write.
        max_cost: How much the tokens may cost, in US dollars.
        prices: Prices by model, in US dollars per million tokens. They take precedence over the
            package genai-prices:
            ``{"my-model": {"input": 0.25, "output": 2.0, "cached_input": 0.025}}``.
            ``cached_input``, ``cache_write``, ``input_audio`` and ``output_audio`` may be left out.
    """

    type: ClassVar[str] = "budget"
    needs_messages: ClassVar[bool] = False

    max_steps: NonNegativeInt | None = None
    max_tool_calls: NonNegativeInt | None = None
    max_model_calls: NonNegativeInt | None = None
    max_input_tokens: NonNegativeInt | None = None
    max_output_tokens: NonNegativeInt | None = None
    max_total_tokens: NonNegativeInt | None = None
    max_cost: NonNegativeFloat | None = None
    prices: Annotated[Mapping[str, Any] | None, InConfig(form=Mapping[str, Price] | None)] = None

    def check_combination(self) -> None:
        """Refuse a budget without a limit, and prices that cannot be read."""
        if not self.limits():
            names = [option.name for option in options_of(type(self)) if _is_limit(option.name)]
            raise ConfigError(f"give at least one limit: {', '.join(names)}")
        self.price_table()  # reads the prices

    def price_table(self) -> Prices:
        """The prices to use: first the evaluator's own, then the prices of genai-prices."""
        return make_prices(self.prices)

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The columns of the figures that are limited."""
        limits = self.limits().keys()
        facts: set[Fact] = {"usage"} if limits - {"steps", "tool_calls"} else set()
        return OutlineRequest(
            frozenset(facts | ({"models", "times"} if "cost" in limits else set()))
        )

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the usage with the limits."""
        problems, unseen = [], []
        figures: dict[str, Any] = {}
        for name, limit in self.limits().items():
            try:
                least, most = _MEASURES[name](self, context)
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
            unseen += self._uncounted(context)
            if unseen:
                raise NotEvaluated("; ".join(unseen))
        if "cost" in figures:
            # Otherwise `reported_cost` would mistake the run's cost for the cost of the evaluation.
            figures["cost_usd"] = 0.0
        return self.result(problems, {**figures, "limits": self.limits()})

    def limits(self) -> dict[str, float]:
        """The limits, by the names of the figures."""
        return {
            name.removeprefix("max_"): value
            for name, value in describe_options(self).items()
            if _is_limit(name) and value is not None
        }

    def _uncounted(self, context: EvaluationContext) -> list[str]:
        """Why the count may lack messages or calls."""
        if self.max_steps is not None and (lost := context.content_gap()):
            return [f"{lost.code}: {lost.detail}"]
        if self.max_steps is not None or self.max_tool_calls is not None:
            try:
                context.require_all_calls()
            except NotEvaluated as reason:
                return [str(reason)]
        return []

    def describe(self) -> dict[str, Any]:
        """The limits, and the prices if a cost is limited."""
        described = {"type": Budget.type, "key": self.key, **self.limits()}
        if self.max_cost is not None:
            own = self.price_table().own
            described["prices"] = {name: asdict(price) for name, price in own.items()}
            described["table"] = list_version()
        return described


@dataclass(frozen=True, kw_only=True)
class Cost(Budget):
    """Fails if the tokens of a run cost more than the limit.

    Attributes:
        max_cost: How much the tokens may cost, in US dollars.
    """

    type: ClassVar[str] = "cost"

    max_steps: Annotated[None, PYTHON_ONLY] = None
    max_tool_calls: Annotated[None, PYTHON_ONLY] = None
    max_model_calls: Annotated[None, PYTHON_ONLY] = None
    max_input_tokens: Annotated[None, PYTHON_ONLY] = None
    max_output_tokens: Annotated[None, PYTHON_ONLY] = None
    max_total_tokens: Annotated[None, PYTHON_ONLY] = None
    max_cost: NonNegativeFloat = field()  # required, in spite of the default in Budget


def _is_limit(option: str) -> bool:
    return option.startswith("max_")


def _shown(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_Measure = Callable[[Budget, EvaluationContext], tuple[float, float]]
"""Returns the bounds of a figure: the least and the most, equal if it is known exactly."""


def _exact(count: Callable[[EvaluationContext], float]) -> _Measure:
    def measure(_: Budget, context: EvaluationContext) -> tuple[float, float]:
        value = count(context)
        return value, value

    return measure


def _runs(context: EvaluationContext) -> tuple[Trajectory, ...]:
    """The runs whose usage is added up; each of them reports its usage."""
    if not context.runs:
        raise NotEvaluated("messages alone do not tell it; pass a Trajectory")
    return context.runs


def _model_calls(context: EvaluationContext) -> float:
    calls = sum(run.usage.model_calls for run in _runs(context))
    if not calls:
        raise NotEvaluated("the trace shows no model call")
    return calls


def _usage(run: Trajectory) -> Usage:
    if not run.usage.is_known:
        raise NotEvaluated(f"the trace of run {run.id} reports no tokens")
    return run.usage


def _tokens(*kinds: str) -> _Measure:
    def count(context: EvaluationContext) -> float:
        usages = [_usage(run) for run in _runs(context)]
        return sum(int(getattr(usage, kind)) for usage in usages for kind in kinds)

    return _exact(count)


def _cost(budget: Budget, context: EvaluationContext) -> tuple[float, float]:
    prices = budget.price_table()
    least = most = 0.0
    for run in _runs(context):
        _usage(run)
        if not run.models:
            raise NotEvaluated(f"the trace of run {run.id} does not name the model that answered")
        costs = [_paid(prices, model, run) for model in run.models]
        least, most = least + min(costs), most + max(costs)
    return least, most


def _paid(prices: Prices, model: str, run: Trajectory) -> float:
    price = prices.of(model, at_ns=run.start_ns)
    if price is None:
        raise NotEvaluated(f"the model {model!r} has no price; give it in prices")
    return price.cost(run.usage)


_MEASURES: dict[str, _Measure] = {
    "steps": _exact(lambda context: sum(m.role == "assistant" for m in context.messages)),
    "tool_calls": _exact(lambda context: len(context.calls)),
    "model_calls": _exact(_model_calls),
    "input_tokens": _tokens("input_tokens"),
    "output_tokens": _tokens("output_tokens"),
    "total_tokens": _tokens("input_tokens", "output_tokens"),
    "cost": _cost,
}


@with_options_of(Budget)
def create_budget_evaluator(**options: Any) -> Budget:
    """Create an evaluator that fails if a run exceeded a limit.

    Args:
        **options: The options of `Budget`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return Budget(**options)


_SECOND = 1e9
# Gaps that make the times of a root span unreliable.
_TIME_GAPS = frozenset({"cyclic_parents", "missing_parent", "negative_duration"})


class _Part(NamedTuple):
    """The problems, figures and missing data of one limit."""

    problems: Sequence[str]
    figures: Mapping[str, Any]
    unseen: list[str]


@dataclass(frozen=True, kw_only=True)
class Latency(Check):
    """Fails if a run or a tool took too long.

    Attributes:
        max_seconds: How long the run may take, in seconds or as a text such as ``30s``.
        max_tool_seconds: How long one call of a tool may take.
        tools: The tools whose time counts; ``*`` matches any text, ``?`` any character.
    """

    type: ClassVar[str] = "latency"
    needs_messages: ClassVar[bool] = False

    max_seconds: Annotated[Seconds | None, InConfig("max")] = None
    max_tool_seconds: Annotated[Seconds | None, InConfig("max_tool")] = None
    tools: Sequence[str] | None = None

    def check_combination(self) -> None:
        """Refuse a check without a limit."""
        if self.max_seconds is None and self.max_tool_seconds is None:
            raise ConfigError(
                "give max_seconds or max_tool_seconds; in oteval.yaml give max or max_tool"
            )

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The column of the run's times, unless the times of calls are limited as well."""
        return OutlineRequest(frozenset({"times"})) if self.max_tool_seconds is None else None

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the times with the limits."""
        parts = []
        if self.max_seconds is not None:
            parts.append(self._run(context, self.max_seconds))
        if self.max_tool_seconds is not None:
            parts.append(self._tools(context, self.max_tool_seconds))
        problems = [problem for part in parts for problem in part.problems]
        unseen = [reason for part in parts for reason in part.unseen]
        if not problems and unseen:
            raise NotEvaluated("; ".join(unseen))
        return self.result(problems, {k: v for part in parts for k, v in part.figures.items()})

    def _run(self, context: EvaluationContext, most: float) -> _Part:
        if not context.runs:
            return _Part((), {}, ["messages alone do not tell how long the run took"])
        took = sum(run.end_ns - run.start_ns for run in context.runs if _is_timed(run)) / _SECOND
        problems = [f"the run took {took:.3f} s (at most {most:g} s)"] if took > most else []
        unseen = [why for run in context.runs for why in _untimed(run)]
        return _Part(problems, {"seconds": took}, unseen)

    def _tools(self, context: EvaluationContext, most: float) -> _Part:
        calls = [call for call in context.calls if is_counted(call, self.tools)]
        times = [(call, _seconds(call.call)) for call in calls]
        timed = [(call, seconds) for call, seconds in times if seconds is not None]
        slow = [(call, seconds) for call, seconds in timed if seconds > most]
        problems = [f"{call} took {seconds:.3f} s (at most {most:g} s)" for call, seconds in slow]
        untimed = [call for call, seconds in times if seconds is None]
        unseen = [f"no span shows how long {listed(untimed)} took"] if untimed else []
        try:
            context.require_all_calls()
        except NotEvaluated as reason:
            unseen.append(str(reason))
        took = [seconds for _, seconds in timed]
        return _Part(
            problems,
            {"tool_seconds": sum(took), "slowest_tool_seconds": max(took, default=None)},
            unseen,
        )


def _is_timed(run: Trajectory) -> bool:
    return COLUMNS["seconds"].value(run) is not None


def _untimed(run: Trajectory) -> list[str]:
    """Why a run may have taken longer than its root span shows."""
    gaps = [
        gap for gap in run.gaps if gap.code in _TIME_GAPS and gap.span_id == run.root_span.span_id
    ]
    why = [] if _is_timed(run) else [f"the trace of run {run.id} does not tell how long it took"]
    return why + [f"{gap.code}: {gap.detail}" for gap in gaps]


def _seconds(call: ToolCall) -> float | None:
    return seconds_between(call.start_ns, call.end_ns)


@with_options_of(Latency)
def create_latency_evaluator(**options: Any) -> Latency:
    """Create an evaluator that fails if a run or a tool took too long.

    Args:
        **options: The options of `Latency`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return Latency(**options)
