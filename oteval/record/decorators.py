"""`@oteval.agent` and `@oteval.tool`: spans around the functions of an agent without a framework.

Both accept functions, coroutine functions, generators and async generators, methods, static and
class methods, partials and callable objects, and return the same kind. The span of a generator
lasts as long as its iteration. Exceptions are recorded and go on unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

from ..base.errors import ReplayDiverged
from . import conventions
from .agent_files import function_line
from .content import is_captured
from .context import in_conversation, take_call_id
from .faults import guarded
from .function_wrappers import Begin, Invocation, function_name, wrap
from .hooks import AgentEnd, AgentHook, current_agent_hook, current_tool_hook
from .parameters import Parameters, agent_input
from .span_scope import SpanScope, start_scope
from .tool_spans import ToolRecorder

__all__ = ["agent", "tool"]

F = TypeVar("F", bound=Callable[..., Any])
_Args = tuple[Any, ...]
_Kwargs = Mapping[str, Any]


@overload
def agent(function: F, /) -> F: ...


@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    input: str | Callable[..., Any] | None = None,
    output: Callable[[Any], Any] | None = None,
    conversation: str | None = None,
    capture_content: bool = True,
) -> Callable[[F], F]: ...


def agent(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "",
    input: str | Callable[..., Any] | None = None,  # noqa: A002
    output: Callable[[Any], Any] | None = None,
    conversation: str | None = None,
    capture_content: bool = True,
) -> F | Callable[[F], F]:
    """Write a span for each run of an agent: the function that answers a question.

        @oteval.agent
        def clerk(question: str) -> str: ...

    Args:
        function: The function.
        name: The agent's name; by default the function's.
        description: A description; by default the first line of the docstring.
        version: The agent's version.
        input: The question: the name of a parameter, or a function that returns it when it is
            called with the same arguments. By default a parameter with messages, then a parameter
            named like ``question`` or ``prompt``, then the first text, then all arguments as JSON.
        output: Returns the answer when called with the return value. By default the answer is the
            return value: a text, messages, or a model's response; any other value as JSON.
        conversation: The name of the parameter with the conversation's id.
        capture_content: Whether to record the question and the answer.
    """

    def decorate(wrapped: F) -> F:
        return _decorated(
            wrapped,
            lambda inner, parameters: (
                _AgentRecorder(
                    name=name or function_name(inner),
                    description=_description(inner, description),
                    version=version,
                    parameters=parameters,
                    input=input,
                    output=output,
                    conversation=conversation,
                    capture_content=capture_content,
                    function=inner,
                ).begin
            ),
        )

    return decorate if function is None else decorate(function)


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    hide: Collection[str] = (),
    result: Callable[[Any], Any] | None = None,
    capture_content: bool = True,
) -> Callable[[F], F]: ...


def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    hide: Collection[str] = (),
    result: Callable[[Any], Any] | None = None,
    capture_content: bool = True,
) -> F | Callable[[F], F]:
    """Write a span for each execution of a tool. In a replay, answer it from the recording.

        @oteval.tool
        def refund(order_id: int, amount: float) -> str: ...

    Args:
        function: The function.
        name: The tool's name, as the model knows it; by default the function's.
        description: A description; by default the first line of the docstring.
        hide: The names of arguments that are not recorded.
        result: Returns the result to record when called with the return value; by default the
            return value: text as it is, any other value as JSON.
        capture_content: Whether to record arguments and results.
    """

    def decorate(wrapped: F) -> F:
        return _decorated(
            wrapped,
            lambda inner, parameters: (
                _DecoratedTool(
                    name=name or function_name(inner),
                    description=_description(inner, description),
                    parameters=parameters,
                    hidden=tuple(hide),
                    result=result,
                    capture_content=capture_content,
                ).begin
            ),
        )

    return decorate if function is None else decorate(function)


def _description(function: Callable[..., Any], custom: str | None) -> str:
    """The description that the user set, or the first line of the function's own docstring."""
    if custom is not None:
        return custom
    while isinstance(function, functools.partial):
        function = function.func
    docstring = getattr(function, "__doc__", None)
    return docstring.strip().partition("\n")[0] if isinstance(docstring, str) else ""


