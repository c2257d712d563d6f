"""The providers of OpenTelemetry: set up where the process has none, joined where it has.

An agent may set its provider only after oteval has set up one: under `oteval run`, for example.
OpenTelemetry would ignore the agent's provider then. Here the agent's provider replaces oteval's,
gets its processors, and also receives the spans of tracers that were created before.

Everything that an invocation records has its id as the resource attribute ``oteval.invocation.id``:
the spans and HTTP exchanges of all its processes, in any trace, and of any tracer provider. An
invocation is one process tree of `oteval run`, which passes the id to its children. Without
`oteval run`, it is one process with its forks. This way, requests outside of the agent's trace,
such as a request at import, can be found together with the rest.

Pydantic AI writes a span for each model call, and the client that it calls is instrumented too,
because an agent may also call it directly. The instrumentations of clients therefore get a provider
that starts no span inside another instrumentation's span of a model call. Other spans in that
context, such as the HTTP request's, belong to the framework's span.
"""

from __future__ import annotations

import copy
import inspect
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadableLogRecord
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.util._decorator import _agnosticcontextmanager

from ..model import INVOCATION_ID
from .export_pipeline import Exportable

__all__ = [
    "INVOCATION_ID",
    "InvocationMarker",
    "OncePerCallProvider",
    "Providers",
    "current_invocation",
    "has_processor",
    "join_invocation",
    "process_providers",
]

_ADD = ("add_span_processor", "add_log_record_processor")
_UNKNOWN_SERVICE = "unknown_service"
_LENGTH_LIMITS = (
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT",
)


class Providers:
    """The tracer provider and the logger provider that spans and log records are taken from.

    Attributes:
        tracer: The tracer provider.
        logger: The logger provider.
        notes: Warnings for the user, one sentence each.
    """

    def __init__(
        self,
        service: str | None,
        tracer: Any = None,
        logger: Any = None,
        *,
        sampler: Sampler | None = None,
    ) -> None:
        """Join the providers of the process, or set them up.

        Args:
            service: The name of the service, for a provider that is set up.
            tracer: A tracer provider to join; by default the global one.
            logger: A logger provider to join; by default the global one.
            sampler: The sampler of a tracer provider that is set up; by default that of the
                environment.
        """
        self.notes: list[str] = []
        self._service, self._sampler = service, sampler
        self._spans = _SpanRelay()
        self._logs = _LogRelay()
        self._joined: set[int] = set()
        self._owns_tracer = False
        self.tracer = tracer if tracer is not None else self._join_tracer()
        self.logger = logger if logger is not None else self._join_logger()
        if not self._owns_tracer:
            self.note_service(service)
        self._check_limits()

    def note_service(self, service: str | None) -> None:
        """Note that the name of a service comes too late, if it is not that of the provider."""
        if service and self._named() not in (service, None):
            self.notes.append(
                f"service={service!r} is ignored: the process has a tracer provider already, "
                f"with service.name {self._named()!r}"
            )

    def add(self, spans: SpanProcessor, logs: LogRecordProcessor) -> None:
        """Add processors to both providers."""
        self._spans.own.append(spans)
        self._logs.own.append(logs)
        if hasattr(self.tracer, "add_span_processor"):
            self.tracer.add_span_processor(spans)
        if hasattr(self.logger, "add_log_record_processor"):
            self.logger.add_log_record_processor(logs)

    def join(self, provider: Any) -> None:
        """Export the spans of a further tracer provider that the agent uses."""
        if provider is self.tracer or id(provider) in self._joined:
            return
        if hasattr(provider, "add_span_processor"):
            self._joined.add(id(provider))
            for processor in self._spans.own:
                provider.add_span_processor(processor)

    def _join_tracer(self) -> Any:
        current = trace.get_tracer_provider()
        if hasattr(current, "add_span_processor"):
            return current
        own = TracerProvider(
            resource=self._resource(),
            shutdown_on_exit=False,
            active_span_processor=self._spans,  # type: ignore[arg-type]  # only its methods matter
            span_limits=_span_limits(),
            sampler=self._sampler,
        )
        self._owns_tracer = True
        if isinstance(current, trace.ProxyTracerProvider):
            trace.set_tracer_provider(own)
            _watch(trace, "_set_tracer_provider", "set_tracer_provider", self._replace_tracer)
        else:
            self.notes.append(
                f"the tracer provider of the process ({type(current).__name__}) is not one of "
                "OpenTelemetry's SDK: only the spans of instrumentations that oteval turns on are "
                "exported"
            )
        return own

    def _join_logger(self) -> Any:
        current = _logs.get_logger_provider()
        if hasattr(current, "add_log_record_processor"):
            return current
        own = LoggerProvider(
            resource=self._resource(),
            shutdown_on_exit=False,
            multi_log_record_processor=self._logs,  # type: ignore[arg-type]
            **_log_limits(),
        )
        if "Proxy" in type(current).__name__:
            _logs.set_logger_provider(own)
            module = sys.modules[_logs.set_logger_provider.__module__]
            _watch(module, "_set_logger_provider", "set_logger_provider", self._replace_logger)
        return own

    def _replace_tracer(self, provider: Any) -> bool:
        """Let an agent's provider replace ours; return whether it did."""
        if not _can_replace(provider, self.tracer, trace.get_tracer_provider()):
            return False
        for processor in self._spans.own:
            provider.add_span_processor(processor)
        self._spans.target = getattr(provider, "_active_span_processor", None)
        self.tracer = trace._TRACER_PROVIDER = provider
        return True

    def _replace_logger(self, provider: Any) -> bool:
        """Do the same for a logger provider."""
        if not _can_replace(provider, self.logger, _logs.get_logger_provider()):
            return False
        for processor in self._logs.own:
            provider.add_log_record_processor(processor)
        self._logs.target = getattr(provider, "_multi_log_record_processor", None)
        module: Any = sys.modules[_logs.set_logger_provider.__module__]
        self.logger = module._LOGGER_PROVIDER = provider
        return True

    def _resource(self) -> Resource:
        attributes = {INVOCATION_ID: current_invocation()}
        if self._service:
            attributes[SERVICE_NAME] = self._service
        resource = Resource.create(attributes)
        service = str(resource.attributes.get(SERVICE_NAME, ""))
        if not service or service.startswith(_UNKNOWN_SERVICE):
            resource = resource.merge(Resource({SERVICE_NAME: _program()}))
        return _HashedResource(resource)

    def _named(self) -> Any:
        resource = getattr(self.tracer, "resource", None)
        return resource.attributes.get(SERVICE_NAME) if resource is not None else None

    def _check_limits(self) -> None:
        limits = getattr(self.tracer, "_span_limits", None)
        length = getattr(limits, "max_span_attribute_length", None)
        if length is not None:
            names = ", ".join(name for name in _LENGTH_LIMITS if os.environ.get(name))
            by = f" ({names})" if names else ""
            self.notes.append(
                f"values of attributes are cut after {length} characters{by}: long messages will "
                "be incomplete"
            )


