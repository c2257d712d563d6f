"""Record a model call once where a framework and the model's client would both record it.

Pydantic AI writes a span for each model call, and the client that it calls is instrumented too,
because an agent may also call it directly. The provider here is handed to the instrumentations of
clients: inside another instrumentation's span of a model call it starts no span. Other spans in
that context, such as the HTTP request's, belong to the framework's span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.util._decorator import _agnosticcontextmanager

__all__ = ["OncePerCallProvider"]

_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})


class OncePerCallProvider(trace.TracerProvider):
    """A tracer provider whose tracers start no span inside another span of the same model call."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def get_tracer(self, instrumenting_module_name: str, *args: Any, **kwargs: Any) -> trace.Tracer:
        """Return a tracer of the provider, see `OncePerCallProvider`."""
        tracer = self._provider.get_tracer(instrumenting_module_name, *args, **kwargs)
        return _Tracer(tracer, instrumenting_module_name)


class _Tracer(trace.Tracer):
    def __init__(self, tracer: trace.Tracer, scope: str) -> None:
        self._tracer, self._scope = tracer, scope

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tracer, name)

    def start_span(self, name: str, context: Any = None, *args: Any, **kwargs: Any) -> trace.Span:
        """Start a span, unless the parent is another instrumentation's span of the call."""
        parent = trace.get_current_span(context)
        if _is_model_call(parent, self._scope):
            return trace.NonRecordingSpan(parent.get_span_context())
        return self._tracer.start_span(name, context, *args, **kwargs)

    @_agnosticcontextmanager
    def start_as_current_span(
        self, name: str, context: Any = None, *args: Any, **kwargs: Any
    ) -> Iterator[trace.Span]:
        """Start a span as the current one, see `start_span`."""
        parent = trace.get_current_span(context)
        if _is_model_call(parent, self._scope):
            span = trace.NonRecordingSpan(parent.get_span_context())
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
            return
        with self._tracer.start_as_current_span(name, context, *args, **kwargs) as started:
            yield started


def _is_model_call(span: trace.Span, scope: str) -> bool:
    """Return whether a span records a model call and is of another instrumentation."""
    attributes: Mapping[str, Any] | None = getattr(span, "attributes", None)
    if not attributes or not span.is_recording():
        return False
    if getattr(getattr(span, "instrumentation_scope", None), "name", scope) == scope:
        return False
    return (
        attributes.get("gen_ai.operation.name") in _OPERATIONS
        or attributes.get("openinference.span.kind") == "LLM"
        or attributes.get("llm.request.type") in ("chat", "completion")
    )
