"""Tools that run in child processes of `multiprocessing`, or in forked ones.

The answer that asks for a tool may reach another process than the one that runs it. So a child
process takes over the functions of all tools that the recording asks for: when it is forked, before
it runs its target, and whenever it receives a job, which may have imported the module of one.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .open_replays import open_replays
from .patches import Patches

__all__ = ["CHILD_MODULES"]

_modules_seen = 0


def _take_over_tools() -> None:
    """Take over the functions of tools, if modules were imported since the last time."""
    global _modules_seen
    if _modules_seen == len(sys.modules):
        return
    _modules_seen = len(sys.modules)
    for replay in open_replays():
        replay.player.serve_child_process()


def _is_child() -> bool:
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _forked() -> None:
    global _modules_seen
    _modules_seen = 0
    _take_over_tools()


os.register_at_fork(after_in_child=_forked)


def _guard_targets(patches: Patches, module: Any) -> None:
    bootstrap = module.BaseProcess._bootstrap

    @functools.wraps(bootstrap)
    def guarded_bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        _take_over_tools()
        return bootstrap(self, *args, **kwargs)

    patches.set(module.BaseProcess, "_bootstrap", guarded_bootstrap)


def _guard_jobs(patches: Patches, module: Any) -> None:
    loads: Callable[..., Any] = module.ForkingPickler.loads

    def guarded_loads(*args: Any, **kwargs: Any) -> Any:
        job = loads(*args, **kwargs)
        if _is_child():
            _take_over_tools()
        return job

    patches.set(module.ForkingPickler, "loads", staticmethod(guarded_loads))


CHILD_MODULES: dict[str, Callable[[Patches, Any], None]] = {
    "multiprocessing.process": _guard_targets,
    "multiprocessing.reduction": _guard_jobs,
}
"""The modules by which children get their work, and how each is guarded."""
