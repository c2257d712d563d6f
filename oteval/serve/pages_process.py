"""The process that shows pages, seen from the listening process: started when somebody looks.

A slow page cannot delay an acknowledgement, because that is sent by another process. A server
whose pages nobody opens does not spend memory on them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base.child_process import module_command, module_environment
from ..ingest import Access, Token
from .server_config import ServerConfig

__all__ = ["PagesProcess"]

_log = logging.getLogger(__name__)
_MODULE = "oteval.views.pages.server"
_START_TIMEOUT, _STOP_TIMEOUT = 30.0, 3.0  # seconds
# Seconds before a process that ended is started again.
_PAUSE = 1.0


class PagesProcess:
    """Keeps the process running from the first page on.

    Args:
        config: The configuration of the server.
        access: The tokens.
        module: The module that the process runs.
    """

    def __init__(self, config: ServerConfig, access: Access, module: str = _MODULE) -> None:
        self._config, self._access, self._module = config, access, module
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._sent: tuple[Token, ...] = ()
        self._is_stopping = False
        self._number = 0

    @property
    def pid(self) -> int | None:
        """The process id; None when it does not run."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def socket(self) -> str:
        """The path of the socket of the process, which is started if it does not run.

        Raises:
            OSError: It cannot be started.
        """
        async with self._starting:
            if self._is_stopping:
                raise OSError("the server is stopping")
            if self.pid is None:
                await self._start()
            return self._socket

    def update_tokens(self) -> None:
        """Send the tokens to the process if they have changed."""
        if self.pid is not None and self._sent != self._access.tokens:
            self._send({"tokens": self._tokens()})

    async def stop(self) -> None:
        """End the process, and so the connections of pages that wait for events."""
        self._is_stopping = True
        process = self._process
        if process is not None and process.returncode is None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._folder is not None:
            with suppress(OSError):
                self._folder.cleanup()

    @property
    def _socket(self) -> str:
        assert self._folder is not None
        return str(Path(self._folder.name) / f"pages-{self._number}.sock")

    async def _start(self) -> None:
        if self._process is not None:
            _log.error("the pages ended with status %s; started again", self._process.returncode)
            await asyncio.sleep(_PAUSE)
        if self._folder is None:
            # Only this user may open the folder.
            self._folder = tempfile.TemporaryDirectory(prefix="oteval-pages-")
        self._number += 1
        process = await asyncio.create_subprocess_exec(
            *module_command(self._module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=module_environment(),
        )
        self._process = process
        assert process.stdout is not None
        self._send(
            {
                "db": self._config.db,
                "config": self._config.config,
                "socket": self._socket,
                "log_format": self._config.log_format,
                "tokens": self._tokens(),
            }
        )
        try:
            is_ready = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT)
        except TimeoutError:
            is_ready = b""
        if not is_ready:
            with suppress(ProcessLookupError):
                process.kill()
            raise OSError(f"the pages did not start (status {await process.wait()})")

    def _tokens(self) -> list[dict[str, Any]]:
        self._sent = self._access.tokens
        return [
            {"name": token.name, "digest": token.digest, "may": token.may} for token in self._sent
        ]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
