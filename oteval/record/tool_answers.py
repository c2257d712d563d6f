"""Recorded answers of tools, as values of the types that the tools declare.

A recording has the values that `@oteval.tool` has seen with their types. Others it has as text, but
the agent's code expects a value of the tool's return type. So pydantic reads the text by the tool's
return annotation. Without an annotation, text that is JSON as `oteval.tool` writes it becomes the
value, and all other text stays text.
"""

from __future__ import annotations

import builtins
import typing
from collections.abc import Callable
from typing import Any

from ..base.jsontext import dumps, loads_exact
from .hooks import ToolAnswer

__all__ = ["give_answer", "recorded_error"]


def give_answer(answer: ToolAnswer, function: Callable[..., Any]) -> Any:
    """Return the recorded result of a tool, or raise its recorded error.

    Args:
        answer: The answer.
        function: The tool.
    """
    if answer.raised is not None:
        raise answer.raised
    if answer.returned is not None:
        return answer.returned.value
    if answer.error is not None:
        raise recorded_error(answer.error, answer.error_type)
    result = answer.result if answer.own_result is None else answer.own_result
    return _restored(result, function) if isinstance(result, str) else result


def recorded_error(text: str, kind: str = "") -> Exception:
    """Return the exception that a tool raised when it was recorded.

    Args:
        text: The error's text, which may begin with its type: ``ValueError: text``.
        kind: The exception's type, if it is known.

    Returns:
        The exception, of its type if that is a builtin one, else a `RuntimeError`.
    """
    if not kind:
        head, _, rest = text.removeprefix("Error: ").partition(": ")
        if rest and _builtin(head) is not None:
            kind, text = head, rest
    found = _builtin(kind) or RuntimeError
    try:
        return found(text)
    except Exception:  # such as UnicodeDecodeError, which takes five arguments
        return RuntimeError(text)


def _builtin(name: str) -> type[Exception] | None:
    found = getattr(builtins, name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _restored(text: str, function: Callable[..., Any]) -> Any:
    try:
        declared = typing.get_type_hints(function).get("return", _Unknown)
    except Exception:
        declared = _Unknown
    if declared is str or declared is Any:
        return text
    if declared is _Unknown:
        return _structured(text)
    if declared is type(None):
        return None
    from pydantic import TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
    except Exception:
        return _structured(text)
    for read in (adapter.validate_json, adapter.validate_python):
        try:
            return read(text)
        except ValueError:
            continue
    return _structured(text)


class _Unknown:
    """The return type of a function that declares none."""


def _structured(text: str) -> Any:
    """Return the value of JSON text that has the form in which results are written."""
    if text[:1] not in ("{", "["):
        return text
    try:
        value = loads_exact(text)
    except ValueError:
        return text
    return value if dumps(value) == text else text
