"""Works through things with so many at a time, and no more in memory than that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

__all__ = ["run_sync", "work_through"]

Item = TypeVar("Item")
Value = TypeVar("Value")


async def work_through(
    items: Iterable[Item], work: Callable[[Item], Awaitable[None]], concurrency: int
) -> None:
    """Do some work on each item.

    Args:
        items: The items, taken one by one as workers get free.
        work: What to do with one; an exception of it ends all.
        concurrency: How many at a time.
    """
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    workers = [asyncio.create_task(worker()) for _ in range(max(1, concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def run_sync(work: Callable[[], Awaitable[Value]]) -> Value:
    """Return what asynchronous work comes to, also where a loop runs already (in a notebook)."""

    async def whole() -> Value:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(whole())
    import contextvars
    from concurrent.futures import ThreadPoolExecutor

    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        done: Any = pool.submit(context.run, asyncio.run, whole()).result()
    found: Value = done
    return found
