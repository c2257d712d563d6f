"""Run a program of the user's within limits: time, output and environment. No shell is involved."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BASIC_VARIABLES", "ProgramOutput", "find_program", "run_limited"]

BASIC_VARIABLES = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")
"""The environment variables that programs get; others may be secrets."""
_CHUNK = 1 << 16


@dataclass(frozen=True)
class ProgramOutput:
    """The end of a program.

    Attributes:
        status: Its exit status; -n if signal n ended it.
        out: Its standard output.
        errors: The beginning of its standard error.
    """

    status: int
    out: bytes
    errors: bytes


def find_program(name: str, folder: str, environment: Mapping[str, str]) -> str | None:
    """The path of a program; None if there is none.

    Args:
        name: Its name, or its path relative to a folder.
        folder: The folder.
        environment: The environment, whose ``PATH`` is searched for a name.
    """
    path = str(Path(folder, name)) if "/" in name else name
    return shutil.which(path, path=environment.get("PATH"))


def run_limited(
    command: Sequence[str],
    request: bytes,
    *,
    folder: str,
    environment: Mapping[str, str],
    timeout: float,
    max_output: int,
) -> ProgramOutput:
    """Run a program in its own process group, which ends with this call.

    Args:
        command: The path of the program, and its arguments.
        request: Its standard input.
        folder: Its working directory.
        environment: Its whole environment.
        timeout: Seconds until it is killed.
        max_output: The bytes that it may write to standard output. Of standard error, this many
            are kept.

    Raises:
        TimeoutError: It took longer.
        ValueError: It wrote more.
        OSError: It cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603  the program is that of the user's configuration
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    )
    deadline = time.monotonic() + timeout
    try:
        out, errors = _exchange(process, request, deadline, max_output)
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired):
        raise TimeoutError(f"no answer within {timeout:g} s") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also processes that it has left behind
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    return ProgramOutput(status, out, errors)


def _exchange(
    process: subprocess.Popen[bytes], request: bytes, deadline: float, max_output: int
) -> tuple[bytes, bytes]:
    """Write the input, and read both outputs to their ends.

    Raises:
        TimeoutError: The deadline has passed.
        ValueError: The program wrote too much.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    out, errors, rest = bytearray(), bytearray(), memoryview(request)
    os.set_blocking(process.stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, errors)
        while selector.get_map():
            seconds = deadline - time.monotonic()
            ready = selector.select(seconds) if seconds > 0 else []
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if key.data is None:
                    rest = rest[_written(key.fd, rest) :]
                    is_done = not rest
                else:
                    chunk = os.read(key.fd, _CHUNK)
                    key.data.extend(chunk)
                    is_done = not chunk
                if is_done:
                    selector.unregister(key.fileobj)
                    if key.data is None:
                        process.stdin.close()
            if len(out) > max_output:
                raise ValueError(f"wrote more than {max_output:,} bytes")
            del errors[max_output:]
    return bytes(out), bytes(errors)


def _written(descriptor: int, content: memoryview) -> int:
    """Write to a pipe; a program that reads no further counts as having read everything."""
    try:
        return os.write(descriptor, content[:_CHUNK])
    except BrokenPipeError:
        return len(content)
