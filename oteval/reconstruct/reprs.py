"""Python objects whose repr was written in place of JSON.

Some emitters write ``str(value)`` of pydantic models, dataclasses and lists of them, such as
``ResponseFunctionToolCall(name='f', arguments='{}')``. The text is parsed and never evaluated.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from typing import Any

from ..jsontext import loads

__all__ = ["literal_of", "object_of"]

_MAX_LENGTH = 1_000_000
_OBJECT = re.compile(r"\s*\[?\s*[A-Z]\w*\(")
_ENUM = re.compile(r"<(?P<class>[A-Za-z_]\w*)\.\w+: (?P<value>'[^'\n]*'|\"[^\"\n]*\"|-?\d+)>")


def object_of(text: str) -> Any:
    """Return the mapping, or list of mappings, that the repr of objects stands for.

    Args:
        text: The text.

    Returns:
        The fields of each object, with its class as ``type`` where they have none; None where the
        text is anything else.
    """
    return literal_of(text) if text and text[-1] in ")]" and _OBJECT.match(text) else None


def literal_of(text: str) -> Any:
    """Return the value of a Python repr as JSON can hold it, or None where the text is none."""
    if len(text) > _MAX_LENGTH or text[-1:] not in ("}", "]", ")"):
        return None
    if "<" in text:
        text = _ENUM.sub(lambda found: found["value"], text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape, as in a regular expression
            tree = ast.parse(text.strip(), mode="eval")
        return loads(json.dumps(_value(tree.body)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):
        return _fields(node)
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            ast.literal_eval(key): _value(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return ast.literal_eval(node)


def _fields(node: ast.Call) -> Any:
    """Return an object's fields; one without names, such as a date's, is its repr."""
    if not isinstance(node.func, (ast.Name, ast.Attribute)):
        raise ValueError("not the repr of an object")
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    if not name[:1].isupper() and name != "datetime":
        raise ValueError("not the name of a class")
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return ast.unparse(node)
    fields = {str(keyword.arg): _value(keyword.value) for keyword in node.keywords}
    return fields if fields.get("type") else {**fields, "type": name}
