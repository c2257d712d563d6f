"""A check of the final answer against the expected answer.

The **final answer** is the text of the last message, if the model wrote it. Its
**number** is the last number in the text. Numbers consist of digits, with an optional sign,
commas between thousands, decimals and exponent.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Literal

from ...base.errors import ConfigError, InputError
from ...model import Message
from ..evaluator import ReferenceOption
from ..factories import with_options_of
from ..messages import to_messages
from ..options import NonNegativeFloat
from ..values import folded, show_pair
from .base import Check, EvaluationContext, EvaluationResult, NotEvaluated
from .finish_reason import cut_reason

__all__ = [
    "FinalAnswer",
    "create_final_answer_evaluator",
    "last_number",
    "normalised",
]

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
