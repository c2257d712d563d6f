"""OTLP over HTTP: the ASGI application with ``/v1/traces``, ``/v1/logs`` and ``/v1/metrics``."""

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
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..spool import Encoding, Kind, SpoolFull
from .auth import Access
from .intake import Accepted, Intake
from .limits import MAX_BYTES, Upload, Uploads, decompressed, too_large
from .responses import RequestRefused, status_json, status_protobuf, success_body, too_busy

__all__ = [
    "HttpReceiver",
    "HttpServer",
    "refusal",
    "refusal_of",
]

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_TYPES: dict[str, Encoding] = {PROTOBUF: "protobuf", JSON: "json"}
# Bodies up to this size (bytes) are checked in the event loop; a thread would cost more.
_SMALL = 1 << 16
# The most bytes of the bodies of all senders together, which are in memory.
_MAX_ARRIVING_BYTES = 512 << 20
_MAX_REQUESTS = 1024
BODY_TIMEOUT = 30.0  # seconds
_DISCARD_TIMEOUT = 5.0  # seconds
_KINDS = ("traces", "logs", "metrics")


class HttpReceiver:
    """The OTLP/HTTP endpoints."""

    def __init__(
        self,
        intake: Intake,
        access: Access,
        *,
        limit: int = MAX_BYTES,
        body_timeout: float = BODY_TIMEOUT,
    ) -> None:
        """Configure the receiver.

        Args:
            intake: Checks requests and appends them to the spool.
            access: Decides who may send.
            limit: The most bytes of a request, decompressed.
            body_timeout: A body must arrive within this time (s).
        """
        self._intake = intake
        self._access = access
        self._limit = limit
        self._uploads = Uploads(
            max_bytes=max(_MAX_ARRIVING_BYTES, 2 * limit),
            max_count=_MAX_REQUESTS,
            timeout=body_timeout,
        )

    def application(self, other_routes: Sequence[BaseRoute] = ()) -> Starlette:
        """The application.

        Args:
            other_routes: Further routes of the same port.
        """
        routes = [Route(f"/v1/{kind}", self._endpoint(kind), methods=["POST"]) for kind in _KINDS]
        return Starlette(routes=[*routes, *other_routes])

    def _endpoint(self, kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            start = time.perf_counter()
            encoding: Encoding = "protobuf"
            outcome, valid, rejected = "ok", 0, 0
            try:
                token = self._access.admit_sender(
                    request.headers.get("authorization"), _peer(request)
                )
                encoding = _encoding(request)
                accepted = await self._accept(kind, encoding, request, token.attributes)
                if accepted is None:
                    return _success(kind, encoding)
                valid, rejected, message = accepted.contents
                return _success(kind, encoding, rejected, message)
            except RequestRefused as refused:
                outcome = refused.kind
                return refusal(refused, encoding)
            except ClientDisconnect:
                outcome = "gone"
                return Response(status_code=400)
            finally:
                self._intake.observe(kind, outcome, valid, rejected, time.perf_counter() - start)

        return endpoint

    async def _accept(
        self, kind: str, encoding: Encoding, request: Request, attributes: Mapping[str, str]
    ) -> Accepted | None:
        try:
            size = _declared(request, self._limit)
        except RequestRefused:
            await self._discard(request)
            raise
        if kind != "metrics":
            self._intake.refuse_when_full(size)
        upload: Upload | None = None
        try:
            async with self._uploads.receive() as upload:
                body = await self._body(request, upload)
            if kind == "metrics":
                return None
            compression = request.headers.get("content-encoding", "")

            def accept() -> Accepted:
                plain = decompressed(body, compression, self._limit)
                name: Kind = "logs" if kind == "logs" else "traces"
                return self._intake.accept(name, encoding, plain, attributes)

            if len(body) <= _SMALL and not compression:
                accepted = accept()
            else:
                accepted = await asyncio.get_running_loop().run_in_executor(None, accept)
            try:
                await asyncio.wrap_future(accepted.durable)
            except SpoolFull as error:
                raise too_busy(str(error), "disk") from None
            return accepted
        finally:
            if upload is not None:
                self._uploads.done(upload)

    async def _discard(self, request: Request) -> None:
        """Read some of the body: a sender that is cut off while sending sees no response."""
        size = 0
        with suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(_DISCARD_TIMEOUT):
                async for part in request.stream():
                    size += len(part)
                    if size > 2 * self._limit:
                        return

    async def _body(self, request: Request, upload: Upload) -> bytes:
        """The body; its bytes count as they arrive."""
        parts: list[bytes] = []
        async for part in request.stream():
            upload.add(len(part))
            if upload.size > self._limit:
                raise too_large(self._limit)
            parts.append(part)
        return b"".join(parts)


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


def _encoding(request: Request) -> Encoding:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in _TYPES:
        reason = f"content-type {content_type[:60]!r}: send {PROTOBUF} or {JSON}"
        raise RequestRefused(415, "type", reason)
    return _TYPES[content_type]


def _declared(request: Request, limit: int) -> int:
    text = request.headers.get("content-length", "0")
    size = int(text) if text.isascii() and text.isdecimal() else 0
    if size > limit:
        raise too_large(limit)
    return size


def _success(kind: str, encoding: Encoding, rejected: int = 0, message: str = "") -> Response:
    media = JSON if encoding == "json" else PROTOBUF
    return Response(success_body(kind, encoding, rejected, message), media_type=media)


def refusal(refused: RequestRefused, encoding: Encoding = "json") -> Response:
    """A refusal as an HTTP response."""
    headers = {}
    if refused.retry_after is not None:
        headers["retry-after"] = str(refused.retry_after)
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refused.status in (408, 413):
        # The rest of the body is never read.
        headers["connection"] = "close"
    body = status_json(refused) if encoding == "json" else status_protobuf(refused)
    media = JSON if encoding == "json" else PROTOBUF
    return Response(body, refused.status, headers, media_type=media)


HEADER_TIMEOUT = 10.0  # seconds
MAX_CONNECTIONS = 1024
_MAX_HEADER_BYTES = 64 << 10
# Bytes of chunk framing without a byte of body. It is more than asyncio reads at once, so that a
# body that merely arrives slowly is not mistaken for framing.
_MAX_FRAMING_BYTES = 512 << 10


class _Connection(HttpToolsProtocol):
    """A connection with limits on its headers, its chunk framing and its idle time."""

    max_connections = MAX_CONNECTIONS
    # The server's connections without a request, the longest idle first.
    idle: dict[_Connection, None]
    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _framing_bytes = 0
    _in_headers = True
    _had_body = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.idle[self] = None
        if len(self.connections) > self.max_connections:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.transport.abort()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
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
            # Empty lines between requests count as headers.
            if self._timer is None and self in self.idle:
                self._start_timer()
            if self._header_bytes > _MAX_HEADER_BYTES and self in self.idle:
                self._refuse_headers()
        else:
            self._framing_bytes = 0 if self._had_body else self._framing_bytes + len(data)
            if self._framing_bytes > _MAX_FRAMING_BYTES:
                self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_headers = True
        self._start_timer()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored.
        if self._in_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self.idle.pop(self, None)
        self._in_headers = False
        self._header_bytes = self._framing_bytes = 0
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > _MAX_HEADER_BYTES:
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
        text = b"the request has more than %d bytes of headers" % _MAX_HEADER_BYTES
        head = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
        kind = b"content-type: text/plain; charset=utf-8\r\n"
        size = b"content-length: %d\r\n\r\n" % len(text)
        self.transport.write(head + kind + size + text)
        self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEADER_TIMEOUT, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpServer(uvicorn.Server):
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
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        """Configure the server.

        Args:
            application: The ASGI application.
            certificate: The file with the certificate chain, for TLS.
            key: The file with its key.
            client_ca: The file with the authorities. One of them must have signed a client's
                certificate.
            connections: The most connections. Beyond them, the longest idle connection is closed.
        """
        own = {"max_connections": connections, "idle": {}}
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
        """Install no signal handlers; the process has installed them."""
        yield


def refusal_of(status: int, reason: str) -> ASGIApp:
    """The response of a refusal in the receiver's form, for `LocalRequests`."""
    return refusal(RequestRefused(status, "host", reason))
