"""The folder beside a database where running agents leave their traces until these are loaded.

Each process appends OTLP/JSON lines to its file with `append_shared`. A loader takes files away
while the processes run, loads them, and deletes them. If a loader is killed, the next command that
opens the database loads its files; spans that were already loaded are dropped as duplicates.
Several commands may share a folder. Their files have different prefixes, and each command loads its
files and the files of commands that have ended.

While `oteval serve` has the database open, the lines are sent to that server instead. While
`oteval view` has it open, they are loaded through that process.

The database is imported when there is something to load, so that a program starts without delay.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.errors import OtevalError, StoreError, StoreLocked
from ..base.files import is_complete, private_folder, take_shared

if TYPE_CHECKING:
    from ..base.clients.otlp_client import HttpClient
    from ..store import ServerNotice, Store

__all__ = ["MAX_IDS", "TraceFolder", "TransferReport", "client_of", "open_patiently"]

_SUFFIX, _TAKEN, _RUNNING = ".jsonl", ".taken", ".running"
_SIGNALS = {"resourceSpans": "traces", "resourceLogs": "logs"}
_MAX_PROBLEMS = 5
# The most ids of trajectories that a report keeps: a server may run for months.
MAX_IDS = 100_000
_RETRY_INTERVAL = 0.1  # seconds
# A process that has the database open may end while traces are loaded through it.
_ATTEMPTS = 2


@dataclass
class TransferReport:
    """The traces that were taken from a folder.

    Attributes:
        spans: The number of spans that were loaded or sent.
        logs: The number of log records.
        duplicates: How many of them the database already had.
        changed: The ids of trajectories that are new or changed, at most `MAX_IDS`; none if a
            server took the traces.
        server: The URL of the server that took them, or "".
        pages: The URL of the pages of a process that has the database open, or "".
        problems: The first few parts that could not be read, or that the server refused.
        problem_count: The number of all such parts.
        error: Why files are left in the folder, or "".
    """

    spans: int = 0
    logs: int = 0
    duplicates: int = 0
    changed: list[str] = field(default_factory=list)
    server: str = ""
    pages: str = ""
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0
    error: str = ""

    def add(self, later: TransferReport) -> None:
        """Add the result of a later transfer; its error replaces the earlier error."""
        self.spans += later.spans
        self.logs += later.logs
        self.duplicates += later.duplicates
        self.changed = list(dict.fromkeys([*self.changed, *later.changed]))[:MAX_IDS]
        self.server = later.server or self.server
        self.pages = later.pages
        self.problems = [*self.problems, *later.problems][:_MAX_PROBLEMS]
        self.problem_count += later.problem_count
        self.error = later.error

    def note(self, problem: str, count: int = 1) -> None:
        """Count parts that could not be read, and keep the first reasons."""
        self.problem_count += count
        if problem not in self.problems:
            self.problems = [*self.problems, problem][:_MAX_PROBLEMS]


class TraceFolder:
    """The folder of traces beside a database.

    Attributes:
        path: The folder.
        prefix: The beginning of the names of this command's files.
    """

    def __init__(self, database: str) -> None:
        """Name the folder, without creating it.

        Raises:
            StoreError: The path is relative to a working directory that was deleted.
        """
        try:
            self.path = Path(f"{Path(database).absolute()}.traces")
        except FileNotFoundError:
            raise StoreError(
                f"{database}: the working directory was deleted; change to another one, or give "
                "an absolute path"
            ) from None
        self.prefix = f"{secrets.token_hex(6)}."
        self._database = database
        self._mark: int | None = None

    def create(self) -> None:
        """Create the folder, accessible to its owner only, for the files of this command.

        Other commands leave these files alone until `release` or the end of this process.

        Raises:
            StoreError: It cannot be created, or others may write to it.
        """
        try:
            while self._mark is None:
                private_folder(self.path)
                self._mark = _held(self._mark_of(self.prefix))
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror or error}") from error

    def release(self) -> None:
        """Leave the files of this command to others, and remove the folder if it has none."""
        if self._mark is not None:
            self._mark_of(self.prefix).unlink(missing_ok=True)
            os.close(self._mark)
            self._mark = None
        with suppress(OSError):
            self.path.rmdir()

    def size(self) -> int:
        """The bytes that wait in the folder."""
        size = 0
        for path in self._files():
            with suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def holds(self, path: str) -> bool:
        """Whether a file is in this folder."""
        return Path(path).absolute().parent == self.path

    def transfer(self, patience: float = 0.0) -> TransferReport:
        """Load all files into the database, or send them to the server that has it open.

        Files that could not be transferred stay in the folder, and the report has the reason.

        Args:
            patience: Seconds to wait for another command to close the database.
        """
        report = TransferReport()
        for _ in range(_ATTEMPTS):
            if not self.size():
                return report
            report.error, server = "", None
            try:
                with open_patiently(self._database, patience) as store:
                    server = store.server
                    self._transfer(store, report)
            except OtevalError as error:
                report.error = str(error)
            except Exception as error:  # the traces are kept, and the program's end is reported
                report.error = f"{self._database}: {type(error).__name__}: {error}".split("\n")[0]
            if not report.error or server is None or server.takes_traces:
                break  # else the pages may have been closed meanwhile
        return report

    def _transfer(self, store: Store, report: TransferReport) -> None:
        server = store.server
        if server is not None and server.takes_traces:
            self._send(server, report)
            return
        report.pages = server.http if server is not None else ""
        with store.loading():
            self.load_into(store, report)
            from .reconstruction import refresh_traces

            for traces in store.pending.pages():
                report.changed += refresh_traces(store, traces).changed

    def load_into(self, store: Store, report: TransferReport) -> None:
        """Load all files into an open database."""
        from .loader import load

        for path in self._take():
            if path.stat().st_size:
                file = load(store, [path]).files[0]
                report.spans += file.spans
                report.logs += file.logs
                report.duplicates += file.written.duplicate
                if file.problem_count:
                    report.note(f"{path.name}: {file.problems[0]}", file.problem_count)
                if file.error:
                    report.note(file.error)
            path.unlink()

    def _files(self) -> Iterator[Path]:
        """Yield the files of this command, and the files of commands that have ended."""
        with suppress(FileNotFoundError):
            paths = sorted(self.path.iterdir())
            running = {
                path.stem
                for path in paths
                if path.suffix == _RUNNING and path.stem != self.prefix[:-1] and _is_held(path)
            }
            for path in paths:
                if path.suffix in (_SUFFIX, _TAKEN) and path.name.split(".")[0] not in running:
                    yield path

    def _mark_of(self, prefix: str) -> Path:
        """The file that a running command has locked."""
        return self.path / f"{prefix[:-1]}{_RUNNING}"

    def _take(self) -> Iterator[Path]:
        """Take files away from the processes that write them, and yield the complete files."""
        for path in self._files():
            with suppress(FileNotFoundError):
                taken_path = path.with_name(f"{path.stem}.{secrets.token_hex(4)}{_TAKEN}")
                if take_shared(path, taken_path) if path.suffix == _SUFFIX else is_complete(path):
                    yield taken_path if path.suffix == _SUFFIX else path

    def _send(self, server: ServerNotice, report: TransferReport) -> None:
        """Send the lines of all files to the server that has the database open."""
        client = client_of(server)
        report.server = client.url
        try:
            for path in self._take():
                if not self._send_file(client, path, report):
                    return
                path.unlink(missing_ok=True)
        finally:
            client.close()

    def _send_file(self, client: HttpClient, path: Path, report: TransferReport) -> bool:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    request = json.loads(line)
                    key = next(key for key in _SIGNALS if key in request)
                except (ValueError, TypeError, StopIteration):
                    report.note(f"{path.name}, line {number}: not OTLP")
                    continue
                result = client.export(_SIGNALS[key], line, "json")
                if not result.is_accepted and not result.is_refused:
                    report.error = f"{client.url}: {result.status or 'no answer'}: {result.reason}"
                    return False
                rejected, reason = result.rejected(_SIGNALS[key])
                if result.is_refused:
                    rejected, reason = _count(request[key]), f"{result.status} {result.reason}"
                if rejected:
                    report.note(f"{client.url}: {reason}", rejected)
                sent = _count(request[key]) - rejected
                report.spans += sent if key == "resourceSpans" else 0
                report.logs += sent if key == "resourceLogs" else 0
        return True


def client_of(server: ServerNotice) -> HttpClient:
    """A client that sends traces to the server that has a database open."""
    from ..base.clients.otlp_client import HttpClient

    token = os.environ.get("OTEVAL_INGEST_TOKEN") or server.token
    return HttpClient(server.http, {"Authorization": f"Bearer {token}"} if token else {})


def open_patiently(database: str, patience: float) -> Store:
    """Open a database, or wait for another command to close it.

    Args:
        database: Its path.
        patience: The seconds to wait.

    Raises:
        StoreLocked: The other command still has it open.
    """
    from ..store import Store

    until = time.monotonic() + patience
    while True:
        try:
            return Store(database)
        except StoreLocked:
            if time.monotonic() > until:
                raise
        time.sleep(_RETRY_INTERVAL)


def _held(mark: Path) -> int | None:
    """Lock a mark; None if another command removed it or its empty folder meanwhile."""
    try:
        descriptor = os.open(mark, os.O_CREAT | os.O_RDWR, 0o600)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if mark.exists():
        return descriptor
    os.close(descriptor)
    return None


def _is_held(mark: Path) -> bool:
    """Whether a running command has a mark locked; the mark of a killed command is removed."""
    try:
        descriptor = os.open(mark, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _count(resources: object) -> int:
    """The number of spans or log records of a request."""
    assert isinstance(resources, list)
    return sum(
        len(scope.get("spans") or scope.get("logRecords") or ())
        for resource in resources
        for scope in resource.get("scopeSpans") or resource.get("scopeLogs") or ()
    )