_LOCK = threading.Lock()
_process_providers: Providers | None = None


def process_providers(service: str | None = None, *, sampler: Sampler | None = None) -> Providers:
    """The global providers of the process, which the first call joins or sets up.

    Args:
        service: The name of the service, see `Providers`.
        sampler: The sampler, see `Providers`.
    """
    global _process_providers
    with _LOCK:
        is_reset = isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
        if _process_providers is None or is_reset:
            _process_providers = Providers(service, sampler=sampler)
        else:
            _process_providers.note_service(service)
        return _process_providers


def has_processor(provider: Any, processor: Any) -> bool:
    """Whether a tracer or logger provider of the SDK passes its records to a processor."""
    for name in ("_active_span_processor", "_multi_log_record_processor"):
        target = getattr(provider, name, None)
        for members in ("own", "_span_processors", "_log_record_processors"):
            if processor in (getattr(target, members, None) or ()):
                return True
    return False


def _can_replace(provider: Any, own: Any, current: Any) -> bool:
    """Whether a provider of the SDK was set after ours."""
    accepts = any(hasattr(provider, name) for name in _ADD)
    return current is own and provider is not own and accepts


def _program() -> str:
    """The name of the running program, for its service."""
    main = Path(sys.argv[0] if sys.argv else "")
    name = main.parent.name if main.name == "__main__.py" else main.stem
    return name if name and name not in ("-c", "-m", "-") else _UNKNOWN_SERVICE


def _span_limits() -> SpanLimits:
    """Limits that cut nothing, unless the environment sets limits."""

    def limit(*names: str) -> int | None:
        return None if any(os.environ.get(name) for name in names) else SpanLimits.UNSET

    count = "OTEL_ATTRIBUTE_COUNT_LIMIT"
    return SpanLimits(
        max_span_attributes=limit("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", count),
        max_event_attributes=limit("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", count),
        max_link_attributes=limit("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT", count),
        max_events=limit("OTEL_SPAN_EVENT_COUNT_LIMIT"),
        max_links=limit("OTEL_SPAN_LINK_COUNT_LIMIT"),
    )


