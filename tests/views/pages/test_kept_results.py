"""Results of pages are kept, and renewed behind the back of whoever looks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from oteval.base.errors import StoreError
from oteval.views.pages.server import keep_ready
from oteval.views.pages.site import KeptResults


class _Page:
    """A page whose figures take a second each, of a store that grows when told so."""

    def __init__(self) -> None:
        self.now, self.size, self.computed = 0.0, 0, 0
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.results = KeptResults(self._state, clock=lambda: self.now)

    async def _state(self) -> Any:
        return self.size

    async def _compute(self) -> int:
        size = self.size
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.computed += 1
        self.now += 1.0
        return size

    async def look(self, patience: float = 20.0) -> int:
        """Return the size that the page shows."""
        found: int = await self.results.get("page", self._compute, patience)
        return found

    async def rest(self) -> None:
        """Let what goes on in the background end."""
        for _ in range(10):
            await asyncio.sleep(0)


def _run(action: Callable[[_Page], Awaitable[None]]) -> None:
    async def main() -> None:
        await action(_Page())

    asyncio.run(main())


def test_a_result_is_kept_while_the_store_is_the_same() -> None:
    """However late it is, figures of a store that has not grown are computed once."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now += 100_000
        assert await page.look() == 0
        assert page.computed == 1

    _run(check)


def test_a_result_that_was_refreshed_is_there_for_the_first_who_looks() -> None:
    """It is computed once, also for those who look meanwhile; an error is shown to who asks."""

    async def check(page: _Page) -> None:
        page.gate = asyncio.Event()
        refreshing = [
            asyncio.create_task(page.results.refresh("page", page._compute, 20.0)) for _ in range(2)
        ]
        await page.rest()
        first = asyncio.create_task(page.look())
        await page.rest()
        assert not first.done()
        page.gate.set()
        assert await first == 0
        assert await asyncio.gather(*refreshing) == [1.0, 1.0]
        assert await page.results.refresh("page", page._compute, 20.0) == 0.0
        assert page.computed == 1

        page.error = ValueError("no")
        await page.results.refresh("other", page._compute, 20.0)
        with pytest.raises(ValueError, match="no"):
            await page.results.get("other", page._compute, 20.0)

    _run(check)


def test_a_refresh_computes_figures_that_are_out_of_date_for_the_next_who_looks() -> None:
    """Those who look meanwhile are shown the old ones, and nobody waits."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now, page.size, page.gate = 60.0, 5, asyncio.Event()
        refreshing = asyncio.create_task(page.results.refresh("page", page._compute, 20.0))
        await page.rest()
        assert await page.look() == 0
        page.gate.set()
        assert await refreshing == 1.0
        assert await page.look() == 5
        assert page.computed == 2

    _run(check)


class _Site:
    """A site that is used for some time, and notes the figures that are refreshed."""

    def __init__(self, uses: int, busy: int = 0) -> None:
        self.uses, self.busy, self.refreshed = uses, busy, list[Any]()

    def is_used(self) -> bool:
        self.uses -= 1
        return self.uses >= 0

    def is_busy(self) -> bool:
        self.busy -= 1
        return self.busy >= 0

    async def refresh(self, key: Any, _action: Any) -> float:
        self.refreshed.append(key)
        return 2.0


def test_figures_are_kept_ready_in_a_small_part_of_the_time() -> None:
    """They are computed one after the other with rests, and no more once nobody looks at pages."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 9:
            raise asyncio.CancelledError

    site: Any = _Site(uses=2)

    async def figures() -> list[Any]:
        return [("overview", len), ("variants", len)]

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_ready(site, figures, sleep))
    assert site.refreshed == ["overview", "variants", "overview", "variants"]
    assert rests == [2.0, 2.0, 5.0, 20.0, 20.0, 5.0, 5.0, 5.0, 5.0]


