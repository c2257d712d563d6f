"""Run a module of this package in a child process, and exchange data with it over pipes.

`multiprocessing` would import the caller's main module in the child.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "ChildProcess",
    "ignore_interrupts",
    "leave_out",
    "module_command",
    "module_environment",
    "read_tables",
    "write_tables",
]

_PIPE_SIZE = 1 << 20


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    # Without -P, Python would also import files of the working directory.
    return [sys.executable, "-P", "-m", module, *arguments]


def module_environment() -> dict[str, str]:
    """An environment that makes a child import this package from the same place."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Keep SIGINT from this thread, and from processes that it starts meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Ignore Ctrl-C in this process, including an earlier one.

    Ctrl-C reaches the whole process group; the parent ends this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


class _LeftOut:
    """Finds a package nowhere. Importing the base class of such finders takes 16 ms."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self._package:
            raise ModuleNotFoundError(f"{fullname} is left out", name=fullname)


def leave_out(package: str) -> None:
    """Make a package look as if it were not installed.

    Args:
        package: A package that Arrow imports if it is installed, but that this process does not
            need. Call this in processes that run only our code.
    """
    if package not in sys.modules:
        sys.meta_path.insert(0, _LeftOut(package))


class ChildProcess:
    """A child process that reads requests, one JSON line each, and writes answers.

    Args:
        module: The module.
        arguments: Its arguments.
        waits_with_interrupts: Whether Ctrl-C waits until the module calls `ignore_interrupts`.
            Otherwise it may end the process with a traceback while the module is being imported.

    Attributes:
        output: The pipe with its answers.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        waits_with_interrupts: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        with _interrupts_held() if waits_with_interrupts else nullcontext():
            self._process = subprocess.Popen(  # noqa: S603  no part of it comes from outside
                module_command(module, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pipesize=_PIPE_SIZE,
                env={**module_environment(), **(environment or {})},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[bytes] = self._process.stdin
        self.output: IO[bytes] = self._process.stdout

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def send(self, request: Any) -> None:
        """Write a request.

        Raises:
            EOFError: The process has ended.
        """
        try:
            self._input.write(json.dumps(request).encode() + b"\n")
            self._input.flush()
        except BrokenPipeError:
            raise EOFError("the child process has ended") from None

    def kill(self) -> None:
        """End the process at once, and wait for it. Thread-safe."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close the pipes, after which the process ends, and wait for it."""
        for stream in (self._input, self.output):
            with suppress(OSError):
                stream.close()
        self._process.wait()


def write_tables(out: IO[bytes], head: Mapping[str, Any], tables: Sequence[pa.Table]) -> None:
    """Write a JSON object as a line, and tables as Arrow streams."""
    from pyarrow import ipc

    out.write(json.dumps(head).encode() + b"\n")
    for table in tables:
        with ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
    out.flush()


def read_tables(stream: IO[bytes], count: int) -> tuple[dict[str, Any], list[pa.Table]]:
    """Read the output of `write_tables`.

    Args:
        stream: The pipe.
        count: The number of tables.

    Raises:
        EOFError: The pipe was closed before the end.
    """
    import pyarrow as pa

    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError("the child process has ended")
    try:
        tables = [pa.ipc.open_stream(stream).read_all() for _ in range(count)]
    except (pa.ArrowInvalid, OSError):
        raise EOFError("the child process ended in the middle of its output") from None
    return json.loads(line), tables
