"""The recorded value or exception of a tool, with its type, for the agent's code.

Spans of `@oteval.tool` have values with their types. Other instrumentations report exceptions as a
type and a text. If a tool of a framework failed and its model never received a text, the exception
is raised again, and the framework handles it as before. Nothing is guessed: the class must exist,
and its instance must have the recorded text.

A recording is data from disk. A class is taken from a loaded module, or from an importable module
of the agent. It is looked up without calling code, must have the recorded name, and must not act
when its instances end.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

from ..base.jsontext import dumps
from ..model import RecordedToolCall, Span
from ..record import (
    Awaited,
    Cancelled,
    Generated,
    ReturnedValue,
    ToolAnswer,
    UnrestorableValue,
    class_name,
    is_agent_file,
    is_agent_module,
    main_module,
    restored,
)
from .divergence import Divergence

__all__ = [
    "UnrestorableValue",
    "agent_class",
    "reported_answer",
    "reported_error",
    "reported_form",
    "reported_text",
    "typed_answer",
    "unrestorable",
]


def typed_answer(call: RecordedToolCall) -> ToolAnswer | None:
    """Restore the answer of a recorded execution; None if the types of its values are not known.

    Args:
        call: The execution.

    Raises:
        UnrestorableValue: Its value or exception cannot be restored.
    """
    form = call.returned if call.raised is None else call.raised
    if form is None:
        return None
    text = call.result if call.own_result is None else call.own_result
    value = restored(form, text or "", agent_class)
    if call.raised is None or isinstance(value, (Awaited, Generated)):
        return ToolAnswer(call.result, returned=ReturnedValue(value))
    is_cancelled = isinstance(value, Cancelled)
    raised: Any = asyncio.CancelledError() if is_cancelled else value
    if not isinstance(raised, BaseException):
        raise UnrestorableValue(f"{type(raised).__name__}: is not an exception")
    return ToolAnswer(
        call.result,
        error=str(raised),
        error_type=type(raised).__name__,
        raised=raised,
        is_cancelled=is_cancelled,
    )


def unrestorable(call: RecordedToolCall, error: UnrestorableValue) -> Divergence:
    """The divergence of a tool with a recorded value that cannot be restored.

    Args:
        call: The execution.
        error: The reason.
    """
    what = "result" if call.raised is None else "exception"
    return Divergence(
        "tool_call",
        f"the recorded {what} of the tool {call.name} cannot be restored: {error}",
        recorded={"name": call.name, "arguments": call.arguments, what: call.result},
        suggestion="record the session again with the current classes, or run tools: --tools run",
    )


_TAG = "$reported"


def reported_error(span: Span) -> str | None:
    """The exception that a span reports, as `RecordedToolCall.raised` has it, or None.

    Args:
        span: The span of a tool.
    """
    for event in span.events:
        kind, text = (event.attributes.get(f"exception.{key}") for key in ("type", "message"))
        if event.name == "exception" and kind:
            return reported_form(str(kind), str(text or ""))
    kind = span.attributes.get("error.type")
    if not span.is_error or not kind:
        return None
    name = str(kind).rpartition(".")[2]
    text = span.status_message.removeprefix(f"{name}: ")
    return reported_form(str(kind), text)


def reported_form(kind: str, text: str) -> str:
    """The form of an exception as `RecordedToolCall.raised` has it.

    Args:
        kind: Its type, such as ``TimeoutError`` or ``package.module.Class``.
        text: Its text.
    """
    return dumps({_TAG: {"type": kind, "message": text}})


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
    # The exception is raised only if no message has its text: then the model received none.
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
    """Yield the forms ``module:Class`` of a dotted name; the name of a builtin has no module."""
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
    own = {m for m in members if isinstance(m, type) and is_agent_module(m.__module__)}
    if len(own) == 1:
        yield class_name(own.pop())


def _literal(text: str) -> Any:
    """The argument of a `KeyError`; the error's text is the argument's literal."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (str, int)) else text


def agent_class(name: str) -> type:
    """Find a class of the agent's process by its recorded name.

    Args:
        name: The name as ``module:Class``.

    Raises:
        UnrestorableValue: There is none, or it is not safe to build.
    """
    module_name, _, path = name.partition(":")
    if "<locals>" in path:
        raise UnrestorableValue(f"{name}: the class is defined inside a function")
    attribute: Any = _module(module_name, name)
    for part in path.partition("[")[0].split("."):
        attribute = vars(attribute).get(part) if hasattr(attribute, "__dict__") else None
    if "[" in path and isinstance(attribute, type):
        attribute = _parametrised(attribute, name)
    if not isinstance(attribute, type) or class_name(attribute) != name:
        raise UnrestorableValue(f"{name}: the module has no such class")
    if any("__del__" in vars(base) for base in attribute.__mro__):
        raise UnrestorableValue(f"{name}: instances of this class act when they end")
    return attribute


def _module(module_name: str, name: str) -> ModuleType:
    """The loaded module of a name, or the agent's own module, which is imported."""
    if module_name == main_module() and "__main__" in sys.modules:
        return sys.modules["__main__"]
    module = sys.modules.get(module_name)
    if module is None and _is_agents(module_name):
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            text = f"{name}: the module cannot be imported: {type(error).__name__}: {error}"
            raise UnrestorableValue(text) from error
    if module is None:
        raise UnrestorableValue(f"{name}: the agent has not imported this module")
    return module


def _is_agents(module_name: str) -> bool:
    """Whether the file of a module, or of its package, is part of the agent's code."""
    spec = PathFinder.find_spec(module_name.partition(".")[0])
    if spec is None:
        return False
    files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(files) and all(is_agent_file(file) for file in files)


def _parametrised(generic: type, name: str) -> type | None:
    """A class such as ``Page[Order]``, which a generic model has for its parameters."""
    subclasses: list[type] = generic.__subclasses__()
    return next((subclass for subclass in subclasses if class_name(subclass) == name), None)
