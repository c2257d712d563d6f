"""Compares two trajectories under a `MatchSpec`: the verdict, its figures and its reason.

**Precision** is the matched share of the output's calls, **recall** the matched share of the
reference's calls, **f1** their harmonic mean. Precision is 1 if the output makes no calls, and
recall is 1 if the reference has no calls. f1 is 1 if both have no calls, and 0 if only one has.

The matched calls depend on the mode: strict matches calls at their own position, in_order matches
as many calls as possible without changing the order, all other modes use a maximum matching. An
alignment pairs indexes of calls, counted over all calls of each trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import repeat
from operator import ne
from typing import Any, NamedTuple

from ..base.jsontext import dumps_exact, flat_objects
from ..base.notebook import html_of
from .assignment import in_order
from .call_pairs import (
    Pairs,
    StrictMatch,
    call_fits,
    match_calls,
    match_strict,
    ordered_calls,
    unpaired,
)
from .calls import CallTable, read
from .comments import calls_comment, reordered_lists, strict_comment
from .rules import Custom, Rule
from .spec import MatchSpec
from .views import select

__all__ = [
    "FunctionAnswers",
    "Unanswered",
    "Verdict",
    "compare",
    "compare_calls",
]


class Verdict(NamedTuple):
    """The outcome of a match.

    Attributes:
        passed: Whether the output matches.
        comment: Why the output does not match; None for a pass.
        matched: The number of matched calls.
        missing: The number of unmatched calls of the reference.
        extra: The number of unmatched calls of the output.
        alignment: Pairs of output call and reference call.
        reordered: For a failure: the lists, by tool, that keep calls from matching by their order
            alone.
    """

    passed: bool
    comment: str | None
    matched: int
    missing: int
    extra: int
    alignment: Pairs
    reordered: dict[str, list[str]] | None = None

    @property
    def precision(self) -> float:
        """The matched share of the output's calls."""
        total = self.matched + self.extra
        return self.matched / total if total else 1.0

    @property
    def recall(self) -> float:
        """The matched share of the reference's calls."""
        total = self.matched + self.missing
        return self.matched / total if total else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = 2 * self.matched + self.missing + self.extra
        return 2 * self.matched / total if total else 1.0

    def _repr_html_(self) -> str:
        """The verdict and its reason, for notebooks."""
        return html_of(self)

    def metadata(self) -> dict[str, Any]:
        """The figures as an evaluator's metadata."""
        _, _, matched, missing, extra, alignment, reordered = self
        output_calls, reference_calls = matched + extra, matched + missing
        all_calls = output_calls + reference_calls
        figures = {
            "matched": matched,
            "missing": missing,
            "extra": extra,
            "precision": matched / output_calls if output_calls else 1.0,
            "recall": matched / reference_calls if reference_calls else 1.0,
            "f1": 2 * matched / all_calls if all_calls else 1.0,
            "alignment": alignment,
        }
        return {"reordered": reordered, **figures} if reordered else figures


def compare(outputs: Any, reference: Any, spec: MatchSpec) -> Verdict:
    """Compare an output with a reference.

    Args:
        outputs: A trajectory in any form of `oteval.evaluators.messages`.
        reference: The expected trajectory, in any form.
        spec: The configuration.

    Returns:
        The verdict.

    Raises:
        InputError: A side cannot be read as a trajectory; the message names it.
    """
    out, ref = read(outputs, "outputs"), read(reference, "reference_outputs")
    if spec.view == "all":
        return compare_calls(out, ref, spec)
    return _judge(out, ref, spec, *select(spec, out, ref, outputs, reference))


