"""How the arguments of two calls of the same tool are compared: one small class per way.

A **rule** always sees the output's arguments first and the reference's second, whatever the
trajectory mode. It decides whether they match, and explains why they do not.

- An *equality* has a key that matching arguments share, so a matching takes linear time.
- A rule *by value* matches arguments exactly when they are equal values.
- A *preorder* is reflexive and transitive (a in b, b in c: a in c), so equal arguments may be
  paired before anything else is compared.
- A *blind* rule compares nothing; only it accepts arguments that the trace does not contain.

`oteval.evaluators.spec` makes rules of a user's options. Arguments other than objects (text that is
not valid JSON) are compared whole by every rule.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar

from ..base.errors import ConfigError, InputError
from ..base.jsontext import dumps
from ..base.patterns import Pattern, PatternError, compile_pattern
from .values import MISSING, canonical_key, differences, folded, lookup, same, show, show_pair

__all__ = [
    "Custom",
    "Exact",
    "Fields",
    "Ignore",
    "Patterns",
    "ReferencePatterns",
    "Rule",
    "Subset",
    "Superset",
    "Tolerant",
    "fits",
    "how_they_differ",
]

# A JSON number of a length that people write; Python parses it without surprises.
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to compare arguments; the default is deep equality.

    Key order is free, ``1`` equals ``1.0``, and ``1``, ``true`` and ``"1"`` all differ.
    """

    equality: ClassVar[bool] = True
    preorder: ClassVar[bool] = True
    by_value: ClassVar[bool] = False
    mode: ClassVar[str] = "exact"

    @property
    def blind(self) -> bool:
        """Whether the rule compares nothing at all."""
        return False

    def key(self, args: Any) -> Hashable:
        """A key that equal arguments share; None equals nothing, not even itself."""
        return canonical_key(args)

    def matches(self, out: Any, ref: Any) -> bool:
        """Whether the output's arguments match the reference's."""
        key = self.key(out)
        return key is not None and key == self.key(ref)

    def explain(self, out: Any, ref: Any) -> str | None:
        """Return one line that shows where the two differ; None if they match."""
        difference = next(differences(out, ref, same), None)
        return None if difference is None else how_they_differ(*difference)

    def compared(self, args: Any) -> Any:
        """The value that is compared; None if no single value describes the comparison."""
        return args

    def describe(self) -> Any:
        """The JSON value that equal rules share."""
        return self.mode


class Exact(Rule):
    """Deep equality."""

    __slots__ = ()

    by_value: ClassVar[bool] = True


class Ignore(Rule):
    """Any arguments match any others, captured or not."""

    __slots__ = ()

    mode: ClassVar[str] = "ignore"

    @property
    def blind(self) -> bool:
        """Always: nothing is compared."""
        return True

    def key(self, args: Any) -> Hashable:  # noqa: ARG002
        """Return one key for all arguments."""
        return ""

    def explain(self, out: Any, ref: Any) -> str | None:  # noqa: ARG002
        """None: nothing differs."""
        return None


class Subset(Rule):
    """Every key and value of the output is in the reference, at every depth.

    Lists must have the same length; their elements are compared in the same way.
    """

    __slots__ = ()

    equality: ClassVar[bool] = False
    mode: ClassVar[str] = "subset"

    def matches(self, out: Any, ref: Any) -> bool:
        """Whether nothing of the output is outside the reference."""
        return next(self._differences(out, ref), None) is None

    def explain(self, out: Any, ref: Any) -> str | None:
        """The first thing that is outside."""
        difference = next(self._differences(out, ref), None)
        return None if difference is None else how_they_differ(*difference)

    def _differences(self, out: Any, ref: Any) -> Any:
        return differences(out, ref, same, missing_ok=True)


class Superset(Subset):
    """Every key and value of the reference is in the output, at every depth."""

    __slots__ = ()

    mode: ClassVar[str] = "superset"

    def _differences(self, out: Any, ref: Any) -> Any:
        return differences(out, ref, same, extra_ok=True)


