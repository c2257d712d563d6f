"""Calls that patched functions cannot see, from Python's audit events.

A function may have been imported by name before the replay (``from socket import gethostbyname``),
or a socket may be one of the module `_socket`. Python reports both before they happen (PEP 578), so
that the network guard can refuse them. It also reports child processes.

An audit hook cannot be removed. It is set once, and does nothing in threads that belong to no
replay while none is open.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from .open_replays import has_open_replay

__all__ = ["audit"]

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
        _handlers.update(handlers)
    if is_first:
        sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    handler = _handlers.get(event)
    if handler is not None and has_open_replay():
        handler(*arguments)