def compare_calls(out: CallTable, ref: CallTable, spec: MatchSpec) -> Verdict:
    """Compare all calls of an output with all of a reference.

    Args:
        out: The output's calls.
        ref: The reference's calls.
        spec: The configuration, with the view ``all``.

    Returns:
        The verdict.
    """
    different, count = _differing(out, ref, spec), len(out.names)
    if different is not None and (
        spec.mode != "strict" or (out.roles == ref.roles and out.at == ref.at)
    ):
        pairs = [*enumerate(range(count))]
        if not different:
            return _passed(pairs)
        if len(different) == 1:
            # Each side has one call left over under any pairing, and the two do not match.
            # Without this shortcut, such failures take 2.0 to 3.6 times as long in the benchmark.
            del pairs[different[0]]
            return _one_differs(out, ref, spec, pairs, different)
    if different is None and spec.mode in _UNORDERED:
        texts = _same_texts(out, ref, spec)
        if texts is not None:
            return _passed(texts)
    return _judge(out, ref, spec, range(count), range(len(ref.names)))


def _differing(out: CallTable, ref: CallTable, spec: MatchSpec) -> list[int] | None:
    """The calls that do not match the call at the same index on the other side.

    A shortcut before `match_calls`: without it, the cases of the match benchmark take 1.7 times as
    long (geometric mean; at most 5.3 times).

    Returns:
        The calls; None if the sides call different tools or in a different order, or if the
        arguments' texts or flat values do not decide which calls match.
    """
    rule = spec.args
    if spec.overrides or out.names != ref.names:
        return None
    if not rule.by_value and rule.blind:
        return []
    if not (rule.preorder and out.textual and ref.textual):
        return None
    if out.raw == ref.raw:
        return []
    if not rule.by_value:
        return None
    calls = [call for call, differs in enumerate(map(ne, out.raw, ref.raw)) if differs]
    values = flat_objects([table.raw[call] for table in (out, ref) for call in calls])
    if values is None:
        return None
    output_args, reference_args = values[: len(calls)], values[len(calls) :]
    if output_args == reference_args:
        return []
    for index, call in enumerate(calls):
        out.learn(call, output_args[index])
        ref.learn(call, reference_args[index])
    return [
        call
        for call, left, right in zip(calls, output_args, reference_args, strict=True)
        if left != right
    ]


def _same_texts(out: CallTable, ref: CallTable, spec: MatchSpec) -> Pairs | None:
    """Pair all calls with the calls whose texts are equal.

    A shortcut before `match_calls`: without it, calls in another order take 2.6 to 4.1 times as
    long in the match benchmark.

    Returns:
        The pairs; None unless both sides have the same texts, each exactly once.
    """
    rule, count = spec.args, len(out.names)
    if spec.overrides or rule.blind or not (rule.preorder and out.textual and ref.textual):
        return None
    call_of_text = dict(zip(zip(ref.names, ref.raw, strict=True), range(count), strict=False))
    if len(call_of_text) != count or len(ref.names) != count:
        return None
    refs = [*map(call_of_text.pop, zip(out.names, out.raw, strict=True), repeat(_NOWHERE, count))]
    return None if call_of_text else [*enumerate(refs)]


class Unanswered(BaseException):
    """A comparison needs answers of functions that were not called yet.

    This is not an `Exception`: no evaluation failed.
    """


class FunctionAnswers:
    """The answers of functions of a spec that must be awaited.

    A comparison first assumes that unanswered pairs do not match. The answers that it needed are
    then awaited, and it is repeated until no answer is open. A function is called only for pairs
    that matter, once for each.

    Attributes:
        open: The pairs without an answer, by function and arguments.
    """

    def __init__(self) -> None:
        self.answers: dict[Hashable, bool] = {}
        self.open: dict[Hashable, tuple[Custom, Any, Any]] = {}

    def spec(self, spec: MatchSpec) -> MatchSpec:
        """A spec whose functions are the answers."""
        overrides = {tool: self._rule(rule) for tool, rule in spec.overrides.items()}
        return replace(spec, args=self._rule(spec.args), overrides=overrides)

    def _rule(self, rule: Rule) -> Rule:
        return Custom(_Recall(self, rule)) if isinstance(rule, Custom) else rule

    async def answer(self) -> None:
        """Await the answers that are open."""
        waiting, self.open = self.open, {}
        for key, (rule, out, ref) in waiting.items():
            answer = rule.ask(out, ref)
            self.answers[key] = bool(await answer if hasattr(answer, "__await__") else answer)


