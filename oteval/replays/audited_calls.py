"""Calls that patched functions cannot see, from Python's audit events.

A function may have been imported by name before the replay (``from socket import gethostbyname``),
or a socket may be one of the module `_socket`. Python reports both before they happen (PEP 578), so
that the network guard can refuse them. It also reports child processes: their network is not
blocked, and the result of the replay says so.

An audit hook cannot be removed. It is set once, and does nothing while no replay is open.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from .open_replays import has_open_replay, open_replay_of_call

__all__ = ["audit"]

# Python's own `platform` runs it, also for the headers of clients.
_HARMLESS = frozenset({"uname"})

_lock = threading.Lock()
_handlers: dict[str, Callable[..., None]] = {}


def audit(handlers: Mapping[str, Callable[..., None]]) -> None:
    """Call handlers before audited calls from now on, while a replay is open.

    Args:
        handlers: Functions by the name of an audit event, called with its arguments. An exception
            stops the call.
    """
    with _lock:
        is_first = not _handlers
        _handlers.update({**_PROCESS_EVENTS, **handlers})
    if is_first:
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    handler = _handlers.get(event)
    if handler is not None and has_open_replay():
        handler(*arguments)


def _note_process(program: Any) -> None:
    name = os.path.basename(os.fsdecode(program)) if program else "a shell"  # noqa: PTH119
    replay = open_replay_of_call()
    if replay is not None and name not in _HARMLESS:
        replay.player.note(
            f"{name} was started: the network is not blocked in child processes, but in Python "
            "children of a replayed command"
        )


def _popen(executable: Any, arguments: Any, *_rest: Any) -> None:
    if isinstance(arguments, (str, bytes, os.PathLike)):
        _note_process(executable or arguments)
    else:
        _note_process(executable or next(iter(arguments), ""))


def _system(command: Any) -> None:
    words = os.fsdecode(command).split()
    _note_process(words[0] if words else "")


def _started(program: Any, *_rest: Any) -> None:
    _note_process(program)


def _spawned(_mode: Any, program: Any, *_rest: Any) -> None:
    _note_process(program)


_PROCESS_EVENTS: dict[str, Callable[..., None]] = {
    "subprocess.Popen": _popen,
    "os.system": _system,
    "os.posix_spawn": _started,
    "os.exec": _started,
    "os.spawn": _spawned,
}
