"""Compares some fields of arguments in a special way, and all other fields as usual.

A **comparison** is the way to compare one field: within a tolerance, by a language model, or not at
all. Lists on the way to a field add no component to its path: ``items.price`` is the price of each
item. A field that only one side has is a mismatch, unless it is ignored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .rules import Exact, Rule, Tolerant, how_they_differ
from .values import MISSING, same

if TYPE_CHECKING:
    from .judge.field_judge import FieldJudgeModel

__all__ = [
    "AsRule",
    "ByField",
    "FieldAnswer",
    "FieldComparison",
    "Judged",
    "Within",
]


class FieldAnswer(NamedTuple):
    """A language model's answer about a field.

    Attributes:
        agrees: Whether the two values agree.
        reasoning: Why, or "".
    """

    agrees: bool
    reasoning: str


@dataclass(frozen=True, slots=True)
class FieldComparison(ABC):
    """The way to compare a field."""

    descends: ClassVar[bool] = False
    """Whether the items of lists are compared one by one."""

    @abstractmethod
    def problem(self, path: str, out: Any, ref: Any) -> str | None:
        """Why two values differ; None where they agree."""

    @abstractmethod
    def describe(self) -> Any:
        """The JSON value that equal comparisons share."""


@dataclass(frozen=True, slots=True)
class Within(FieldComparison):
    """Numbers that differ by no more than a tolerance; other values are compared by the rule.

    Attributes:
        absolute: The largest difference.
        relative: The largest difference as a share of the reference's number. The larger of both
            tolerances counts.
        rule: How other values are compared. Numbers given as text are numbers if it is tolerant.
    """

    absolute: float = 0.0
    relative: float = 0.0
    rule: Rule = field(default_factory=Exact)
    descends: ClassVar[bool] = True

    def problem(self, path: str, out: Any, ref: Any) -> str | None:
        """Compare exactly, in decimal: 1.01 and 1.00 differ by no more than 0.01."""
        left, right = self.rule.compared(out), self.rule.compared(ref)
        if not (_is_number(left) and _is_number(right)):
            return None if self.rule.matches(out, ref) else how_they_differ(path, out, ref)
        difference = abs(_exact(left) - _exact(right))
        allowed = max(_exact(self.absolute), _exact(self.relative) * abs(_exact(right)))
        if difference <= allowed:
            return None
        mismatch = how_they_differ(path, out, ref)
        try:
            return f"{mismatch} (off by {float(difference):g}, at most {float(allowed):g})"
        except OverflowError:  # integers may be larger than any float
            return mismatch

    def describe(self) -> Any:
        """The tolerances."""
        return {"abs": self.absolute, "rel": self.relative}


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return value - value == 0  # neither NaN nor infinite
    return isinstance(value, int) and not isinstance(value, bool)


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


@dataclass(frozen=True, slots=True)
class AsRule(FieldComparison):
    """A field that is compared as arguments are: exactly, tolerantly, or not at all.

    Attributes:
        rule: The rule.
    """

    rule: Rule

    @property
    def is_blind(self) -> bool:
        """Whether the field does not count."""
        return self.rule.blind

    def problem(self, path: str, out: Any, ref: Any) -> str | None:
        """Return both values where they do not match."""
        return None if self.rule.matches(out, ref) else how_they_differ(path, out, ref)

    def describe(self) -> Any:
        """The rule's mode."""
        return self.rule.describe()


@dataclass(frozen=True, slots=True)
class Judged(FieldComparison):
    """A language model decides; equal values agree without asking it.

    Attributes:
        judge: Asks the model.
        criterion: When two values agree.
    """

    judge: FieldJudgeModel = field(compare=False)
    criterion: str

    def problem(self, path: str, out: Any, ref: Any) -> str | None:
        """Return both values and the model's reasoning, if the model finds a difference."""
        if same(out, ref):
            return None
        answer = self.judge.ask(path, self.criterion, out, ref)
        if answer.agrees:
            return None
        reasoning = f": {answer.reasoning[:200]}" if answer.reasoning else ""
        return f"{how_they_differ(path, out, ref)} (judged to differ{reasoning})"

    def describe(self) -> Any:
        """The criterion."""
        return {"judged": self.criterion}


