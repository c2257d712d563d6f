"""Server-sent events: ``/events`` reports when runs or scores have arrived, or a trace has ended.

Pages then load their list again. The events of a visitor end when the visitor's token is revoked.

The store is queried twice a second, however many pages listen, but only while a page listens. A
store that answers slowly is queried less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ...store import Store, StoreState
from .site import Site

__all__ = ["StoreChanges", "events_routes", "state_text"]

_INTERVAL = 0.5  # seconds between two queries to the store
# The pause after a query is at least so many times as long as the query took.
_REST = 10
_KEEP_ALIVE = 15.0  # seconds after which a line without meaning is sent
_CHECK_INTERVAL = 1.0  # seconds between two checks whether a listener may still read
_MOST_LISTENERS = 64


def state_text(state: StoreState) -> str:
    """The state of a store as text for pages and events."""
    return f"{state.runs}.{state.scores}"


class StoreChanges:
    """Notices that a store has grown.

    Args:
        read: Returns the state of the store as text.
        interval: The least seconds between two calls of it.
    """

    def __init__(self, read: Callable[[], Awaitable[str]], interval: float = _INTERVAL) -> None:
        self._read, self._interval = read, interval
        self._state = ""
        self._woken = asyncio.Event()
        self._listeners = 0
        self._is_closed = False
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether there are so many listeners that no other one is accepted."""
        return self._listeners >= _MOST_LISTENERS

    async def after(
        self, last_state: str, may_read: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[str]:
        """Yield the state whenever it differs from the state seen last; "" to keep a line open.

        Args:
            last_state: The state that the listener has seen.
            may_read: Whether the listener may still read; checked every second.
        """
        quiet_since = time.monotonic()
        self._listeners += 1
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        try:
            while not self._is_closed and may_read():
                if self._state in ("", last_state):
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._woken.wait(), _CHECK_INTERVAL)
                state = "" if self._state == last_state else self._state
                is_due = state or time.monotonic() - quiet_since > _KEEP_ALIVE
                if is_due and may_read():
                    quiet_since = time.monotonic()
                    yield state
                    last_state = state or last_state
        finally:
            self._listeners -= 1
            if not self._listeners and self._asking is not None:
                self._asking.cancel()
                self._asking = None

    def close(self) -> None:
        """End all lines, because the server stops."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    async def _ask(self) -> None:
        while True:
            begun = time.monotonic()
            # A server that is away for a moment is queried again.
            with suppress(Exception):
                state = await self._read()
                if state != self._state:
                    self._state = state
                    self._wake()
            took = time.monotonic() - begun
            await asyncio.sleep(max(self._interval, _REST * took))


def events_routes(site: Site) -> list[Route]:
    """The route of events."""

    def state(store: Store) -> str:
        return state_text(store.run_list.state()) + site.previews.state(store)

    changes = StoreChanges(lambda: site.read(state))
    site.at_stop.append(changes.close)

    async def events(request: Request) -> Response:
        if changes.is_full:
            raise HTTPException(503, "too many pages listen for runs; reload this one by hand")
        last_state = request.query_params.get("state", "")
        may_read: Callable[[], bool] = getattr(request.state, "may_read", lambda: True)

        async def lines() -> AsyncIterator[str]:
            yield "retry: 3000\n\n"
            async for state in changes.after(last_state, may_read):
                yield f"data: {state}\n\n" if state else ":\n\n"

        return StreamingResponse(
            lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    return [Route("/events", events)]
