"""Context: conversations, the call that a tool runs for, and the span across processes.

Everything is in context variables, like OpenTelemetry's current span. asyncio copies them for each
task. `carry_context` makes threads, executors and child processes do the same.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from opentelemetry import baggage, context as otel_context, trace
from opentelemetry.context import Context

from ..messages import field_of, read_call
from ..model import ToolCall
from .conventions import CONVERSATION_ID
from .faults import guarded

__all__ = [
    "ToolRequest",
    "attach_environ",
    "context_environ",
    "conversation",
    "conversation_of",
    "in_conversation",
    "install_conversation_processor",
    "running_thread",
    "take_call_id",
    "tool_call",
]

_KEY = "oteval.conversation_id"


@contextmanager
def conversation(id: str, *, propagate: bool = True) -> Iterator[None]:  # noqa: A002
    """Set the id of a conversation on every span that begins inside.

    Use it in a ``with`` block or as a decorator, around synchronous and asynchronous code. Spans of
    other instrumentations get the id as well, in the attribute ``gen_ai.conversation.id``.

        with oteval.conversation(session_id):
            answer = agent(question)

    Args:
        id: The conversation's id.
        propagate: Whether to send the id on to other processes, as W3C baggage. Instrumentations of
            HTTP clients then send it to every server, including the model's server.
    """
    token = None
    with guarded("beginning a conversation"):
        install_conversation_processor()
        token = otel_context.attach(in_conversation(id, propagate=propagate))
    try:
        yield
    finally:
        if token is not None:
            otel_context.detach(token)


def in_conversation(id: str, context: Context | None = None, *, propagate: bool = True) -> Context:  # noqa: A002
    """A context whose spans belong to a conversation.

    Args:
        id: The conversation's id.
        context: The context to start from; by default the current one.
        propagate: Whether the id is sent on as baggage.
    """
    new_context = otel_context.set_value(_KEY, str(id), context)
    return baggage.set_baggage(CONVERSATION_ID, str(id), new_context) if propagate else new_context


def conversation_of(context: Context | None = None) -> str:
    """The conversation id of a context, even if another process set it; "" if there is none."""
    conversation_id = otel_context.get_value(_KEY, context)
    if conversation_id is None:
        conversation_id = baggage.get_baggage(CONVERSATION_ID, context)
    return conversation_id if isinstance(conversation_id, str) else ""


class ConversationSpanProcessor:
    """Sets the id of the conversation on each span when it starts."""

    def on_start(self, span: Any, parent_context: Context | None = None) -> None:
        """Set the id, unless the span has one."""
        with guarded("setting the conversation of a span"):
            conversation_id = conversation_of(parent_context)
            if conversation_id and CONVERSATION_ID not in (span.attributes or ()):
                span.set_attribute(CONVERSATION_ID, conversation_id)

    def _on_ending(self, span: Any) -> None:
        """Do nothing; newer SDKs call this before a span ends."""

    def on_end(self, span: Any) -> None:
        """Do nothing."""

    def shutdown(self) -> None:
        """Do nothing."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: no span waits here."""
        return timeout_millis >= 0


_with_processor: WeakSet[Any] = WeakSet()


def install_conversation_processor(provider: Any = None) -> None:
    """Let the spans of a tracer provider carry the id of their conversation; safe to repeat.

    Args:
        provider: A provider of OpenTelemetry's SDK; by default the global one. Other providers are
            left unchanged.
    """
    provider = provider or trace.get_tracer_provider()
    if provider not in _with_processor and hasattr(provider, "add_span_processor"):
        _with_processor.add(provider)
        provider.add_span_processor(ConversationSpanProcessor())


class ToolRequest:
    """A model's request to call a tool, as a provider's object or dict.

    Attributes:
        id: The provider's call id, or "".
        name: The tool's name; "" if only the id is known.
    """

    __slots__ = ("_arguments", "_is_taken", "id", "name")

    def __init__(self, call: Any) -> None:
        self._is_taken = False
        self._arguments: Any = None
        if isinstance(call, str):
            self.id, self.name = call, ""
            return
        read = read_call(call) or ToolCall("", id=str(field_of(call, "id", "")))
        self.id, self.name, self._arguments = read.id, read.name, read.arguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments.

        Raises:
            ValueError: The model wrote no JSON object.
        """
        if isinstance(self._arguments, dict):
            return self._arguments
        raise ValueError(
            f"the arguments of the call of {self.name} are not a JSON object: {self._arguments}"
        )

    def take(self, name: str) -> str:
        """The id, for the first tool of this name that runs; "" after that."""
        if self._is_taken or (self.name and self.name != name):
            return ""
        self._is_taken = True
        return self.id


_request: ContextVar[ToolRequest | None] = ContextVar("oteval_tool_call", default=None)


@contextmanager
def tool_call(call: Any) -> Iterator[ToolRequest]:
    """Link the tool that runs inside to the model's call, by the call's id.

        for call in message.tool_calls:
            with oteval.tool_call(call) as request:
                result = tools[request.name](**request.arguments)

    Without it the reconstruction links calls and executions by name, arguments and order.

    Args:
        call: A tool call of OpenAI's chat completions or Responses API, a ``tool_use`` block of
            Anthropic, a dict of either, or the call's id.
    """
    request = ToolRequest(call)
    token = _request.set(request)
    try:
        yield request
    finally:
        try:
            _request.reset(token)
        except ValueError:  # a generator that ends in another context
            _request.set(None)


def take_call_id(name: str) -> str:
    """The id of the model's call that a tool runs for, or "".

    Args:
        name: The tool's name.
    """
    request = _request.get()
    return "" if request is None else request.take(name)


def context_environ() -> dict[str, str]:
    """The environment variables that carry the current span to a child process.

    They are ``TRACEPARENT``, ``TRACESTATE`` and ``BAGGAGE``, each only if it has a value.

        subprocess.run(command, env={**os.environ, **oteval.context_environ()})
    """
    carrier: dict[str, str] = {}
    with guarded("writing the context into the environment"):
        _propagator().inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}


def attach_environ(environ: Mapping[str, str] | None = None) -> None:
    """Make the span named in the environment the parent of this process's spans.

    Call it at the start of a process; `instrument` does. A span that is already current stays
    current.

    Args:
        environ: The variables that `context_environ` returned; by default the environment.
    """
    with guarded("reading the context from the environment"):
        variables = os.environ if environ is None else environ
        names = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
        carrier = {name.lower(): variables[name] for name in names if variables.get(name)}
        if carrier and not trace.get_current_span().get_span_context().is_valid:
            otel_context.attach(_propagator().extract(carrier))


def _propagator() -> Any:
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def running_thread() -> str:
    """A label of the running thread and task, unique on this machine.

    It ends in ``-main`` for the main thread, and for the first task of the process, which
    ``asyncio.run`` creates. A task has ``-task-`` in it.
    """
    label = f"{os.getpid()}-{threading.get_ident():x}"
    task = _running_task()
    if task is None:
        is_main = threading.current_thread() is threading.main_thread()
    else:
        label = f"{label}-task-{id(task):x}"
        is_main = getattr(task, "get_name", str)() == "Task-1"
    return f"{label}-main" if is_main else label


def _running_task() -> Any:
    for library in ("asyncio", "trio.lowlevel"):
        module = sys.modules.get(library)
        if module is None:
            continue
        try:
            task: Any = module.current_task()
        except RuntimeError:  # no event loop of this library runs in this thread
            continue
        if task is not None:
            return task
    return None
