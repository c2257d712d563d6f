"""The receiver's HTTP server: uvicorn, with limits on connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .http import refusal
from .responses import RequestRefused

__all__ = ["HttpServer", "refusal_of"]

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
