"""Errors of a configuration file in one line: the place, the key and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import BaseModel, ValidationError

from .evaluators import EvaluatorSettings, settings_of_entry

__all__ = ["explain_error", "line_of"]

_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def explain_error(
    error: ValidationError,
    root: yaml.Node | None,
    source: str,
    model: type[BaseModel],
    value: Any,
) -> str:
    """The line number, the key and the remedy, in one line.

    Args:
        error: A validation error. If it has several faults, the first is named.
        root: The nodes of the file.
        source: The file's name.
        model: The model of the file.
        value: The contents of the file.
    """
    fault = _first(error.errors(include_input=False))
    line, path = line_of(root, fault["loc"])
    position = f"{source}:{line}"
    key = ".".join(str(step) for step in path) or "the file"
    if fault["type"] in _UNKNOWN_KEY:
        remedy = _nearest(str(path[-1]), _known_keys(model, value, fault["loc"][:-1]))
        return f"{position}: unknown key {str(path[-1])!r}{remedy}"
    if fault["type"] == "missing":
        return f"{position}: {fault['loc'][-1]!r} is missing in {key}"
    message = _plain(fault)
    return f"{position}: {key}: {message[:1].lower()}{message[1:]}"


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
    first = faults[0]
    if first["type"] == "missing":
        for fault in faults:
            beside = fault["loc"][:-1] == first["loc"][:-1] and fault["type"] in _UNKNOWN_KEY
            if beside and difflib.get_close_matches(str(fault["loc"][-1]), [first["loc"][-1]]):
                return fault
    return first


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
