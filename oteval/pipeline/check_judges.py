"""The judges of the evaluators of oteval.yaml that need no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..config import checks as rules
from ..config.base import BaseRule
from ..errors import ConfigError
from ..evaluators import checks
from ..evaluators.checks.scoring import CheckJudge
from ..evaluators.graph import create_graph_trajectory_match_evaluator
from ..evaluators.graph.scoring import GraphMatchJudge
from ..evaluators.scorer import Judge
from .references import read_json

__all__ = ["CHECK_MAKERS"]

Description = Mapping[str, Any]


def _graph_match(rule: rules.GraphMatchRule, base: Path) -> tuple[Judge, Description]:  # noqa: ARG001
    evaluator = create_graph_trajectory_match_evaluator(
        trajectory_match_mode=rule.mode, score_type=rule.score_type
    )
    described = {**evaluator.describe(), "threshold": rule.threshold}
    return GraphMatchJudge(evaluator, rule.scope, rule.threshold), described


def _tool_errors(rule: rules.ToolErrorsRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_tool_error_evaluator(
        max_errors=rule.max_errors,
        tools=rule.tools,
        error_pattern=rule.error_pattern,
        missing_ok=rule.missing_ok,
    )


def _loops(rule: rules.LoopsRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_loop_evaluator(
        max_repeats=rule.max_repeats,
        max_equal=rule.max_equal,
        max_cycle=rule.max_cycle,
        ignore_tools=rule.ignore_tools,
    )


def _budget(rule: rules.BudgetRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_budget_evaluator(
        max_steps=rule.max_steps,
        max_tool_calls=rule.max_tool_calls,
        max_model_calls=rule.max_model_calls,
        max_input_tokens=rule.max_input_tokens,
        max_output_tokens=rule.max_output_tokens,
        max_total_tokens=rule.max_total_tokens,
        max_cost=rule.max_cost,
        prices=_prices(rule.prices),
    )


def _cost(rule: rules.CostRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_budget_evaluator(
        max_cost=rule.max_cost, prices=_prices(rule.prices), feedback_key="cost"
    )


def _prices(prices: Mapping[str, rules.TokenPrice]) -> dict[str, Any]:
    return {name: price.model_dump(exclude_none=True) for name, price in prices.items()}


def _latency(rule: rules.LatencyRule, base: Path) -> checks.Check:  # noqa: ARG001
    limits = [None if value is None else float(value) for value in (rule.max, rule.max_tool)]
    return checks.create_latency_evaluator(
        max_seconds=limits[0], max_tool_seconds=limits[1], tools=rule.tools
    )


def _required_text(rule: rules.RequiredTextRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_required_text_evaluator(
        texts=rule.texts,
        match=rule.match,
        said_by=rule.said_by,
        regex=rule.regex,
        ignore_case=rule.ignore_case,
        last_only=rule.last_only,
    )


def _final_answer(rule: rules.FinalAnswerRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_final_answer_evaluator(
        mode=rule.mode,
        expected=rule.expected,
        tolerance=rule.tolerance,
        relative_tolerance=rule.relative_tolerance,
    )


def _tool_schema(rule: rules.ToolSchemaRule, base: Path) -> checks.Check:
    tools = None if rule.definitions is None else read_json(base / rule.definitions)
    try:
        return checks.create_tool_schema_evaluator(tools=tools, unknown_tools=rule.unknown_tools)
    except ConfigError as error:
        raise ConfigError(f"{base / str(rule.definitions)}: {error}") from None


def _forbidden_tools(rule: rules.ForbiddenToolsRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_forbidden_tools_evaluator(forbidden=rule.forbidden, allowed=rule.allowed)


def _tool_order(rule: rules.ToolOrderRule, base: Path) -> checks.Check:  # noqa: ARG001
    return checks.create_tool_order_evaluator(rules=rule.rules)


def _judged(
    make: Callable[[Any, Path], checks.Check],
) -> Callable[[Any, Path], tuple[Judge, Description]]:
    def made(rule: BaseRule, base: Path) -> tuple[Judge, Description]:
        check = make(rule, base)
        return CheckJudge(check, rule.scope), check.describe()

    return made


CHECK_MAKERS: dict[type[BaseRule], Callable[[Any, Path], tuple[Judge, Description]]] = {
    rules.GraphMatchRule: _graph_match,
    rules.BudgetRule: _judged(_budget),
    rules.CostRule: _judged(_cost),
    rules.FinalAnswerRule: _judged(_final_answer),
    rules.ForbiddenToolsRule: _judged(_forbidden_tools),
    rules.LatencyRule: _judged(_latency),
    rules.LoopsRule: _judged(_loops),
    rules.RequiredTextRule: _judged(_required_text),
    rules.ToolErrorsRule: _judged(_tool_errors),
    rules.ToolOrderRule: _judged(_tool_order),
    rules.ToolSchemaRule: _judged(_tool_schema),
}
"""What judges by each rule, and what its version is made of."""
