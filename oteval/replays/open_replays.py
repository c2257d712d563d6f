"""The replays in progress in this process, and which of them a thread or task belongs to.

A replay belongs to the context (`contextvars`) in which it was opened. Tasks inherit it, and while
a replay is open, so do new threads and the jobs of thread pools. A thread without that context
belongs to the only open replay; if several are open, its requests are refused.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ConfigError
from .address_list import AddressList
from .divergence import Divergence, diverged
from .patches import Patches
from .player import Player

__all__ = [
    "OpenReplay",
    "Timing",
    "current_replay",
    "has_context",
    "has_open_replay",
    "open_replay_of_call",
    "opened",
    "require_no_replay",
]

Timing = Literal["none", "recorded"]


@dataclass(eq=False)
class OpenReplay:
    """A replay in progress.

    Attributes:
        player: Its player.
        allowed: The addresses that the agent may reach.
        models: The addresses of models that requests are sent to for real.
        timing: ``recorded`` to send the chunks of answers at their recorded times.
        answered: Called with the recorded end (ns) of each exchange that was answered.
        entered: Called in each thread that joins the replay.
        older_threads: The threads that were running when it began.
        is_open: Whether it is still in progress.
    """

    player: Player
    allowed: AddressList = field(default_factory=AddressList)
    models: AddressList = field(default_factory=AddressList)
    timing: Timing = "none"
    answered: Callable[[int], None] | None = None
    entered: Callable[[], None] | None = None
    older_threads: frozenset[threading.Thread] = frozenset()
    is_open: bool = True


_current: ContextVar[OpenReplay | None] = ContextVar("oteval_replay", default=None)
_open: list[OpenReplay] = []
_lock = threading.Lock()


def current_replay() -> OpenReplay | None:
    """Return the replay that this thread or task belongs to, or None if none is open.

    Raises:
        ReplayDiverged: Several replays are open and this thread belongs to none, or it belongs to a
            replay that has ended.
    """
    mine = _current.get()
    if mine is not None and mine.is_open:
        return mine
    with _lock:
        running = list(_open)
    if not running:
        return None
    if mine is None and len(running) == 1:
        return running[0]
    reason = (
        "a request from a thread or task that belongs to none of the replays in progress: start it "
        "with contextvars.copy_context().run, or replay one session at a time"
        if mine is None
        else "a request from a thread or task of a replay that has ended"
    )
    raise diverged(Divergence("network", reason))


def has_open_replay() -> bool:
    """Return whether any replay is in progress in this process."""
    return bool(_open)


def open_replay_of_call() -> OpenReplay | None:
    """Return the replay of this thread or task, else the only open one, else None."""
    mine = _current.get()
    if mine is not None:
        return mine if mine.is_open else None
    running = list(_open)
    return running[0] if len(running) == 1 else None


def has_context() -> bool:
    """Return whether this thread or task has the context of a replay."""
    return _current.get() is not None


def require_no_replay() -> None:
    """Check that this context has no replay in progress.

    Raises:
        ConfigError: It has one.
    """
    mine = _current.get()
    if mine is not None and mine.is_open:
        raise ConfigError(
            f"a replay of session {mine.player.recording.session} is in progress in this context: "
            "end it before you begin another"
        )


@contextmanager
def opened(replay: OpenReplay) -> Iterator[None]:
    """Register a replay for the block, in this context and in the threads that it starts."""
    replay.older_threads = frozenset(threading.enumerate())
    with _lock:
        _open.append(replay)
        if len(_open) == 1:
            _carry_into_threads()
    before = _current.get()
    _current.set(replay)
    try:
        yield
    finally:
        replay.is_open = False
        with _lock:
            _open.remove(replay)
            if not _open:
                _patches.undo()
        # Without a token: a fixture may end in another context than it began in.
        _current.set(before if before is not None and before.is_open else None)


_patches = Patches()


def _carry_into_threads() -> None:
    """Let new threads, and jobs of thread pools, have the replay of the code that starts them."""
    start = threading.Thread.start
    submit: Callable[..., Any] = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_carrying(self: threading.Thread) -> None:
        replay, has_own = _current.get(), "run" in vars(self)
        if replay is not None and not has_own:
            self.run = _carried(replay, self.run)  # type: ignore[method-assign]
        start(self)

    @functools.wraps(submit)
    def submit_carrying(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        return submit(self, _carried(_current.get(), function), *args, **kwargs)

    _patches.set(threading.Thread, "start", start_carrying)
    _patches.set(ThreadPoolExecutor, "submit", submit_carrying)


def _carried(replay: OpenReplay | None, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = _current.get()
        _current.set(replay)
        if replay is not None and replay.entered is not None:
            replay.entered()
        try:
            return function(*args, **kwargs)
        finally:
            _current.set(before)

    return run
