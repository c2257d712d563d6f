"""Checks of the tools that a run calls: only permitted tools, in the right order.

A rule about the order is a sentence about two tools:

- ``A before B``: A is called before the first call of B.
- ``A immediately before B``: the last call before each call of B is A.
- ``every A is followed by B``: after each call of A, B is called.
- ``every A is immediately followed by B``: the next call after each call of A is B.
- ``never B after A``: B is not called after a call of A.

A run satisfies a rule about a tool that it never calls. The exception is B in ``every A is followed
by B``. The calls of one message happen at the same time: none of them precedes another, and the
next call may be any call of the next message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ConfigError
from ...model import OutlineRequest, Reference
from ..factories import with_options_of
from . import Call, Check, EvaluationContext, EvaluationResult, NotEvaluated, name_matches

__all__ = [
    "ForbiddenTools",
    "OrderRule",
    "ToolOrder",
    "create_forbidden_tools_evaluator",
    "create_tool_order_evaluator",
    "parse_rule",
]


@dataclass(frozen=True, kw_only=True)
class ForbiddenTools(Check):
    """Fails if a run calls a forbidden tool.

    Attributes:
        forbidden: Tools that must not be called; ``*`` matches any text, ``?`` any character.
        allowed: The only tools that may be called.
    """

    type: ClassVar[str] = "forbidden_tools"

    forbidden: Sequence[str] | None = None
    allowed: Sequence[str] | None = None

    def check_combination(self) -> None:
        """Refuse a check without a list."""
        if self.forbidden is None and self.allowed is None:
            raise ConfigError("give forbidden or allowed, a list of tools")

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The columns that every outline has: they name the tools."""
        return OutlineRequest()

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for calls of forbidden tools."""
        wrong = [call for call in context.calls if self._is_wrong(call.call.name)]
        if not wrong:
            context.require_all_calls()
            if unasked := context.gap("unmatched_tool_span"):
                raise NotEvaluated(f"{unasked.code}: {unasked.detail}")
        tools = sorted({call.call.name for call in wrong})
        figures = {"calls": len(context.calls), "wrong_calls": len(wrong), "tools": tools}
        return self.result([f"{call} must not be made" for call in wrong], figures)

    def _is_wrong(self, name: str) -> bool:
        if name_matches(name, self.forbidden or ()):
            return True
        return self.allowed is not None and not name_matches(name, self.allowed)

    def describe(self) -> dict[str, Any]:
        """The options; without a list of forbidden tools, an empty one."""
        return {**super().describe(), "forbidden": self.forbidden or ()}


@with_options_of(ForbiddenTools)
def create_forbidden_tools_evaluator(**options: Any) -> ForbiddenTools:
    """Create an evaluator that fails if a run calls a forbidden tool.

    Args:
        **options: The options of `ForbiddenTools`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ForbiddenTools(**options)


_NAME = r"""("[^"]+"|'[^']+'|[^\s"']+)"""
_FORMS = {
    "immediately_before": rf"{_NAME} immediately before {_NAME}",
    "before": rf"{_NAME} before {_NAME}",
    "immediately_followed": rf"every {_NAME} is immediately followed by {_NAME}",
    "followed": rf"every {_NAME} is followed by {_NAME}",
    "never_after": rf"never {_NAME} after {_NAME}",
}
_PATTERNS = {kind: re.compile(rf"\s*{form}\s*") for kind, form in _FORMS.items()}
_SAME_TOOL = ("never_after",)


@dataclass(frozen=True, slots=True)
class OrderRule:
    """One rule.

    Attributes:
        text: The sentence.
        kind: Its form, such as ``before``.
        first: The tool it names first.
        second: The other tool.
    """

    text: str
    kind: str
    first: str
    second: str


def parse_rule(text: Any) -> OrderRule:
    """The rule that a sentence describes.

    Args:
        text: The sentence, with quotes around names that have spaces.

    Raises:
        ConfigError: The sentence is unknown, or no run can satisfy it.
    """
    for kind, form in _PATTERNS.items():
        match = form.fullmatch(re.sub(r"\s+", " ", text)) if isinstance(text, str) else None
        if match is None:
            continue
        first, second = (name.strip("\"'") for name in match.groups())
        if first == second and kind not in _SAME_TOOL:
            raise ConfigError(f"rule {text!r}: it names the same tool twice")
        return OrderRule(text.strip(), kind, first, second)
    raise ConfigError(
        f"rule {text!r} is not known; write 'A before B', 'A immediately before B', "
        "'every A is followed by B', 'every A is immediately followed by B' or 'never B after A'"
    )


