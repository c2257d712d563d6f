"""Python objects from their ``repr``, as emitters write them that cannot serialise them.

``ChatMessage(role=<Role.USER: 'user'>, content=[Text(text='hi')])`` becomes the mapping of its
fields, with the class as ``type``. Nothing is executed: the text is parsed, not evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

__all__ = ["object_of"]

_MAX_REPR = 1_000_000
# A text in quotes, or what stands between angle brackets: an enum's member or an opaque object.
_TOKEN = re.compile(
    r"""(?P<text>[bru]{0,2}'(?:[^'\\\n]|\\.)*'|[bru]{0,2}"(?:[^"\\\n]|\\.)*")"""
    r"""|<(?P<name>[\w.]+): (?P<value>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|-?\d+)>"""
    r"""|(?P<opaque><[^<>'"]*>)"""
)


def object_of(text: str) -> Any:
    """Return the value that a repr shows; None where the text is not one.

    Args:
        text: The repr of an object, or of a list, dict or tuple of them. Of a call, positional
            arguments are the list under ``args``; what is opaque is its text.
    """
    if len(text) > _MAX_REPR or not text.rstrip().endswith((")", "]", "}")):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an odd escape, as in a regular expression
            tree = ast.parse(_TOKEN.sub(_as_literal, text.strip()), mode="eval")
        return _value(tree.body)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _as_literal(found: re.Match[str]) -> str:
    if found["value"] is not None:
        return found["value"]
    return repr(found["opaque"]) if found["opaque"] is not None else found["text"]


def _value(node: ast.expr) -> Any:
    """Return what a node means.

    Raises:
        ValueError: The node is code, not a value.
    """
    match node:
        case ast.Constant(value=bytes()):
            return repr(node.value)
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple() | ast.Set():
            return [_value(item) for item in node.elts]
        case ast.Dict():
            return _mapping(node)
        case ast.Call():
            return _object(node)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name() | ast.Attribute():
            return ast.unparse(node)
    raise ValueError(f"not a value: {type(node).__name__}")


def _mapping(node: ast.Dict) -> dict[str, Any]:
    pairs = zip(node.keys, node.values, strict=True)
    return {str(_value(key)): _value(value) for key, value in pairs if key is not None}


def _object(node: ast.Call) -> dict[str, Any]:
    found = {word.arg: _value(word.value) for word in node.keywords if word.arg is not None}
    if node.args:
        found["args"] = [_value(item) for item in node.args]
    return {"type": ast.unparse(node.func).rpartition(".")[2], **found}
