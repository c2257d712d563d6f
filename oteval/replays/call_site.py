"""The line of the agent's code that made a call, and the library that it used.

The agent's code is everything outside Python's library, installed packages and oteval. In an
asynchronous agent the stack contains the coroutines of the current task. If the task runs only a
library's coroutine, the task that waits for it is searched.

Walking the stack costs microseconds, and happens only when something differs from the recording.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from ..record import is_agent_file, shown_file

__all__ = ["CallSite", "call_site"]

_CLIENTS = (
    "boto3",
    "botocore",
    "aiobotocore",
    "requests",
    "aiohttp",
    "grpc",
    "curl_cffi",
    "websockets",
    "httpx2",
    "httpx",
    "httpcore2",
    "httpcore",
    "urllib3",
    "urllib.request",
    "http.client",
)
"""Clients by preference: a client that builds on another client is first."""

_LOOPS = ("asyncio.events", "asyncio.runners", "uvloop")
"""Modules whose frames are outside the current task."""

_TELEMETRY = ("opentelemetry.sdk.", "opentelemetry.exporter.", "agents.tracing.")
_TELEMETRY_THREADS = ("langsmith.", "langfuse.", "logfire.", "posthog.", "sentry_sdk.")
"""Modules that export telemetry, unless the agent's code is on the stack."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where a call was made.

    Attributes:
        line: The innermost line of the agent's code as ``file:line in function``, or "".
        client: The name of the HTTP client, or of the package that the agent called, or "".
        is_telemetry: Whether an exporter of telemetry made the call.
    """

    line: str = ""
    client: str = ""
    is_telemetry: bool = False


def call_site() -> CallSite:
    """Find the line and the client that made the current call."""
    modules: list[str] = []
    line = ""
    for code, number, module in _frames():
        if is_agent_file(code.co_filename):
            line = f"{shown_file(code.co_filename)}:{number} in {code.co_qualname}"
            break
        modules.append(module)
    exported = any(f"{module}.".startswith(_TELEMETRY) for module in modules)
    if not line:
        exported |= any(f"{module}.".startswith(_TELEMETRY_THREADS) for module in modules)
    return CallSite(line, _client(modules), exported)


def _frames() -> Iterator[tuple[CodeType, int, str]]:
    """Yield the frames of the current call from the innermost on.

    The frames of tasks that wait for the current task precede the frames of the event loop.
    """
    frame: FrameType | None = sys._getframe(1)
    is_outside = False
    while frame is not None:
        module = _module_of(frame)
        if module in _LOOPS and not is_outside:
            is_outside = True
            for task in _waiting_tasks():
                for outer in reversed(_suspended_frames(task)):
                    yield outer.f_code, outer.f_lineno, _module_of(outer)
        yield frame.f_code, frame.f_lineno, module
        frame = frame.f_back


def _suspended_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """The frames of the coroutines of a task that waits, the outermost first."""
    frames: list[FrameType] = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        frames.append(frame)
        waiting = waiting.cr_await
    return frames


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _waiting_tasks() -> Iterator[asyncio.Task[Any]]:
    """Yield the tasks that wait for the current one, the nearest first."""
    try:
        waiting: list[Any] = [asyncio.current_task()]
    except RuntimeError:
        return
    seen_ids: set[int] = set()
    while waiting:
        future = waiting.pop(0)
        if future is None or id(future) in seen_ids:
            continue
        seen_ids.add(id(future))
        for callback, _ in getattr(future, "_callbacks", None) or ():
            owner = getattr(callback, "__self__", None)
            if isinstance(owner, asyncio.Task):
                yield owner
            waiting += [owner] if asyncio.isfuture(owner) else _enclosed_futures(callback)


def _enclosed_futures(callback: Any) -> list[Any]:
    """The futures that a callback completes, such as the future of `asyncio.gather`."""
    if isinstance(callback, functools.partial):
        callback = callback.func
    cells = getattr(callback, "__closure__", None) or ()
    futures = []
    for cell in cells:
        try:
            value = cell.cell_contents
        except ValueError:  # the variable is not yet set
            continue
        if asyncio.isfuture(value):
            futures.append(value)
    return futures


def _client(modules: list[str]) -> str:
    """The name of the client among the modules between a call and the agent's code."""
    for name in _CLIENTS:
        if any(module == name or module.startswith(f"{name}.") for module in modules):
            return name
    called = next((module for module in reversed(modules) if module), "")
    package = called.partition(".")[0]
    return "" if package in ("oteval", "threading", "concurrent", "asyncio", "") else package
