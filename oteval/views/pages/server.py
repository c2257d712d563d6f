"""Serve the pages: on this machine for one person, or in a process of `oteval serve`.

That process serves HTTP on a Unix socket, to which the listening process forwards requests, and
reads the database through the storage process. Its configuration is the first line of its standard
input, because other users can see arguments; further lines replace the tokens. When standard input
ends, the listening process is gone, and this process ends.

On a million runs, the overview of all of them takes more than a second. While people use the pages,
its figures and the figures of the lists of evaluators and variants are therefore kept up to date.
They are computed one after the other, in a small part of the time, and if possible while nobody
waits for another page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from ...base.errors import ConfigError
from ...base.files import KeptFile, private_umask
from ...base.machine import infrequent_gc, user_name
from ...base.web_guard import LocalRequests, listening_socket
from ...ingest import Access, HttpServer, Token, refusal_of
from ...serve import configure_logging
from ...store import Store
from .access import PageAccess
from .app import create_app
from .evaluators import evaluators_figures
from .overview import overview_figures
from .site import GC_AFTER, Site
from .variants import variants_figures

__all__ = ["Figures", "NewLink", "keep_ready", "main", "ready_figures", "serve_locally"]

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
_HOST = "127.0.0.1"
_MAX_LINE = 4 << 20


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


class NewLink(Protocol):
    """Returns a new link to the pages, which works once."""

    def __call__(self, on_used: Callable[[], None] = ...) -> str:
        """A link; `on_used` is called when somebody has logged in with it."""


def serve_locally(
    store: Store,
    config: Path | None = None,
    *,
    port: int = 0,
    on_ready: Callable[[NewLink], None] = lambda _: None,
) -> None:
    """Serve the pages of a store on the loopback address until SIGTERM or SIGINT.

    Only a person with a link, see `on_ready`, can read the pages and act on runs. Other commands of
    this machine can use the database meanwhile.

    Args:
        store: The store.
        config: The configuration by which its runs are scored; None without one.
        port: The port; 0 for a free one.
        on_ready: Called once the server listens, with a function that returns links to the pages.

    Raises:
        ConfigError: The port is in use.
    """
    try:
        listener = listening_socket(_HOST, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"--port {port}: cannot listen there ({reason}); give another --port"
        ) from error
    url = f"http://{_HOST}:{listener.getsockname()[1]}"
    is_file = not store.is_served and Path(store.path).is_file()
    check = KeptFile(Path(store.path)).require if is_file else lambda: None
    site = Site(store.path, store.sibling, config, check=check)
    access = PageAccess.for_one_user(user_name(), may_act=not store.is_read_only)

    def new_link(on_used: Callable[[], None] = lambda: None) -> str:
        return f"{url}/login?code={access.link_code(on_used)}"

    try:
        with listener, _shared(store, url), infrequent_gc(GC_AFTER):
            asyncio.run(_serve(site, access, listener, lambda: on_ready(new_link)))
    finally:
        site.close()


async def _serve(
    site: Site, access: PageAccess, listener: socket.socket, on_ready: Callable[[], None]
) -> None:
    application = LocalRequests(create_app(site, access), has_pages=True, refusal=refusal_of)
    server = HttpServer(application)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        site.stop()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    on_ready()
    async with ready_figures(site):
        await server.serve([listener])


@contextmanager
def _shared(store: Store, url: str) -> Iterator[None]:
    """Let other processes use a database through this one, if this one has the file open."""
    if store.is_served or store.is_read_only or not Path(store.path).is_file():
        yield
        return
    notice = {"program": "oteval view", "http": url, "takes_traces": False}
    server = store.serve(lambda _: b"", notice)
    try:
        yield
    finally:
        server.close()


def tokens_of(token_values: Sequence[Mapping[str, Any]]) -> list[Token]:
    """The tokens of a message of the listening process."""
    return [Token(str(value["name"]), str(value["digest"]), value["may"]) for value in token_values]


async def serve_pages(config: Mapping[str, Any], lines: asyncio.StreamReader) -> None:
    """Serve until standard input ends.

    Args:
        config: The keys ``db``, ``config`` (a path or ""), ``socket``, ``log_format`` and
            ``tokens``.
        lines: Standard input after its first line.
    """
    database, path = str(config["db"]), str(config["config"])
    site = Site(
        database,
        lambda: Store.of_server(database),
        Path(path) if path else None,
        is_served=True,
    )
    access = Access(tokens_of(config["tokens"]))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(config["socket"])
    listener.listen(256)
    server = HttpServer(create_app(site, PageAccess(access)))
    serving = asyncio.create_task(server.serve([listener]))
    print('{"is_ready": true}', flush=True)
    async with ready_figures(site):
        while line := await lines.readline():
            access.replace(tokens_of(json.loads(line)["tokens"]))
    site.stop()
    server.should_exit = True
    await serving
    site.close()


async def main() -> None:
    """Read the configuration, and serve."""
    lines = asyncio.StreamReader(_MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin.buffer)
    config = json.loads(await lines.readline())
    configure_logging(str(config["log_format"]), "pages")
    await serve_pages(config, lines)


if __name__ == "__main__":
    with private_umask(), infrequent_gc(GC_AFTER):
        asyncio.run(main())
