"""OTLP over HTTP: an ASGI application, and the server it runs in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..spool import Encoding, SpoolFull
from .answers import Refused, status_json, status_message, success, too_busy
from .auth import Tokens
from .intake import Intake, Taken
from .limits import MAX_BYTES, InFlight, decompressed, too_large

__all__ = ["HttpReceiver", "Server", "refusal"]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_TYPES: dict[str, Encoding] = {PROTOBUF: "protobuf", JSON: "json"}
# A body this small is looked through at once; a thread of its own would cost more.
_SMALL = 1 << 16
# What may be received at once over all senders; the bodies are held in memory.
_AT_ONCE = 512 << 20
HEADER_TIMEOUT = 10.0
BODY_TIMEOUT = 30.0
_DISCARD_TIMEOUT = 5.0
_KINDS = ("traces", "logs", "metrics")


class HttpReceiver:
    """Answers ``/v1/traces``, ``/v1/logs`` and ``/v1/metrics``."""

    def __init__(
        self,
        intake: Intake,
        tokens: Tokens,
        *,
        limit: int = MAX_BYTES,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        self._intake = intake
        self._tokens = tokens
        self._limit = limit
        self._body_timeout = body_timeout
        self._in_flight = InFlight(max(_AT_ONCE, 2 * limit))

    def application(self, others: Sequence[BaseRoute] = ()) -> Starlette:
        """Return the application.

        Args:
            others: Routes of what else the port serves.
        """
        routes = [Route(f"/v1/{kind}", self._endpoint(kind), methods=["POST"]) for kind in _KINDS]
        return Starlette(routes=[*routes, *others])

    def _endpoint(self, kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            start = time.perf_counter()
            encoding: Encoding = "protobuf"
            outcome, good, rejected = "ok", 0, 0
            try:
                self._tokens.check_ingest(request.headers.get("authorization"))
                encoding = _encoding(request)
                taken = await self._take(kind, encoding, request)
                if taken is None:
                    return _success(kind, encoding)
                good, rejected, message = taken.checked
                return _success(kind, encoding, rejected, message)
            except Refused as refused:
                outcome = refused.kind
                return refusal(refused, encoding)
            except ClientDisconnect:
                outcome = "gone"
                return Response(status_code=400)
            finally:
                self._intake.observe(kind, outcome, good, rejected, time.perf_counter() - start)

        return endpoint

    async def _take(self, kind: str, encoding: Encoding, request: Request) -> Taken | None:
        try:
            size = _declared(request, self._limit)
        except Refused:
            await self._discard(request)
            raise
        if kind != "metrics":
            self._intake.refuse_when_full(size)
        self._in_flight.add(size)
        counted = [size]
        try:
            body = await self._body(request, counted)
            if kind == "metrics":
                return None
            compression = request.headers.get("content-encoding", "")

            def take() -> Taken:
                plain = decompressed(body, compression, self._limit)
                return self._intake.take("logs" if kind == "logs" else "traces", encoding, plain)

            if len(body) <= _SMALL and not compression:
                taken = take()
            else:
                taken = await asyncio.get_running_loop().run_in_executor(None, take)
            try:
                await asyncio.wrap_future(taken.durable)
            except SpoolFull as error:
                raise too_busy(str(error), "disk") from None
            return taken
        finally:
            self._in_flight.remove(sum(counted))

    async def _discard(self, request: Request) -> None:
        """Read on a little: a sender that is cut off while it sends hears no answer."""
        size = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DISCARD_TIMEOUT):
                async for part in request.stream():
                    size += len(part)
                    if size > 2 * self._limit:
                        return

    async def _body(self, request: Request, counted: list[int]) -> bytes:
        """Read the body; what it has more than was declared is counted as it comes."""
        parts: list[bytes] = []
        size = 0
        declared = counted[0]
        try:
            async with asyncio.timeout(self._body_timeout):
                async for part in request.stream():
                    size += len(part)
                    if size > self._limit:
                        raise too_large(self._limit)
                    if size > declared:
                        self._in_flight.add(len(part))
                        counted.append(len(part))
                    parts.append(part)
        except TimeoutError:
            raise Refused(408, "slow", "the body did not come in time") from None
        return b"".join(parts)


def _encoding(request: Request) -> Encoding:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in _TYPES:
        raise Refused(415, "type", f"content-type {given[:60]!r}: send {PROTOBUF} or {JSON}")
    return _TYPES[given]


def _declared(request: Request, limit: int) -> int:
    text = request.headers.get("content-length", "0")
    size = int(text) if text.isascii() and text.isdecimal() else 0
    if size > limit:
        raise too_large(limit)
    return size


def _success(kind: str, encoding: Encoding, rejected: int = 0, message: str = "") -> Response:
    media = JSON if encoding == "json" else PROTOBUF
    return Response(success(kind, encoding, rejected, message), media_type=media)


def refusal(refused: Refused, encoding: Encoding = "json") -> Response:
    """Return the HTTP answer of a refusal."""
    headers = {}
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refused.status in (408, 413):
        # The rest of the body is not read.
        headers["connection"] = "close"
    body = status_json(refused) if encoding == "json" else status_message(refused)
    media = JSON if encoding == "json" else PROTOBUF
    return Response(body, refused.status, headers, media_type=media)


class _Protocol(HttpToolsProtocol):
    """Closes connections whose request line and headers do not come in time."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect()

    def on_headers_complete(self) -> None:
        self._forget()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._forget()
        self._timer = self.loop.call_later(HEADER_TIMEOUT, self.transport.close)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its process.

    Attributes:
        config: uvicorn's settings.
    """

    def __init__(
        self, application: Any, *, certificate: str | None = None, key: str | None = None
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=_Protocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                backlog=2048,
                limit_concurrency=4096,
                timeout_graceful_shutdown=5,
                ssl_certfile=certificate,
                ssl_keyfile=key,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers; the process has its own."""
        yield
