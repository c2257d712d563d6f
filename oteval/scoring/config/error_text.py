"""Errors of a configuration file, a line each: the place, the evaluator, the key, the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ValidationError

from .evaluators import EvaluatorSettings, settings_of_entry

__all__ = ["explain_errors", "line_of"]

_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def explain_errors(
    error: ValidationError,
    root: yaml.Node | None,
    source: str,
    model: type[BaseModel],
    value: Any,
) -> list[str]:
    """All faults: the line number, the evaluator, the key and the remedy of each.

    Args:
        error: A validation error.
        root: The nodes of the file.
        source: The file's name.
        model: The model of the file.
        value: The contents of the file.
    """
    groups = _by_place(error, root)
    return [_explained(_first(group), root, source, model, value) for group in groups]


def _by_place(error: ValidationError, root: yaml.Node | None) -> list[list[Any]]:
    """The faults by their place in the file: the alternatives of a union are one fault there.

    A missing key beside a misspelled one is one fault with it.
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for fault in error.errors(include_input=False):
        loc = fault["loc"]
        depths = (depth for depth in range(len(loc)) if not _exists(root, loc[: depth + 1]))
        depth = next(depths, len(loc))
        is_missing_key = fault["type"] == "missing" and depth == len(loc) - 1
        groups.setdefault(loc if is_missing_key else loc[:depth], []).append(fault)
    faults = [fault for group in groups.values() for fault in group]
    return [group for group in groups.values() if _misspelled(group[0], faults) in (None, *group)]


def _exists(root: yaml.Node | None, key_path: Sequence[Any]) -> bool:
    return len(line_of(root, key_path)[1]) == len(key_path)


def _explained(
    fault: Any, root: yaml.Node | None, source: str, model: type[BaseModel], value: Any
) -> str:
    line, path = line_of(root, fault["loc"])
    owner, keys = _owner(path, value)
    position = f"{source}:{line}: {owner}"
    key = ".".join(str(step) for step in keys)
    if fault["type"] in _UNKNOWN_KEY:
        remedy = _nearest(str(path[-1]), _known_keys(model, value, fault["loc"][:-1]))
        return f"{position}unknown key {str(path[-1])!r}{remedy}"
    if fault["type"] == "missing":
        suffix = f" in {key}" if key else "" if owner else " in the file"
        return f"{position}{fault['loc'][-1]!r} is missing{suffix}"
    message = _plain(fault)
    message = f"{message[:1].lower()}{message[1:]}"
    return f"{position}{key}: {message}" if key else f"{position}{message}"


def _owner(path: Sequence[Any], value: Any) -> tuple[str, Sequence[Any]]:
    """The evaluator that a path is in, by its name, and the path inside; "" for other paths."""
    if len(path) > 1 and path[0] == "evaluators":
        entry = value["evaluators"][path[1]]
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and name:
            return f"evaluator {name!r}: ", path[2:]
    return "", path


def _plain(fault: Any) -> str:
    """Return pydantic's message without the names of Python's types."""
    if fault["type"] == "dataclass_type":
        return "input should be a mapping"
    if fault["type"] == "is_instance_of" and fault["ctx"]["class"] == "Sequence":
        return "input should be a list"
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


def _first(faults: Sequence[Any]) -> Any:
    """The first fault. If a key is missing, the misspelled key instead, if there is one."""
    return _misspelled(faults[0], faults) or faults[0]


def _misspelled(missing: Any, faults: Sequence[Any]) -> Any:
    """The fault of an unknown key that looks like a missing key beside it; or None."""
    if missing["type"] != "missing":
        return None
    for fault in faults:
        beside = fault["loc"][:-1] == missing["loc"][:-1] and fault["type"] in _UNKNOWN_KEY
        if beside and difflib.get_close_matches(str(fault["loc"][-1]), [missing["loc"][-1]]):
            return fault
    return None


def line_of(root: yaml.Node | None, key_path: Sequence[Any]) -> tuple[int, list[Any]]:
    """The line of a place in a file, and its path there.

    The path leaves out missing keys, and the names that pydantic adds for alternatives.
    """
    node, line, path = root, 1, []
    for step in key_path:
        below = _child(node, step)
        if below is not None:
            key, node = below
            line = (key if key is not None else node).start_mark.line + 1
            path.append(step)
    return line, path


def _child(node: yaml.Node | None, step: Any) -> tuple[yaml.Node | None, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(step):
                return key, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None


def _nearest(unknown: str, known_names: Sequence[str]) -> str:
    near = difflib.get_close_matches(unknown, known_names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are {', '.join(known_names)}" if known_names else ""


def _known_keys(model: type[BaseModel], value: Any, key_path: Sequence[Any]) -> list[str]:
    """The keys that are allowed at a place."""
    form: Any = model
    for step in key_path:
        form = _form_below(form, step)
        if isinstance(value, Mapping):
            value = value.get(step, value)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
        if EvaluatorSettings in _alternatives(form):
            form = settings_of_entry(value)
    return list(_fields(form))


def _form_below(form: Any, step: Any) -> Any:
    """The type of an item or field of a type."""
    for alternative in _alternatives(form):
        if getattr(alternative, "__name__", "") == step:
            return alternative
        fields = _fields(alternative)
        if step in fields:
            return fields[step]
        if (origin := get_origin(alternative)) is not None and get_args(alternative):
            is_list = isinstance(origin, type) and issubclass(origin, Sequence)
            if is_list == isinstance(step, int):
                return get_args(alternative)[-1]
    return form


def _alternatives(form: Any) -> list[Any]:
    """The members of a union, or the type itself, without annotations."""
    if get_origin(form) is Annotated:
        return _alternatives(get_args(form)[0])
    if get_origin(form) in (Union, UnionType):
        return [alternative for part in get_args(form) for alternative in _alternatives(part)]
    return [form]


def _fields(form: Any) -> dict[str, Any]:
    """The types of a model's or dataclass's fields by their keys in the file."""
    for alternative in _alternatives(form):
        if isinstance(alternative, type) and issubclass(alternative, BaseModel):
            return {f.alias or name: f.annotation for name, f in alternative.model_fields.items()}
        if isinstance(alternative, type) and is_dataclass(alternative):
            return {n: t for n, t in get_type_hints(alternative).items() if not n.startswith("_")}
    return {}
