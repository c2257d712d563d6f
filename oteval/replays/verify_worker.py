"""A worker process of ``oteval replay verify --target``: replays sessions one after the other.

    python -m oteval.replays.verify_worker SETTINGS

It imports the target inside a replay of the requests that the recorded import sent, and prints
``{"ready": true}`` or ``{"problem": "..."}``. Then it answers each line on standard input (a
`ReplayJob`) with a line (a `VerifiedSession`). The agent's own output is written to a file. A
session that does not end in time is reported, and ends the process: its threads cannot be stopped.

Each session runs in a copy of the context. The state of the agent's modules stays: if an agent
keeps conversations in a global variable, it sees the conversations of earlier sessions.
"""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ..base.child_process import ignore_interrupts
from ..base.errors import ConfigError, OtevalError, ReplayDiverged
from ..evaluators import load_function
from .target import late_result, replay_target
from .verified import VerifiedSession
from .what_if_session import import_session, session_of

__all__ = ["KEYS", "default_keys", "end_of", "main", "waits_at", "watchdog"]

# The part of an agent's output that a report contains.
_OUTPUT = 2000
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


def main() -> None:
    """Replay the sessions that standard input names."""
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the agent's prints must not mix with the answers
    ignore_interrupts()
    if not settings["options"].get("is_live"):
        default_keys(os.environ)
    sys.path.insert(0, str(Path.cwd()))
    try:
        target = _imported(settings)
    except (OtevalError, ReplayDiverged) as error:
        _send(answers, {"problem": str(error).partition("\n")[0]})
        return
    _send(answers, {"ready": True})
    # One event loop for all sessions: clients in modules keep connections that belong to it.
    with asyncio.Runner() as loop:
        for line in sys.stdin:
            outcome = _replayed(json.loads(line), target, settings, answers, loop)
            _send(answers, outcome.as_dict())


def _imported(settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the target; recorded requests outside of agents are answered, others are refused.

    Raises:
        OtevalError: It cannot be imported.
        ReplayDiverged: It sends a request that is not recorded, or starts a program.
    """
    target = str(settings["target"])
    if "recording" not in settings:
        return load_function(target)
    with import_session(settings["recording"], settings["options"]) as session:
        function = load_function(target)
    if session.divergences:
        raise ConfigError(f"call {target!r}: the import: {session.divergences[0].summary}")
    return function


def default_keys(environ: Any) -> None:
    """Set the keys that clients require, so that a replay needs none."""
    for name in KEYS:
        if not environ.get(name):
            environ[name] = "none-needed-in-a-replay"


def _send(answers: IO[str], value: Mapping[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def _replayed(
    job: Mapping[str, str],
    target: Callable[..., Any],
    settings: Mapping[str, Any],
    answers: IO[str],
    loop: asyncio.Runner,
) -> VerifiedSession:
    """Replay one session."""
    started = time.monotonic()
    try:
        session = session_of(job["recording"], settings["options"])
    except OtevalError as error:
        return VerifiedSession(job["session"], "not_replayed", str(error))

    def late() -> None:
        # Only the main thread replays, see `main`.
        line = waits_at(threading.main_thread().ident)
        limit = f"no end after {settings['timeout']:g} s{line}"
        outcome = replace(late_result(session, limit), seconds=time.monotonic() - started)
        _send(answers, replace(outcome, output=end_of(job["output"])).as_dict())
        os._exit(1)

    with _output_into(job["output"]), watchdog(settings["timeout"], late):
        context = contextvars.copy_context()
        outcome = context.run(replay_target, session, target, settings["input"], loop)
    session.keep(Path(job["output"]).parent)
    outcome = replace(outcome, session=job["session"], seconds=time.monotonic() - started)
    is_quiet = outcome.status in ("passed", "not_replayed")
    return outcome if is_quiet else replace(outcome, output=end_of(job["output"]))


@contextmanager
def watchdog(seconds: float, late: Callable[[], None]) -> Iterator[None]:
    """Call a function, from another thread, if the block takes too long.

    Args:
        seconds: The time limit.
        late: The function.
    """
    ended = threading.Event()

    def wait() -> None:
        if not ended.wait(seconds):
            late()

    threading.Thread(target=wait, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def _output_into(path: str) -> Iterator[None]:
    """Write standard output and standard error into a file, also the output of child processes."""
    saved_descriptors = os.dup(1), os.dup(2)
    with Path(path).open("wb") as file:
        _flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable(file)
        try:
            yield
        finally:
            _flush()
            faulthandler.disable()
            for number, descriptor in enumerate(saved_descriptors, 1):
                os.dup2(descriptor, number)
                os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def end_of(path: str | Path) -> str:
    """The end of an agent's output, or "" if there is none."""
    try:
        text = Path(path).read_bytes()[-_OUTPUT:].decode("utf-8", "replace")
    except OSError:
        return ""
    return text.strip()


def waits_at(thread: int | None) -> str:
    """The place of a thread as text to append: the innermost line outside of the library."""
    frame = sys._current_frames().get(thread or 0)
    library = tuple({str(Path(os.__file__).parent), str(Path(__file__).parents[1])})
    for entry in reversed(traceback.extract_stack(frame)):
        if not entry.filename.startswith((*library, "<frozen")):
            return f", at {entry.filename}:{entry.lineno} in {entry.name}"
    return ""


if __name__ == "__main__":
    main()