class _Recall:
    """Returns stored answers, and records the pairs without an answer."""

    def __init__(self, answers: FunctionAnswers, rule: Custom) -> None:
        self._answers, self._rule = answers, rule
        self.__module__ = getattr(rule.function, "__module__", "")
        self.__qualname__ = getattr(rule.function, "__qualname__", type(rule.function).__name__)

    def __call__(self, out: Any, ref: Any) -> bool:
        key = (id(self._rule), dumps_exact(out), dumps_exact(ref))
        if key not in self._answers.answers:
            self._answers.open[key] = (self._rule, out, ref)
        return self._answers.answers.get(key, False)


def _judge(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Verdict:
    if spec.mode != "strict":
        return _verdict(out, ref, spec, _pairs(out, ref, spec, outs, refs), outs, refs)
    match = match_strict(out, ref, spec, outs, refs)
    count = len(match.pairs)
    missing, extra = len(refs) - count, len(outs) - count
    if match.position is None:
        return _passed(match.pairs, missing=missing, extra=extra)
    comment = strict_comment(out, ref, spec, match)
    return _failure(out, ref, spec, match.pairs, comment, *unpaired(match.pairs, outs, refs))


def _one_differs(
    out: CallTable, ref: CallTable, spec: MatchSpec, pairs: Pairs, different: list[int]
) -> Verdict:
    """The verdict if all calls but one match the call at the same index."""
    position = out.at[different[0]]
    if spec.mode == "strict" and spec.strict_order:
        calls = [call for call, at in enumerate(out.at) if at == position]
        role, length = out.roles[position], len(out.roles)
        match = StrictMatch(pairs, position, (role, role), (calls, calls), (length, length))
        comment = strict_comment(out, ref, spec, match)
    else:
        comment = calls_comment(out, ref, spec, different, different)
        if spec.mode == "strict":
            comment = f"position {position}: {comment}"
    return _failure(out, ref, spec, pairs, comment, different, different)


def _verdict(
    out: CallTable,
    ref: CallTable,
    spec: MatchSpec,
    pairs: Pairs,
    outs: Sequence[int],
    refs: Sequence[int],
) -> Verdict:
    """The verdict on calls that were paired without regard to their messages."""
    count = len(pairs)
    missing, extra = len(refs) - count, len(outs) - count
    if _PASSES[spec.mode](missing, extra):
        return _passed(pairs, missing=missing, extra=extra)
    left = unpaired(pairs, outs, refs)
    return _failure(out, ref, spec, pairs, calls_comment(out, ref, spec, *left), *left)


def _passed(pairs: Pairs, *, missing: int = 0, extra: int = 0) -> Verdict:
    # Names of arguments double the time.
    return Verdict._make((True, None, len(pairs), missing, extra, pairs, None))


def _failure(
    out: CallTable,
    ref: CallTable,
    spec: MatchSpec,
    pairs: Pairs,
    comment: str,
    extra: list[int],
    missing: list[int],
) -> Verdict:
    reordered = reordered_lists(out, ref, spec, extra, missing)
    counts = len(pairs), len(missing), len(extra)
    return Verdict._make((False, comment, *counts, pairs, reordered))


_NOWHERE = -1
_UNORDERED = frozenset({"unordered", "superset", "subset"})
_PASSES: dict[str, Callable[[int, int], bool]] = {
    "unordered": lambda missing, extra: not missing and not extra,
    "superset": lambda missing, _extra: not missing,
    "subset": lambda _missing, extra: not extra,
    "in_order": lambda missing, _extra: not missing,
}


def _pairs(
    out: CallTable, ref: CallTable, spec: MatchSpec, outs: Sequence[int], refs: Sequence[int]
) -> Pairs:
    if spec.mode != "in_order":
        return match_calls(out, ref, spec, outs, refs)
    pairs = in_order(outs, refs, lambda i, j: call_fits(out, ref, spec, i, j))
    return ordered_calls(out, ref, spec, outs, refs) if pairs is None else pairs
