"""`oteval run`: run a command with instrumentation in its Python processes, and load their traces.

The command runs in the foreground. Its processes write their traces to the folder next to the
database. A thread loads them from there at intervals, so that a server may run for months. The rest
is loaded when the command has ended.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread

from ..scoring import TraceFolder, TransferReport
from .bootstrap import ProcessReport, environment, read_reports
from .foreground_process import run_foreground

__all__ = ["ChildSettings", "RunResult", "default_service", "run_command", "service_of"]

_ENTRY = "oteval.record.child_setup:start"
_CHECK_INTERVAL = 1.0  # seconds
# Bytes of waiting traces that are loaded before the interval has passed.
_MAX_WAITING = 32 << 20
# Seconds to wait at the end for another command that has the database open.
_PATIENCE = 10.0
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
# Options of Python that are followed by a value.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True, slots=True)
class ChildSettings:
    """How the processes of the command are instrumented.

    Attributes:
        to: The destination of their traces: a URL or a file; "" for the folder.
        folder: The folder with a file for each process.
        prefix: The beginning of the names of these files.
        service: The name of the service; "" leaves it to the environment.
        capture_content: Whether messages and arguments are recorded.
        record_http: Whether whole requests and responses are recorded, for replays.
        redact: Globs for the keys of values that are replaced, or kinds of personal data.
        libraries: The libraries that are instrumented; if empty, all known libraries.
        outer_trace: The variable TRACEPARENT that the command was started with, or "".
        invocation: The id of everything that these processes record, see `invocation_id`.
    """

    to: str = ""
    folder: str = ""
    prefix: str = ""
    service: str = ""
    capture_content: bool = True
    record_http: bool = True
    redact: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    outer_trace: str = ""
    invocation: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class RunResult:
    """The end of a command.

    Attributes:
        status: Its exit status; 128+n if signal n ended it.
        processes: The Python processes that reported their start.
        traces: The traces that were loaded.
        has_losses: Whether a process has lost spans, which it reported on standard error.
    """

    status: int
    processes: Sequence[ProcessReport]
    traces: TransferReport = field(default_factory=TransferReport)
    has_losses: bool = False


def run_command(
    command: Sequence[str],
    settings: ChildSettings,
    folder: TraceFolder | None,
    *,
    interval: float = 15.0,
    environ: Mapping[str, str] | None = None,
) -> RunResult:
    """Run a command, and load the traces of its processes.

    Args:
        command: The program and its arguments.
        settings: How its processes are instrumented.
        folder: The folder to load traces from; None if they are exported directly.
        interval: Seconds after which the traces of a running command are loaded.
        environ: The environment; by default this process's.

    Raises:
        OSError: The command cannot be started.
        StoreError: The folder cannot be created.
    """
    environ = os.environ if environ is None else environ
    loader = None
    if folder is not None:
        folder.create()
        loader = _PeriodicLoader(folder, interval)
    with tempfile.TemporaryDirectory(prefix="oteval-run-") as scratch:
        reports, losses = Path(scratch, "reports"), Path(scratch, "losses")
        values = {**asdict(settings), "losses": str(losses)}
        variables = environment(_ENTRY, values, reports=reports, environ=environ)
        try:
            if loader is not None:
                loader.start()
            status = run_foreground(command, {**environ, **variables})
        finally:
            traces = loader.finish() if loader is not None else TransferReport()
        return RunResult(status, read_reports(reports), traces, losses.exists())


def service_of(command: Sequence[str]) -> str:
    """The service name for a command: of its script or module, else of its program."""
    program = Path(command[0]).name
    if not _PYTHON.match(program):
        return program.removesuffix(".py")
    arguments = iter(command[1:])
    for argument in arguments:
        if argument == "-m":
            return next(arguments, program)
        if argument == "-c":
            return program
        if argument in _WITH_VALUE:
            next(arguments, None)
        elif not argument.startswith("-"):
            path = Path(argument)
            return path.parent.name if path.name == "__main__.py" else path.stem
    return program


def default_service(name: str) -> str:
    """A service name, or "" if the environment has one."""
    attributes = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    is_named = os.environ.get("OTEL_SERVICE_NAME") or re.search(
        r"(^|,)\s*service\.name=", attributes
    )
    return "" if is_named else name


class _PeriodicLoader:
    """Loads the traces of a folder at intervals, in a thread, and the rest at the end."""

    def __init__(self, folder: TraceFolder, interval: float) -> None:
        self._folder, self._interval = folder, interval
        self._stopping = Event()
        self._report = TransferReport()
        self._thread = Thread(target=self._run, name="oteval-load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> TransferReport:
        """Load the rest, and return the result of everything."""
        self._stopping.set()
        self._thread.join()
        self._report.add(self._folder.transfer(_PATIENCE))
        self._folder.release()
        return self._report

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self._stopping.wait(min(self._interval, _CHECK_INTERVAL)):
            if time.monotonic() >= due or self._folder.size() > _MAX_WAITING:
                self._report.add(self._folder.transfer())
                due = time.monotonic() + self._interval
