"""Turn on one instrumentation for each installed library, when the agent imports the library.

Nothing is imported earlier: an installed library that the agent does not use costs nothing. A
library that writes spans by itself, or that the agent's own code instruments, is left alone; if the
agent's code turns on an instrumentation later, oteval's makes way for it. Errors leave a library
without spans and are logged; they never reach the agent.
"""

from __future__ import annotations

import difflib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..base.errors import ConfigError
from ..base.import_hook import ImportHook
from .content_variables import set_content_variables
from .faults import guarded
from .installed_packages import Choice, choose, installed_version, installed_versions
from .libraries import HTTP_CLIENTS, LIBRARIES, Library, library_named
from .library_activation import (
    INSTRUMENTOR_MODULE,
    Activation,
    ActiveInstrumentors,
    LibraryState,
    SpanTargets,
    library_packages,
)

__all__ = [
    "LibraryState",
    "check_libraries",
    "instrument_libraries",
    "library_states",
    "planned_states",
    "stop_watching",
    "turn_off_clients",
]

_LOG = logging.getLogger("oteval")

_lock = threading.Lock()
_turning_on = threading.Lock()
_activations: dict[str, Activation] = {}
_postponed: deque[Activation] = deque()
_imports: ImportHook | None = None


def instrument_libraries(
    libraries: Sequence[str] | None = None,
    *,
    capture_content: bool,
    tracer_provider: Any,
    logger_provider: Any,
    on_provider: Callable[[Any], None] | None = None,
) -> list[LibraryState]:
    """Turn on one instrumentation for each installed library, now or when it is imported.

    Another call adds libraries and changes nothing about the libraries chosen before.

    Args:
        libraries: Names of the libraries, None for all that are installed. ``NAME=DISTRIBUTION``
            prefers an instrumentation, such as
            ``langchain=openinference-instrumentation-langchain``.
        capture_content: Whether spans have the content of messages. Variables that are set in the
            environment take precedence.
        tracer_provider: Where the spans go.
        logger_provider: Where log records go.
        on_provider: Called with the tracer provider that the agent's code passes to another
            instrumentation.

    Returns:
        The states of the installed libraries.

    Raises:
        ConfigError: A name is not known.
    """
    versions = installed_versions()
    installed = _installed_libraries(versions)
    plan = _plan(installed, versions, libraries)
    set_content_variables(installed, capture_content=capture_content)
    targets = SpanTargets(tracer_provider, logger_provider, capture_content, on_provider)
    with _lock:
        for state, library, choice in plan:
            if library.name not in _activations:
                _activations[library.name] = Activation(
                    library, choice, state, targets, _watcher.own
                )
    _watched.install()
    _watch_imports()
    return library_states()


def stop_watching() -> None:
    """Turn on nothing for libraries that are imported from now on, until the next call."""
    global _imports
    _watched.remove()
    if _imports is not None:
        _imports.remove()
        _imports = None


def turn_off_clients() -> None:
    """Turn off oteval's instrumentations of HTTP clients, which send the header ``traceparent``."""
    with _lock:
        clients = [name for name, active in _activations.items() if active.library in HTTP_CLIENTS]
        for name in clients:
            with guarded(f"turning off the instrumentation of {name}"):
                _activations.pop(name).turn_off()


def library_states() -> list[LibraryState]:
    """The states of the libraries that `instrument_libraries` has taken charge of."""
    with _lock:
        return [activation.state for activation in _activations.values()]


def planned_states(libraries: Sequence[str] | None = None) -> list[LibraryState]:
    """The states that `instrument_libraries` would return; nothing is changed."""
    versions = installed_versions()
    plan = _plan(_installed_libraries(versions), versions, libraries)
    return [state for state, _, _ in plan]


def check_libraries(libraries: Sequence[str] | None) -> None:
    """Check the argument `libraries` of `instrument_libraries`.

    Raises:
        ConfigError: A name is not known.
    """
    _preferred(libraries)


def _installed_libraries(versions: Mapping[str, str]) -> list[Library]:
    return [
        library for library in (*LIBRARIES, *HTTP_CLIENTS) if installed_version(library, versions)
    ]