@dataclass(frozen=True, kw_only=True)
class ToolOrder(Check):
    """Fails if calls break a rule about their order.

    Attributes:
        rules: Sentences such as ``look_up before refund``: ``A before B``, ``A immediately before
            B``, ``every A is followed by B``, ``every A is immediately followed by B``, ``never B
            after A``.
    """

    type: ClassVar[str] = "tool_order"

    rules: str | Sequence[str]

    def check_combination(self) -> None:
        """Refuse a list without rules, and unknown sentences."""
        rules = (self.rules,) if isinstance(self.rules, str) else self.rules
        if not rules:
            raise ConfigError("rules is empty; give at least one, such as 'look_up before refund'")
        object.__setattr__(self, "rules", tuple(parse_rule(text).text for text in rules))

    def outline_request(self, references: Sequence[Reference]) -> OutlineRequest | None:  # noqa: ARG002
        """The columns that every outline has: they show the tools in their order."""
        return OutlineRequest()

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for calls that break a rule."""
        # A call that the trace does not show may satisfy a rule or break it.
        context.require_all_calls()
        problems, broken = [], []
        rules = [parse_rule(text) for text in self.rules]
        for rule in rules:
            why = _BREAKS[rule.kind](rule, context.calls)
            if why is not None:
                broken.append(rule.text)
                problems.append(f"'{rule.text}' does not hold: {why}")
        figures = {"rules": len(self.rules), "broken": broken, "calls": len(context.calls)}
        return self.result(problems, figures)


def _of(calls: Sequence[Call], tool: str) -> list[Call]:
    return [call for call in calls if call.call.name == tool]


def _before(rule: OrderRule, calls: Sequence[Call]) -> str | None:
    firsts, seconds = _of(calls, rule.first), _of(calls, rule.second)
    if not seconds or any(call.at < seconds[0].at for call in firsts):
        return None
    if not firsts:
        return f"{seconds[0]} is made and {rule.first} never called"
    if firsts[0].at == seconds[0].at:
        return f"{seconds[0]} is made together with {firsts[0]}"
    return f"{seconds[0]} is made before {firsts[0]}"


def _near(calls: Sequence[Call], step: int) -> dict[int, list[Call]]:
    """For each message with calls, return the calls before (-1) or after (1) it."""
    groups: dict[int, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.at, []).append(call)
    ordered = list(groups.values())
    empty: list[Call] = []
    near = [empty, *ordered[:-1]] if step < 0 else [*ordered[1:], empty]
    return dict(zip(groups, near, strict=False))


def _immediately_before(rule: OrderRule, calls: Sequence[Call]) -> str | None:
    before = _near(calls, -1)
    for call in _of(calls, rule.second):
        near = before[call.at]
        if not _of(near, rule.first):
            return f"before {call} comes {near[-1] if near else 'no call'}"
    return None


def _followed(rule: OrderRule, calls: Sequence[Call]) -> str | None:
    last = max((call.at for call in _of(calls, rule.second)), default=-1)
    for call in _of(calls, rule.first):
        if call.at >= last:
            return f"after {call} {rule.second} is not called"
    return None


def _immediately_followed(rule: OrderRule, calls: Sequence[Call]) -> str | None:
    after = _near(calls, 1)
    for call in _of(calls, rule.first):
        near = after[call.at]
        if not _of(near, rule.second):
            return f"after {call} comes {near[0] if near else 'no call'}"
    return None


def _never_after(rule: OrderRule, calls: Sequence[Call]) -> str | None:
    # "never B after A" names B first.
    start = next((call for call in calls if call.call.name == rule.second), None)
    if start is None:
        return None
    late = next((call for call in _of(calls, rule.first) if call.at > start.at), None)
    return None if late is None else f"{late} is made after {start}"


_BREAKS: dict[str, Callable[[OrderRule, Sequence[Call]], str | None]] = {
    "before": _before,
    "immediately_before": _immediately_before,
    "followed": _followed,
    "immediately_followed": _immediately_followed,
    "never_after": _never_after,
}


@with_options_of(ToolOrder)
def create_tool_order_evaluator(**options: Any) -> ToolOrder:
    """Create an evaluator of the order of tool calls.

    Args:
        **options: The options of `ToolOrder`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ToolOrder(**options)
