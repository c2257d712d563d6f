"""Exceptions of tools as instrumentations report them: a type and a text in a span's event.

They are raised again where a tool of a framework failed and its model never received a text: the
framework handles them as it did. A class that cannot be found, or that makes another text of it, is
not guessed.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from typing import Any

from ..base.jsontext import dumps
from ..model import RecordedToolCall, Span
from ..record import ToolAnswer, UnrestorableValue, class_name, is_agent_module, restored
from .agent_classes import agent_class

__all__ = ["reported_answer", "reported_error", "reported_text"]

_TAG = "$reported"


def reported_error(span: Span) -> str | None:
    """The exception that a span reports, as `RecordedToolCall.raised` has it, or None.

    Args:
        span: The span of a tool.
    """
    for event in span.events:
        kind, text = (event.attributes.get(f"exception.{key}") for key in ("type", "message"))
        if event.name == "exception" and kind:
            return dumps({_TAG: {"type": str(kind), "message": str(text or "")}})
    kind = span.attributes.get("error.type")
    if not span.is_error or not kind:
        return None
    name = str(kind).rpartition(".")[2]
    text = span.status_message.removeprefix(f"{name}: ")
    return dumps({_TAG: {"type": str(kind), "message": text}})


def reported_text(span: Span) -> str:
    """The exception that a span reports as ``ValueError: text``, or ""."""
    form = reported_error(span)
    if form is None:
        return span.status_message if span.is_error else ""
    reported = json.loads(form)[_TAG]
    return f"{reported['type'].rpartition('.')[2]}: {reported['message']}"


def reported_answer(call: RecordedToolCall) -> ToolAnswer | None:
    """The answer that raises a reported exception; None if the call has no such exception.

    Args:
        call: The execution.
    """
    if call.raised is None or not call.raised.startswith(f'{{"{_TAG}"'):
        return None
    reported = json.loads(call.raised)[_TAG]
    name, text = reported["type"], reported["message"]
    # The text stands for the exception only if no message has it: the model received none.
    return ToolAnswer(
        None, error=text, error_type=name.rpartition(".")[2], raised=_exception(name, text)
    )


def _exception(name: str, text: str) -> BaseException | None:
    for class_path in _class_names(name):
        for argument in (text, _literal(text)):
            form = dumps({"$exception": {"class": class_path, "args": [argument]}})
            try:
                error = restored(form, "", agent_class)
                if isinstance(error, Exception) and str(error) == text:
                    return error
            except (UnrestorableValue, ArithmeticError, AttributeError, LookupError, TypeError):
                continue
    return None


def _class_names(name: str) -> Iterator[str]:
    """Yield the forms ``module:Class`` of a dotted name, which of a builtin has no module."""
    parts = name.split(".")
    if len(parts) == 1:
        yield f"builtins:{name}"
        yield from _own_classes(name)
    for length in range(len(parts) - 1, 0, -1):
        yield f"{'.'.join(parts[:length])}:{'.'.join(parts[length:])}"


def _own_classes(name: str) -> Iterator[str]:
    """Yield the class of a name in the agent's own modules, if it is the only one."""
    modules = [module for key, module in list(sys.modules.items()) if is_agent_module(key)]
    members = [vars(module).get(name) for module in modules]
    own = {
        member
        for member in members
        if isinstance(member, type) and is_agent_module(member.__module__)
    }
    if len(own) == 1:
        yield class_name(own.pop())


def _literal(text: str) -> Any:
    """The argument of a `KeyError`, whose text is the argument's literal."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (str, int)) else text
