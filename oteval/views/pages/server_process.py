"""The process that shows the pages of `oteval serve`; its module is the entry point.

It serves HTTP on a Unix socket, to which the listening process forwards requests, and reads the
database through the storage process. Its configuration is the first line of its standard input,
because other users can see arguments; further lines replace the tokens. When standard input ends,
the listening process is gone, and this process ends.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.files import private_umask
from ...base.machine import infrequent_gc
from ...ingest import Access, HttpServer, Token
from ...serve import configure_logging
from ...store import Store
from .access import PageAccess
from .app import create_app
from .ready_figures import ready_figures
from .site import GC_AFTER, Site

__all__ = ["main"]

_MAX_LINE = 4 << 20


def tokens_of(token_values: Sequence[Mapping[str, Any]]) -> list[Token]:
    """The tokens of a message of the listening process."""
    return [Token(str(value["name"]), str(value["digest"]), value["may"]) for value in token_values]


async def serve(config: Mapping[str, Any], lines: asyncio.StreamReader) -> None:
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
    await serve(config, lines)


if __name__ == "__main__":
    with private_umask(), infrequent_gc(GC_AFTER):
        asyncio.run(main())
