"""A replay of the whole process: started in the Python processes of a replayed command.

`oteval.record.bootstrap` calls `start` before the program's first line. When the program ends, or
takes too long, its result is written as a file into the folder that the settings name.

The program's functions do not exist when its replay begins, and nothing reports when they appear.
So Python's trace function watches the first calls that the program itself makes: before each call,
the existing functions of the recorded tools are taken over. A call of such a function is stopped,
because no model has requested it.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from ..record import is_agent_file
from .player import Player
from .session import ReplaySession
from .target import late_result, verified
from .verified import VerifiedSession
from .verify_worker import waits_at
from .what_if_session import session_of

__all__ = ["start"]


def start(settings: Mapping[str, Any]) -> None:
    """Replay a recording in this process until it ends.

    Args:
        settings: ``recording`` (a file), ``results`` (a folder), ``options`` of the replay, and
            ``timeout`` in seconds.
    """
    session = session_of(settings["recording"], settings["options"])
    process = _ReplayedProcess(session, Path(settings["results"]), settings["timeout"])
    # Before the replay, so that this thread is not part of it.
    process.watch()
    session.__enter__()
    atexit.register(process.end)
    os.register_at_fork(after_in_child=process.forked)
    _watch_main_program(session.player)


class _ReplayedProcess:
    """Writes the result of the replay of a process.

    Args:
        session: The replay.
        results: The folder for results.
        timeout: The time limit in seconds.
    """

    def __init__(self, session: ReplaySession, results: Path, timeout: float) -> None:
        self._session = session
        self._results = results
        self._timeout = timeout
        self._main = threading.main_thread().ident
        self._began = time.monotonic()
        self._ended = threading.Event()

    def watch(self) -> None:
        """Report a process that does not end in time."""
        threading.Thread(target=self._wait, name="oteval-replay-timeout", daemon=True).start()

    def _wait(self) -> None:
        if not self._ended.wait(self._timeout):
            detail = f"no end after {self._timeout:g} s{waits_at(self._main)}"
            self._write(late_result(self._session, detail))
            os._exit(1)

    def forked(self) -> None:
        """Watch a forked process as well; it has the state of its parent's replay."""
        self._ended = threading.Event()
        self.watch()

    def end(self) -> None:
        """End the replay, and write its result."""
        self._ended.set()
        # The interpreter sets it when an exception ends the program.
        raised: BaseException | None = getattr(sys, "last_value", None)
        # The guard stays for later code, such as finalizers.
        self._session.finish(is_complete=raised is None)
        self._write(verified(self._session, raised))

    def _write(self, outcome: VerifiedSession) -> None:
        outcome = replace(outcome, seconds=time.monotonic() - self._began)
        self._session.keep(self._results.parent)
        partial = self._results / f"{os.getpid()}.partial"
        partial.write_text(json.dumps(outcome.as_dict()), "utf-8")
        partial.rename(partial.with_suffix(".json"))


# Each search for functions takes a tenth of a second.
_MOST_LOOKS = 30


def _watch_main_program(player: Player) -> None:
    """Take over the functions of tools before the program of this process calls any function.

    Nothing is watched if a debugger or a measurement of coverage traces the program.

    Args:
        player: The player of the replay.
    """
    looks = 0

    def called(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal looks
        caller, code = frame.f_back, frame.f_code
        if event != "call" or caller is None or caller.f_code.co_name != "<module>":
            return
        if caller.f_globals.get("__name__") != "__main__" or not is_agent_file(code.co_filename):
            return
        # The body of a class is not a call of the program.
        if code.co_name == "<module>" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        looks += 1
        player.take_over_all()
        if looks >= _MOST_LOOKS or not player.has_tools_to_take_over:
            sys.settrace(None)
        player.require_not_early(code)

    if player.has_tools_to_take_over and sys.gettrace() is None:
        sys.settrace(called)
