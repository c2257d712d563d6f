"""The providers of OpenTelemetry: set up where the process has none, joined where it has.

An agent may set its provider only after oteval has set up one: under `oteval run`, for example.
OpenTelemetry would ignore the agent's provider then. Here it takes the place of oteval's, gets its
processors, and receives also the spans of tracers that were created before.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider

from .invocation_id import INVOCATION_ID, current_invocation

__all__ = ["Providers"]

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

    def __init__(self, service: str | None, tracer: Any = None, logger: Any = None) -> None:
        """Join the providers of the process, or set them up.

        Args:
            service: The name of the service, for a provider that is set up.
            tracer: A tracer provider to join; by default the global one.
            logger: A logger provider to join; by default the global one.
        """
        self.notes: list[str] = []
        self._service = service
        self._spans = _SpanRelay()
        self._logs = _LogRelay()
        self._joined: set[int] = set()
        self._owns_tracer = self._owns_logger = False
        self.tracer = tracer if tracer is not None else self._join_tracer()
        self.logger = logger if logger is not None else self._join_logger()
        if not self._owns_tracer and service and self._named() not in (service, None):
            self.notes.append(
                f"service={service!r} is ignored: the process has a tracer provider already, "
                f"with service.name {self._named()!r}"
            )
        self._check_limits()

    def add(self, spans: SpanProcessor, logs: LogRecordProcessor) -> None:
        """Add processors to both providers."""
        self._spans.own.append(spans)
        self._logs.own.append(logs)
        if hasattr(self.tracer, "add_span_processor"):
            self.tracer.add_span_processor(spans)
        if hasattr(self.logger, "add_log_record_processor"):
            self.logger.add_log_record_processor(logs)

    def join(self, provider: Any) -> None:
        """Export the spans of a further tracer provider, which the agent uses beside its own."""
        if provider is self.tracer or id(provider) in self._joined:
            return
        if hasattr(provider, "add_span_processor"):
            self._joined.add(id(provider))
            for processor in self._spans.own:
                provider.add_span_processor(processor)

    def _join_tracer(self) -> Any:
        found = trace.get_tracer_provider()
        if hasattr(found, "add_span_processor"):
            return found
        own = TracerProvider(
            resource=self._resource(),
            shutdown_on_exit=False,
            active_span_processor=self._spans,  # type: ignore[arg-type]  # only its methods matter
            span_limits=_span_limits(),
        )
        self._owns_tracer = True
        if isinstance(found, trace.ProxyTracerProvider):
            trace.set_tracer_provider(own)
            _watch(trace, "_set_tracer_provider", "set_tracer_provider", self._replace_tracer)
        else:
            self.notes.append(
                f"the tracer provider of the process ({type(found).__name__}) is not one of "
                "OpenTelemetry's SDK: only the spans of instrumentations that oteval turns on are "
                "exported"
            )
        return own

    def _join_logger(self) -> Any:
        found = _logs.get_logger_provider()
        if hasattr(found, "add_log_record_processor"):
            return found
        own = LoggerProvider(
            resource=self._resource(),
            shutdown_on_exit=False,
            multi_log_record_processor=self._logs,  # type: ignore[arg-type]
            **_log_limits(),
        )
        self._owns_logger = True
        if "Proxy" in type(found).__name__:
            _logs.set_logger_provider(own)
            module = sys.modules[_logs.set_logger_provider.__module__]
            _watch(module, "_set_logger_provider", "set_logger_provider", self._replace_logger)
        return own

    def _replace_tracer(self, provider: Any) -> bool:
        """Let an agent's provider take the place of ours; return whether it did."""
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
        given = {INVOCATION_ID: current_invocation()}
        if self._service:
            given[SERVICE_NAME] = self._service
        resource = Resource.create(given)
        named = str(resource.attributes.get(SERVICE_NAME, ""))
        if not named or named.startswith(_UNKNOWN_SERVICE):
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


def _can_replace(provider: Any, own: Any, current: Any) -> bool:
    """Return whether a provider is one of the SDK that comes after ours."""
    accepts = any(hasattr(provider, name) for name in _ADD)
    return current is own and provider is not own and accepts


def _program() -> str:
    """Return the name of the program that runs, as the name of its service."""
    main = Path(sys.argv[0] if sys.argv else "")
    name = main.parent.name if main.name == "__main__.py" else main.stem
    return name if name and name not in ("-c", "-m", "-") else _UNKNOWN_SERVICE


def _span_limits() -> SpanLimits:
    """Return limits that cut nothing, except those that the environment sets."""

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
    """Call a function before a global provider is set; if it returns True, that is all."""
    # The private function is also called through names that were imported from the module.
    name = private if hasattr(module, private) else public
    original = getattr(module, name)

    def set_provider(provider: Any, *args: Any, **options: Any) -> None:
        if not replace(provider):
            original(provider, *args, **options)

    setattr(module, name, set_provider)


class _HashedResource(Resource):
    """A resource that computes its hash once: the exporters ask for it with each span."""

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
        """Shut our processors down; a provider that took our place does so for its others."""
        for processor in self.own:
            processor.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the processors."""
        # All of them, whatever the first one returns.
        return min([one.force_flush(timeout_millis) for one in self.processors()], default=True)

    def processors(self) -> tuple[Any, ...]:
        """Return the processors that get spans or log records now."""
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
