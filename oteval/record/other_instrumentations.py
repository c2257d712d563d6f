"""Instrumentations that the agent's own code turned on, before or after oteval's.

OpenLLMetry, OpenLIT and most others build on OpenTelemetry's class ``BaseInstrumentor``; each
instrumentor names the packages that it instruments. Logfire and Langfuse mark or wrap the methods
of the clients. Datadog, Sentry and others wrap methods too, but write no OpenTelemetry spans:
beside them oteval's instrumentation stays on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from .installed_packages import requirement_name
from .libraries import Library

__all__ = ["ActiveInstrumentors", "other_instrumentation"]

_BASE = "opentelemetry.instrumentation.instrumentor"
_EMITTERS = frozenset(
    {"agentops", "langfuse", "lmnr", "logfire", "openinference", "openlit", "opentelemetry"}
)
_LOGFIRE_MARKS = {
    "openai": ("openai", "OpenAI"),
    "anthropic": ("anthropic", "Anthropic"),
}

# LangSmith then writes its runs as spans.
_LANGSMITH = ("LANGSMITH_TRACING", "LANGSMITH_OTEL_ENABLED")


def other_instrumentation(library: Library) -> str:
    """Return the name of the instrumentation that is on for an imported library, "" for none."""
    for instrumentor in _active_instrumentors():
        if library_packages(instrumentor) & set(library.distributions):
            return _name(type(instrumentor))
    return _marked(library) or _wrapped(library)


def library_packages(instrumentor: Any) -> frozenset[str]:
    """Return the normalized names of the packages that an instrumentor instruments."""
    try:
        requirements = [str(one) for one in instrumentor.instrumentation_dependencies()]
    except Exception:
        return frozenset()
    return frozenset(requirement_name(line) for line in requirements)


def _active_instrumentors() -> Iterator[Any]:
    base = getattr(sys.modules.get(_BASE), "BaseInstrumentor", None)
    waiting = [base] if base is not None else []
    while waiting:
        one = waiting.pop()
        waiting += one.__subclasses__()
        instance = one.__dict__.get("_instance")
        if getattr(instance, "_is_instrumented_by_opentelemetry", False):
            yield instance


def _marked(library: Library) -> str:
    """Return "logfire" if it wraps the classes of a client, or traces OpenAI's agents."""
    if library.name in _LOGFIRE_MARKS:
        module, client = _LOGFIRE_MARKS[library.name]
        found = getattr(sys.modules.get(module), client, None)
        return "logfire" if getattr(found, "_is_instrumented_by_logfire", False) else ""
    if library.name == "langchain" and all(map(_is_set, _LANGSMITH)):
        return "langsmith"
    if library.name == "openai-agents" and "agents.tracing" in sys.modules:
        provider = sys.modules["agents.tracing"].get_trace_provider()
        return "logfire" if type(provider).__name__.startswith("Logfire") else ""
    return ""


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("true", "1")


def _wrapped(library: Library) -> str:
    """Return the package whose wrapper writes spans of one of the library's methods."""
    for method in library.methods:
        module, _, path = method.partition(":")
        found: Any = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        while found is not None:
            wrapper = getattr(found, "_self_wrapper", None)
            package = (getattr(wrapper, "__module__", None) or "").partition(".")[0]
            if package in _EMITTERS:
                return package
            found = getattr(found, "__wrapped__", None)
    return ""


def _name(instrumentor: type) -> str:
    return f"{instrumentor.__module__}.{instrumentor.__qualname__}"


class ActiveInstrumentors:
    """Watches the instrumentors that others turn on, so that oteval's can make way first.

    Args:
        before: Called with an instrumentor, and the arguments it is given, before it is turned on.
        after: Called with an instrumentor once it is on, or has refused.
    """

    def __init__(
        self, before: Callable[[Any, dict[str, Any]], None], after: Callable[[Any], None]
    ) -> None:
        self._before, self._after = before, after
        self._own = threading.local()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Mark the instrumentors that are turned on or off in the block as oteval's."""
        previous = getattr(self._own, "depth", 0)
        self._own.depth = previous + 1
        try:
            yield
        finally:
            self._own.depth = previous

    def watch(self, module: Any) -> None:
        """Wrap the class ``BaseInstrumentor`` of its module."""
        base = module.BaseInstrumentor
        original = base.instrument

        @wraps(original)
        def instrument(instrumentor: Any, **kwargs: Any) -> Any:
            if getattr(self._own, "depth", 0):
                return original(instrumentor, **kwargs)
            self._quietly(self._before, instrumentor, kwargs)
            try:
                return original(instrumentor, **kwargs)
            finally:
                self._quietly(self._after, instrumentor)

        base.instrument = instrument

    @staticmethod
    def _quietly(call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception:
            import logging

            logging.getLogger("oteval").warning("instrumentation", exc_info=True)
