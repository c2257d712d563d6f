"""Turn on one instrumentation for each installed library, when the agent imports the library.

Nothing is imported before: an installed library that the agent does not use costs nothing. A
library that writes spans by itself, or that the agent's own code instruments, is left alone; if the
agent's code turns on an instrumentation later, oteval's makes way for it. Errors leave a library
without spans and are logged; they never reach the agent.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from .content_capture import set_content_variables
from .installed_packages import installed_versions
from .instrumentation_choice import Choice, choose, installed_version
from .libraries import HTTP_CLIENTS, LIBRARIES, Library, library_named
from .library_activation import Activation, LibraryState, Providers
from .other_instrumentations import ActiveInstrumentors, library_packages

__all__ = [
    "LibraryState",
    "instrument_libraries",
    "library_states",
    "planned_states",
    "uninstrument_libraries",
]

_LOG = logging.getLogger("oteval")
_INSTRUMENTOR_MODULE = "opentelemetry.instrumentation.instrumentor"

_lock = threading.RLock()
_activations: dict[str, Activation] = {}
_postponed: list[Activation] = []
_is_turning_on = False


def instrument_libraries(
    libraries: Sequence[str] | None = None,
    *,
    capture_content: bool,
    tracer_provider: Any,
    logger_provider: Any,
    on_provider: Callable[[Any], None] | None = None,
) -> list[LibraryState]:
    """Turn on one instrumentation for each installed library, now or when it is imported.

    Calling it again adds libraries and changes nothing about those that were chosen before.

    Args:
        libraries: Names of the libraries, None for all that are installed. ``NAME=DISTRIBUTION``
            prefers an instrumentation, such as
            ``langchain=openinference-instrumentation-langchain``.
        capture_content: Whether spans hold the content of messages. Variables that are set in the
            environment win.
        tracer_provider: Where the spans go.
        logger_provider: Where log records go.
        on_provider: Called with the tracer provider that the agent's code gives to an
            instrumentation of its own.

    Returns:
        The states of the installed libraries.

    Raises:
        ConfigError: A name is not known.
    """
    versions = installed_versions()
    preferred = _preferred(libraries)
    known = [one for one in (*LIBRARIES, *HTTP_CLIENTS) if installed_version(one, versions)]
    set_content_variables(known, capture_content=capture_content)
    providers = Providers(tracer_provider, logger_provider, capture_content, on_provider)
    with _lock:
        for state, library, choice in _plan(known, versions, preferred):
            if library.name in _activations or (libraries and library.name not in preferred):
                continue
            activation = Activation(library, choice, state, providers, _watcher.own)
            _activations[library.name] = activation
            if state.status == "waiting":
                _when_imported(activation)
        _watch_instrumentors()
    return library_states()


def library_states() -> list[LibraryState]:
    """Return the states of the libraries that `instrument_libraries` took charge of."""
    with _lock:
        return [one.state for one in _activations.values()]


def planned_states(libraries: Sequence[str] | None = None) -> list[LibraryState]:
    """Return the states that `instrument_libraries` would give, without changing anything."""
    versions = installed_versions()
    preferred = _preferred(libraries)
    known = [one for one in (*LIBRARIES, *HTTP_CLIENTS) if installed_version(one, versions)]
    return [
        state
        for state, library, _ in _plan(known, versions, preferred)
        if not libraries or library.name in preferred
    ]


def uninstrument_libraries() -> None:
    """Take off the instrumentations that `instrument_libraries` turned on."""
    with _lock:
        for activation in _activations.values():
            try:
                activation.turn_off()
            except Exception:
                _LOG.debug("%s: could not turn off", activation.library.name, exc_info=True)
        _activations.clear()
        _postponed.clear()


def _preferred(libraries: Sequence[str] | None) -> dict[str, str]:
    """Return the preferred distributions of the libraries that were named, "" for no preference."""
    found = {}
    for text in libraries or ():
        name, _, distribution = text.partition("=")
        library = library_named(name)
        if library is None:
            names = [one.name for one in (*LIBRARIES, *HTTP_CLIENTS)]
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"libraries: {name!r} is not known{hint}")
        known = [one.distribution for one in library.instrumentations]
        if distribution and distribution not in known:
            raise ConfigError(
                f"libraries: {text!r}: {library.name} is instrumented by {', '.join(known)}"
            )
        found[library.name] = distribution
    return found


def _plan(
    libraries: Sequence[Library], versions: Mapping[str, str], preferred: Mapping[str, str]
) -> list[tuple[LibraryState, Library, Choice]]:
    covered = frozenset(
        one.name for one in libraries if one.own is None and choose(one, versions).candidates
    )
    plan = []
    for library in libraries:
        version = installed_version(library, versions)
        choice = choose(
            library, versions, preferred=preferred.get(library.name, ""), covered=covered
        )
        state = _planned(library, version, choice, versions, covered)
        plan.append((state, library, choice))
    return plan


def _planned(
    library: Library,
    version: str,
    choice: Choice,
    versions: Mapping[str, str],
    covered: frozenset[str],
) -> LibraryState:
    if library.own is not None and library.own.covers(version):
        return LibraryState(library.name, version, "waiting", f"{library.name} itself")
    if choice.candidates:
        first = choice.candidates[0]
        by = f"{first.distribution} {versions[first.distribution]}"
        lacks = first.needs and first.needs not in covered
        needed = library_named(first.needs) if lacks else None
        reason = f"model calls are missing: {needed.install_command}" if needed else ""
        return LibraryState(library.name, version, "waiting", by, reason)
    reason = "; ".join(choice.refused) or "no instrumentation is installed"
    return LibraryState(library.name, version, "off", "", reason, library.install_command)


def _when_imported(activation: Activation) -> None:
    def imported(_module: Any) -> None:
        try:
            with _lock:
                if _activations.get(activation.library.name) is activation:
                    _postponed.append(activation)
                    _turn_on_postponed()
        except Exception:
            _LOG.warning("%s is not instrumented", activation.library.name, exc_info=True)

    from wrapt import register_post_import_hook

    register_post_import_hook(imported, activation.library.module)


def _turn_on_postponed() -> None:
    """Turn on the instrumentations whose libraries were imported, one after the other.

    Importing an instrumentation imports libraries, whose turn comes when it is done. One that the
    agent's code is importing at this moment waits for the next import.
    """
    global _is_turning_on
    if _is_turning_on:
        return
    _is_turning_on = True
    try:
        waiting: list[Activation] = []
        while _postponed:
            activation = _postponed.pop(0)
            if activation.is_being_imported:
                waiting.append(activation)
            else:
                activation.turn_on()
        _postponed.extend(waiting)
    finally:
        _is_turning_on = False


def _before(instrumentor: Any, arguments: dict[str, Any]) -> None:
    with _lock:
        for activation in _affected(instrumentor):
            activation.make_way(instrumentor, arguments)


def _after(instrumentor: Any) -> None:
    with _lock:
        if not getattr(instrumentor, "_is_instrumented_by_opentelemetry", False):
            for activation in _affected(instrumentor):
                activation.take_back(instrumentor)
        _turn_on_postponed()


def _affected(instrumentor: Any) -> list[Activation]:
    packages = library_packages(instrumentor)
    return [one for one in _activations.values() if packages & frozenset(one.library.distributions)]


_watcher = ActiveInstrumentors(_before, _after)
_is_watching = False


def _watch_instrumentors() -> None:
    global _is_watching
    if not _is_watching:
        from wrapt import register_post_import_hook

        register_post_import_hook(_watcher.watch, _INSTRUMENTOR_MODULE)
        _is_watching = True
