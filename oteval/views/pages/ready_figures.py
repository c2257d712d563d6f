"""Compute the figures of slow pages before somebody opens them, and anew as the store grows.

On a million runs, the overview of all of them takes more than a second. While people use the pages,
its figures and the figures of the lists of evaluators and variants are therefore kept up to date.
They are computed one after the other, in a small part of the time, and if possible while nobody
waits for another page.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager, suppress

from ...store import Store
from .evaluators import evaluators_figures
from .overview import overview_figures
from .site import Site
from .variants import variants_figures

__all__ = ["Figures", "keep_ready", "ready_figures"]

_log = logging.getLogger(__name__)

Figures = tuple[Hashable, Callable[[Store], object]]
"""Figures that `Site.cached` keeps: their key, and the function that reads them."""

# The rest after figures were computed, as a multiple of the time that they took: first, and later.
_FIRST_REST, _REST = 1.0, 10.0
# The pages of so many evaluators are kept up to date: the evaluators with the newest scores.
_MOST_EVALUATORS = 3
# Seconds between two checks whether the figures are out of date.
_ROUND = 5.0
# How often figures wait for people who look at pages, each time so many seconds.
_WAITS, _WAIT = 5, 1.0


async def _figures(site: Site) -> list[Figures]:
    """The figures that are kept up to date, in the order that people open their pages."""
    scored = await site.read(lambda store: store.evaluator_figures.names())
    names = sorted(scored, key=lambda name: (-scored[name], name))[:_MOST_EVALUATORS]
    return [*overview_figures(site), *variants_figures(), *evaluators_figures(site, names)]


@asynccontextmanager
async def ready_figures(site: Site) -> AsyncIterator[None]:
    """Keep the figures of slow pages up to date during a block."""
    task = asyncio.create_task(keep_ready(site, lambda: _figures(site)))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def keep_ready(
    site: Site,
    figures: Callable[[], Awaitable[Sequence[Figures]]],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Keep figures up to date as long as somebody uses the pages, until cancelled.

    Args:
        site: The site.
        figures: Returns the figures.
        sleep: Waits for so many seconds.
    """
    rest_factor = _FIRST_REST
    while True:
        if site.is_used():
            try:
                for key, action in await figures():
                    await _wait_for_people(site, sleep)
                    took = await site.refresh(key, action)
                    await sleep(rest_factor * took)
            except Exception as error:
                _log.warning("the figures of pages are not kept up to date: %s", error)
            rest_factor = _REST
        await sleep(_ROUND)


async def _wait_for_people(site: Site, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Wait until nobody requests pages, for a limited time."""
    for _ in range(_WAITS):
        if not site.is_busy():
            return
        await sleep(_WAIT)
