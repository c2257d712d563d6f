"""The judge that ``type: judge`` of oteval.yaml stands for, with the store as its cache."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..config import Limits
from ..config.judges import JudgeRule, JuryMember
from ..errors import ConfigError
from ..evaluators.judge import PROMPTS, Budget, JudgeCall, create_trajectory_llm_as_judge
from ..evaluators.judge.costs import make_prices
from ..evaluators.judge.prompt import FEW_SHOT_EXAMPLES
from ..evaluators.judge.prompts import optional_variables
from ..evaluators.judge.templates import closest_name, template_problem, template_variables
from ..evaluators.judge.trajectory_judge import RUN_VARIABLES, LlmJudge
from ..evaluators.scorer import Result
from ..model import Message, Reference, Trajectory
from ..store import Store
from ..store.judge_calls import EvaluatorCalls

__all__ = ["check_prices", "make_llm_judge"]

_DAY_NS = 86_400 * 10**9
# The run that a judge is being asked about.
_JUDGED: ContextVar[str] = ContextVar("oteval_judged", default="")


class _StoredCalls:
    """The store's cache of answers, which notes the runs that they are about."""

    def __init__(self, calls: EvaluatorCalls[JudgeCall]) -> None:
        self._calls = calls

    def get(self, key: str) -> JudgeCall | None:
        """Return the call of a key that was answered, or None."""
        if run := _JUDGED.get():
            self._calls.link(key, run)
        return self._calls.get(key)

    def put(self, call: JudgeCall) -> None:
        """Keep a call, answered or not."""
        self._calls.put(call)


class _StoredJudge(LlmJudge):
    """A judge whose cached answers can be deleted with the runs that they are about."""

    def judge(
        self, trajectory: Trajectory, messages: Sequence[Message], reference: Reference | None
    ) -> Result:
        token = _JUDGED.set(trajectory.id)
        try:
            return super().judge(trajectory, messages, reference)
        finally:
            _JUDGED.reset(token)


def make_llm_judge(
    rule: JudgeRule, base: Path, store: Store | None, *, again: bool = False
) -> tuple[LlmJudge, Mapping[str, Any]]:
    """Return what judges by a rule, and all that its verdict depends on.

    Args:
        rule: The rule.
        base: The folder that a prompt's file is relative to.
        store: Where answers are kept; None keeps none.
        again: Whether to ask what has been answered before.

    Raises:
        ConfigError: The prompt cannot be had, or an argument is wrong.
    """
    prompt = _prompt(rule, base)
    check_prices(rule)
    calls = None if store is None else store.judge_calls.of(rule.name, JudgeCall, again=again)
    budget = _budget(rule, 0.0 if calls is None else calls.spent(_midnight()))
    evaluator = create_trajectory_llm_as_judge(
        prompt=prompt,
        model=rule.model,
        jury=None if rule.jury is None else [_member(one) for one in rule.jury],
        system=rule.system,
        feedback_key=rule.name,
        continuous=rule.continuous,
        choices=rule.choices,
        use_reasoning=rule.use_reasoning,
        few_shot_examples=rule.few_shot or None,
        samples=rule.samples,
        harden=rule.harden,
        instruction_variables=rule.instruction_variables,
        base_url=rule.base_url,
        api_key=os.environ.get(rule.api_key_env) or None,
        temperature=rule.temperature,
        seed=rule.seed,
        stream=rule.stream,
        request_options=rule.request,
        timeout=float(rule.timeout),
        max_retries=rule.max_retries,
        max_concurrency=rule.max_concurrency,
        max_cost=budget,
        prices=_prices(rule),
        cache=None if calls is None else _StoredCalls(calls),
    )
    judge = _StoredJudge(evaluator, rule.threshold, rule.variables, rule.max_concurrency)
    described = {
        **evaluator.describe(),
        "variables": rule.variables,
        "threshold": rule.threshold,
    }
    return judge, described


