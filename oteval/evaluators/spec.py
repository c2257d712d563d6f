"""The configuration of a match: the trajectory mode, the argument rules and the view.

A `MatchSpec` is the whole configuration of a match; two with the same `describe()` give the
same verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ..base.errors import ConfigError
from ..base.patterns import Pattern, PatternError, compile_pattern
from ..messages import RULE_VERSION
from .args import ArgsMatch, RuleOptions, make_overrides, make_rule
from .field_rules import ByField, FieldJudge
from .rules import Exact, Rule

__all__ = ["MODES", "VIEWS", "MatchSpec", "Mode", "View", "make_spec"]

Mode = Literal["strict", "unordered", "subset", "superset", "in_order"]
View = Literal["all", "writes", "effects"]

MODES: tuple[Mode, ...] = ("strict", "unordered", "subset", "superset", "in_order")
VIEWS: tuple[View, ...] = ("all", "writes", "effects")

# The default before `messages.call_outcome`: evaluators that read no results keep their versions.
_OLD_PATTERN = [r"\A\s*(?:Error|Exception|Traceback|Unknown action)", 32]


@dataclass(frozen=True, slots=True)
class MatchSpec:
    """The configuration of a match; `make_spec` makes one from a user's options.

    Attributes:
        mode: How the calls as a whole are compared.
        args: How arguments are compared.
        overrides: The tools whose arguments are compared differently.
        view: Which calls count: all, calls that may change something, or calls that did.
        effect_tools: The tools that change something; None leaves it to tool definitions.
        error_pattern: Searched in the text of a tool's result to see that the call failed; None for
            the rule of `messages.call_outcome`.
        strict_order: Whether strict compares the order inside a message too.
    """

    mode: Mode = "strict"
    args: Rule = field(default_factory=Exact)
    overrides: dict[str, Rule] = field(default_factory=dict)
    view: View = "all"
    effect_tools: frozenset[str] | None = None
    error_pattern: Pattern | re.Pattern[str] | None = None
    strict_order: bool = False

    def rule(self, tool: str) -> Rule:
        """How the arguments of a tool's calls are compared."""
        return self.overrides.get(tool, self.args)

    @property
    def asks_model(self) -> bool:
        """Whether a language model compares some field."""
        rules = (self.args, *self.overrides.values())
        return any(isinstance(rule, ByField) and rule.asks_model for rule in rules)

    def describe(self) -> dict[str, Any]:
        """The comparison as JSON values, to hash into an evaluator's version."""
        pattern: list[Any] = _OLD_PATTERN if self.view != "effects" else [RULE_VERSION]
        if self.error_pattern is not None:
            pattern = [self.error_pattern.pattern, int(self.error_pattern.flags)]
        return {
            "mode": self.mode,
            "args": self.args.describe(),
            "overrides": {tool: self.overrides[tool].describe() for tool in sorted(self.overrides)},
            "view": self.view,
            "effect_tools": None if self.effect_tools is None else sorted(self.effect_tools),
            "error_pattern": pattern,
            "strict_order": self.strict_order,
        }


def make_spec(
    *,
    trajectory_match_mode: str = "strict",
    tool_args_match_mode: ArgsMatch = "exact",
    tool_args_match_overrides: Any = None,
    view: str = "all",
    effect_tools: Iterable[str] | None = None,
    error_pattern: str | re.Pattern[str] | None = None,
    strict_order: bool = False,
    missing_ok: bool = True,
    is_async: bool = False,
    judge: FieldJudge | None = None,
) -> MatchSpec:
    """Check a user's options and make a `MatchSpec` of them.

    Args:
        trajectory_match_mode: One of `MODES`.
        tool_args_match_mode: How arguments are compared: a form of `oteval.evaluators.args`.
        tool_args_match_overrides: The forms of single tools, by name.
        view: One of `VIEWS`.
        effect_tools: The tools that change something, for all views except ``all``.
        error_pattern: Searched in a result's text to see that the call failed; None for the rule
            of `messages.call_outcome`.
        strict_order: Whether strict compares the order inside a message too.
        missing_ok: Whether a listed field counts as equal if neither side has it.
        is_async: Whether functions among the overrides may be coroutine functions.
        judge: Asks a language model about judged fields; None if there is none.

    Returns:
        The configuration.

    Raises:
        ConfigError: An option is wrong; the text names it and the values to use.
    """
    _one_of(trajectory_match_mode, MODES, "trajectory_match_mode")
    _one_of(view, VIEWS, "view")
    options: RuleOptions = {"missing_ok": missing_ok, "is_async": is_async, "judge": judge}
    return MatchSpec(
        mode=cast("Mode", trajectory_match_mode),
        args=make_rule(tool_args_match_mode, "tool_args_match_mode", **options),
        overrides=make_overrides(tool_args_match_overrides, "tool_args_match_overrides", **options),
        view=cast("View", view),
        effect_tools=_tools(effect_tools),
        error_pattern=_pattern(error_pattern),
        strict_order=_flag(strict_order, "strict_order"),
    )


def _one_of(value: Any, choices: tuple[str, ...], name: str) -> None:
    if value not in choices:
        raise ConfigError(f"{name}: unknown value {value!r}; known: {', '.join(choices)}")


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; expected True or False")
    return value


def _tools(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(t, str) for t in value):
        return frozenset(value)
    raise ConfigError(f"effect_tools is {value!r}; expected a list of tool names")


def _pattern(value: Any) -> Pattern | re.Pattern[str] | None:
    if value is None:
        return None
    if not isinstance(value, (str, re.Pattern, Pattern)):
        raise ConfigError(f"error_pattern is a {type(value).__name__}; expected a pattern")
    if not isinstance(getattr(value, "pattern", value), str):
        raise ConfigError("error_pattern is a pattern for bytes; expected one for text")
    try:
        return compile_pattern(value)
    except PatternError as error:
        raise ConfigError(f"error_pattern: {value!r} is not a valid pattern: {error}") from None
