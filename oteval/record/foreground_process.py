"""Run a command as if this process were absent: its streams, its terminal, its signals, its status.

The command stays in the process group of this process, so that the terminal's keys reach it
directly. Other signals to this process are sent on to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread

from ..base.files import with_caller_umask

__all__ = ["CANNOT_START", "NOT_FOUND", "run_foreground"]

# The exit statuses of shells.
CANNOT_START, NOT_FOUND, _SIGNALED = 126, 127, 128

_KEYS = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED = (*_KEYS, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
# Python ignores these; a command must not inherit that.
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
# The end of the command, among the numbers of signals.
_ENDED = 0


def run_foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command until it ends, and return its exit status; 128+n if signal n ended it.

    The command inherits all open files that are inheritable, the signals that are ignored or
    blocked, and the umask of the shell. Only the main thread may call this.

    Args:
        command: The program, searched in PATH, and its arguments.
        environment: Its environment.

    Raises:
        OSError: It cannot be started.
    """
    with _signal_numbers() as (numbers, writer):
        with with_caller_umask():
            pid = os.posix_spawnp(command[0], list(command), dict(environment), setsigdef=_RESET)
        # Several threads may run, and any of them may be chosen for a signal. So the main thread
        # waits neither for a signal nor for the process, but for the numbers of both.
        statuses: list[int] = []

        def wait() -> None:
            statuses.append(os.waitpid(pid, 0)[1])
            os.write(writer, bytes([_ENDED]))

        waiting = Thread(target=wait, name="oteval-wait", daemon=True)
        waiting.start()
        for number in numbers:
            if number == _ENDED:
                break
            if number not in _KEYS or not _is_in_foreground():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        waiting.join()
    code = os.waitstatus_to_exitcode(statuses[0])
    return code if code >= 0 else _SIGNALED - code


@contextmanager
def _signal_numbers() -> Iterator[tuple[Iterator[int], int]]:
    """While a block runs, catch all signals that are not ignored.

    Yields:
        The numbers of the signals, as they arrive, and the end of a pipe for other numbers.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers = {
        number: signal.signal(number, lambda *_: None)
        for number in _FORWARDED
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }
    try:
        yield _bytes_of(reader), writer
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def _bytes_of(reader: int) -> Iterator[int]:
    while True:
        yield from os.read(reader, 4096)


def _is_in_foreground() -> bool:
    """Whether the keys of the terminal reach the group of this process."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
