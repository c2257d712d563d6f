"""A command runs in the foreground as if oteval were absent: signals, terminal and exit status."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from oteval.record.foreground_process import run_foreground

# It says that it is ready, counts the interrupts that it gets, and ends with that number when it
# reads a line or its input ends.
COUNTER = """
import os, select, signal, sys
count = 0
# An interrupt just before a blocking read would be handled only after it.
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
def note(*_):
    global count
    count += 1
    print("interrupted", flush=True)
signal.signal(signal.SIGINT, note)
print("ready", flush=True)
while 0 not in select.select([0, reader], [], [])[0]:
    os.read(reader, 100)
sys.stdin.readline()
sys.exit(count)
"""
PARENT = """
import os, sys
from oteval.record.foreground_process import run_foreground
sys.exit(run_foreground([sys.executable, "-S", "-c", sys.argv[1]], os.environ))
"""


def sh(script: str) -> int:
    """Run a shell script in the foreground."""
    return run_foreground(["sh", "-c", script], os.environ)


def when_ready(fifo: Path, act: Callable[[], None]) -> Thread:
    """Call a function in a thread when the command opens a FIFO."""
    os.mkfifo(fifo)

    def wait() -> None:
        fifo.read_bytes()
        act()

    thread = Thread(target=wait)
    thread.start()
    return thread


def test_exit_statuses_are_those_of_a_shell() -> None:
    """A status is passed on; a signal n that ends the command is 128+n."""
    assert sh("exit 0") == 0
    assert sh("exit 255") == 255
    assert sh("kill -KILL $$") == 137
    assert sh("kill -TERM $$") == 143


def test_a_command_that_is_missing_or_not_executable_raises(tmp_path: Path) -> None:
    """The caller tells the two cases apart."""
    (tmp_path / "file").touch()

    with pytest.raises(FileNotFoundError):
        run_foreground(["no-such-command"], os.environ)
    with pytest.raises(PermissionError):
        run_foreground([str(tmp_path / "file")], os.environ)


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "USR1"])
def test_a_signal_to_this_process_is_sent_on(tmp_path: Path, name: str) -> None:
    """The command handles it, and ends as it wants to."""
    fifo = tmp_path / "ready"
    number = getattr(signal, f"SIG{name}")
    # A shell in the background, or nohup, has these tests ignore some of the signals.
    before = signal.signal(number, signal.default_int_handler if name == "INT" else signal.SIG_DFL)
    try:
        thread = when_ready(fifo, lambda: os.kill(os.getpid(), number))

        turns = "n=0; while [ $n -lt 1200 ]; do sleep 0.05; n=$((n + 1)); done"
        assert sh(f"trap 'exit 7' {name}; : > {fifo}; {turns}") == 7
        thread.join()
    finally:
        signal.signal(number, before)


def test_signal_settings_are_as_before(tmp_path: Path) -> None:
    """The command starts with the mask and the actions of this process, which keeps both."""
    before = (signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT))
    script = "import signal, sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))"

    assert run_foreground([sys.executable, "-S", "-c", script], os.environ) == len(before[0])
    assert (
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        signal.getsignal(signal.SIGINT),
    ) == before


def test_a_key_of_the_terminal_reaches_the_command_once() -> None:
    """Ctrl-C interrupts the command once, and it goes on in the foreground of the terminal."""
    controller, terminal = pty.openpty()
    # Otherwise the terminal discards output when a key interrupts, also that of the handler.
    settings = termios.tcgetattr(terminal)
    settings[3] |= termios.NOFLSH
    termios.tcsetattr(terminal, termios.TCSANOW, settings)
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, COUNTER],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(terminal)
    read_until(controller, b"ready")
    os.write(controller, b"\x03")
    read_until(controller, b"interrupted")
    os.write(controller, b"\n")

    assert process.wait() == 1
    os.close(controller)


def read_until(descriptor: int, text: bytes) -> None:
    """Read from a terminal until a text has come."""
    read = b""
    while text not in read:
        ready, _, _ = select.select([descriptor], [], [], 60)
        assert ready, f"{text!r} did not come after {read!r}"
        read += os.read(descriptor, 1000)