def _preferred(libraries: Sequence[str] | None) -> dict[str, str]:
    """The libraries that the user named, with the preferred distribution or ""."""
    preferred = {}
    for text in libraries or ():
        name, _, distribution = text.partition("=")
        library = library_named(name)
        if library is None:
            names = [library.name for library in (*LIBRARIES, *HTTP_CLIENTS)]
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"
            raise ConfigError(f"libraries: {name!r} is not known{hint}")
        distributions = [package.distribution for package in library.instrumentations]
        if distribution and distribution not in distributions:
            raise ConfigError(
                f"libraries: {text!r}: {library.name} is instrumented by {', '.join(distributions)}"
            )
        preferred[library.name] = distribution
    return preferred


def _plan(
    installed: Sequence[Library], versions: Mapping[str, str], libraries: Sequence[str] | None
) -> list[tuple[LibraryState, Library, Choice]]:
    """Choose the instrumentations of the installed libraries that the user named, or of all."""
    preferred = _preferred(libraries)
    covered = frozenset(
        library.name
        for library in installed
        if library.own is None and choose(library, versions).candidates
    )
    plan = []
    for library in installed:
        if libraries is not None and library.name not in preferred:
            continue
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
    return LibraryState(library.name, version, "off", "", reason, _remedy(library, versions))


def _remedy(library: Library, versions: Mapping[str, str]) -> str:
    """The command that installs an instrumentation, or another if one does not fit."""
    missing = [
        package for package in library.instrumentations if package.distribution not in versions
    ]
    if len(missing) == len(library.instrumentations) or not missing:
        return library.install_command
    return f"pip install {missing[0].distribution}"


def _watch_imports() -> None:
    """Watch the imports of all libraries that wait to be turned on."""
    global _imports
    with _lock:
        waiting = [
            activation
            for activation in _activations.values()
            if activation.state.status == "waiting"
        ]
    by_module = {activation.library.module: activation for activation in waiting}
    previous, _imports = _imports, None

    def imported(module: ModuleType) -> None:
        activation = by_module[module.__name__]
        if _activations.get(activation.library.name) is activation:
            _postponed.append(activation)
            _turn_on_postponed()

    if by_module:
        _imports = ImportHook(by_module, imported)
        _imports.install()
    if previous is not None:
        previous.remove()


def _turn_on_postponed() -> None:
    """Turn on the instrumentations whose libraries were imported, one after the other.

    Importing an instrumentation imports libraries, which are turned on after it. A thread that
    finds another thread at work leaves its library to that thread: waiting inside an import could
    deadlock. An instrumentation that the agent's code is importing at this moment waits for the
    next import.
    """
    half_imported: list[Activation] = []
    while _postponed and _turning_on.acquire(blocking=False):
        try:
            while _postponed:
                activation = _postponed.popleft()
                if activation.is_being_imported:
                    half_imported.append(activation)
                else:
                    _turn_on(activation)
        finally:
            _turning_on.release()
    _postponed.extend(half_imported)


def _turn_on(activation: Activation) -> None:
    try:
        activation.turn_on()
    except Exception:
        _LOG.warning("%s is not instrumented", activation.library.name, exc_info=True)


def _before(instrumentor: Any, arguments: dict[str, Any]) -> None:
    for activation in _affected(instrumentor):
        activation.make_way(instrumentor, arguments)


def _after(instrumentor: Any) -> None:
    if not getattr(instrumentor, "_is_instrumented_by_opentelemetry", False):
        for activation in _affected(instrumentor):
            activation.take_back(instrumentor)
    _turn_on_postponed()


def _affected(instrumentor: Any) -> list[Activation]:
    packages = library_packages(instrumentor)
    with _lock:
        activations = list(_activations.values())
    return [
        activation
        for activation in activations
        if packages & frozenset(activation.library.distributions)
    ]


_watcher = ActiveInstrumentors(_before, _after)
_watched = ImportHook([INSTRUMENTOR_MODULE], _watcher.watch)
