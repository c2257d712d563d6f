"""Carry the context into threads, executors and child processes.

A thread starts with empty context variables. Unless these are carried over, the spans of tools that
an agent runs in a pool begin new traces. `carry_context` patches:

- `threading.Thread.start`, and with it `threading.Timer`,
- `ThreadPoolExecutor.submit`, and with it ``map`` and ``loop.run_in_executor``,
- `multiprocessing.pool.ThreadPool` and ``Pool``,
- `ProcessPoolExecutor.submit` and `multiprocessing.Process.start`,
- `subprocess.Popen`, where the child inherits the environment: it gets ``TRACEPARENT``.

Threads get a copy of all context variables, including replays and `oteval.capture`.
Processes get the current span and the baggage. `opentelemetry-instrumentation-threading` may be on
as well.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from .context import attach_environ, context_environ
from .faults import guarded

__all__ = ["carries_context", "carry_context", "uncarry_context"]

_lock = threading.Lock()
_patches: list[tuple[Any, str, Any]] = []


def carry_context() -> None:
    """Let threads, executors and child processes continue the current span; safe to repeat.

    `oteval.instrument` calls it.
    """
    with _lock:
        if _patches:
            return
        _patch(threading.Thread, "start", _start_thread)
        _patch(ThreadPoolExecutor, "submit", _submit_to_threads)
        with guarded("carrying the context into processes"):
            _patch_processes()


def carries_context() -> bool:
    """Whether `carry_context` is in effect."""
    return bool(_patches)


def uncarry_context() -> None:
    """Take back `carry_context`."""
    with _lock:
        while _patches:
            owner, name, original = _patches.pop()
            setattr(owner, name, original)


def _patch_processes() -> None:
    import subprocess
    from concurrent.futures import process
    from multiprocessing import pool
    from multiprocessing.process import BaseProcess

    _patch(process.ProcessPoolExecutor, "submit", _submit_to_processes)
    _patch(BaseProcess, "start", _start_process)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        _patch(pool.Pool, name, _submit_to_pool)
    _patch(subprocess.Popen, "__init__", _open_process)


def _patch(owner: Any, name: str, replacement: Callable[..., Any]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, self, *args, **kwargs)

    _patches.append((owner, name, original))
    setattr(owner, name, patched)


def _run_in_copy(context: Context, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # A copy for each call: one context cannot be entered by two threads at a time.
    return context.copy().run(function, *args, **kwargs)


def _run_below_parent(
    environ: dict[str, str], function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Run a function in a child process, below the span that was current in its parent."""

    def run() -> Any:
        attach_environ(environ)
        return function(*args, **kwargs)

    # In a new context, because the process may run the tasks of several spans.
    return Context().run(run)


def _start_thread(start: Callable[..., Any], thread: Any) -> None:
    run, context = thread.run, copy_context()
    # Threads that wait for work (pools, exporters) live longer than the span that is current when
    # they start. Their work brings its context with it.
    if len(context) and not _is_worker(thread):
        thread.run = functools.partial(_run_in_copy, context, run)
    start(thread)


_WORKERS = (
    *("concurrent.futures", "multiprocessing", "opentelemetry.sdk"),
    *("oteval.record.export_pipeline", "oteval.record.wire.recording_worker"),
)


def _is_worker(thread: Any) -> bool:
    target = getattr(thread, "_target", None)
    module = getattr(target, "__module__", "") or type(thread).__module__
    return module.startswith(_WORKERS)


def _submit_to_threads(
    submit: Callable[..., Any], pool: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    context = copy_context()
    if len(context) and callable(function):
        function = functools.partial(_run_in_copy, context, function)
    return submit(pool, function, *args, **kwargs)


def _submit_to_processes(
    submit: Callable[..., Any], pool: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    return submit(pool, _carried(function), *args, **kwargs)


def _submit_to_pool(
    submit: Callable[..., Any], pool: Any, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    from multiprocessing.pool import ThreadPool

    if isinstance(pool, ThreadPool):
        return _submit_to_threads(submit, pool, function, *args, **kwargs)
    return submit(pool, _carried(function), *args, **kwargs)


def _carried(function: Callable[..., Any]) -> Callable[..., Any]:
    environ = context_environ()
    if not environ or not callable(function):
        return function
    return functools.partial(_run_below_parent, environ, function)


def _start_process(start: Callable[..., Any], process: Any) -> None:
    """Start a process. A fork has the context; other processes get it with the target."""
    from multiprocessing import get_start_method

    target = process._target
    is_fork = (getattr(process, "_start_method", None) or get_start_method()) == "fork"
    if target is None or is_fork or _is_worker(process):
        start(process)
        return
    process._target = _carried(target)
    try:
        start(process)
    finally:
        if getattr(process, "_target", None) is not None:
            process._target = target


def _open_process(init: Callable[..., Any], process: Any, *args: Any, **kwargs: Any) -> None:
    # The environment is the eleventh argument; nobody passes it by position.
    if kwargs.get("env") is None and len(args) < 11:
        environ = context_environ()
        if environ:
            kwargs["env"] = {**os.environ, **environ}
    init(process, *args, **kwargs)
