"""Checks of the final answer: it is the expected one, and the model finished it.

The **final answer** is the text of the last message, if the model wrote it. Its
**number** is the last number in the text. Numbers consist of digits, with an optional sign,
commas between thousands, decimals and exponent. Why models stopped shows answers that were cut off
or filtered.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal

from ...base.errors import ConfigError, InputError
from ...model import Message, normal_finish_reason
from ..evaluator import ReferenceOption
from ..factories import with_options_of
from ..messages import to_messages
from ..options import NonNegativeFloat
from ..values import folded, show_pair
from . import Check, EvaluationContext, EvaluationResult, NotEvaluated

__all__ = [
    "FinalAnswer",
    "FinishReason",
    "create_final_answer_evaluator",
    "create_finish_reason_evaluator",
    "cut_reason",
    "last_number",
    "normalised",
]

_OWN = ("stop", "tool_call", "compaction", "pause_turn")
_CUT = {
    "length": "the answer was cut off at its limit of tokens",
    "content_filter": "a filter of the provider ended the answer",
    "error": "an error ended the answer",
}


@dataclass(frozen=True, kw_only=True)
class FinishReason(Check):
    """Fails if a model stopped for any reason other than having finished.

    Reasons are converted to OpenTelemetry's values (``stop``, ``length``, ``content_filter``,
    ``tool_call``, ``error``) before they are compared.

    Attributes:
        allowed: The reasons that pass.
    """

    type: ClassVar[str] = "finish_reason"
    needs_messages: ClassVar[bool] = False

    allowed: Sequence[str] = _OWN

    def check_combination(self) -> None:
        """Refuse a check that no run can pass."""
        if isinstance(self.allowed, str) or not self.allowed:
            raise ConfigError(f"allowed is {self.allowed!r}; give a list such as [stop, tool_call]")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the reasons of all model calls of the runs."""
        if not context.runs:
            raise NotEvaluated("messages alone do not tell it; pass a Trajectory")
        allowed = set(map(normal_finish_reason, self.allowed))
        reasons = Counter(reason for run in context.runs for reason in run.finish_reasons)
        calls = sum(run.usage.model_calls for run in context.runs)
        problems = [
            f"{_CUT.get(reason, f'the model stopped with {reason!r}')} (finish reason {reason}, "
            f"in {count} of {calls} model calls)"
            for reason, count in reasons.items()
            if reason not in allowed
        ]
        if not problems and not calls:
            raise NotEvaluated("the trace shows no model call")
        if not problems and reasons.total() < calls:
            raise NotEvaluated(
                f"the trace does not tell why the model stopped in {calls - reasons.total()} of "
                f"{calls} model calls"
            )
        return self.result(problems, {"finish_reasons": dict(reasons), "model_calls": calls})


def cut_reason(context: EvaluationContext) -> str:
    """Why the last answer of a run is incomplete, or ""."""
    run = context.trajectory
    # The last reason belongs to the last answer only if every call has a reason.
    if run is None or not run.finish_reasons:
        return ""
    if len(run.finish_reasons) != run.usage.model_calls:
        return ""
    reason = run.finish_reasons[-1]
    return f"{_CUT[reason]} (finish reason {reason})" if reason in _CUT else ""


