"""The instrumentation of one library: on once it is imported, off if another one is on.

The agent's own code may turn on other instrumentations, before or after oteval's. OpenLLMetry,
OpenLIT and most others build on OpenTelemetry's class ``BaseInstrumentor``; each instrumentor names
the packages that it instruments. Logfire and Langfuse mark or wrap the methods of the clients.
Datadog, Sentry and others wrap methods too, but write no OpenTelemetry spans, so oteval's
instrumentation stays on together with them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal

from .installed_packages import Choice, entry_points_of, installed_versions, requirement_name
from .libraries import InstrumentingPackage, Library

__all__ = [
    "INSTRUMENTOR_MODULE",
    "Activation",
    "ActiveInstrumentors",
    "LibraryState",
    "SpanTargets",
    "other_instrumentation",
]

_LOG = logging.getLogger("oteval")
INSTRUMENTOR_MODULE = "opentelemetry.instrumentation.instrumentor"
_EMITTERS = frozenset(
    {"agentops", "langfuse", "lmnr", "logfire", "openinference", "openlit", "opentelemetry"}
)
_LOGFIRE_MARKS = {
    "openai": ("openai", "OpenAI"),
    "anthropic": ("anthropic", "Anthropic"),
}
# LangSmith then writes its runs as spans.
_LANGSMITH = ("LANGSMITH_TRACING", "LANGSMITH_OTEL_ENABLED")

Status = Literal["on", "waiting", "off"]


@dataclass(frozen=True, slots=True)
class LibraryState:
    """How the calls of one library are recorded.

    Attributes:
        library: Its short name.
        version: Its version.
        status: ``on``; ``waiting`` until the agent imports the library; or ``off``.
        by: The recorder of the calls: a distribution with its version, the library itself, or the
            instrumentor that the agent's own code turned on.
        reason: Why it is off, or a limit of the spans; or "".
        remedy: The command that would turn it on.
    """

    library: str
    version: str
    status: Status
    by: str = ""
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SpanTargets:
    """Where spans and log records go.

    Attributes:
        tracer_provider: The provider of tracers.
        logger_provider: The provider of loggers.
        capture_content: Whether spans have the content of messages.
        on_provider: Called with the tracer provider that the agent's code passes to another
            instrumentation.
    """

    tracer_provider: Any
    logger_provider: Any
    capture_content: bool
    on_provider: Callable[[Any], None] | None


class Activation:
    """The instrumentation of one library: chosen, waiting for its import, or on.

    Attributes:
        library: The library.
        choice: The instrumentations that fit.
        state: How the library's calls are recorded at the moment.
        targets: Where spans and log records go.
        instrumentor: The instrumentor of oteval that is on, or None.
        others: The instrumentors that the agent's code turned on, by identity.
    """

    def __init__(
        self,
        library: Library,
        choice: Choice,
        state: LibraryState,
        targets: SpanTargets,
        own: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.library, self.choice, self.state, self.targets = library, choice, state, targets
        self._own = own
        self.instrumentor: Any = None
        self.others: dict[int, Any] = {}

    @property
    def is_being_imported(self) -> bool:
        """Whether the module of an instrumentation that fits is half imported."""
        modules = (
            sys.modules.get(point.module)
            for package in self.choice.candidates
            for point in entry_points_of(package.distribution)
        )
        specs = (getattr(module, "__spec__", None) for module in modules)
        return any(getattr(spec, "_initializing", False) for spec in specs)

    def turn_on(self) -> None:
        """Turn the instrumentation on; the library was imported."""
        if self.state.status == "on":
            return
        if instrumentation := self._other():
            self._set("on", instrumentation, "turned on by the agent's code")
        elif self._writes_own_spans:
            self._set("on", self.state.by, _use_own_spans(self.library, self.targets))
        else:
            self._turn_on_first()

    def make_way(self, instrumentor: Any, arguments: Mapping[str, Any]) -> None:
        """Take oteval's instrumentation off before the agent's code turns this one on."""
        self.others[id(instrumentor)] = instrumentor
        if self.instrumentor is None:
            return
        with self._own():
            self.instrumentor.uninstrument()
        self.instrumentor = None
        self._set("on", _label(instrumentor), "turned on by the agent's code")
        provider = arguments.get("tracer_provider")
        ours = (None, self.targets.tracer_provider)
        if provider not in ours and self.targets.on_provider is not None:
            self.targets.on_provider(provider)

    def turn_off(self) -> None:
        """Turn oteval's instrumentation off; the agent's stays."""
        if self.instrumentor is not None:
            with self._own():
                self.instrumentor.uninstrument()
            self.instrumentor = None

    def take_back(self, instrumentor: Any) -> None:
        """Turn oteval's instrumentation on again, because the agent's refused."""
        self.others.pop(id(instrumentor), None)
        if self.library.module in sys.modules and self.instrumentor is None:
            self._set("waiting", "")
            self.turn_on()

    @property
    def _writes_own_spans(self) -> bool:
        return self.library.own is not None and self.library.own.covers(self.state.version)

    def _other(self) -> str:
        if self.others:
            return _label(next(iter(self.others.values())))
        return other_instrumentation(self.library)

    def _turn_on_first(self) -> None:
        """Turn on the first instrumentation that takes the library, and no other."""
        reasons = list(self.choice.refused)
        for package in self.choice.candidates:
            try:
                refusal = self._instrument(package)
            except Exception as error:
                refusal = f"{package.distribution}: {type(error).__name__}: {error}"
                self._undo()
            if not refusal:
                self._set("on", _distribution_label(package), self.state.reason)
                return
            reasons.append(refusal)
        if self.choice.candidates:
            _LOG.warning("%s is not instrumented: %s", self.library.name, "; ".join(reasons))
        self._set("off", "", "; ".join(reasons))

    def _instrument(self, package: InstrumentingPackage) -> str:
        """Turn on an instrumentation; return why it does not take the library, "" if it does."""
        points = [
            point
            for point in entry_points_of(package.distribution)
            if not package.entry_point or point.name == package.entry_point
        ]
        if not points:
            return f"{package.distribution} registers no instrumentor"
        instrumentor = points[0].load()()
        conflict = instrumentor._check_dependency_conflicts()
        if conflict is not None and not _only_lacks_alias(conflict, self.library):
            return str(conflict)
        self.instrumentor = instrumentor
        with self._own():
            instrumentor.instrument(skip_dep_check=True, **self._arguments())
        if instrumentor.is_instrumented_by_opentelemetry:
            return ""
        self.instrumentor = None
        return f"{package.distribution} did not turn on"

    def _arguments(self) -> dict[str, Any]:
        provider = self.targets.tracer_provider
        if self.library.is_client:
            from .providers import OncePerCallProvider

            provider = OncePerCallProvider(provider)
        return {"tracer_provider": provider, "logger_provider": self.targets.logger_provider}

    def _undo(self) -> None:
        """Remove the wrappers of an instrumentation that failed half-way."""
        failed, self.instrumentor = self.instrumentor, None
        if failed is not None:
            try:
                failed._uninstrument()
            except Exception:
                _LOG.debug("%s: could not undo", self.library.name, exc_info=True)

    def _set(self, status: Status, by: str, reason: str = "") -> None:
        self.state = replace(
            self.state,
            status=status,
            by=by,
            reason=reason,
            remedy=self.library.install_command if status == "off" else "",
        )


def _use_own_spans(library: Library, targets: SpanTargets) -> str:
    """Turn on the spans that a library writes; return the reason if they were on already."""
    if library.name != "pydantic-ai":
        return ""
    from pydantic_ai import Agent
    from pydantic_ai.agent import InstrumentationSettings

    if Agent._instrument_default:
        return "turned on by the agent's code"
    Agent.instrument_all(
        InstrumentationSettings(
            include_content=targets.capture_content, tracer_provider=targets.tracer_provider
        )
    )
    return ""


def _only_lacks_alias(conflict: Any, library: Library) -> bool:
    """Whether a conflict only means that another package of the library is missing.

    The instrumentation of LangChain requires ``langchain`` but wraps ``langchain_core``. Agents of
    LangGraph have the second without the first.
    """
    if conflict._is_version_conflict:
        return False
    missing = [conflict.required] if conflict.required else (conflict.required_any or [])
    return bool(missing) and all(
        requirement_name(str(requirement)) in library.distributions for requirement in missing
    )


def _distribution_label(package: InstrumentingPackage) -> str:
    return f"{package.distribution} {installed_versions().get(package.distribution, '')}".strip()


def _label(instrumentor: Any) -> str:
    return f"{type(instrumentor).__module__}.{type(instrumentor).__qualname__}"


def other_instrumentation(library: Library) -> str:
    """The name of another instrumentation that is on for an imported library, or ""."""
    for instrumentor in _active_instrumentors():
        if library_packages(instrumentor) & set(library.distributions):
            return _label(instrumentor)
    return _marked(library) or _wrapped(library)


def library_packages(instrumentor: Any) -> frozenset[str]:
    """The normalized names of the packages that an instrumentor instruments."""
    try:
        requirements = [
            str(requirement) for requirement in instrumentor.instrumentation_dependencies()
        ]
    except Exception:
        return frozenset()
    return frozenset(requirement_name(line) for line in requirements)


def _active_instrumentors() -> Iterator[Any]:
    base = getattr(sys.modules.get(INSTRUMENTOR_MODULE), "BaseInstrumentor", None)
    waiting = [base] if base is not None else []
    while waiting:
        instrumentor_class = waiting.pop()
        waiting += instrumentor_class.__subclasses__()
        instance = instrumentor_class.__dict__.get("_instance")
        if getattr(instance, "_is_instrumented_by_opentelemetry", False):
            yield instance


def _marked(library: Library) -> str:
    """The tool that has marked the classes of a client, or traces the library itself; or ""."""
    if library.name in _LOGFIRE_MARKS:
        module, class_name = _LOGFIRE_MARKS[library.name]
        client_class = getattr(sys.modules.get(module), class_name, None)
        return "logfire" if getattr(client_class, "_is_instrumented_by_logfire", False) else ""
    if library.name == "langchain" and all(map(_is_set, _LANGSMITH)):
        return "langsmith"
    if library.name == "openai-agents" and "agents.tracing" in sys.modules:
        provider = sys.modules["agents.tracing"].get_trace_provider()
        return "logfire" if type(provider).__name__.startswith("Logfire") else ""
    return ""


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() in ("true", "1")


def _wrapped(library: Library) -> str:
    """The package whose wrapper around a method of the library writes spans, or ""."""
    for method in library.methods:
        module, _, path = method.partition(":")
        function: Any = sys.modules.get(module)
        for name in path.split("."):
            function = getattr(function, name, None)
        while function is not None:
            wrapper = getattr(function, "_self_wrapper", None)
            package = (getattr(wrapper, "__module__", None) or "").partition(".")[0]
            if package in _EMITTERS:
                return package
            function = getattr(function, "__wrapped__", None)
    return ""


class ActiveInstrumentors:
    """Watches the instrumentors that others turn on, so that oteval's can make way first.

    Args:
        before: Called with an instrumentor and its arguments before it is turned on.
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
            _LOG.warning("instrumentation", exc_info=True)
