"""The replays in progress in this process, and the replay that a thread or task belongs to.

A replay belongs to the context (`contextvars`) that opened it. Tasks inherit it. While a replay is
open, new threads, the jobs of thread pools and the functions that the agent registers for the end
of the process inherit it as well. A thread without that context belongs to the only open replay; if
several are open, its requests are refused.

Threads and tasks that outlive their replay stay refused: each attempt is a divergence of the
replay. `OpenReplay.work` counts the threads and jobs that have not ended.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.thread import _worker as _pool_worker
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Literal

from ..base.errors import ConfigError, ReplayDiverged
from ..record import is_agent_file
from .address_list import AddressList
from .call_site import call_site
from .divergence import Divergence, diverged
from .patches import Patches
from .player import Player

__all__ = [
    "OpenReplay",
    "Timing",
    "Work",
    "carrying",
    "current_replay",
    "has_context",
    "has_open_replay",
    "late_attempt",
    "open_replays",
    "opened",
    "replay_of_call",
    "require_no_replay",
]

Timing = Literal["none", "recorded"]


class Work:
    """The threads, jobs and tasks that began in a replay and have not ended."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waited = self._daemons = 0
        self._ended: list[Callable[[], None]] = []

    def begin(self, *, is_daemon: bool) -> None:
        """Count one more; a daemon is not waited for."""
        with self._changed:
            self._daemons += is_daemon
            self._waited += not is_daemon

    def end(self, *, is_daemon: bool) -> None:
        """Count one less."""
        with self._changed:
            self._daemons -= is_daemon
            self._waited -= not is_daemon
            ended = [] if self._waited or self._daemons else self._ended
            self._ended = self._ended if self._waited or self._daemons else []
            self._changed.notify_all()
        for function in ended:
            function()

    @property
    def is_waited_for(self) -> bool:
        """Whether something is left that the end of a process waits for."""
        return self._waited > 0

    def wait(self, seconds: float | None = None) -> None:
        """Wait until everything has ended, except daemons.

        Args:
            seconds: The time limit; None for none.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._waited, seconds)

    def when_ended(self, function: Callable[[], None]) -> None:
        """Call a function once all has ended, or now."""
        with self._changed:
            if self._waited or self._daemons:
                self._ended.append(function)
                return
        function()


@dataclass(eq=False)
class OpenReplay:
    """A replay in progress.

    Attributes:
        player: Its player.
        allowed: The addresses that the agent may reach.
        models: The addresses of models that requests are sent to for real.
        programs: The names of programs that the agent may start.
        timing: ``recorded`` to send the chunks of answers at their recorded times.
        sleep: Waits for slow tools in place of the clock, or None.
        answered: Called with the recorded end (ns) of each exchange that was answered.
        entered: Called in each thread that joins the replay; returns a function that leaves it.
        older_threads: The threads that were running when it began.
        is_import: Whether modules are imported in it; their threads serve later replays.
        is_open: Whether it is still in progress.
        work: The threads and jobs that began in it.
        exit_functions: The functions that the agent has registered for the end of the process.
    """

    player: Player
    allowed: AddressList = field(default_factory=AddressList)
    models: AddressList = field(default_factory=AddressList)
    programs: frozenset[str] = frozenset()
    timing: Timing = "none"
    sleep: Callable[[float], None] | None = None
    answered: Callable[[int], None] | None = None
    entered: Callable[[], Callable[[], object]] | None = None
    older_threads: frozenset[threading.Thread] = frozenset()
    is_import: bool = False
    is_open: bool = True
    work: Work = field(default_factory=Work)
    exit_functions: list[ExitFunction] = field(default_factory=list)


@dataclass(eq=False)
class ExitFunction:
    """A function that an agent has registered with `atexit`, in the context of its replay."""

    function: Callable[..., Any]
    context: Context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.context.run(self.function, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        """Equal the function, so that `atexit.unregister` finds it."""
        return other is self or other == self.function

    def __hash__(self) -> int:
        return hash(self.function)


_current: ContextVar[OpenReplay | None] = ContextVar("oteval_replay", default=None)
_open: list[OpenReplay] = []
_lock = threading.Lock()


def current_replay() -> OpenReplay | None:
    """The replay that this thread or task belongs to; None if none is open.

    Raises:
        ReplayDiverged: The replay of this thread has ended, or several replays are open and the
            thread belongs to none.
    """
    mine = _own_replay()
    if mine is not None:
        if mine.is_open:
            return mine
        # Exporters of telemetry are shared with other replays.
        if call_site().is_telemetry:
            return None
        raise late_attempt(mine, "it tried to reach the network")
    with _lock:
        running = list(_open)
    if len(running) < 2:
        return running[0] if running else None
    reason = (
        "a request from a thread or task that belongs to none of the replays in progress: start it "
        "with contextvars.copy_context().run, or replay one session at a time"
    )
    raise diverged(Divergence("network", reason))


def _own_replay() -> OpenReplay | None:
    """The replay of this context; None without one, or after the end of an import."""
    mine = _current.get()
    return None if mine is not None and mine.is_import and not mine.is_open else mine


def late_attempt(replay: OpenReplay, attempt: str) -> ReplayDiverged:
    """Note an attempt of a thread or task that has outlived its replay; return its exception.

    Args:
        replay: The replay, which has ended.
        attempt: The attempt.
    """
    summary = (
        f"a thread, task or exit function has outlived the replay in which it began: {attempt}"
    )
    divergence = Divergence("late", summary, line=call_site().line)
    return diverged(replay.player.note_late(divergence))


def open_replays() -> list[OpenReplay]:
    """The replays in progress in this process."""
    return list(_open)


def has_open_replay() -> bool:
    """Whether a replay is in progress in this process, or this thread has outlived one."""
    return bool(_open) or _own_replay() is not None


def replay_of_call() -> OpenReplay | None:
    """The replay of this thread or task, which may have ended; else the only open one."""
    mine = _own_replay()
    if mine is not None:
        return mine
    running = list(_open)
    return running[0] if len(running) == 1 else None


def has_context() -> bool:
    """Whether this thread or task has the context of a replay."""
    return _own_replay() is not None


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
    """Register a replay for the block, in this context."""
    replay.older_threads = frozenset(threading.enumerate())
    with _lock:
        _open.append(replay)
    before = _current.get()
    _current.set(replay)
    try:
        yield
    finally:
        replay.is_open = False
        with _lock:
            _open.remove(replay)
        # Without a token: a fixture may end and begin in different contexts.
        _current.set(before if before is not None and before.is_open else None)


_patches = Patches()
_carriers = 0


@contextmanager
def carrying() -> Iterator[None]:
    """Let threads, jobs of pools and functions at exit inherit the replay that starts them."""
    global _carriers
    with _lock:
        _carriers += 1
        if _carriers == 1:
            _carry_into_threads()
    try:
        yield
    finally:
        with _lock:
            _carriers -= 1
            if not _carriers:
                _patches.undo()


def _carry_into_threads() -> None:
    """Give new threads, jobs of pools and exit functions the replay of the code around them."""
    start = threading.Thread.start
    submit: Callable[..., Any] = ThreadPoolExecutor.submit
    register: Callable[..., Any] = atexit.register

    @functools.wraps(start)
    def start_carrying(self: threading.Thread) -> None:
        replay, has_own = _own_replay(), "run" in vars(self)
        # The threads of a pool wait for jobs; each job is counted separately.
        is_pool = getattr(self, "_target", None) is _pool_worker
        if replay is None or has_own or is_pool:
            start(self)
            return
        work = _CarriedCall(replay, self.run, is_daemon=self.daemon)
        self.run = work  # type: ignore[method-assign]
        try:
            start(self)
        except BaseException:
            work.cancel()
            raise

    @functools.wraps(submit)
    def submit_carrying(
        self: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        work = _CarriedCall(_own_replay(), function, is_daemon=False)
        try:
            future = submit(self, work, *args, **kwargs)
        except BaseException:
            work.cancel()
            raise
        future.add_done_callback(lambda _future: work.cancel())
        return future

    @functools.wraps(register)
    def register_carrying(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        replay = _own_replay()
        if replay is None or not is_agent_file(sys._getframe(1).f_code.co_filename):
            return register(function, *args, **kwargs)
        carried = ExitFunction(functools.partial(function, *args, **kwargs), copy_context())
        replay.exit_functions.append(carried)
        register(carried)
        return function

    _patches.set(threading.Thread, "start", start_carrying)
    _patches.set(ThreadPoolExecutor, "submit", submit_carrying)
    _patches.set(atexit, "register", register_carrying)


class _CarriedCall:
    """A function that runs with a replay, and counts as its work until it has ended."""

    def __init__(
        self, replay: OpenReplay | None, function: Callable[..., Any], *, is_daemon: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self._replay, self._function, self._is_daemon = replay, function, is_daemon
        self._is_counted = replay is not None
        if replay is not None:
            replay.work.begin(is_daemon=is_daemon)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        replay = self._replay
        before = _current.get()
        _current.set(replay)
        leave = replay.entered() if replay is not None and replay.entered is not None else None
        try:
            return self._function(*args, **kwargs)
        finally:
            _current.set(before)
            if leave is not None:
                leave()
            self.cancel()

    def cancel(self) -> None:
        """Count as ended."""
        is_counted, self._is_counted = self._is_counted, False
        if is_counted and self._replay is not None:
            self._replay.work.end(is_daemon=self._is_daemon)
