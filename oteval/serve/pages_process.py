"""The process that shows pages, seen from the listening process: started when somebody looks.

A slow page cannot delay an acknowledgement, because that is sent by another process. A server
whose pages nobody opens does not spend memory on them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from ..base.child_process import module_command, module_environment
from ..ingest import Access, RequestRefused, Token, refusal
from .server_config import ServerConfig

__all__ = [
    "PagesProcess",
    "PagesProxy",
]

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


_LONGEST_BODY = 512 << 10  # bytes
_HEAD_TIMEOUT = 60.0  # seconds
_PIECE = 64 << 10
# Headers of one connection, and headers by which a client could pretend to be a proxy.
_NOT_FORWARDED = frozenset(
    b"connection keep-alive te trailer transfer-encoding upgrade expect content-length "
    b"proxy-authorization proxy-connection forwarded x-forwarded-for x-forwarded-host "
    b"x-forwarded-proto".split()
)
_NOT_RETURNED = frozenset(b"connection keep-alive transfer-encoding server".split())
# Paths of the receiver and its status, which never are pages.
_OTHERS = ("v1", "api", "metrics", "healthz", "readyz")


class PagesProxy:
    """Answers requests for pages.

    Args:
        process: The process that shows them.
    """

    def __init__(self, process: PagesProcess) -> None:
        self._process = process

    async def endpoint(self, request: Request) -> Response:
        """The response of the process to a request."""
        if request.url.path.strip("/").partition("/")[0] in _OTHERS:
            return Response(status_code=405 if request.method == "GET" else 404)
        try:
            head, body = _head(request), await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except RequestRefused as refused:
            return refusal(refused)
        try:
            reader, writer = await asyncio.open_unix_connection(
                await self._process.socket(), limit=_PIECE * 2
            )
        except OSError:
            return _away()
        try:
            writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
            async with asyncio.timeout(_HEAD_TIMEOUT):
                status, headers = await _read_head(reader)
        except (OSError, EOFError, TimeoutError, ValueError):
            writer.close()
            return _away()
        pieces = _pieces(reader, writer, headers, is_empty=request.method == "HEAD")
        response = StreamingResponse(pieces, status)
        response.raw_headers = [header for header in headers if header[0] not in _NOT_RETURNED]
        return response


def _away() -> Response:
    return refusal(RequestRefused(503, "away", "the pages are away", retry_after=1))


def _head(request: Request) -> bytes:
    """The first lines of the request to forward, without the length of its body."""
    query = request.scope["query_string"]
    target = request.scope["raw_path"] + (b"?" + query if query else b"")
    lines = [request.method.encode() + b" " + target + b" HTTP/1.1"]
    lines += [
        name + b": " + value for name, value in request.headers.raw if name not in _NOT_FORWARDED
    ]
    lines += [b"connection: close", b"x-forwarded-proto: " + request.url.scheme.encode()]
    if request.client:
        lines.append(b"x-forwarded-for: " + request.client.host.encode())
    if any(set(line) & {0, 10, 13} for line in lines):
        raise RequestRefused(400, "invalid", "the request has line ends in its headers")
    return b"\r\n".join(lines) + b"\r\n"


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_BODY:
            raise RequestRefused(413, "size", f"a form may have {_LONGEST_BODY >> 10} KB")
    return body


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    """The status and the headers of a response."""
    lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    status = int(lines[0].split(b" ")[1])
    headers = []
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers.append((name.strip().lower(), value.strip()))
    return status, headers


async def _pieces(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    headers: list[tuple[bytes, bytes]],
    *,
    is_empty: bool,
) -> AsyncIterator[bytes]:
    """Yield the body of a response as it arrives, and close the connection at its end."""
    header_values = dict(headers)
    try:
        if is_empty:
            return
        if header_values.get(b"transfer-encoding", b"").lower() == b"chunked":
            while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            return
        left = int(header_values.get(b"content-length", b"-1"))
        while left and (piece := await reader.read(min(_PIECE, left) if left > 0 else _PIECE)):
            left -= len(piece) if left > 0 else 0
            yield piece
    finally:
        writer.close()
