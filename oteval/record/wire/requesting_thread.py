"""Which thread or asynchronous task is running: two that overlapped have no order in a replay."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

__all__ = ["running_thread"]


def running_thread() -> str:
    """Return a label of the running thread and task, which others of the machine do not have.

    It ends in ``-main`` for the main thread, and for the first task of the process: the one that
    ``asyncio.run`` makes, which starts the others. A task has ``-task-`` in it.
    """
    label = f"{os.getpid()}-{threading.get_ident():x}"
    task = _running_task()
    if task is None:
        is_main = threading.current_thread() is threading.main_thread()
    else:
        label = f"{label}-task-{id(task):x}"
        is_main = getattr(task, "get_name", str)() == "Task-1"
    return f"{label}-main" if is_main else label


def _running_task() -> Any:
    for library in ("asyncio", "trio.lowlevel"):
        module = sys.modules.get(library)
        if module is None:
            continue
        try:
            task: Any = module.current_task()
        except RuntimeError:  # no event loop of this library runs in this thread
            continue
        if task is not None:
            return task
    return None
