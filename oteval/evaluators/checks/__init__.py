"""Checks: evaluators that need no model.

A **check** is an evaluator whose verdict is a pure function of its options and the trace. It
reports problems, reports none, or raises `NotEvaluated` if the trace lacks data for a verdict. Data
in the trace is enough to fail a run; to pass one, the trace must show everything that could have
failed.

When a user calls a check that cannot be evaluated, the score is None, ``metadata["status"]`` is
``not_evaluated``, and the comment contains the reason. Indexes of calls and messages count from 0.

Here is the base class, with helpers for results and comments. The modules have the types; importing
this package imports none of them: `oteval.evaluators.registry` imports one by its type, or all to
list the types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ...model import EvaluationResult
from ..evaluator import Call, EvaluationContext, Evaluator, NotEvaluated

__all__ = [
    "Call",
    "Check",
    "EvaluationContext",
    "EvaluationResult",
    "NotEvaluated",
    "is_counted",
    "listed",
    "name_matches",
]

_LISTED = 3


@dataclass(frozen=True, kw_only=True)
class Check(Evaluator):
    """An evaluator that needs no model: it passes where nothing is wrong."""

    @staticmethod
    def result(problems: Sequence[str], metadata: Mapping[str, Any]) -> EvaluationResult:
        """The result of a check.

        Args:
            problems: The problems, each in a few words; none for a pass.
            metadata: Figures that reproduce the verdict.
        """
        return EvaluationResult.of_verdict(
            not problems, comment=listed(problems, "; "), metadata=metadata
        )


def listed(texts: Sequence[object], between: str = ", ") -> str:
    """The first few of some texts, and how many more there are."""
    more = f"{between}and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return between.join(map(str, texts[:_LISTED])) + more


def is_counted(call: Call, tools: Iterable[str] | None) -> bool:
    """Whether a check of some tools counts a call. If the tools are None, every call counts."""
    return tools is None or name_matches(call.call.name, tools)


def name_matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a tool's name matches any of several patterns with * and ?."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