@dataclass(frozen=True, slots=True)
class ByField(Rule):
    """Compares some fields in a special way, and all other fields by a rule.

    Attributes:
        fields: The comparisons by dotted path.
        rule: How all other fields are compared: exactly or tolerantly.
        missing_ok: Whether a field of `fields` counts as equal if neither side has it.
    """

    fields: dict[str, FieldComparison] = field(default_factory=dict)
    rule: Exact | Tolerant = field(default_factory=Exact)
    missing_ok: bool = True
    equality: ClassVar[bool] = False
    preorder: ClassVar[bool] = False
    mode: ClassVar[str] = "by_field"

    @property
    def asks_model(self) -> bool:
        """Whether a language model compares a field."""
        return any(isinstance(field, Judged) for field in self.fields.values())

    def matches(self, out: Any, ref: Any) -> bool:
        """Whether all fields match. A model is asked only if nothing else differs."""
        return self.explain(out, ref) is None

    def explain(self, out: Any, ref: Any) -> str | None:
        """The first field that differs; fields that a model compares come last."""
        questions: list[tuple[str, Judged, Any, Any]] = []
        problem = next(self._problems(out, ref, "", "", questions), None)
        if problem is not None:
            return problem
        if not self.missing_ok and (absent := self._absent(out, ref)) is not None:
            return f"argument {absent!r} is on neither side, and missing_ok is False"
        problems = (judged.problem(path, left, right) for path, judged, left, right in questions)
        return next((problem for problem in problems if problem is not None), None)

    def compared(self, args: Any) -> Any:  # noqa: ARG002
        """None: no single value describes the comparison of the fields."""
        return None

    def describe(self) -> Any:
        """The comparisons, and the rule of all other fields."""
        fields = {path: self.fields[path].describe() for path in sorted(self.fields)}
        fallback = self.rule.describe()
        return {"by_field": fields, "others": fallback, "missing_ok": self.missing_ok}

    def _problems(
        self, out: Any, ref: Any, path: str, name: str, questions: list[Any]
    ) -> Iterator[str]:
        """Yield the differences. Fields that a model compares are added to the questions.

        Args:
            out: The output's value.
            ref: The reference's value.
            path: Its path, with the indexes of items.
            name: Its path without them, as in `fields`.
            questions: Path, comparison and both values.
        """
        comparison = self.fields.get(name) if name else None
        are_lists = isinstance(out, list) and isinstance(ref, list)
        if comparison is not None and not (comparison.descends and are_lists):
            if isinstance(comparison, Judged):
                questions.append((path, comparison, out, ref))
            elif (problem := comparison.problem(path, out, ref)) is not None:
                yield problem
        elif isinstance(out, dict) and isinstance(ref, dict):
            yield from self._problems_of_items(out, ref, path, name, questions)
        elif are_lists and len(out) == len(ref) and name not in self._sets:
            for index, (left, right) in enumerate(zip(out, ref, strict=True)):
                here = f"{path}.{index}" if path else str(index)
                yield from self._problems(left, right, here, name, questions)
        elif not self._are_equal(out, ref, name):
            yield how_they_differ(path, out, ref)

    def _problems_of_items(
        self,
        out: dict[str, Any],
        ref: dict[str, Any],
        path: str,
        name: str,
        questions: list[Any],
    ) -> Iterator[str]:
        for key in {**out, **ref}:
            left, right = out.get(key, MISSING), ref.get(key, MISSING)
            here = f"{path}.{key}" if path else str(key)
            field_name = f"{name}.{key}" if name else str(key)
            if left is not MISSING and right is not MISSING:
                yield from self._problems(left, right, here, field_name, questions)
                continue
            comparison = self.fields.get(field_name)
            if not (isinstance(comparison, AsRule) and comparison.is_blind):
                yield how_they_differ(here, left, right)

    def _absent(self, out: Any, ref: Any) -> str | None:
        """A field that neither side has."""
        names = {*_names(out, ""), *_names(ref, "")}
        return next((name for name in self.fields if name not in names), None)

    @property
    def _sets(self) -> frozenset[str]:
        return self.rule.sets if isinstance(self.rule, Tolerant) else frozenset()

    def _are_equal(self, out: Any, ref: Any, name: str) -> bool:
        if isinstance(self.rule, Tolerant):
            return same(self.rule.fold(out, name), self.rule.fold(ref, name))
        return same(out, ref)


def _names(value: Any, name: str) -> Iterator[str]:
    """Yield the paths of all fields of a value; lists add no component."""
    if isinstance(value, list):
        for item in value:
            yield from _names(item, name)
    elif isinstance(value, dict):
        for key, item in value.items():
            here = f"{name}.{key}" if name else str(key)
            yield here
            yield from _names(item, here)
