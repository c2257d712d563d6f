"""A check of the final answer against the one that was wanted.

The **final answer** is the text of the last message, where the model wrote it. A number in it is
written with digits, perhaps with a sign, commas between thousands, a decimal point and an exponent;
of several, the last is the answer's.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from ...errors import ConfigError, InputError
from ...model import Message
from ..messages import to_messages
from ..values import show_pair
from .base import Check, Found, NotEvaluated, Seen, number, one_of

__all__ = [
    "ANSWER_MODES",
    "FinalAnswer",
    "create_final_answer_evaluator",
    "last_number",
    "normalised",
]

ANSWER_MODES = ("exact", "normalised", "numeric")

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
    """Return what is the same in texts that differ only in how they are written.

    Args:
        text: Any text.

    Returns:
        The text in Unicode's form NFKC without case, with single spaces, and without punctuation
        and quotes at its ends.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).strip(_EDGES)


def last_number(text: str) -> Decimal | None:
    """Return the last number in a text, or None."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "").replace("\u2212", "-")) if found else None


@dataclass(frozen=True)
class FinalAnswer(Check):
    """Fails where the final answer is not the one that was wanted.

    Attributes:
        key: The score's name.
        mode: ``exact``: the same text but for white space at its ends; ``normalised``: the same as
            `normalised` has it; ``numeric``: the same last number.
        expected: The answer that is wanted; None takes it from the reference.
        tolerance: By how much a number may differ.
        relative_tolerance: By which share of the wanted number it may differ.
    """

    type: ClassVar[str] = "final_answer"

    key: str = "final_answer"
    mode: str = "exact"
    expected: str | None = None
    tolerance: float = 0.0
    relative_tolerance: float = 0.0

    def check(self, seen: Seen) -> Found:
        """Compare the answers."""
        wanted = self._wanted(seen.reference)
        answer = _answer(seen.messages)
        if answer is None:
            lost = seen.lost()
            if lost is not None:
                raise NotEvaluated(f"{lost.code}: {lost.detail}")
            return Found(["the run ends without an answer"], {"answer": None, "expected": wanted})
        figures: dict[str, Any] = {"answer": answer[:1000], "expected": wanted[:1000]}
        problem = self._numbers(answer, wanted, figures) if self.mode == "numeric" else None
        if self.mode != "numeric" and self._form(answer) != self._form(wanted):
            shown = show_pair(answer, wanted)
            problem = f"the answer is {shown[0]}, wanted was {shown[1]}"
        if problem is not None and (lost := seen.gap("content_shortened", "content_truncated")):
            raise NotEvaluated(f"{lost.code}: {lost.detail}")
        return Found([] if problem is None else [problem], figures)

    def _form(self, text: str) -> str:
        return text.strip() if self.mode == "exact" else normalised(text)

    def _numbers(self, answer: str, wanted: str, figures: dict[str, Any]) -> str | None:
        right, found = last_number(wanted), last_number(answer)
        if right is None:
            raise InputError(f"reference_outputs: the answer {wanted[:60]!r} holds no number")
        if found is None:
            return f"the answer {answer[:60]!r} holds no number; wanted was {right}"
        off = abs(found - right)
        allowed = max(Decimal(self.tolerance), Decimal(self.relative_tolerance) * abs(right))
        figures.update(number=float(found), wanted=float(right), off=float(off))
        if off <= allowed:
            return None
        within = f" (off by {off}, at most {float(allowed):g})" if allowed else ""
        return f"the answer's number is {found}, wanted was {right}{within}"

    def _wanted(self, reference: Any) -> str:
        """Return the answer that was wanted."""
        if self.expected is not None:
            return self.expected
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
    """Return the text of the last message where the model wrote it and asks for nothing more."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or last.tool_calls:
        return None
    return last.content or None


def create_final_answer_evaluator(
    *,
    mode: str = "exact",
    expected: Any = None,
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    feedback_key: str = "final_answer",
) -> FinalAnswer:
    """Create an evaluator that compares the final answer with the one that was wanted.

    The evaluator takes as `reference_outputs` a text, a number, or a trajectory of which the final
    answer counts.

    Args:
        mode: ``exact``, ``normalised`` (case, white space and punctuation at the ends do not
            count) or ``numeric`` (the last number of each).
        expected: The answer that is wanted of every run; by default the reference has it.
        tolerance: For numeric, by how much the numbers may differ.
        relative_tolerance: For numeric, by which share of the wanted number they may differ.
        feedback_key: The score's name.

    Returns:
        The evaluator.

    Raises:
        ConfigError: An argument is wrong; the text names it.
    """
    kind = one_of(mode, ANSWER_MODES, "mode")
    limits = [number(tolerance, "tolerance"), number(relative_tolerance, "relative_tolerance")]
    if kind != "numeric" and any(limits):
        raise ConfigError(f"a tolerance is for mode 'numeric', not {kind!r}")
    wanted = None if expected is None else _text(expected)
    if kind == "numeric" and wanted is not None and last_number(wanted) is None:
        raise ConfigError(f"expected {wanted!r} holds no number")
    return FinalAnswer(feedback_key, kind, wanted, *limits)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value):
        return repr(value)
    raise ConfigError(f"expected is {value!r}; a text or a number was expected")
