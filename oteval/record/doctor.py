"""The report of `oteval doctor`: the libraries that would be recorded, and the destination.

The libraries are looked up by their installed packages, and none of them is imported. The report
describes the environment of the command; an agent with other variables or another virtual
environment would get a different report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..base.errors import OtevalError
from .content_variables import ContentVariable, content_variables, hiding_variables
from .destinations import Destination, parse_destination
from .discovery import LibraryState, planned_states
from .installed_packages import installed_versions
from .libraries import HTTP_CLIENTS, library_named
from .wire.interception import CLIENTS_WITHOUT_SPANS

__all__ = ["Delivery", "DoctorReport", "HttpClientReport", "LibraryReport", "examine"]

_OTHER_TOOLS = {
    "ddtrace": "its spans go to Datadog; oteval's instrumentations stay on beside it",
    "langfuse": "libraries that it instruments are left to it",
    "logfire-sdk": "libraries that it instruments are left to it",
    "openlit": "libraries that it instruments are left to it",
    "traceloop-sdk": "libraries that it instruments are left to it",
}
_EXPORT_VARIABLES = ("OTEL_EXPORTER_OTLP_", "OTEL_SDK_", "OTEL_TRACES_", "OTEL_SERVICE_")
_SECRET = ("HEADERS", "KEY", "TOKEN", "PASSWORD")
_TIMEOUT = "3"
# Clients whose requests `wire.interception` does not see, by distribution, with the models that
# only these clients reach.
_NOT_RECORDED = {"curl-cffi": "", "grpcio": "Vertex AI", "pycurl": ""}


@dataclass(frozen=True, slots=True)
class LibraryReport:
    """How the calls of an installed library would be recorded.

    Attributes:
        library: Its name.
        version: Its version.
        status: ``on`` if its calls would be recorded, ``off`` if not.
        by: The distribution that records them, or the library itself.
        content: ``on``; or ``off`` with the variables that hide the content of messages.
        reason: Why it is off, or a limit of the spans.
        remedy: The command that would turn it on.
    """

    library: str
    version: str
    status: Literal["on", "off"]
    by: str
    content: str
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class HttpClientReport:
    """Whether the requests of an HTTP client can be recorded.

    Attributes:
        client: Its name.
        version: Its version.
        spans: The distribution that writes spans and sends the trace context on, "" for none.
        is_recorded: Whether whole requests and responses are recorded, for replays.
        note: The reason if something is missing, and the command that would add it.
    """

    client: str
    version: str
    spans: str
    is_recorded: bool
    note: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of sending a test span.

    Attributes:
        destination: The URL or the path.
        status: ``arrived``, ``failed`` or ``not sent``.
        error: Why it failed, in one line.
        milliseconds: How long it took.
    """

    destination: str
    status: Literal["arrived", "failed", "not sent"]
    error: str = ""
    milliseconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The report of `oteval doctor`.

    Attributes:
        libraries: The installed libraries of agents and models.
        clients: The installed HTTP clients.
        variables: The environment variables in force, with a note where they limit the content.
        tools: Other installed tools that write traces: name, version, note.
        delivery: The test span.
    """

    libraries: tuple[LibraryReport, ...]
    clients: tuple[HttpClientReport, ...]
    variables: tuple[ContentVariable, ...]
    tools: tuple[tuple[str, str, str], ...]
    delivery: Delivery

    @property
    def is_healthy(self) -> bool:
        """Whether at least one library would be recorded, and the test span did not fail."""
        return self.delivery.status != "failed" and any(
            library.status == "on" for library in self.libraries
        )


def examine(to: str | Path | None = None, *, send: bool = True) -> DoctorReport:
    """Examine the installed libraries and the destination.

    Args:
        to: The destination, as for `oteval.instrument`.
        send: Whether to send a test span to it.

    Raises:
        ConfigError: `to` names no destination.
    """
    destination = parse_destination(to)
    versions = installed_versions()
    clients = {client.name for client in HTTP_CLIENTS}
    states = planned_states()
    variables = _variables(states)
    return DoctorReport(
        tuple(_library(state, variables) for state in states if state.library not in clients),
        tuple(_clients([state for state in states if state.library in clients], versions)),
        tuple(variables),
        tuple(
            (name, versions[name], note) for name, note in _OTHER_TOOLS.items() if name in versions
        ),
        _deliver(destination) if send else Delivery(destination.name, "not sent"),
    )


def _library(state: LibraryState, variables: Sequence[ContentVariable]) -> LibraryReport:
    library = library_named(state.library)
    hiding = hiding_variables(library, state.by, variables) if library and state.by else ()
    content = ", ".join(f"{variable.name}={variable.value}" for variable in hiding)
    return LibraryReport(
        state.library,
        state.version,
        "off" if state.status == "off" else "on",
        state.by,
        "" if state.status == "off" else f"off: {content}" if content else "on",
        state.reason,
        state.remedy,
    )


def _clients(
    states: Sequence[LibraryState], versions: dict[str, str]
) -> Iterator[HttpClientReport]:
    by_name = {state.library: state for state in states}
    for name in sorted({*by_name, *(name for name in _NOT_RECORDED if name in versions)}):
        state = by_name.get(name)
        spans = state.by if state is not None else ""
        if not spans and name in CLIENTS_WITHOUT_SPANS:
            spans = "oteval"
        notes = []
        if name in _NOT_RECORDED:
            models = f" ({_NOT_RECORDED[name]})" if _NOT_RECORDED[name] else ""
            notes.append(f"requests cannot be recorded or replayed{models}")
        elif state is not None and state.status == "off" and not spans:
            notes.append(f"no spans: {state.reason}; {state.remedy}")
        version = state.version if state is not None else versions[name]
        yield HttpClientReport(name, version, spans, name not in _NOT_RECORDED, "; ".join(notes))


def _variables(states: Sequence[LibraryState]) -> list[ContentVariable]:
    """The variables that are set, without secrets."""
    optional = [library_named(state.library) for state in states]
    libraries = [library for library in optional if library is not None]
    content = [variable for variable in content_variables(libraries) if variable.value is not None]
    names = sorted(name for name in os.environ if name.startswith(_EXPORT_VARIABLES))
    export = [ContentVariable(name, _shown(name, os.environ[name]), None) for name in names]
    return [*export, *content]


def _shown(name: str, value: str) -> str:
    return "[hidden]" if any(mark in name for mark in _SECRET) else value


def _deliver(destination: Destination) -> Delivery:
    started = time.perf_counter()
    error = _send(destination)
    milliseconds = round(1000 * (time.perf_counter() - started), 1)
    return Delivery(destination.name, "failed" if error else "arrived", error, milliseconds)


def _send(destination: Destination) -> str:
    """Send a test span; return the reason of a failure in one line, "" if it arrived."""
    from .export_pipeline import Exportable, ExportFailed

    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        resource = Resource.create({"service.name": "oteval-doctor"})
        provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        span = provider.get_tracer("oteval.doctor").start_span("oteval doctor")
        span.end()
        with _short_timeout():
            exporter = destination.open()
            try:
                exporter.export([Exportable(span, False, 0)])
            finally:
                exporter.close()
    except ImportError as error:
        return f"{error}: pip install oteval"
    except (ExportFailed, OtevalError, OSError) as error:
        return _plain(" ".join(str(error).split())) or type(error).__name__
    return ""


def _plain(error: str) -> str:
    """Reword an error without the class names of the HTTP library, and add a remedy."""
    if "Connection refused" in error or "UNAVAILABLE" in error:
        return "connection refused: start `oteval serve`, or give --to"
    if "NameResolutionError" in error or "Name or service not known" in error:
        return "the host name is not known"
    return error


@contextmanager
def _short_timeout() -> Iterator[None]:
    """Let the exporters give up after some seconds, unless the environment sets a timeout."""
    name = "OTEL_EXPORTER_OTLP_TIMEOUT"
    if name in os.environ:
        yield
        return
    os.environ[name] = _TIMEOUT
    try:
        yield
    finally:
        del os.environ[name]
