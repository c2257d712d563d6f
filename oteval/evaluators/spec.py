"""The configuration of a match: the trajectory mode, the argument rules and the view.

A `MatchSpec` is the whole configuration of a match; two with the same `describe()` give the
same verdicts.

``tool_args_match_mode`` (for all tools) and overrides (for one tool) accept the same forms:

==================================  =================================================
``"exact"``                         deep equality
``"ignore"``                        any arguments match
``"subset"``, ``"superset"``        one side's keys and values are within the other's
``"tolerant"``                      ignores case, white space and numbers written as strings
``{"tolerant": {"sets": [path]}}``  the same, with the lists at these paths as sets
``"regex"``                         the reference's arguments are ``{field: pattern}``
``{"regex": {path: pattern}}``      these fields of the output must match the patterns
``{path: comparison}``              these fields are compared by the comparison, all others
                                    exactly
``{"tolerant": {"fields": {...}}}`` the same, with all others tolerantly
``[path, ...]``                     only these fields are compared; ``[]`` accepts any arguments
``function(output, reference)``     the function decides
==================================  =================================================

A comparison is ``{"abs": 0.01}`` or ``{"rel": 0.001}`` (a tolerance for numbers; the larger one
applies if both are given), ``"judged"`` or ``{"judged": criterion}`` (a language model decides),
``"exact"``, ``"tolerant"`` or ``"ignore"``.

Any other ``{path: pattern}`` is short for ``{"regex": {path: pattern}}``, unless the pattern looks
like a misspelt comparison. A pattern must match the whole value. Forms are checked when the
evaluator is created, never during an evaluation.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, cast

from ..base.errors import ConfigError
from ..base.patterns import Pattern, PatternError, compile_pattern
from ..messages import RULE_VERSION
from .field_rules import AsRule, ByField, FieldComparison, Judged, Within
from .rules import (
    Custom,
    Exact,
    Fields,
    Ignore,
    Patterns,
    ReferencePatterns,
    Rule,
    Subset,
    Superset,
    Tolerant,
)

if TYPE_CHECKING:
    from .judge.field_judge import FieldJudgeModel

__all__ = [
    "ARGS_MODES",
    "MODES",
    "VIEWS",
    "ArgsMatch",
    "MatchSpec",
    "Mode",
    "View",
    "make_rule",
    "make_spec",
]

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
    judge: FieldJudgeModel | None = None,
) -> MatchSpec:
    """Check a user's options and make a `MatchSpec` of them.

    Args:
        trajectory_match_mode: One of `MODES`.
        tool_args_match_mode: How arguments are compared: a form of `oteval.evaluators.spec`.
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
    rule = partial(make_rule, missing_ok=missing_ok, is_async=is_async, judge=judge)
    return MatchSpec(
        mode=cast("Mode", trajectory_match_mode),
        args=rule(tool_args_match_mode, "tool_args_match_mode"),
        overrides=_overrides(tool_args_match_overrides, "tool_args_match_overrides", rule),
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


ArgsMatch = str | list[str] | Mapping[str, Any] | Callable[[Any, Any], Any]
"""One of the forms above."""

_RULES: dict[str, type[Rule]] = {
    "exact": Exact,
    "ignore": Ignore,
    "subset": Subset,
    "superset": Superset,
    "tolerant": Tolerant,
    "regex": ReferencePatterns,
}
ARGS_MODES = tuple(_RULES)
_WORDS = ("exact", "tolerant", "ignore")
"""The modes of a single field."""
_COMPARISONS = (*_WORDS, "judged")
_NEAR = 0.75
"""How similar a text is to a word that it may misspell."""
_MEANING = "Both values mean the same: an agent that passes either to the tool does the same thing."


def make_rule(
    value: Any,
    name: str,
    *,
    missing_ok: bool = True,
    is_async: bool = False,
    judge: FieldJudgeModel | None = None,
) -> Rule:
    """Create a rule from one of the forms above.

    Args:
        value: One of the forms above.
        name: The name of the option in error messages.
        missing_ok: Whether a listed field counts as equal if neither side has it.
        is_async: Whether functions may be coroutine functions.
        judge: Asks a language model about judged fields; None refuses judged fields.

    Returns:
        The rule.

    Raises:
        ConfigError: The form is unknown; the message lists the known forms.
    """
    if isinstance(value, str):
        if value not in _RULES:
            raise ConfigError(f"{name}: unknown mode {value!r}; known modes: {_known()}")
        return _RULES[value]()
    if isinstance(value, (list, tuple)):
        return _fields(value, name, missing_ok)
    if isinstance(value, Mapping):
        return _from_mapping(value, name, missing_ok, judge)
    if callable(value) and not isinstance(value, type):
        if not is_async and _is_async(value):
            raise ConfigError(
                f"{name} is an async function, which only an evaluator made by "
                "create_async_trajectory_match_evaluator can await"
            )
        return Custom(value)
    raise ConfigError(
        f"{name} is a {type(value).__name__}; expected a mode ({_known()}), a list of dotted "
        "fields, {field: {'abs': 0.01}}, {'regex': {field: pattern}} or a function of "
        "(output_args, reference_args)"
    )


def _overrides(value: Any, name: str, rule: Callable[[Any, str], Rule]) -> dict[str, Rule]:
    """The rules of single tools, by name."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a {type(value).__name__}; expected {{tool name: mode}}")
    rules = {}
    for tool, form in value.items():
        if not isinstance(tool, str):
            raise ConfigError(f"{name}: {tool!r} is not a tool name; names are strings")
        rules[tool] = rule(form, f"{name}[{tool!r}]")
    return rules


def _fields(value: list[Any] | tuple[Any, ...], name: str, missing_ok: bool) -> Rule:
    for path in value:
        if not isinstance(path, str) or not path:
            raise ConfigError(
                f"{name}: {path!r} is not a field; write dotted paths such as 'time.start'"
            )
    return Fields(tuple(value), missing_ok)


def _from_mapping(
    value: Mapping[Any, Any], name: str, missing_ok: bool, judge: FieldJudgeModel | None
) -> Rule:
    inner = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(inner, Mapping):
        if "regex" in value:
            return _patterns(inner, f"{name}['regex']")
        if "tolerant" in value:
            return _tolerant(inner, f"{name}['tolerant']", missing_ok, judge)
    if any(isinstance(form, Mapping) or _is_word(form) for form in value.values()):
        return _by_field(value, name, Exact(), missing_ok, judge)
    _refuse_words(value, name)
    return _patterns(value, name)


def _refuse_words(value: Mapping[Any, Any], name: str) -> None:
    """Refuse a pattern that is nearly a comparison, or a mode of all arguments.

    Raises:
        ConfigError: A pattern looks like either; the text shows how to write the pattern.
    """
    for path, pattern in value.items():
        word = pattern.strip().lower() if isinstance(pattern, str) else ""
        near = difflib.get_close_matches(word, {*_COMPARISONS, *ARGS_MODES}, 1, _NEAR)
        if near:
            meant = f"did you mean {near[0]!r}?"
            if near[0] not in _COMPARISONS:
                meant = f"{near[0]!r} is a mode of all arguments"
            raise ConfigError(
                f"{name}[{path!r}]: {pattern!r} would be a pattern; {meant} Known: "
                f"{', '.join(_COMPARISONS)}. For the pattern, write "
                f"{{'regex': {{{path!r}: {pattern!r}}}}}"
            )


def _tolerant(
    value: Mapping[Any, Any], name: str, missing_ok: bool, judge: FieldJudgeModel | None
) -> Rule:
    _check_keys(value, ("sets", "fields"), name)
    sets, fields = value.get("sets", []), value.get("fields", {})
    if not isinstance(sets, (list, tuple)) or not all(isinstance(path, str) for path in sets):
        raise ConfigError(f"{name}['sets'] is {sets!r}; expected [dotted path, ...]")
    rule = Tolerant(frozenset(sets))
    if not isinstance(fields, Mapping):
        raise ConfigError(f"{name}['fields'] is {fields!r}; expected {{field: comparison}}")
    for path, set_path in itertools.product(fields, sets):
        if f"{path}.".startswith(f"{set_path}."):
            raise ConfigError(
                f"{name}['fields'][{path!r}]: {set_path!r} is in sets, "
                "which are compared as a whole"
            )
    return _by_field(fields, f"{name}['fields']", rule, missing_ok, judge) if fields else rule


def _by_field(
    value: Mapping[Any, Any],
    name: str,
    rule: Exact | Tolerant,
    missing_ok: bool,
    judge: FieldJudgeModel | None,
) -> Rule:
    fields = {}
    for path, comparison in value.items():
        if not isinstance(path, str) or not path:
            raise ConfigError(f"{name}: {path!r} is not a field; write dotted paths")
        fields[path] = _comparison(comparison, f"{name}[{path!r}]", rule, judge)
    return ByField(fields, rule, missing_ok)


def _comparison(
    value: Any, name: str, rule: Exact | Tolerant, judge: FieldJudgeModel | None
) -> FieldComparison:
    if isinstance(value, str) and value in _WORDS:
        return AsRule(_RULES[value]())
    if _is_word(value):
        return _judged(_MEANING, name, judge)
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{name}: {value!r} is not a comparison{_hint(value, _COMPARISONS)}; known: "
            f"{', '.join(_COMPARISONS)}, {{'abs': 0.01}}, {{'rel': 0.001}}. Patterns stand alone: "
            "{'regex': {field: pattern}}"
        )
    if "judged" in value:
        _check_keys(value, ("judged",), name)
        if not isinstance(value["judged"], str) or not value["judged"].strip():
            raise ConfigError(f"{name}['judged'] is {value['judged']!r}; expected a criterion")
        return _judged(value["judged"], name, judge)
    _check_keys(value, ("abs", "rel", "judged"), name)
    if not value:
        raise ConfigError(f"{name}: no tolerance given; expected {{'abs': 0.01}}")
    for key, tolerance in value.items():
        is_number = isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool)
        if not is_number or not 0 <= tolerance < math.inf:
            raise ConfigError(f"{name}[{key!r}] is {tolerance!r}; expected a number, 0 or more")
    fallback = Tolerant() if isinstance(rule, Tolerant) else Exact()
    return Within(value.get("abs", 0.0), value.get("rel", 0.0), fallback)


def _judged(criterion: str, name: str, judge: FieldJudgeModel | None) -> FieldComparison:
    if judge is None:
        raise ConfigError(f"{name} is judged, which needs a model: give judge: {{model: ...}}")
    return Judged(judge, criterion)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value in _COMPARISONS


def _check_keys(value: Mapping[Any, Any], allowed: tuple[str, ...], name: str) -> None:
    """Refuse an unknown key.

    Raises:
        ConfigError: A key is unknown; the message suggests the nearest and lists the allowed keys.
    """
    unknown = next((key for key in value if key not in allowed), None)
    if unknown is not None:
        hint = _hint(unknown, allowed)
        raise ConfigError(f"{name}: unknown key {unknown!r}{hint}; known: {', '.join(allowed)}")


def _hint(value: Any, allowed: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(value), allowed, 1)
    return f", did you mean {near[0]!r}?" if near else ""


def _patterns(value: Mapping[Any, Any], name: str) -> Rule:
    if not value:
        raise ConfigError(f"{name}: no pattern given; expected {{field: pattern}}")
    fields = []
    for path, pattern in value.items():
        if not isinstance(path, str) or not isinstance(pattern, (str, re.Pattern, Pattern)):
            raise ConfigError(
                f"{name}: {path!r}: {pattern!r} is not a field and a pattern; "
                "expected {'regex': {field: pattern}} or {'tolerant': {'sets': [field]}}"
            )
        try:
            fields.append((path, compile_pattern(pattern)))
        except PatternError as error:
            raise ConfigError(
                f"{name}[{path!r}]: {pattern!r} is not a valid pattern: {error}"
            ) from None
    return Patterns(tuple(fields))


def _is_async(function: Any) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004  an object's __call__ may be async
    return iscoroutinefunction(function) or iscoroutinefunction(call)


def _known() -> str:
    return ", ".join(ARGS_MODES)
