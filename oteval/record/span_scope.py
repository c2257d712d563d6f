"""One span while the code that it is about runs: current in its context, ended exactly once.

Recording never fails: each step is `guarded`, so that the worst case is a span without an
attribute. Code that runs in pieces (generators) runs in a separate context, so that the code of
the consumer between the pieces does not see the span.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import context as otel_context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Tracer

from .. import __version__
from .conventions import error_type, exception_event
from .faults import guarded, note_fault

__all__ = ["SpanScope", "start_scope"]

_SCOPE = "oteval"
_provider: Any = None
_tracer: Any = None


def _tracer_in_use() -> Tracer | None:
    """The tracer of the current provider, which tests may exchange; None without a provider."""
    global _provider, _tracer
    provider = trace.get_tracer_provider()
    if type(provider) is trace.ProxyTracerProvider:
        return None
    if provider is not _provider:
        _tracer = provider.get_tracer(_SCOPE, __version__)
        _provider = provider
    tracer: Tracer = _tracer
    return tracer


def start_scope(
    name: str,
    attributes: dict[str, Any],
    *,
    is_client: bool = False,
    context: Context | None = None,
) -> SpanScope | None:
    """Start a span; None if nothing records it and nothing has to know of it.

    Args:
        name: The span's name.
        attributes: The attributes that samplers see.
        is_client: Whether the span is about a request to another process.
        context: The parent's context; by default the current one.
    """
    try:
        tracer = _tracer_in_use()
        if tracer is None:
            return None
        kind: SpanKind = trace.SpanKind.CLIENT if is_client else trace.SpanKind.INTERNAL
        span = tracer.start_span(name, context, kind, attributes)
        if not (span.is_recording() or span.get_span_context().is_valid):
            return None
        return SpanScope(span, trace.set_span_in_context(span, context))
    except Exception as error:
        note_fault("starting a span", error)
        return None


class SpanScope:
    """A span that has started, and the context that it is current in.

    Attributes:
        is_recording: Whether the span keeps attributes.
    """

    __slots__ = ("_attributes", "_context", "_is_ended", "_span", "_token", "is_recording")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._context = context
        self._token: Any = None
        # Set together at the end: each call of the SDK costs several times as much as an entry
        # here.
        self._attributes: dict[str, Any] = {}
        self._is_ended = False
        self.is_recording = span.is_recording()

    def attach(self) -> None:
        """Make the span current."""
        self._token = otel_context.attach(self._context)

    def detach(self, *, is_closed: bool = False) -> None:
        """Make the span that was current before current again.

        Args:
            is_closed: Whether the code may have been closed from another context, as happens to
                coroutines that nobody awaits. That context then stays unchanged.
        """
        token, self._token = self._token, None
        if token is None or (is_closed and otel_context.get_current() is not self._context):
            return
        otel_context.detach(token)

    def separate_context(self) -> contextvars.Context:
        """A copy of the context variables, with the span as the current one."""
        variables = contextvars.copy_context()
        variables.run(otel_context.attach, self._context)
        return variables

    def record(self, attributes: Callable[[], Mapping[str, Any]], step: str) -> None:
        """Set attributes.

        Args:
            attributes: Makes them; called only if the span keeps them.
            step: The step, for the count of faults.
        """
        if self.is_recording and not self._is_ended:
            with guarded(step):
                self._attributes.update(attributes())

    def fail(self, error: BaseException) -> None:
        """Record that the code raised an exception."""
        if not self.is_recording or self._is_ended:
            return
        with guarded("recording an exception"):
            self._attributes.update(error_type(error))
            text = f"{type(error).__name__}: {error}"
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, text))
            self._span.add_event("exception", exception_event(error))

    def end(self) -> None:
        """End the span; safe to repeat."""
        if not self._is_ended:
            self._is_ended = True
            with guarded("ending a span"):
                if self._attributes:
                    self._span.set_attributes(self._attributes)
            with guarded("ending a span"):
                self._span.end()
