"""The judge that ``type: judge`` of oteval.yaml stands for, with the store as its cache."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ..config.judges import JudgeRule, JuryMember
from ..errors import ConfigError
from ..evaluate.judge import PROMPTS, Budget, JudgeCall, create_trajectory_llm_as_judge
from ..evaluate.judge.rendering import shown
from ..evaluate.judge.scoring import LlmJudge
from ..evaluate.scorer import Result
from ..model import Message, Reference, Trajectory
from ..store import Store
from ..store.judge_calls import CallsOf

__all__ = ["make_llm_judge"]

_DAY_NS = 86_400 * 10**9
# The run that a judge is being asked about.
_JUDGED: ContextVar[str] = ContextVar("oteval_judged", default="")


class _StoredCalls:
    """The store's cache of answers, which notes the runs that they are about."""

    def __init__(self, calls: CallsOf[JudgeCall]) -> None:
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
    calls = None if store is None else store.judge_calls.of(rule.name, JudgeCall, again=again)
    budget = _budget(rule, 0.0 if calls is None else calls.spent(_midnight()))
    evaluator = create_trajectory_llm_as_judge(
        prompt=_prompt(rule, base),
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
        prices={name: price.model_dump(exclude_none=True) for name, price in rule.prices.items()},
        cache=None if calls is None else _StoredCalls(calls),
    )
    judge = _StoredJudge(evaluator, rule.threshold, rule.variables, rule.max_concurrency)
    described = {
        **evaluator.describe(),
        "variables": rule.variables,
        "threshold": rule.threshold,
    }
    return judge, described


def _prompt(rule: JudgeRule, base: Path) -> str:
    """Return the text of a prompt: one that comes with oteval, a file's, or the rule's own."""
    name = rule.prompt
    if name in PROMPTS:
        with_reference = f"{name}_with_reference"
        use = with_reference if rule.reference is not None and with_reference in PROMPTS else name
        return PROMPTS[use]
    text = name if "\n" in name or "{" in name else _file(name, base)
    names = shown(text) or set()
    if not names & {"outputs", "thread"}:
        raise ConfigError("prompt: it does not show {outputs}; write that where the run belongs")
    if rule.reference is not None and "reference_outputs" not in names:
        raise ConfigError(
            "prompt: it does not show {reference_outputs}, though there is a reference"
        )
    return text


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
