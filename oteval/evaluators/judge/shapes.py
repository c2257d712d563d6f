"""Whether a value fits a JSON schema, as far as schemas for answers go.

Known are ``type``, ``enum``, ``const``, ``properties``, ``required``, ``additionalProperties``,
``items``, lengths, ranges, ``pattern``, ``anyOf``, ``oneOf``, ``allOf`` and local ``$ref``; any
other keyword says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...jsontext import canonical, dumps
from ...patterns import PatternError, compile_pattern

__all__ = ["problem_of"]

_TYPES: dict[str, Any] = {
    "object": lambda v: isinstance(v, Mapping),
    "array": lambda v: isinstance(v, (list, tuple)),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: (
        isinstance(v, (int, float)) and not isinstance(v, bool) and float(v).is_integer()
    ),
}
_DEPTH = 50


def problem_of(value: Any, schema: Any, root: Any = None, place: str = "", depth: int = 0) -> str:
    """Return what keeps a value from fitting a schema, or "".

    Args:
        value: A JSON-like value.
        schema: The schema.
        root: The schema that local references point into; the schema itself by default.
        place: What the value is called.
        depth: How deep the schema is.
    """
    root = schema if root is None else root
    if depth > _DEPTH:
        return f"{place or 'the answer'}: nested too deep"
    if not isinstance(schema, Mapping):
        return f"{place or 'the answer'}: nothing may stand here" if schema is False else ""
    if "$ref" in schema:
        return problem_of(value, _target(schema["$ref"], root), root, place, depth + 1)
    checks = (_of_type, _of_value, _of_object, _of_array, _of_text, _of_number)
    for check in checks:
        problem = check(value, schema, root, place, depth)
        if problem:
            return problem
    return _of_parts(value, schema, root, place, depth)


def _target(reference: Any, root: Any) -> Any:
    found = root
    for step in str(reference).removeprefix("#").strip("/").split("/"):
        if step:
            found = found.get(step.replace("~1", "/").replace("~0", "~"), {})
    return found


def _said(place: str, what: str) -> str:
    return f"{place or 'the answer'}: {what}"


def _of_type(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:  # noqa: ARG001
    kinds = schema.get("type")
    if kinds is None:
        return ""
    named = [kinds] if isinstance(kinds, str) else list(kinds)
    if any(_TYPES.get(kind, lambda _: True)(value) for kind in named):
        return ""
    return _said(place, f"expected {' or '.join(map(str, named))}, got {_short(value)}")


def _of_value(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:  # noqa: ARG001
    for key, allowed in (("enum", schema.get("enum")), ("const", [schema.get("const")])):
        if key in schema and canonical(value) not in map(canonical, allowed or ()):
            return _said(place, f"{_short(value)} is none of {_short(allowed)}")
    return ""


def _of_object(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:
    if not isinstance(value, Mapping):
        return ""
    properties = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in value:
            return _said(place, f"{name!r} is missing")
    for name, item in value.items():
        inner = properties.get(name, schema.get("additionalProperties", True))
        problem = problem_of(item, inner, root, f"{place}.{name}".lstrip("."), depth + 1)
        if problem:
            return problem
    return ""


def _of_array(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ""
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return _said(place, f"has {len(value)} items")
    for index, item in enumerate(value):
        problem = problem_of(item, schema.get("items", True), root, f"{place}[{index}]", depth + 1)
        if problem:
            return problem
    return ""


def _of_text(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:  # noqa: ARG001
    if not isinstance(value, str):
        return ""
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return _said(place, f"has {len(value)} characters")
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and not _matches(pattern, value):
        return _said(place, f"{_short(value)} does not match {pattern!r}")
    return ""


def _matches(pattern: str, text: str) -> bool:
    """Return whether a schema's pattern is in a text; one that RE2 does not take counts as not."""
    try:
        return compile_pattern(pattern).search(text) is not None
    except PatternError:
        return False


def _of_number(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:  # noqa: ARG001
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    fits = (low is None or value >= low) and (high is None or value <= high)
    fits = fits and (above is None or value > above) and (below is None or value < below)
    return "" if fits else _said(place, f"{value!r} is out of range")


def _of_parts(value: Any, schema: Any, root: Any, place: str, depth: int) -> str:
    for part in schema.get("allOf") or ():
        problem = problem_of(value, part, root, place, depth + 1)
        if problem:
            return problem
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if parts:
            problems = [problem_of(value, part, root, place, depth + 1) for part in parts]
            if all(problems):
                return problems[0]
    return ""


def _short(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
