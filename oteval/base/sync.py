"""Run asynchronous code from blocking code, and write code once for both.

`BackgroundLoop.run` blocks until a coroutine has run on a background event loop, which keeps
connections open from one call to the next. `run_on_new_loop` starts an event loop that ends with
the coroutine. `blocking_form` turns a whole asynchronous function into a blocking one with the same
signature and docstring.

A function that users call both ways is written once, as an ``async def`` that awaits only
`IoCall`: an I/O call with a blocking and an asynchronous form. `drive` runs such a coroutine in the
caller's thread, without an event loop; `drive_async` runs it on the caller's event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

__all__ = [
    "BackgroundLoop",
    "ConcurrencyLimit",
    "IoCall",
    "blocking_form",
    "blocks_event_loop",
    "drive",
    "drive_async",
    "gather",
    "run_on_new_loop",
    "wait_for",
]

Params = ParamSpec("Params")
Value = TypeVar("Value")


class IoCall(Generic[Value]):
    """An I/O call that a coroutine awaits, in a blocking and an asynchronous form.

    Args:
        blocking: Makes the call and returns its result; used by `drive`.
        asynchronous: Returns an awaitable of the same result; used by `drive_async`.
    """

    __slots__ = ("asynchronous", "blocking")

    def __init__(
        self, blocking: Callable[[], Value], asynchronous: Callable[[], Awaitable[Value]]
    ) -> None:
        self.blocking = blocking
        self.asynchronous = asynchronous

    def __await__(self) -> Generator[IoCall[Value], Value, Value]:
        return (yield self)


def wait_for(future: Future[Value]) -> IoCall[Value]:
    """Wait for a future that any thread or event loop may complete."""
    return IoCall(future.result, lambda: asyncio.wrap_future(future))


def blocks_event_loop() -> IoCall[bool]:
    """Whether the coroutine runs under `drive` in the thread of a running event loop.

    There, waiting for a coroutine of that loop would never end.
    """

    async def never() -> bool:
        return False

    return IoCall(_has_running_loop, never)


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def gather(coroutines: Iterable[Coroutine[Any, Any, Value]]) -> IoCall[list[Value]]:
    """Run coroutines one after the other under `drive`, and concurrently under `drive_async`.

    Args:
        coroutines: They may be created lazily.
    """

    async def concurrently() -> list[Value]:
        return await asyncio.gather(*map(drive_async, coroutines))

    return IoCall(lambda: [drive(coroutine) for coroutine in coroutines], concurrently)


def drive(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine that awaits only `IoCall`, making each call in its blocking form."""
    try:
        call: IoCall[Any] = coroutine.send(None)
        while True:
            try:
                result = call.blocking()
            except BaseException as error:
                call = coroutine.throw(error)
            else:
                call = coroutine.send(result)
    except StopIteration as end:
        value: Value = end.value
        return value
    finally:
        coroutine.close()


async def drive_async(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine that awaits only `IoCall`, awaiting each call in its asynchronous form."""
    try:
        call: IoCall[Any] = coroutine.send(None)
        while True:
            try:
                result = await call.asynchronous()
            except BaseException as error:
                call = coroutine.throw(error)
            else:
                call = coroutine.send(result)
    except StopIteration as end:
        value: Value = end.value
        return value
    finally:
        coroutine.close()


class ConcurrencyLimit:
    """Limits concurrent callers across threads and event loops, in first-come order.

    Args:
        limit: The number of callers; None means no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = self._free = limit
        self._lock = threading.Lock()
        self._waiting: deque[Future[None]] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the limit: another process has other callers."""
        return ConcurrencyLimit, (self._limit,)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a free slot, and occupy it; for coroutines under `drive` or `drive_async`."""
        waiter = self._acquire()
        try:
            if waiter is not None:
                await wait_for(waiter)
        except BaseException:
            # A slot may be handed over at the moment its waiter gives up.
            if waiter is not None and not waiter.cancel():
                self._release()
            raise
        try:
            yield
        finally:
            self._release()

    @property
    def is_unlimited(self) -> bool:
        """Whether every caller gets a slot at once."""
        return self._free is None

    def _acquire(self) -> Future[None] | None:
        """Take a free slot and return None, or return the future of the next free slot."""
        if self._free is None:
            return None
        with self._lock:
            if self._free:
                self._free -= 1
                return None
            waiter: Future[None] = Future()
            self._waiting.append(waiter)
            return waiter

    def _release(self) -> None:
        """Hand the slot to the caller that has waited longest."""
        if self._free is None:
            return
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                if waiter.set_running_or_notify_cancel():
                    waiter.set_result(None)
                    return
            self._free += 1


class BackgroundLoop:
    """An event loop in a daemon thread that runs coroutines for blocking code.

    The thread starts with the first coroutine, and again after a fork.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine in a copy of the caller's context, and return its result.

        An interrupt of the caller cancels the coroutine wherever it waits. A thread that waits on a
        socket would not allow that.

        Raises:
            RuntimeError: The caller runs on this event loop, and would wait for itself forever.
        """
        loop = self._running()
        if self._thread is threading.current_thread():
            coroutine.close()
            raise RuntimeError(f"blocking call on the event loop of {self._name!r}; await it")
        future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine without waiting for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # After a fork the loop exists, but its thread does not.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                # A daemon: a server that never answers must not keep the process alive.
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name=self._name, daemon=True
                )
                self._thread.start()
            return self._loop


def run_on_new_loop(coroutine: Coroutine[Any, Any, Value]) -> Value:
    """Run a coroutine on a new event loop, and return its result.

    When it ends, or is interrupted with Ctrl-C, its tasks are cancelled and waited for. If the
    caller's thread runs an event loop already, as in a notebook, the new event loop runs on another
    thread, in a copy of the caller's context.
    """
    if not _has_running_loop():
        return asyncio.run(coroutine)
    future: Future[Value] = Future()

    def run() -> None:
        try:
            future.set_result(asyncio.run(coroutine))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="oteval event loop").start()
    return future.result()


def blocking_form(
    function: Callable[Params, Coroutine[Any, Any, Value]], name: str
) -> Callable[Params, Value]:
    """The blocking form of an asynchronous function; see `run_on_new_loop`.

    Args:
        function: The function. Its signature and docstring apply to the blocking form too.
        name: The name of the blocking form.
    """

    @wraps(function)
    def blocking(*args: Params.args, **kwargs: Params.kwargs) -> Value:
        return run_on_new_loop(function(*args, **kwargs))

    blocking.__name__ = blocking.__qualname__ = name
    return blocking