@dataclass(frozen=True, slots=True)
class Tolerant(Rule):
    """Equality that ignores differences in notation.

    A string that is a JSON number equals that number (``"1.0"`` and ``1``; not ``"007"``). Case,
    runs of white space and the forms of Unicode (NFKC: full width, ligatures, composed accents) do
    not count, and the lists at the given paths are compared as sets.

    Attributes:
        sets: Dotted paths of the lists that are sets; lists on the way add no component.
    """

    sets: frozenset[str] = frozenset()
    mode: ClassVar[str] = "tolerant"

    def key(self, args: Any) -> Hashable:
        """The text of the arguments in normalised notation."""
        try:
            return canonical_key(self.fold(args, ""))
        except RecursionError:
            return None

    def explain(self, out: Any, ref: Any) -> str | None:
        """The first place where they differ by more than notation."""
        folded = self.fold(out, ""), self.fold(ref, "")
        difference = next(differences(*folded, same), None)
        if difference is None:
            return None
        if path := difference[0]:
            out, ref = lookup(out, path), lookup(ref, path)
        return how_they_differ(path, out, ref)

    def compared(self, args: Any) -> Any:
        """The arguments in normalised notation."""
        return self.fold(args, "")

    def describe(self) -> Any:
        """The mode with its sets, and the form of Unicode."""
        return {"tolerant": {"sets": sorted(self.sets), "unicode": "NFKC"}}

    def fold(self, value: Any, path: str) -> Any:
        """A value in normalised notation.

        Args:
            value: The value.
            path: Its dotted path, without components for lists.
        """
        if isinstance(value, str):
            text = folded(value)
            if _NUMBER.fullmatch(text):
                return float(text) if any(c in text for c in ".e") else int(text)
            return text
        if isinstance(value, dict):
            under = f"{path}." if path else ""
            return {key: self.fold(item, f"{under}{key}") for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [self.fold(item, path) for item in value]
            # A tuple is compared as a whole, also by `differences`.
            keys = {canonical_key(item) or "" for item in items}
            return tuple(sorted(keys)) if path in self.sets else items
        return value


@dataclass(frozen=True, slots=True)
class Fields(Rule):
    """Only the given fields are compared, each for deep equality.

    A field that only one side has is a mismatch. As in agentevals, a field that neither side has
    counts as equal, unless `missing_ok` is False. An empty list of fields compares nothing.

    Attributes:
        paths: Dotted paths of the fields.
        missing_ok: Whether a field counts as equal if neither side has it.
    """

    paths: tuple[str, ...] = ()
    missing_ok: bool = True
    preorder: ClassVar[bool] = False
    mode: ClassVar[str] = "fields"

    @property
    def blind(self) -> bool:
        """Whether the list of fields is empty."""
        return not self.paths

    def key(self, args: Any) -> Hashable:
        """The fields' texts; None if a required field is missing."""
        if self.paths and not isinstance(args, dict):
            return canonical_key(args)
        keys: list[str | None] = []
        for path in self.paths:
            value = lookup(args, path)
            key = canonical_key(value) if value is not MISSING else None
            if key is None and not (value is MISSING and self.missing_ok):
                return None
            keys.append(key)
        return tuple(keys)

    def explain(self, out: Any, ref: Any) -> str | None:
        """The first field that differs or is missing."""
        if not (isinstance(out, dict) and isinstance(ref, dict)):
            return None if self.matches(out, ref) else how_they_differ("", out, ref)
        for path in self.paths:
            left, right = lookup(out, path), lookup(ref, path)
            if left is MISSING and right is MISSING:
                if not self.missing_ok:
                    return f"argument {path!r} is on neither side, and missing_ok is False"
            elif left is MISSING or right is MISSING or not same(left, right):
                return how_they_differ(path, left, right)
        return None

    def compared(self, args: Any) -> Any:
        """The existing fields, by path."""
        if not isinstance(args, dict):
            return args
        values = {path: lookup(args, path) for path in self.paths}
        return {path: value for path, value in values.items() if value is not MISSING}

    def describe(self) -> Any:
        """The paths."""
        return {"fields": list(self.paths), "missing_ok": self.missing_ok}


@dataclass(frozen=True, slots=True)
class Patterns(Rule):
    """The output's fields must fit patterns; the reference's arguments are ignored.

    Attributes:
        fields: Dotted path and pattern. The whole value must fit; values other than strings are
            compared as JSON text.
    """

    fields: tuple[tuple[str, Pattern], ...] = ()
    equality: ClassVar[bool] = False
    preorder: ClassVar[bool] = False
    mode: ClassVar[str] = "regex"

    def matches(self, out: Any, ref: Any) -> bool:
        """Whether every field of the output fits."""
        return self.explain(out, ref) is None

    def explain(self, out: Any, ref: Any) -> str | None:  # noqa: ARG002
        """The first field that does not fit."""
        for path, pattern in self.fields:
            value = lookup(out, path)
            if value is MISSING:
                return f"argument {path!r} is missing in the output (pattern {pattern.pattern!r})"
            if not fits(pattern, value):
                return f"argument {path!r} is {show(value)}; its whole must fit {pattern.pattern!r}"
        return None

    def compared(self, args: Any) -> Any:  # noqa: ARG002
        """None: patterns do not see the order of lists."""
        return None

    def describe(self) -> Any:
        """The patterns."""
        return {"regex": {path: [p.pattern, p.flags] for path, p in sorted(self.fields)}}


class ReferencePatterns(Rule):
    """The reference's arguments are ``{field: pattern}``.

    Every string in the reference is a pattern that the output's value at that place must fit as
    a whole; everything else in it must be equal. Fields that only the output has do not count.
    """

    __slots__ = ()

    equality: ClassVar[bool] = False
    preorder: ClassVar[bool] = False
    mode: ClassVar[str] = "regex"

    def matches(self, out: Any, ref: Any) -> bool:
        """Whether the output fits the reference."""
        return self.explain(out, ref) is None

    def explain(self, out: Any, ref: Any) -> str | None:
        """The first place that does not fit."""
        difference = next(differences(out, ref, self._equal, extra_ok=True), None)
        return None if difference is None else how_they_differ(*difference)

    def compared(self, args: Any) -> Any:  # noqa: ARG002
        """None: patterns do not see the order of lists."""
        return None

    def _equal(self, out: Any, ref: Any) -> bool:
        if not isinstance(ref, str):
            return same(out, ref)
        try:
            return fits(compile_pattern(ref), out)
        except PatternError as error:
            raise InputError(
                f"reference_outputs: {show(ref)} is not a valid pattern ({error}); "
                "tool_args_match_mode='regex' reads the reference's strings as patterns"
            ) from None


@dataclass(frozen=True, slots=True)
class Custom(Rule):
    """The user's own function decides.

    It is called with both sides' arguments. If a side's arguments are not an object and the
    function fails on that, the calls do not match; other exceptions reach the caller.

    Attributes:
        function: Called as ``function(output_args, reference_args)``; truthy means a match.
    """

    function: Callable[[Any, Any], Any]
    equality: ClassVar[bool] = False
    preorder: ClassVar[bool] = False
    mode: ClassVar[str] = "callable"

    def matches(self, out: Any, ref: Any) -> bool:
        """The answer of the function."""
        answer = self.ask(out, ref)
        if hasattr(answer, "__await__"):
            getattr(answer, "close", bool)()
            raise ConfigError(
                f"tool_args_match_overrides: {_function_name(self.function)} returns an awaitable; "
                "use create_async_trajectory_match_evaluator"
            )
        return bool(answer)

    def ask(self, out: Any, ref: Any) -> Any:
        """The function's own answer, which may be awaitable."""
        try:
            return self.function(out, ref)
        except Exception:
            if isinstance(out, dict) and isinstance(ref, dict):
                raise
            return False

    def explain(self, out: Any, ref: Any) -> str | None:
        """The arguments that the function refused."""
        left, right = show_pair(out, ref)
        name = _function_name(self.function)
        return f"{name} says no to {left} in the output against {right} in the reference"

    def compared(self, args: Any) -> Any:  # noqa: ARG002
        """None: only the function knows how it compares."""
        return None

    def describe(self) -> Any:
        """The function's name and a digest of its code; a bound object is left out."""
        return {"callable": _function_name(self.function), "code": _digest(self.function)}


def fits(pattern: Pattern, value: Any) -> bool:
    """Whether a whole value fits a pattern; values other than text as JSON text."""
    return pattern.fullmatch(value if isinstance(value, str) else dumps(value))


def how_they_differ(path: str, out: Any, ref: Any) -> str:
    """Return one line with a path and the values of both sides, cut around the difference."""
    what = f"argument {path!r} is" if path else "the arguments are"
    if out is MISSING:
        return f"{what} missing in the output; the reference has {show(ref)}"
    if ref is MISSING:
        return f"{what} {show(out)} in the output; the reference has none"
    left, right = show_pair(out, ref)
    return f"{what} {left} in the output, {right} in the reference"


def _function_name(function: Any) -> str:
    function = getattr(function, "func", function)
    named_object = function if hasattr(function, "__qualname__") else type(function)
    return f"{named_object.__module__}.{named_object.__qualname__}"


def _digest(function: Any) -> str:
    """A hash of a function's code that is the same in every process."""
    code = getattr(getattr(function, "func", function), "__code__", None)
    digest = hashlib.blake2b(digest_size=8)
    waiting = [code] if isinstance(code, CodeType) else []
    while waiting:
        block = waiting.pop()
        inner = [value for value in block.co_consts if isinstance(value, CodeType)]
        plain = [_stable(value) for value in block.co_consts if not isinstance(value, CodeType)]
        digest.update(block.co_code + repr((block.co_names, plain)).encode())
        waiting += inner
    return digest.hexdigest()


def _stable(constant: Any) -> Any:
    return sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
