"""The span of one execution of a tool, with its arguments and its result or exception."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from typing import Any

from ..base.errors import ReplayDiverged
from ..model import THREAD
from . import conventions
from .content import is_captured, plain
from .context import running_thread
from .faults import guarded
from .function_wrappers import Invocation
from .hooks import ToolAnswer, ToolHook
from .parameters import Parameters
from .span_scope import SpanScope, start_scope
from .value_kinds import Cancelled

__all__ = ["ToolRecorder"]


class ToolRecorder:
    """Begins the executions of one tool.

    Args:
        name: The tool's name.
        description: A description, or "".
        parameters: The parameters of the function.
        hidden: The names of arguments that are not recorded.
        result: Returns the result to record when called with the return value; None for the return
            value itself.
        capture_content: Whether to record arguments and results.
        attributes: More attributes of the span.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        parameters: Parameters,
        hidden: Sequence[str] = (),
        result: Callable[[Any], Any] | None = None,
        capture_content: bool = True,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.result = result
        self.capture_content = capture_content
        self._hidden = hidden
        self._span_name = f"execute_tool {name}"
        self._start = conventions.tool_start(name, description) | dict(attributes or {})

    def started(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        hook: ToolHook | None = None,
        call_id: str = "",
        is_current: bool = True,
    ) -> Invocation | None:
        """Start the span of a call; None if it has no hook and nothing records it.

        Args:
            args: The positional arguments.
            kwargs: The named arguments.
            hook: The hook of a replay, which answers the call or observes it.
            call_id: The id of the model's call, or "".
            is_current: Whether spans that begin in the function are below this span.
        """
        attributes = {**self._start, THREAD: running_thread()}
        if call_id:
            attributes[conventions.CALL_ID] = call_id
        scope = start_scope(self._span_name, attributes)
        if scope is None and hook is None:
            return None
        has_content = scope is not None and scope.is_recording
        has_content = has_content and self.capture_content and is_captured()
        if scope is not None and has_content:
            scope.record(
                lambda: conventions.tool_arguments(
                    self.parameters.bind(args, kwargs), self._hidden
                ),
                "recording the arguments of a tool",
            )
        arguments: dict[str, Any] = {}
        if hook is not None:
            with guarded("reading the arguments of a tool for a replay"):
                arguments = plain(self.parameters.bind(args, kwargs))
        return _ToolInvocation(
            self, scope, hook, arguments, has_content=has_content, is_current=is_current
        )


class _ToolInvocation(Invocation):
    """One execution of a tool."""

    __slots__ = (
        "_arguments",
        "_has_content",
        "_hook",
        "_is_asked",
        "_is_current",
        "_is_run",
        "_recorder",
        "_start_ns",
    )

    def __init__(
        self,
        recorder: ToolRecorder,
        scope: SpanScope | None,
        hook: ToolHook | None,
        arguments: dict[str, Any],
        *,
        has_content: bool,
        is_current: bool,
    ) -> None:
        super().__init__(scope)
        self._has_content = has_content
        self._is_current = is_current
        self._recorder = recorder
        self._hook = hook
        self._arguments = arguments
        self._is_asked = False
        self._is_run = False
        self._start_ns = 0

    def __enter__(self) -> None:
        """Make the span current, unless spans inside of the function are to stay beside it."""
        if self._is_current:
            super().__enter__()

    def separate_context(self) -> Context:
        """The context for the steps of a generator: with this span, if it is to be current."""
        return super().separate_context() if self._is_current else copy_context()

    def answer(self) -> ToolAnswer | None:
        """The answer of a replay, or None to run the tool."""
        if self._hook is None or self._is_asked:
            return None
        self._is_asked = True
        answer = self._hook.answer(self._recorder.name, self._arguments)
        if answer is None:
            self._is_run = True
            self._start_ns = time.time_ns()
        return answer

    def returned(self, result: Any, delivered: Any = None) -> None:
        """Record the result, and show it to the hook."""
        recorder = self._recorder
        recorded = result
        if recorder.result is not None:
            delivered = None
            with guarded("converting the result of a tool"):
                recorded = recorder.result(result)
        if self.scope is not None and self._has_content:
            self.scope.record(
                lambda: conventions.tool_result(recorded, delivered),
                "recording the result of a tool",
            )
        if self._is_run:
            self._observe(plain(recorded), None)

    def raised(self, error: BaseException, delivered: Any = None) -> None:
        """Record an exception, and show it to the hook."""
        super().raised(error)
        # A replay that has diverged, or a coroutine that nobody awaits, ends no tool.
        is_end = not isinstance(error, (GeneratorExit, ReplayDiverged))
        if self.scope is not None and self._has_content and is_end:
            recorded = Cancelled() if _is_cancelled(error) else delivered or error
            self.scope.record(
                lambda: conventions.tool_raised(recorded), "recording the exception of a tool"
            )
        if self._is_run:
            self._observe(None, f"{type(error).__name__}: {error}")

    def _observe(self, result: Any, error: str | None) -> None:
        self._is_run = False
        if self._hook is not None:
            self._hook.observe(
                self._recorder.name,
                self._arguments,
                result,
                error,
                self._start_ns,
                time.time_ns(),
            )


def _is_cancelled(error: BaseException) -> bool:
    """Whether the current task was cancelled from outside."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