@dataclass(kw_only=True, eq=False)
class _AgentRecorder:
    """Begins the runs of one decorated agent; see `agent` for its fields."""

    name: str
    description: str
    version: str
    parameters: Parameters
    input: str | Callable[..., Any] | None
    output: Callable[[Any], Any] | None
    conversation: str | None
    capture_content: bool
    function: Callable[..., Any]

    def __post_init__(self) -> None:
        self._span_name = f"invoke_agent {self.name}"
        self._start = conventions.agent_start(self.name, self.description, self.version)

    def begin(self, args: _Args, kwargs: _Kwargs) -> Invocation | None:
        """Start the span of a call; None if nothing records it."""
        context, attributes = None, self._start
        if self.conversation is not None:
            with guarded("reading the conversation of an agent"):
                conversation_id = self.parameters.bind(args, kwargs).get(self.conversation)
                if conversation_id is not None:
                    context = in_conversation(str(conversation_id))
                    attributes = {**attributes, conventions.CONVERSATION_ID: str(conversation_id)}
        hook = current_agent_hook()
        scope = start_scope(self._span_name, attributes, context=context)
        if scope is None and hook is None:
            return None
        sent: dict[str, Any] = {}
        has_content = scope is not None and scope.is_recording
        has_content = has_content and self.capture_content and is_captured()
        if has_content or hook is not None:
            with guarded("recording the input of an agent"):
                value = agent_input(self.input, self.parameters, args, kwargs)
                sent = {} if value is None else conventions.agent_input(value)
        if scope is not None and has_content:
            scope.record(lambda: sent, "recording the input of an agent")
        question = next(iter(sent.values()), "")
        return _AgentInvocation(self, scope, hook, question, has_content=has_content)


class _AgentInvocation(Invocation):
    """One run of an agent."""

    __slots__ = ("_has_content", "_hook", "_is_closed", "_recorder", "_sent")

    def __init__(
        self,
        recorder: _AgentRecorder,
        scope: SpanScope | None,
        hook: AgentHook | None,
        sent: str,
        *,
        has_content: bool,
    ) -> None:
        super().__init__(scope)
        self._recorder = recorder
        self._hook = hook
        self._sent = sent
        self._has_content = has_content
        self._is_closed = False

    def returned(self, result: Any, delivered: Any = None) -> None:  # noqa: ARG002
        """Record the answer, and show it to the hook."""
        self._record(lambda: self._attributes(result))

    def closed(self, *, is_async: bool = False) -> None:
        """Record the chunks of a generator that its consumer did not read to its end."""
        self._is_closed = True
        super().closed(is_async=is_async)

    def raised(self, error: BaseException, delivered: Any = None) -> None:
        """Record an exception, and show it to the hook."""
        super().raised(error, delivered)
        if self._hook is not None and not isinstance(error, (GeneratorExit, ReplayDiverged)):
            self._show(AgentEnd("", error=f"{type(error).__name__}: {error}"))

    def _attributes(self, result: Any) -> Mapping[str, Any]:
        output = self._recorder.output
        answer = result if output is None else output(result)
        returned = conventions.agent_returned(answer, is_closed=self._is_closed)
        return returned | conventions.agent_output(answer, self._sent)

    def _record(self, attributes: Callable[[], Mapping[str, Any]]) -> None:
        if self.scope is not None and self._has_content:
            self.scope.record(attributes, "recording the output of an agent")
        if self._hook is not None:
            with guarded("reading the answer of an agent for a replay"):
                recorded = attributes()
                answer = recorded.get(conventions.AGENT_ANSWER)
                self._show(AgentEnd("", answer=answer, type=recorded[conventions.AGENT_RETURNED]))

    def _show(self, end: AgentEnd) -> None:
        recorder, hook = self._recorder, self._hook
        if hook is not None:
            hook.agent_ended(
                replace(
                    end,
                    agent=recorder.name,
                    question=self._sent,
                    line=function_line(recorder.function),
                )
            )


class _DecoratedTool(ToolRecorder):
    """Begins the executions of one decorated tool."""

    def begin(self, args: _Args, kwargs: _Kwargs) -> Invocation | None:
        """Start the span of a call; None if nothing records it and no replay is in progress."""
        return self.started(args, kwargs, hook=current_tool_hook(), call_id=take_call_id(self.name))


_MakeBegin = Callable[[Callable[..., Any], Parameters], Begin]


def _decorated(function: F, begin_of: _MakeBegin) -> F:
    """Wrap a function, static method or class method so that it writes spans.

    Args:
        function: The function.
        begin_of: Makes the function that begins the invocations of a plain function.

    Raises:
        TypeError: The object is a class, or cannot be called.
    """
    if isinstance(function, (staticmethod, classmethod)):
        inner = _decorated(function.__func__, begin_of)
        return type(function)(inner)
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"{function!r} is not a function: decorate the method that does the work")
    return wrap(function, begin_of(function, Parameters(function)))  # type: ignore[return-value]
