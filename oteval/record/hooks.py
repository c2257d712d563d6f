"""Hooks of tools: how a replay answers an agent's tools, or watches them run.

`@oteval.tool` and the adapters of frameworks call `current_tool_hook` before they run a tool. A
hook belongs to the context that it was set in (`contextvars`), so that several replays can run in
one process. A thread that was started without that context uses the only hook that is set.

A recording stores the results that `@oteval.tool` has seen with their types. It stores other
results as text. The agent's code expects a value of the tool's return type, so pydantic reads the
text by the return annotation. Without an annotation, text in the JSON form that `oteval.tool`
writes becomes the value, and all other text stays text.
"""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
import time
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..base.errors import ConfigError
from ..base.jsontext import dumps, loads_exact

__all__ = [
    "AgentEnd",
    "AgentHook",
    "AnswerDelay",
    "ReturnedValue",
    "ToolAnswer",
    "ToolHook",
    "adopt_tool_hook",
    "current_agent_hook",
    "current_tool_hook",
    "give_answer",
    "recorded_error",
    "reset_tool_hook",
    "set_tool_hook",
    "tool_hook",
]


@dataclass(frozen=True, slots=True)
class AnswerDelay:
    """The time that an answer takes.

    Attributes:
        seconds: The time.
        sleep: Waits in place of the clock, for callers that pass their own time; None to wait.
    """

    seconds: float
    sleep: Callable[[float], None] | None = None

    def wait(self) -> None:
        """Wait in this thread."""
        (self.sleep or time.sleep)(self.seconds)

    async def wait_async(self) -> None:
        """Wait on the event loop in use, which may be trio's."""
        if self.sleep is not None:
            self.sleep(self.seconds)
            return
        anyio = sys.modules.get("anyio")
        await (anyio.sleep(self.seconds) if anyio is not None else asyncio.sleep(self.seconds))


@dataclass(frozen=True, slots=True)
class ReturnedValue:
    """A value that a tool returned, which may be None.

    Attributes:
        value: The value.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer that is returned instead of running a tool.

    Attributes:
        result: The result. Text is converted to the return type that the tool declares.
        error: The error of a tool that failed, or None.
        error_type: The type of the error, such as ``ValueError``, if it is known. Builtin
            exceptions of Python are raised with their own type, others as a `RuntimeError`.
        own_result: The function's own result as text, if the agent's code made a different text of
            it for the model (`result`); otherwise None.
        returned: The value that the function returned, if its type was recorded; None otherwise.
        raised: The exception that the function raised, if its type was recorded; None otherwise.
        is_cancelled: Whether the caller cancelled the tool before it returned.
        delay: The time that passes before the tool returns or raises; None for none.
        is_fault: Whether its error was not recorded, so that a framework has to handle it anew.
    """

    result: Any = None
    error: str | None = None
    error_type: str = ""
    own_result: str | None = None
    returned: ReturnedValue | None = None
    raised: BaseException | None = None
    is_cancelled: bool = False
    delay: AnswerDelay | None = None
    is_fault: bool = False

    def wait(self) -> None:
        """Wait in this thread until the tool returns."""
        if self.delay is not None:
            self.delay.wait()

    async def wait_async(self) -> None:
        """Wait in this task until the tool returns."""
        if self.delay is not None:
            await self.delay.wait_async()


@dataclass(frozen=True, slots=True)
class AgentEnd:
    """The end of one run of an agent's function.

    Attributes:
        agent: The agent's name.
        question: The agent's input as the JSON text of messages, or "".
        answer: The answer as the JSON text of messages; None if the function returned None.
        type: The type of the value that the function returned, as ``module:Class``.
        error: The exception that ended the run, as ``ValueError: text``, or "".
        line: The function as ``file:line in function``, or "".
    """

    agent: str
    question: str = ""
    answer: str | None = None
    type: str = ""
    error: str = ""
    line: str = ""


@runtime_checkable
class AgentHook(Protocol):
    """A tool hook that also watches the functions of agents."""

    def agent_ended(self, end: AgentEnd) -> None:
        """Take note of the end of a run."""


class ToolHook(Protocol):
    """Answers tools, or watches them. Called from the thread or task that runs the tool."""

    def answer(self, name: str, arguments: dict[str, Any]) -> ToolAnswer | None:
        """Answer a call, or return None to run the tool.

        An exception raised here reaches the agent in place of the tool's exception.

        Args:
            name: The tool's name.
            arguments: The arguments by name, as plain JSON.
        """

    def observe(
        self,
        name: str,
        arguments: dict[str, Any],
        result: Any,
        error: str | None,
        start_ns: int,
        end_ns: int,
    ) -> None:
        """Take note of a call that ran.

        Args:
            name: The tool's name.
            arguments: The arguments by name, as plain JSON.
            result: The result as plain JSON; None if the tool failed.
            error: The error's text, or None.
            start_ns: The start, in ns since the epoch.
            end_ns: The end, in ns since the epoch.
        """