@with_options_of(FinishReason)
def create_finish_reason_evaluator(**options: Any) -> FinishReason:
    """Create an evaluator that fails if a model's answer was cut off or filtered.

    Args:
        **options: The options of `FinishReason`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return FinishReason(**options)


_NUMBER = re.compile(
    r"""
    (?<![\w.])                           # not inside a word, a version or another number
    [-+\u2212]?
    (?:
        (?: \d{1,3}(?:,\d{3})+(?!\d) | \d+ )  # with or without commas between thousands
        (?:\.\d+)?
        (?:[eE][-+]?\d+)?
      | \.\d+
    )
    """,
    re.VERBOSE,
)
_EDGES = " \t\n.,;:!?\"'`*_()[]{}"


def normalised(text: str) -> str:
    """A text without differences in case, white space and outer punctuation.

    Args:
        text: Any text.

    Returns:
        The text in Unicode's form NFKC, case-folded, with single spaces, and without punctuation
        and quotes at its ends.
    """
    return folded(text).strip(_EDGES)


def last_number(text: str) -> Decimal | None:
    """The last number in a text, or None."""
    numbers = _NUMBER.findall(text)
    return Decimal(numbers[-1].replace(",", "").replace("\u2212", "-")) if numbers else None


@dataclass(frozen=True, kw_only=True)
class FinalAnswer(Check):
    """Fails if the final answer differs from the expected one, or was cut off or filtered.

    Attributes:
        mode: How the answers are compared: ``exact``; ``normalised``, where case, white space and
            punctuation at the ends do not count; or ``numeric``, the last number of each.
        expected: The expected answer of every run. By default it is the reference: a text, a
            number, or the final answer of a trajectory.
        tolerance: For ``numeric``, by how much the numbers may differ.
        relative_tolerance: For ``numeric``, the share of the expected number by which the numbers
            may differ.
    """

    type: ClassVar[str] = "final_answer"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "A JSON file of messages, {trajectory: ID}, {name: NAME}, {dataset, key}, or "
        "{any: [...]} of these; the best match counts.",
        accepts_several=True,
    )

    mode: Literal["exact", "normalised", "numeric"] = "exact"
    expected: str | int | float | None = None
    tolerance: NonNegativeFloat = 0.0
    relative_tolerance: NonNegativeFloat = 0.0

    def check_combination(self) -> None:
        """Refuse a tolerance for texts, and an expected answer that cannot be compared."""
        if self.mode != "numeric" and (self.tolerance or self.relative_tolerance):
            raise ConfigError(f"a tolerance is for mode 'numeric', not {self.mode!r}")
        if self.expected is None:
            return
        if not isinstance(self.expected, str):
            if not math.isfinite(self.expected):
                raise ConfigError(f"expected is {self.expected!r}; give a text or a finite number")
            object.__setattr__(self, "expected", repr(self.expected))
        if self.mode == "numeric" and last_number(str(self.expected)) is None:
            raise ConfigError(f"expected {self.expected!r} holds no number")

    def check_reference(self, *, has_reference: bool) -> None:
        """Require either an expected answer or a reference."""
        if (self.expected is not None) == has_reference:
            raise ConfigError("give either expected or reference")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Compare the answers."""
        expected = self._expected_answer(context.reference_outputs)
        answer, cut = _answer(context.messages), cut_reason(context)
        figures: dict[str, Any]
        if answer is None:
            lost = context.content_gap()
            if lost is not None:
                raise NotEvaluated(f"{lost.code}: {lost.detail}")
            problems = ["the run ends without an answer", *([cut] if cut else [])]
            return self.result(problems, {"answer": None, "expected": expected})
        figures = {"answer": answer[:1000], "expected": expected[:1000]}
        problem = self._numbers(answer, expected, figures) if self.mode == "numeric" else None
        if self.mode != "numeric" and self._form(answer) != self._form(expected):
            answer_text, expected_text = show_pair(answer, expected)
            problem = f"the answer is {answer_text}, wanted was {expected_text}"
        if problem is None and cut:
            problem = cut
        elif problem is not None and (
            lost := context.gap("content_shortened", "content_truncated")
        ):
            raise NotEvaluated(f"{lost.code}: {lost.detail}")
        elif problem is not None and cut:
            problem = f"{cut}; {problem}"
        return self.result([] if problem is None else [problem], figures)

    def _form(self, text: str) -> str:
        return text.strip() if self.mode == "exact" else normalised(text)

    def _numbers(self, answer: str, expected: str, figures: dict[str, Any]) -> str | None:
        expected_number, number = last_number(expected), last_number(answer)
        if expected_number is None:
            raise InputError(f"reference_outputs: the answer {expected[:60]!r} holds no number")
        if number is None:
            return f"the answer {answer[:60]!r} holds no number; wanted was {expected_number}"
        off = abs(number - expected_number)
        relative = Decimal(self.relative_tolerance) * abs(expected_number)
        allowed = max(Decimal(self.tolerance), relative)
        figures.update(number=float(number), wanted=float(expected_number), off=float(off))
        if off <= allowed:
            return None
        within = f" (off by {off}, at most {float(allowed):g})" if allowed else ""
        return f"the answer's number is {number}, wanted was {expected_number}{within}"

    def _expected_answer(self, reference: Any) -> str:
        """The expected answer."""
        if self.expected is not None:
            return str(self.expected)
        if reference is None:
            raise NotEvaluated("there is no reference")
        if isinstance(reference, str):
            return reference
        if isinstance(reference, (int, float)) and not isinstance(reference, bool):
            return repr(reference)
        answer = _answer(to_messages(reference, "reference_outputs"))
        if answer is None:
            raise InputError("reference_outputs: it ends without an answer of the assistant's")
        return answer


def _answer(messages: tuple[Message, ...]) -> str | None:
    """The text of the last message if the model wrote it and requested no tools in it."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.client_calls:
        return None
    return last.content or None


@with_options_of(FinalAnswer)
def create_final_answer_evaluator(**options: Any) -> FinalAnswer:
    """Create an evaluator that compares the final answer with the expected one.

    Args:
        **options: The options of `FinalAnswer`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return FinalAnswer(**options)