def _log_limits() -> dict[str, Any]:
    if "log_record_limits" not in inspect.signature(LoggerProvider).parameters:
        return {}
    from opentelemetry.sdk._logs import LogRecordLimits

    names = ("OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
    if any(os.environ.get(name) for name in names):
        return {}
    limits = LogRecordLimits(max_log_record_attributes=LogRecordLimits.UNSET)
    return {"log_record_limits": limits}


def _watch(module: Any, private: str, public: str, replace: Callable[[Any], bool]) -> None:
    """Call a function before a global provider is set; if it returns True, nothing else happens."""
    # The private function is also called through names that were imported from the module.
    name = private if hasattr(module, private) else public
    original = getattr(module, name)

    def set_provider(provider: Any, *args: Any, **options: Any) -> None:
        if not replace(provider):
            original(provider, *args, **options)

    setattr(module, name, set_provider)


class _HashedResource(Resource):
    """A resource that computes its hash once: the exporters need it for each span."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource.attributes, resource.schema_url)
        self._hash = super().__hash__()

    def __hash__(self) -> int:
        return self._hash


class _Relay:
    """Our processors, or the processor of a provider that took our place."""

    def __init__(self) -> None:
        self.own: list[Any] = []
        self.target: Any = None

    def add(self, processor: Any) -> None:
        """Add a processor, unless it is there already."""
        if processor not in self.own:
            self.own.append(processor)

    def shutdown(self) -> None:
        """Shut our processors down; a provider that took our place does so for its own."""
        for processor in self.own:
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processors."""
        # All of them, whatever the first one returns.
        return min(
            [processor.force_flush(timeout_millis) for processor in self.processors()], default=True
        )

    def processors(self) -> tuple[Any, ...]:
        """The processors that receive spans or log records now."""
        return (self.target,) if self.target is not None else tuple(self.own)


class _SpanRelay(_Relay, SpanProcessor):
    """Passes spans on."""

    add_span_processor = _Relay.add

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        for processor in self.processors():
            processor.on_start(span, parent_context)

    def _on_ending(self, span: Any) -> None:
        for processor in self.processors():
            processor._on_ending(span)

    def on_end(self, span: Any) -> None:
        for processor in self.processors():
            processor.on_end(span)


class _LogRelay(_Relay, LogRecordProcessor):
    """Passes log records on."""

    add_log_record_processor = _Relay.add

    def on_emit(self, log_record: Any) -> None:
        for processor in self.processors():
            processor.on_emit(log_record)


_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})


class OncePerCallProvider(trace.TracerProvider):
    """A tracer provider whose tracers start no span inside another span of the same model call."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def get_tracer(self, instrumenting_module_name: str, *args: Any, **kwargs: Any) -> trace.Tracer:
        """A tracer that starts no span inside another span of the same call."""
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
    """Whether a span of another instrumentation records a model call."""
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


# Processes have few resources; more are not remembered.
_MAX_CACHED = 256
_current = ""


def join_invocation(invocation_id: str) -> None:
    """Let the records of this process belong to an invocation from now on.

    Args:
        invocation_id: The id that `oteval run` passed to its children; "" is ignored.
    """
    global _current
    if invocation_id:
        _current = invocation_id


def current_invocation() -> str:
    """The invocation id of this process; a new id if it has joined none."""
    global _current
    if not _current:
        _current = secrets.token_hex(8)
    return _current


class InvocationMarker:
    """Adds the id to the resources of spans and log records that are exported.

    Resources of a provider that oteval sets up have the id already. Resources of an agent's own
    provider have it in the export only: other exporters of the agent do not see it.
    """

    def __init__(self) -> None:
        # By identity, because hashing a resource serialises it. The originals are kept, so that no
        # other object gets their identities.
        self._resources: dict[int, tuple[Resource, Resource]] = {}

    def marked(self, exportable: Exportable) -> Exportable:
        """Add the invocation id to the resource of a span or log record."""
        item = exportable.item
        resource = self._marked_resource(item.resource)
        if resource is item.resource:
            return exportable
        if exportable.is_log:
            return exportable._replace(item=_moved_record(item, resource))
        # A shallow copy: the span itself may be exported by others, with its own resource.
        span = copy.copy(item)
        span._resource = resource
        return exportable._replace(item=span)

    def _marked_resource(self, resource: Resource | None) -> Resource:
        cached = self._resources.get(id(resource))
        if cached is not None:
            return cached[1]
        original = resource if resource is not None else Resource.get_empty()
        invocation = current_invocation()
        marked = original
        if original.attributes.get(INVOCATION_ID) != invocation:
            attributes = {**original.attributes, INVOCATION_ID: invocation}
            marked = Resource(attributes, original.schema_url)
        if resource is not None and len(self._resources) < _MAX_CACHED:
            self._resources[id(resource)] = original, marked
        return marked


def _moved_record(emitted: Any, resource: Resource) -> Any:
    scope = emitted.instrumentation_scope
    return ReadableLogRecord(emitted.log_record, resource, scope, emitted.limits)
