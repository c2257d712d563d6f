"""Serve the pages of a database on this machine, without a server for traces."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ...base.addresses import listening_socket
from ...base.errors import ConfigError
from ...base.files import KeptFile
from ...base.machine import infrequent_gc, user_name
from ...base.web_guard import LocalRequests
from ...ingest import HttpServer, refusal_of
from ...store import Store
from .access import PageAccess
from .app import create_app
from .ready_figures import ready_figures
from .site import GC_AFTER, Site

__all__ = ["NewLink", "serve_locally"]

_HOST = "127.0.0.1"


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
