"""The judge that each ``type`` of evaluator in oteval.yaml stands for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..config import BaseRule, JudgeRule, Limits, MatchRule, PythonRule
from ..evaluators import create_trajectory_match_evaluator
from ..evaluators.functions import code_version, load_function
from ..evaluators.scorer import FunctionJudge, Judge, MatchJudge
from ..store import Store
from .check_judges import CHECK_MAKERS

__all__ = ["Made", "judge_of", "refuse_unpriced"]


class Made(NamedTuple):
    """A judge, and what its version is made of.

    Attributes:
        judge: The judge.
        description: All that its verdict depends on.
    """

    judge: Judge
    description: Mapping[str, Any]


def judge_of(
    rule: BaseRule, base: Path, store: Store | None = None, *, again: bool = False
) -> Made:
    """Return what judges by a rule.

    Args:
        rule: The rule.
        base: The folder that paths of the configuration are relative to.
        store: Where the answers of language models are kept; None keeps none.
        again: Whether they are asked what they have answered before.

    Raises:
        ConfigError: A function cannot be had, or an argument is wrong.
    """
    if isinstance(rule, JudgeRule):
        # Imported here: it is slow to import, and few configurations have one.
        from .llm_judges import make_llm_judge

        return Made(*make_llm_judge(rule, base, store, again=again))
    if type(rule) in CHECK_MAKERS:
        return Made(*CHECK_MAKERS[type(rule)](rule, base))
    return _MAKERS[type(rule)](rule, base)


def refuse_unpriced(rule: BaseRule, limits: Limits | None) -> None:
    """Refuse limits on the costs of a rule that asks models without a known price.

    Raises:
        ConfigError: A price is missing; the text says how to give it.
    """
    if isinstance(rule, JudgeRule):
        from .llm_judges import check_prices  # slow to import, as above

        check_prices(rule, limits)


def _python(rule: PythonRule, base: Path) -> Made:
    with _importable(base):
        function = load_function(rule.call)
    timeout = None if rule.timeout is None else float(rule.timeout)
    code = code_version(function)
    return Made(
        FunctionJudge(function, timeout), {"type": rule.type, "call": rule.call, "code": code}
    )


def _match(rule: MatchRule, base: Path) -> Made:  # noqa: ARG001
    evaluator = create_trajectory_match_evaluator(
        trajectory_match_mode=rule.mode,
        tool_args_match_mode=rule.tool_args,
        tool_args_match_overrides=rule.overrides or None,
        view=rule.view,
        effect_tools=rule.effect_tools or None,
        error_pattern=rule.error_pattern,
        score_type=rule.score_type,
        strict_order=rule.strict_order,
        missing_ok=rule.missing_ok,
    )
    description = {**evaluator.describe(), "threshold": rule.threshold}
    return Made(MatchJudge(evaluator, rule.threshold), description)


_MAKERS: dict[type[BaseRule], Callable[[Any, Path], Made]] = {
    MatchRule: _match,
    PythonRule: _python,
}


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let functions be imported that stand beside the configuration, as ``python -m`` would.

    Afterwards the folder comes last: a file there is never imported in place of a package.
    """
    name = str(folder.resolve())
    given = list(sys.path)
    sys.path.insert(0, name)
    try:
        yield
    finally:
        with suppress(ValueError):  # the module changed the path itself
            sys.path.remove(name)
        if name not in given:
            sys.path.append(name)
