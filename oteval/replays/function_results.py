"""Recorded results of tools, as values of functions that declare no type.

A recording of a hand-written loop has a tool's result only as the text that the loop sent to the
model. The type of the result is read from the source of the function. It is text if all results are
made by ``json.dumps``, ``str`` or a literal; a value if they are dicts or lists; otherwise the
value that the text represents.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from ..base.jsontext import loads
from ..record import ToolAnswer, give_answer, is_agent_file, recorded_error

__all__ = ["give_result"]

_TEXT_CALLS = frozenset(
    {"dumps", "str", "repr", "format", "join", "strip", "model_dump_json", "render", "decode"}
)
_VALUE_NODES = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
# The number of functions that are searched when functions call each other.
_MAX_DEPTH = 4


def give_result(answer: ToolAnswer, function: Callable[..., Any]) -> Any:
    """Return a function's recorded result, or raise its recorded error.

    Args:
        answer: The answer.
        function: The function with its original code.
    """
    if answer.returned is not None or answer.raised is not None:
        return give_answer(answer, function)
    if answer.error is not None:
        text = answer.result if isinstance(answer.result, str) else answer.error
        if not _makes_text(function, text):
            raise recorded_error(answer.error, answer.error_type)
        answer = ToolAnswer(text)
    text = answer.result
    if not isinstance(text, str) or _declares_result(function):
        return give_answer(answer, function)
    value = _value_of(text)
    if isinstance(value, str):  # a text that the loop encoded again
        return value
    return text if _returns_text(function, _MAX_DEPTH) else value


def _declares_result(function: Callable[..., Any]) -> bool:
    try:
        return typing.get_type_hints(function).get("return", Any) is not Any
    except Exception:  # an annotation with an unknown name at run time
        return False


def _value_of(text: str) -> Any:
    """The value in a text, in the form of JSON or of Python's ``str``."""
    for read in (loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return text


def _returns_text(function: Any, depth: int) -> bool | None:
    """Whether all results of a function are text; None if its source does not show it."""
    definition = _definition(function)
    if definition is None:
        return None
    kinds = {
        _is_text(value, definition, function, depth)
        for value in _returned_values(definition)
        if not (isinstance(value, ast.Constant) and value.value is None)
    }
    return kinds.pop() if len(kinds) == 1 else None


def _definition(function: Any) -> ast.AST | None:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        body = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    is_function = body and isinstance(body[0], (ast.FunctionDef, ast.AsyncFunctionDef))
    return body[0] if is_function else None


def _returned_values(definition: ast.AST) -> Iterator[ast.expr]:
    """Yield the values of a function's return statements, without nested functions."""
    for node in ast.iter_child_nodes(definition):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value
        yield from _returned_values(node)


def _is_text(value: ast.expr, definition: ast.AST, function: Any, depth: int) -> bool | None:
    """Whether an expression is a text; None if that is not known."""
    if isinstance(value, ast.JoinedStr):
        return True
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str)
    if isinstance(value, _VALUE_NODES):
        return False
    if isinstance(value, ast.Await):
        return _is_text(value.value, definition, function, depth)
    if isinstance(value, ast.BinOp):
        return _is_text(value.left, definition, function, depth)
    if isinstance(value, ast.IfExp):
        branches = {
            _is_text(branch, definition, function, depth) for branch in (value.body, value.orelse)
        }
        return branches.pop() if len(branches) == 1 else None
    if isinstance(value, ast.Name):
        return _is_assigned_text(value.id, definition, function, depth)
    return _is_text_call(value, function, depth) if isinstance(value, ast.Call) else None


def _is_assigned_text(name: str, definition: ast.AST, function: Any, depth: int) -> bool | None:
    """Whether all values that a function assigns to a variable are texts."""
    values = [
        node.value
        for node in ast.walk(definition)
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    if depth <= 0:
        return None
    kinds = {_is_text(value, definition, function, depth - 1) for value in values}
    return kinds.pop() if len(kinds) == 1 else None


def _is_text_call(call: ast.Call, function: Any, depth: int) -> bool | None:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if isinstance(call.func, ast.Name):
        name = call.func.id
        called = getattr(function, "__globals__", {}).get(name)
        if isinstance(called, FunctionType) and is_agent_file(called.__code__.co_filename):
            return _returns_text(called, depth - 1) if depth > 0 else None
    return True if name in _TEXT_CALLS else None


def _makes_text(function: Any, text: str) -> bool:
    """Whether a function's own texts begin with the text of an error.

    Such an error was returned as a text; other errors were raised.
    """
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return False
    return any(
        len(literal) > 3 and (text.startswith(literal) or literal.startswith(text[:12]))
        for literal in _texts_in(code)
    )


def _texts_in(code: CodeType) -> Iterator[str]:
    documentation = code.co_consts[:1]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _texts_in(constant)
        elif isinstance(constant, str) and constant not in documentation:
            yield constant.strip()
