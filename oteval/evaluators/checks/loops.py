"""A check for agents that repeat the same calls.

A **cycle** of length n is a sequence of n calls that repeats immediately: the same tools with equal
arguments, in the same order. A call that repeats immediately is a cycle of length 1. **Repeats** is
the number of consecutive occurrences of a cycle; a call made once has 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ...model import OutlineRequest, Reference
from ..factories import with_options_of
from ..options import PositiveInt
from ..values import canonical_key
from . import Call, Check, EvaluationContext, EvaluationResult, NotEvaluated, listed, name_matches

__all__ = ["Cycle", "Loops", "create_loop_evaluator", "longest_cycle"]


class Cycle(NamedTuple):
    """Calls that repeat.

    Attributes:
        start: The index of its first call, not counting ignored calls.
        length: The number of its calls.
        repeats: The number of consecutive occurrences.
    """

    start: int
    length: int
    repeats: int


def longest_cycle(keys: Sequence[Hashable], max_length: int) -> Cycle | None:
    """The cycle that repeats most often; ties go to the shortest, then the first.

    The time is linear in the number of calls for each length.

    Args:
        keys: A key of each call; equal calls have equal keys.
        max_length: The longest cycle to look for.

    Returns:
        The cycle, or None without calls.
    """
    best = Cycle(start=0, length=1, repeats=1) if keys else None
    for length in range(1, min(max_length, len(keys) // 2) + 1):
        streak = 0
        for end in range(length, len(keys)):
            streak = streak + 1 if keys[end] == keys[end - length] else 0
            repeats = streak // length + 1
            if best is not None and repeats > best.repeats:
                best = Cycle(end - streak - length + 1, length, repeats)
    return best


@dataclass(frozen=True, kw_only=True)
class Loops(Check):
    """Fails if the same calls are made over and over.

    Attributes:
        max_repeats: How often the same calls may be made one after the other; 1 allows no
            repetition. Calls are the same if they have the same tool and the same arguments.
        max_equal: How often equal calls may be made in all, in a row or not.
        max_cycle: The greatest number of calls that are taken together as a cycle.
        ignore_tools: Tools that do not count; ``*`` matches any text, ``?`` any character.
    """

    type: ClassVar[str] = "loops"

    max_repeats: PositiveInt = 2
    max_equal: PositiveInt | None = None
    max_cycle: PositiveInt = 5
    ignore_tools: Sequence[str] | None = None

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The columns of the calls."""
        return OutlineRequest(frozenset({"call_hashes"}))

    def evaluate_outline(self, context: EvaluationContext) -> EvaluationResult:
        """Look for cycles of calls with equal hashes."""
        return self._evaluate(context, [vars(call.call)["hash"] for call in context.calls])

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for cycles and for equal calls."""
        return self._evaluate(context, [_arguments_key(call) for call in context.calls])

    def _evaluate(
        self, context: EvaluationContext, arguments: Sequence[Hashable]
    ) -> EvaluationResult:
        """Look for cycles and for equal calls.

        Args:
            context: The run.
            arguments: A key of each call's arguments; None if they were not captured.
        """
        calls = [call for call in context.calls if not self._ignores(call)]
        keys = [_key(call, arguments[call.index]) for call in calls]
        cycle, most = self._measure(keys)
        problems = self._problems(calls, cycle, most)
        if not problems:
            unknown = {call.call.name for call in calls if arguments[call.index] is None}
            if unknown:
                names = (call.call.name for call in calls)
                keys = [
                    name if name in unknown else key for name, key in zip(names, keys, strict=True)
                ]
                if self._problems(calls, *self._measure(keys)):
                    tools = ", ".join(sorted(unknown))
                    raise NotEvaluated(f"the arguments of {tools} are not in the trace")
            context.require_all_calls()
        figures = {
            "calls": len(context.calls),
            "repeats": cycle.repeats if cycle else 0,
            "cycle": [call.call.name for call in _of(calls, cycle)] if cycle else [],
            "most_equal": most[1],
        }
        return self.result(problems, figures)

    def describe(self) -> dict[str, Any]:
        """The options; without tools to ignore, an empty list."""
        return {**super().describe(), "ignore_tools": self.ignore_tools or ()}

    def _ignores(self, call: Call) -> bool:
        return name_matches(call.call.name, self.ignore_tools or ())

    def _measure(self, keys: Sequence[Hashable]) -> tuple[Cycle | None, tuple[int, int]]:
        """Return the longest cycle, and the index and count of the most frequent call."""
        counts = Counter(keys).most_common(1)
        most = (keys.index(counts[0][0]), counts[0][1]) if counts else (0, 0)
        return longest_cycle(keys, self.max_cycle), most

    def _problems(
        self, calls: Sequence[Call], cycle: Cycle | None, most: tuple[int, int]
    ) -> list[str]:
        problems = []
        if cycle is not None and cycle.repeats > self.max_repeats:
            cycle_calls = listed(_of(calls, cycle))
            limit = f"{cycle.repeats} times in a row (at most {self.max_repeats})"
            problems.append(f"{cycle_calls} made {limit}")
        index, count = most
        if self.max_equal is not None and count > self.max_equal:
            problems.append(f"{calls[index]} made {count} times (at most {self.max_equal})")
        return problems


def _of(calls: Sequence[Call], cycle: Cycle) -> Sequence[Call]:
    return calls[cycle.start : cycle.start + cycle.length]


def _arguments_key(call: Call) -> Hashable:
    """A key that equal arguments share; None if they were not captured."""
    arguments = call.call.arguments
    if arguments is None:
        return None
    key = canonical_key(arguments)
    # Arguments that are nested too deeply to compare equal only themselves.
    return key if key is not None else (call.index, "not compared")


def _key(call: Call, arguments: Hashable) -> Hashable:
    """A key that equal calls share; a call without arguments equals only itself."""
    if arguments is None:
        return (call.call.name, call.index, "unknown")
    return (call.call.name, arguments)


@with_options_of(Loops)
def create_loop_evaluator(**options: Any) -> Loops:
    """Create an evaluator that fails if the same calls are made over and over.

    Args:
        **options: The options of `Loops`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return Loops(**options)