def check_prices(rule: JudgeRule, limits: Limits | None = None) -> None:
    """Refuse limits on what a rule costs where a model's price is not known.

    Args:
        rule: The rule.
        limits: What ``budgets`` says of it.

    Raises:
        ConfigError: A price is missing; the text says how to give it.
    """
    settings = [
        name for name in ("max_cost", "max_cost_per_day") if getattr(rule, name) is not None
    ]
    if limits is not None and limits.max_cost_per_day is not None:
        settings.append(f"budgets.{rule.name}.max_cost_per_day")
    if not settings:
        return
    prices = _prices(rule)
    members = [one if isinstance(one, str) else one.model for one in rule.jury or ()]
    for model in members or [rule.model or ""]:
        name = model.removeprefix("openai:")
        if make_prices(prices).of(name) is None:
            price = f"{{{name!r}: {{input: ..., output: ...}}}}"
            raise ConfigError(
                f"{settings[0]} needs the price of {name!r}: add prices: {price} in US dollars per "
                "million tokens"
            )


def _prices(rule: JudgeRule) -> dict[str, dict[str, float]]:
    return {name: price.model_dump(exclude_none=True) for name, price in rule.prices.items()}


def _prompt(rule: JudgeRule, base: Path) -> str:
    """Return the text of a prompt: one that comes with oteval, a file's, or the rule's own."""
    name = rule.prompt
    if name in PROMPTS:
        with_reference = f"{name}_with_reference"
        use = with_reference if rule.reference is not None and with_reference in PROMPTS else name
        text = PROMPTS[use]
    else:
        text = name if "\n" in name or "{" in name else _file(name, base)
    _check_variables(rule, text)
    return text


def _check_variables(rule: JudgeRule, text: str) -> None:
    """Refuse a prompt that shows what has no value, and variables that it does not show."""
    shown = template_variables(text)
    if name := next((name for name in rule.variables if name in RUN_VARIABLES), ""):
        raise ConfigError(f"variables: {name!r} is filled in from the run; choose another name")
    if not shown & {"outputs", "thread"}:
        near = closest_name("outputs", shown)
        hint = f" in place of {{{near}}}" if near else " where the run belongs"
        raise ConfigError(f"prompt: it does not show {{outputs}}; write that{hint}")
    given = RUN_VARIABLES - {"reference_outputs"} | {"inputs", *rule.variables}
    if rule.reference is not None:
        given |= {"reference_outputs"}
        if "reference_outputs" not in shown:
            raise ConfigError(
                "prompt: it does not show {reference_outputs}, though there is a reference"
            )
    elif "reference_outputs" in shown - optional_variables(text):
        raise ConfigError(
            "prompt: it shows {reference_outputs}, which has no value without a reference; add "
            "reference: or take it out of the prompt"
        )
    if problem := template_problem(text, given, optional_variables(text)):
        raise ConfigError(f"prompt: {problem} (values stand under variables:)")
    for place, names in (
        ("variables", list(rule.variables)),
        (
            "instruction_variables",
            [n for n in rule.instruction_variables if n != FEW_SHOT_EXAMPLES],
        ),
    ):
        for name in names:
            if name not in shown:
                near = closest_name(name, shown)
                hint = f"did you mean {near!r}?" if near else f"write {{{name}}} where it belongs"
                raise ConfigError(f"{place}: the prompt does not show {name!r}; {hint}")


def _file(name: str, base: Path) -> str:
    path = base / name
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        known = ", ".join(sorted(PROMPTS))
        raise ConfigError(
            f"prompt: {path} is no file, and no prompt of oteval's: {known}; a text of your own "
            "shows {outputs}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt: {path} cannot be read: {error}") from error


def _member(member: str | JuryMember) -> Any:
    return member if isinstance(member, str) else member.model_dump(exclude_none=True)


def _budget(rule: JudgeRule, spent_today: float) -> Budget | None:
    """Return what the judge may still spend: the smaller of its two limits."""
    limits = []
    if rule.max_cost is not None:
        limits.append(Budget(rule.max_cost))
    if rule.max_cost_per_day is not None:
        limits.append(Budget(rule.max_cost_per_day, "max_cost_per_day", spent=spent_today))
    return min(limits, key=lambda one: one.limit - one.spent, default=None)


def _midnight() -> int:
    """Return when today began, in UTC."""
    now = time.time_ns()
    return now - now % _DAY_NS