class SetHook:
    """A hook that was set; `reset_tool_hook` takes it back."""

    __slots__ = ("afterwards", "hook", "previous")

    def __init__(
        self, hook: ToolHook, previous: SetHook | None, afterwards: ToolHook | None
    ) -> None:
        self.hook = hook
        self.previous = previous
        self.afterwards = afterwards


_current: ContextVar[SetHook | None] = ContextVar("oteval_tool_hook", default=None)
_set: list[SetHook] = []
_lock = threading.Lock()


def set_tool_hook(hook: ToolHook, *, afterwards: ToolHook | None = None) -> SetHook:
    """Let a hook answer the tools that are called from this context.

    Args:
        hook: The hook.
        afterwards: The hook of threads and tasks that began in this context and outlive
            `reset_tool_hook`; without one, tools run there as usual.

    Returns:
        A token for `reset_tool_hook`.
    """
    token = SetHook(hook, _current.get(), afterwards)
    with _lock:
        _set.append(token)
    _current.set(token)
    return token


def adopt_tool_hook(token: SetHook | None) -> SetHook | None:
    """Let a hook that was set in another context answer the tools of this context as well.

    Args:
        token: The token that `set_tool_hook` returned, or None for no hook.

    Returns:
        The previous token of this context.
    """
    before = _current.get()
    _current.set(token)
    return before


def reset_tool_hook(token: SetHook) -> None:
    """Remove a hook, and restore the previous hook of this context. Safe to repeat.

    Args:
        token: The token that `set_tool_hook` returned.
    """
    with _lock:
        if token in _set:
            _set.remove(token)
    if _current.get() is token:
        _current.set(token.previous)


@contextmanager
def tool_hook(hook: ToolHook) -> Iterator[None]:
    """Let a hook answer the tools that are called in a ``with`` block.

    Args:
        hook: The hook.
    """
    token = set_tool_hook(hook)
    try:
        yield
    finally:
        reset_tool_hook(token)


def current_tool_hook() -> ToolHook | None:
    """The hook of this context, else the only hook that is set, or None.

    Raises:
        ConfigError: Several hooks are set, and this thread has the context of none of them. The
            tool must not run then: it may act for real in the middle of a replay.
    """
    active = _set
    own = token = _current.get()
    if not active and own is None:
        return None
    with _lock:
        while token is not None and token not in active:
            token = token.previous
        has_ended = own is None or own.afterwards is None
        if token is None and has_ended and len(active) == 1:
            token = active[0]
    if token is not None:
        return token.hook
    if own is not None and (own.afterwards is not None or not active):
        return own.afterwards
    raise ConfigError(
        "a tool was called in a thread that belongs to none of the replays in progress: start the "
        "thread with contextvars.copy_context().run, or replay one session at a time"
    )


def current_agent_hook() -> AgentHook | None:
    """The hook that watches agents in this context, or None."""
    try:
        hook = current_tool_hook()
    except ConfigError:  # a thread that belongs to none of several replays
        return None
    # The check of a protocol takes microseconds, and mostly no hook is set.
    return hook if hook is not None and isinstance(hook, AgentHook) else None


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
    """Rebuild the exception that a tool raised when it was recorded.

    Args:
        text: The error's text, which may begin with its type: ``ValueError: text``.
        kind: The exception's type, if it is known.

    Returns:
        The exception, with the recorded type if that is builtin, else a `RuntimeError`.
    """
    if not kind:
        name, _, message = text.removeprefix("Error: ").partition(": ")
        if message and _builtin(name) is not None:
            kind, text = name, message
    error_class = _builtin(kind) or RuntimeError
    try:
        return error_class(text)
    except Exception:  # such as UnicodeDecodeError, which takes five arguments
        return RuntimeError(text)


def _builtin(name: str) -> type[Exception] | None:
    error_class = getattr(builtins, name, None)
    return (
        error_class
        if isinstance(error_class, type) and issubclass(error_class, Exception)
        else None
    )


_UNDECLARED = object()  # the return type of a function that declares none


def _restored(text: str, function: Callable[..., Any]) -> Any:
    try:
        declared = typing.get_type_hints(function).get("return", _UNDECLARED)
    except Exception:
        declared = _UNDECLARED
    if declared is str or declared is Any:
        return text
    if declared is _UNDECLARED:
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


def _structured(text: str) -> Any:
    """Read JSON text as `oteval.tool` writes it; other text stays text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        value = loads_exact(text)
    except ValueError:
        return text
    return value if dumps(value) == text else text
