"""The forms in which users say how arguments are compared, checked and made into rules.

The same forms serve all tools (``tool_args_match_mode``) and one (an override):

==================================  =================================================
``"exact"``                         deep equality
``"ignore"``                        nothing is compared
``"subset"``, ``"superset"``        one side's keys and values are within the other's
``"tolerant"``                      numbers in strings, case and white space do not count
``{"tolerant": {"sets": [path]}}``  the same, with the lists at these paths as sets
``"regex"``                         the reference's arguments are ``{field: pattern}``
``{"regex": {path: pattern}}``      the output's fields must fit; only they are looked at
``[path, ...]``                     only these fields are compared; ``[]`` compares none
``function(output, reference)``     the function decides
==================================  =================================================

A plain ``{path: pattern}`` is read as ``{"regex": {path: pattern}}``. A pattern must fit a
whole value. Everything is checked when the evaluator is made, never during an evaluation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any

from ..errors import ConfigError
from ..patterns import Pattern, PatternError, compile_pattern
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

__all__ = ["ARGS_MODES", "ArgsMatch", "make_overrides", "make_rule"]

ArgsMatch = str | list[str] | Mapping[str, Any] | Callable[[Any, Any], Any]
"""A mode, a list of dotted fields, a mapping for ``regex`` or ``tolerant``, or a function."""

_RULES: dict[str, type[Rule]] = {
    "exact": Exact,
    "ignore": Ignore,
    "subset": Subset,
    "superset": Superset,
    "tolerant": Tolerant,
    "regex": ReferencePatterns,
}
ARGS_MODES = tuple(_RULES)


def make_rule(value: Any, name: str, *, missing_ok: bool = True, is_async: bool = False) -> Rule:
    """Make the rule that a user asks for.

    Args:
        value: One of the forms above.
        name: The name of the value in error messages.
        missing_ok: Whether a listed field that neither side has counts as equal.
        is_async: Whether functions may be coroutine functions.

    Returns:
        The rule.

    Raises:
        ConfigError: The value has none of the forms; the text lists them.
    """
    if isinstance(value, str):
        if value not in _RULES:
            raise ConfigError(f"{name}: unknown mode {value!r}; known modes: {_known()}")
        return _RULES[value]()
    if isinstance(value, (list, tuple)):
        return _fields(value, name, missing_ok)
    if isinstance(value, Mapping):
        return _from_mapping(value, name)
    if callable(value) and not isinstance(value, type):
        if not is_async and _is_async(value):
            raise ConfigError(
                f"{name} is an async function, which only an evaluator made by "
                "create_async_trajectory_match_evaluator can await"
            )
        return Custom(value)
    raise ConfigError(
        f"{name} is a {type(value).__name__}; expected a mode ({_known()}), a list of dotted "
        "fields, {'regex': {field: pattern}} or a function of (output_args, reference_args)"
    )


def make_overrides(
    value: Any, name: str, *, missing_ok: bool = True, is_async: bool = False
) -> dict[str, Rule]:
    """Make the rules of single tools.

    Args:
        value: Forms by tool name; None for no overrides.
        name: The name of the value in error messages.
        missing_ok: As for `make_rule`.
        is_async: As for `make_rule`.

    Returns:
        The rule of each tool.

    Raises:
        ConfigError: The value is not a mapping, or one of its rules is wrong.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a {type(value).__name__}; expected {{tool name: mode}}")
    rules = {}
    for tool, item in value.items():
        if not isinstance(tool, str):
            raise ConfigError(f"{name}: {tool!r} is not a tool name; names are strings")
        rules[tool] = make_rule(item, f"{name}[{tool!r}]", missing_ok=missing_ok, is_async=is_async)
    return rules


def _fields(value: list[Any] | tuple[Any, ...], name: str, missing_ok: bool) -> Rule:
    for path in value:
        if not isinstance(path, str) or not path:
            raise ConfigError(
                f"{name}: {path!r} is not a field; write dotted paths such as 'time.start'"
            )
    return Fields(tuple(value), missing_ok)


def _from_mapping(value: Mapping[Any, Any], name: str) -> Rule:
    inner = next(iter(value.values())) if len(value) == 1 else None
    if isinstance(inner, Mapping):
        if "regex" in value:
            return _patterns(inner, f"{name}['regex']")
        if "tolerant" in value:
            return _tolerant(inner, f"{name}['tolerant']")
    return _patterns(value, name)


def _tolerant(value: Mapping[Any, Any], name: str) -> Rule:
    sets = value.get("sets", [])
    paths_only = isinstance(sets, (list, tuple)) and all(isinstance(path, str) for path in sets)
    if set(value) - {"sets"} or not paths_only:
        raise ConfigError(f"{name}: expected {{'sets': [dotted path, ...]}}, not {dict(value)!r}")
    return Tolerant(frozenset(sets))


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
    call = getattr(function, "__call__", None)  # noqa: B004  an object's own __call__ may be async
    return iscoroutinefunction(function) or iscoroutinefunction(call)


def _known() -> str:
    return ", ".join(ARGS_MODES)
