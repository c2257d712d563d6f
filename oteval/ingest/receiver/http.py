"""OTLP over HTTP: an ASGI application, and the server it runs in."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..spool import Encoding, Kind, SpoolFull
from .answers import Refused, status_json, status_message, success, too_busy
from .arrivals import Arrival, Arrivals
from .auth import Access
from .intake import Intake, Taken
from .limits import MAX_BYTES, decompressed, too_large

__all__ = ["HttpReceiver", "Server", "refusal"]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_TYPES: dict[str, Encoding] = {PROTOBUF: "protobuf", JSON: "json"}
# A body this small is looked through at once; a thread of its own would cost more.
_SMALL = 1 << 16
# What may be received at once over all senders; the bodies are held in memory.
_AT_ONCE = 512 << 20
_MOST_REQUESTS = 1024
HEADER_TIMEOUT = 10.0
MOST_CONNECTIONS = 1024
_MOST_HEADER_BYTES = 64 << 10
# More than asyncio reads at once, so that framing is told from a body that comes slowly.
_MOST_FRAMING = 512 << 10
BODY_TIMEOUT = 30.0
_DISCARD_TIMEOUT = 5.0
_KINDS = ("traces", "logs", "metrics")


class HttpReceiver:
    """Answers ``/v1/traces``, ``/v1/logs`` and ``/v1/metrics``."""

    def __init__(
        self,
        intake: Intake,
        access: Access,
        *,
        limit: int = MAX_BYTES,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        self._intake = intake
        self._access = access
        self._limit = limit
        self._arrivals = Arrivals(
            most_bytes=max(_AT_ONCE, 2 * limit), most=_MOST_REQUESTS, timeout=body_timeout
        )

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
                token = self._access.admit_sender(
                    request.headers.get("authorization"), _peer(request)
                )
                encoding = _encoding(request)
                taken = await self._take(kind, encoding, request, token.attributes)
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

    async def _take(
        self, kind: str, encoding: Encoding, request: Request, attributes: Mapping[str, str]
    ) -> Taken | None:
        try:
            size = _declared(request, self._limit)
        except Refused:
            await self._discard(request)
            raise
        if kind != "metrics":
            self._intake.refuse_when_full(size)
        arrival: Arrival | None = None
        try:
            async with self._arrivals.arriving() as arrival:
                body = await self._body(request, arrival)
            if kind == "metrics":
                return None
            compression = request.headers.get("content-encoding", "")

            def take() -> Taken:
                plain = decompressed(body, compression, self._limit)
                name: Kind = "logs" if kind == "logs" else "traces"
                return self._intake.take(name, encoding, plain, attributes)

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
            if arrival is not None:
                self._arrivals.done(arrival)

    async def _discard(self, request: Request) -> None:
        """Read on a little: a sender that is cut off while it sends hears no answer."""
        size = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DISCARD_TIMEOUT):
                async for part in request.stream():
                    size += len(part)
                    if size > 2 * self._limit:
                        return

    async def _body(self, request: Request, arrival: Arrival) -> bytes:
        """Return the body, each part counted as it arrives."""
        parts: list[bytes] = []
        async for part in request.stream():
            arrival.add(len(part))
            if arrival.size > self._limit:
                raise too_large(self._limit)
            parts.append(part)
        return b"".join(parts)


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


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


class _Connection(HttpToolsProtocol):
    """A connection whose headers, framing and idleness may not cost others their service."""

    most = MOST_CONNECTIONS
    # Those of the server that have no request, the one that has been so the longest first.
    idle: dict[_Connection, None]
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _framing_bytes = 0
    _in_headers = True
    _had_body = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.idle[self] = None
        if len(self.connections) > self.most:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.transport.abort()
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self.idle.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._had_body = False
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_headers:
            # Empty lines between requests count as well.
            if self._timer is None and self in self.idle:
                self._expect()
            if self._header_bytes > _MOST_HEADER_BYTES and self in self.idle:
                self._refuse_headers()
        else:
            self._framing_bytes = 0 if self._had_body else self._framing_bytes + len(data)
            if self._framing_bytes > _MOST_FRAMING:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._expect()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers mean nothing here.
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._forget()
        self.idle.pop(self, None)
        self._in_headers = False
        self._header_bytes = self._framing_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > _MOST_HEADER_BYTES:
            self._refuse_headers()
        elif not self.transport.is_closing():
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._had_body = True
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        if not self.transport.is_closing():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and not self.transport.is_closing():
            self.idle[self] = None

    def _refuse_headers(self) -> None:
        text = b"the request has more than %d bytes of headers" % _MOST_HEADER_BYTES
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
        kind = b"content-type: text/plain; charset=utf-8\r\n"
        size = b"content-length: %d\r\n\r\n" % len(text)
        self.transport.write(head + kind + size + text)
        self.transport.close()

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
        self,
        application: Any,
        *,
        certificate: str | None = None,
        key: str | None = None,
        client_ca: str | None = None,
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        """Prepare to serve.

        Args:
            application: The ASGI application.
            certificate: The file of the certificate chain, for TLS.
            key: The file of its key.
            client_ca: The file of the authorities of which clients must have a certificate.
            connections: The most connections; beyond it the one that is idle longest is closed.
        """
        own = {"most": connections, "idle": {}}
        super().__init__(
            uvicorn.Config(
                application,
                http=type("Connection", (_Connection,), own),
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                backlog=2048,
                timeout_graceful_shutdown=5,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                ssl_ca_certs=client_ca,
                ssl_cert_reqs=ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no handlers; the process has its own."""
        yield
