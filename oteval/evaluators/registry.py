"""The evaluators by their ``type`` in oteval.yaml: oteval's own, and evaluators of other packages.

Every module in `oteval.evaluators.checks` is searched, so that a new check needs no entry
anywhere. Another package adds its evaluators by entry points of the group ``oteval.evaluators``,
named for the type::

    [project.entry-points."oteval.evaluators"]
    word_limit = "my_package.checks:WordLimit"

They are imported when their type is used, so a broken evaluator does not affect the others.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any

from ..base.errors import ConfigError
from . import checks
from .evaluator import Evaluator
from .options import options_of

__all__ = ["GROUP", "evaluator_class", "evaluator_types", "load_all"]

GROUP = "oteval.evaluators"
_COMMON = frozenset({"name", "type", "where", "sample", "scope", "reference"})


def evaluator_types() -> list[str]:
    """All types, sorted, including the types that other packages announce."""
    return sorted({*_OWN_MODULES, *_checks(), *announced_evaluators()})


def evaluator_class(kind: str) -> type[Evaluator]:
    """The class of a type.

    Raises:
        KeyError: The type is unknown.
        ConfigError: Several packages define the type, or its class cannot be loaded.
    """
    announced = announced_evaluators().get(kind, ())
    is_own = kind in _OWN_MODULES or _check(kind) is not None
    if len(announced) + is_own > 1:
        raise ConfigError(
            f"type {kind!r} is defined by {' and '.join(_owners(announced, is_own=is_own))}; "
            "uninstall one, or rename its entry point"
        )
    if announced:
        return _load(announced[0])
    if kind in _OWN_MODULES:
        return _classes_in(import_module(_OWN_MODULES[kind], __package__))[kind]
    if (check := _check(kind)) is None:
        raise KeyError(kind)
    return check


def load_all() -> tuple[dict[str, type[Evaluator]], list[str]]:
    """The classes by type, and the errors of classes that cannot be loaded."""
    classes, problems = {}, []
    for kind in evaluator_types():
        try:
            classes[kind] = evaluator_class(kind)
        except ConfigError as error:
            problems.append(str(error))
    return classes, problems


# Imported when their type is used: `judge` takes long to import. A check in a module with another
# name is also found without an entry, but only after all checks are imported.
_OWN_MODULES = {
    "command": ".programs",
    "cost": ".checks.budget",
    "finish_reason": ".checks.final_answer",
    "forbidden_tools": ".checks.tool_order",
    "graph_match": ".graph.match",
    "judge": ".judge.trajectory_judge",
    "latency": ".checks.budget",
    "python": ".functions",
    "trajectory_match": ".match",
}


@cache
def _check(kind: str) -> type[Evaluator] | None:
    """The check of a type; most are in a module of that name."""
    if kind in (module.name for module in pkgutil.iter_modules(checks.__path__)):
        check = _classes_in(import_module(f"{checks.__name__}.{kind}")).get(kind)
        if check is not None:
            return check
    return _checks().get(kind)


@cache
def _checks() -> dict[str, type[Evaluator]]:
    classes: dict[str, type[Evaluator]] = {}
    for module in pkgutil.iter_modules(checks.__path__):
        classes |= _classes_in(import_module(f"{checks.__name__}.{module.name}"))
    return classes


def _classes_in(module: Any) -> dict[str, type[Evaluator]]:
    """The evaluators that a module defines, by type."""
    return {
        value.type: value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Evaluator)
        and value.__module__ == module.__name__
        and "type" in vars(value)
        and not isabstract(value)
    }


@cache
def announced_evaluators() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of other packages, by type."""
    announced: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        announced[entry.name] = (*announced.get(entry.name, ()), entry)
    return announced


def _owners(entries: Iterable[EntryPoint], *, is_own: bool) -> list[str]:
    own = ["oteval"] if is_own else []
    return own + [entry.dist.name if entry.dist else entry.value for entry in entries]


def _load(entry: EntryPoint) -> type[Evaluator]:
    """The class that an entry point names.

    Raises:
        ConfigError: It cannot be imported, or is not an evaluator.
    """
    owner = f"type {entry.name!r} of {entry.dist.name if entry.dist else entry.value}"
    try:
        loaded = entry.load()
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(f"{owner}: {entry.value} cannot be imported: {reason}") from error
    if problem := _problem(loaded, entry.name):
        raise ConfigError(f"{owner}: {entry.value} {problem}")
    checked: type[Evaluator] = loaded
    return checked


def _problem(loaded: Any, kind: str) -> str:
    """Why an object cannot be the evaluator of a type, or ""."""
    if not isinstance(loaded, type) or not issubclass(loaded, Evaluator):
        return "is not a subclass of oteval.evaluators.Evaluator"
    if isabstract(loaded):
        return "does not define evaluate()"
    if getattr(loaded, "type", None) != kind:
        return f"has the type {getattr(loaded, 'type', None)!r}; name the entry point for it"
    try:
        options = options_of(loaded)
    except Exception as error:
        return f"has options that cannot be read: {' '.join(str(error).split())}"
    keys = [option.key for option in options]
    reserved = [key for key in keys if key in _COMMON or (key and keys.count(key) > 1)]
    if reserved:
        return f"has an option {reserved[0]!r}, which every evaluator has already; rename it"
    if any(option.default is MISSING for option in options if option.key is None):
        return "has a required option without a key in oteval.yaml"
    return ""
