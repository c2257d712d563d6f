"""Spans of Phoenix' REST API as spans of OpenTelemetry.

Phoenix stores attributes as a tree and returns them flat again, so that most keep their names. It
parses some JSON texts into trees, which become texts again here. It does not store the resource,
the scope, the kind of OpenTelemetry, links, and times below a microsecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base.jsontext import dumps
from ...model import Event, Span
from .times import ns_of

__all__ = ["PROJECT", "read_span"]

PROJECT = "openinference.project.name"
KIND = "openinference.span.kind"
_STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}
# Attributes whose JSON text Phoenix parses, and returns as several attributes below their name.
_PARSED = ("metadata", "tool.parameters", "llm.prompt_template.variables")


def read_span(value: Mapping[str, Any], project: str) -> Span:
    """The span that an object of the API describes.

    Args:
        value: The object, an element of ``data``.
        project: The project, which becomes the service's name.

    Raises:
        ValueError: A field is missing or has an invalid value.
    """
    try:
        context = value["context"]
        attributes = _restored(value.get("attributes") or {})
        kind = value.get("span_kind")
        if kind and kind != "UNKNOWN":
            attributes[KIND] = kind
        return Span(
            str(context["trace_id"]),
            str(context["span_id"]),
            parent_id=value.get("parent_id") or "",
            name=value.get("name") or "",
            start_ns=ns_of(value["start_time"]),
            end_ns=ns_of(value["end_time"]),
            status_code=_STATUS.get(str(value.get("status_code")), 0),
            status_message=value.get("status_message") or "",
            attributes=attributes,
            events=tuple(map(_event, value.get("events") or ())),
            resource={"service.name": project, PROJECT: project},
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _event(value: Mapping[str, Any]) -> Event:
    return Event(
        value.get("name") or "", ns_of(value["timestamp"]), dict(value.get("attributes") or {})
    )


def _restored(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with the JSON texts that Phoenix parsed."""
    restored: dict[str, Any] = {}
    trees: dict[str, dict[str, Any]] = {}
    for key, value in attributes.items():
        name = next((prefix for prefix in _PARSED if key.startswith(f"{prefix}.")), None)
        if name is None:
            restored[key] = value
        else:
            _put(trees.setdefault(name, {}), key[len(name) + 1 :].split("."), value)
    for name, tree in trees.items():
        restored.setdefault(name, dumps(_with_lists(tree)))
    return restored


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a value of a tree; a path through a plain value keeps its dots as one key."""
    *branches, leaf = path
    for depth, name in enumerate(branches):
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            tree[".".join(path[depth:])] = value
            return
        tree = below
    tree[leaf] = value


def _with_lists(value: Any) -> Any:
    """A tree with lists for the objects whose keys are 0, 1, 2 and so on."""
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(item) for key, item in value.items()}
    if inner and set(inner) == {str(index) for index in range(len(inner))}:
        return [inner[str(index)] for index in range(len(inner))]
    return inner