@pytest.mark.parametrize(("looks", "waits"), [(3, 3), (1000, 5)])
def test_figures_wait_for_people_who_look_at_pages(looks: int, waits: int) -> None:
    """They are computed once nobody looks, or after a while in which somebody always did."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if seconds == 2.0:
            raise asyncio.CancelledError

    async def figures() -> list[Any]:
        return [("overview", len)]

    site: Any = _Site(uses=1, busy=looks)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_ready(site, figures, sleep))
    assert site.refreshed == ["overview"]
    assert rests == [1.0] * waits + [2.0]


def test_figures_are_kept_ready_after_the_store_was_away(caplog: pytest.LogCaptureFixture) -> None:
    """A database that cannot be read is warned of, and tried again."""
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            raise asyncio.CancelledError

    async def figures() -> list[Any]:
        if not rests:
            raise StoreError("away")
        return [("overview", len)]

    site: Any = _Site(uses=2)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep_ready(site, figures, sleep))
    assert site.refreshed == ["overview"]
    assert "are not kept up to date: away" in caplog.text


def test_a_slow_result_is_shown_once_more_while_it_is_renewed() -> None:
    """Nobody waits for figures that were shown a minute ago; the next person sees the new ones."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now, page.size, page.gate = 60.0, 5, asyncio.Event()
        assert await page.look() == 0
        assert await page.look() == 0, "the second person does not wait either"
        page.gate.set()
        await page.rest()
        assert page.computed == 2, "two people who look have it renewed once"
        assert await page.look() == 5

    _run(check)


def test_an_old_result_is_not_shown() -> None:
    """Figures from more than five minutes ago are computed before they are shown."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now, page.size = 301.0, 5
        assert await page.look() == 5

    _run(check)


def test_who_changes_something_sees_it() -> None:
    """After a label or another change by a person, old figures are not shown once more."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now, page.size = 60.0, 5
        page.results.note_change()
        assert await page.look() == 5

    _run(check)


def test_without_patience_a_result_is_never_old() -> None:
    """Lists of runs that have just arrived are computed whenever the store has grown."""

    async def check(page: _Page) -> None:
        assert await page.look(0) == 0
        page.size = 5
        assert await page.look(0) == 5

    _run(check)


def test_an_error_of_a_renewal_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    """A renewal that fails is logged, and the next person gets the error, not the old figures."""

    async def check(page: _Page) -> None:
        assert await page.look() == 0
        page.now, page.size, page.error = 60.0, 5, OSError("the disk is gone")
        assert await page.look() == 0
        await page.rest()
        with pytest.raises(OSError, match="the disk is gone"):
            await page.look()
        page.error = None
        assert await page.look() == 5

    with caplog.at_level(logging.WARNING):
        _run(check)
    assert "could not be renewed: the disk is gone" in caplog.text


def test_a_renewal_that_was_cancelled_is_begun_again() -> None:
    """A server that stops in the middle of a renewal leaves nothing that would block the next."""
    page = _Page()

    async def begin() -> None:
        await page.look()
        page.now, page.size, page.gate = 60.0, 5, asyncio.Event()
        await page.look()

    async def go_on() -> None:
        page.gate = None
        assert await page.look() == 0
        await page.rest()
        assert await page.look() == 5

    asyncio.run(begin())
    asyncio.run(go_on())


def test_few_results_are_kept() -> None:
    """Of many searches, only the newest results stay in memory."""

    async def check(page: _Page) -> None:
        async def one() -> int:
            page.computed += 1
            return 1

        for number in range(40):
            await page.results.get(number, one, 20.0)
        await page.results.get(39, one, 20.0)
        assert page.computed == 40
        await page.results.get(0, one, 20.0)
        assert page.computed == 41

    _run(check)


def test_the_state_of_a_growing_store_is_asked_once_for_several_results() -> None:
    """It holds for a moment, but not for results that must never be out of date."""

    async def main() -> None:
        now, asked = 0.0, 0

        async def state() -> Any:
            nonlocal asked
            asked += 1
            return asked

        async def compute() -> int:
            return asked

        kept = KeptResults(state, recent=0.1, clock=lambda: now)
        for key in ("overview", "variants", "labels"):
            await kept.get(key, compute, 20.0)
        assert asked == 1
        await kept.get("rows", compute, 0)
        await kept.get("rows", compute, 0)
        assert asked == 3
        now = 0.2
        await kept.get("evaluators", compute, 20.0)
        assert asked == 4

    asyncio.run(main())
