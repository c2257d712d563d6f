"""The instrumentation of one library: on when it is imported, off where another one is on."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

from .installed_packages import entry_points_of, installed_versions, requirement_name
from .instrumentation_choice import Choice
from .libraries import InstrumentingPackage, Library
from .other_instrumentations import other_instrumentation

__all__ = ["Activation", "LibraryState", "SpanTargets"]

_LOG = logging.getLogger("oteval")

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
        reason: Why it is off, or a limit of the spans; "" if there is nothing to say.
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
        capture_content: Whether spans hold the content of messages.
        on_provider: Called with the tracer provider that the agent's code gives to another
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
        instrumentor: The instrumentor that is on; None if none of oteval's is.
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
            for one in self.choice.candidates
            for point in entry_points_of(one.distribution)
        )
        specs = (getattr(module, "__spec__", None) for module in modules)
        return any(getattr(spec, "_initializing", False) for spec in specs)

    def turn_on(self) -> None:
        """Turn the instrumentation on; the library was imported."""
        if self.state.status == "on":
            return
        if other := self._other():
            self._set("on", other, "turned on by the agent's code")
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

    def take_back(self, instrumentor: Any) -> None:
        """Turn oteval's instrumentation on again: the agent's refused."""
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
        for one in self.choice.candidates:
            try:
                refusal = self._instrument(one)
            except Exception as error:
                refusal = f"{one.distribution}: {type(error).__name__}: {error}"
                self._undo()
            if not refusal:
                self._set("on", _distribution_label(one), self.state.reason)
                return
            reasons.append(refusal)
        if self.choice.candidates:
            _LOG.warning("%s is not instrumented: %s", self.library.name, "; ".join(reasons))
        self._set("off", "", "; ".join(reasons))

    def _instrument(self, one: InstrumentingPackage) -> str:
        """Turn on an instrumentation; return why it does not take the library, "" if it does."""
        points = [
            point
            for point in entry_points_of(one.distribution)
            if not one.entry_point or point.name == one.entry_point
        ]
        if not points:
            return f"{one.distribution} registers no instrumentor"
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
        return f"{one.distribution} did not turn on"

    def _arguments(self) -> dict[str, Any]:
        provider = self.targets.tracer_provider
        if self.library.is_client:
            from .nested_calls import OncePerCallProvider

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
    """Return whether a conflict only says that another package of the library is not installed.

    The instrumentation of LangChain asks for ``langchain`` and wraps ``langchain_core``, which
    agents of LangGraph have without it.
    """
    if conflict._is_version_conflict:
        return False
    missing = [conflict.required] if conflict.required else (conflict.required_any or [])
    return bool(missing) and all(
        requirement_name(str(one)) in library.distributions for one in missing
    )


def _distribution_label(one: InstrumentingPackage) -> str:
    return f"{one.distribution} {installed_versions().get(one.distribution, '')}".strip()


def _label(instrumentor: Any) -> str:
    return f"{type(instrumentor).__module__}.{type(instrumentor).__qualname__}"
