"""A kept HTTP connection whose exchanges end, and the credentials that it sends.

The time limit of a socket begins anew with each byte, so a server that sends a byte now and then
blocks its client forever. Here the limit applies to the whole exchange. If long answers are
expected, it grows with the bytes that have arrived, up to a second limit.

Servers repeat a key in their errors: "invalid key sk-...". Such a message goes to terminals, logs
and notifications, so it loses the credentials that the client sent.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from ..text import shown_url

__all__ = [
    "Credentials",
    "HttpConnection",
    "HttpReply",
    "SlowAnswer",
    "basic_authorization",
]

# Headers without credentials. All others may have some.
_PLAIN_HEADERS = frozenset(
    {"accept", "content-encoding", "content-type", "user-agent", "x-clickhouse-user", "x-tenant-id"}
)
# Shorter texts occur by chance.
_SHORTEST = 3
_PLACEHOLDER = "[redacted]"


class Credentials:
    """The values of a client's headers.

    Args:
        headers: The headers of its requests, or the metadata of gRPC.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def removed_from(self, text: str) -> str:
        """Return text of the server without these credentials, and without texts like a key."""
        # Imported only when needed: its patterns take a while to compile.
        from ..redaction.secrets import SecretRedactor

        for secret in self._forms:
            text = text.replace(secret, _PLACEHOLDER)
        return SecretRedactor(environment={}).text(text)

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """The credentials in all forms that a server may repeat, longest first."""
        secrets = {
            part
            for name, value in self._headers.items()
            if name.lower() not in _PLAIN_HEADERS
            for part in _parts_of(value)
            if len(part) >= _SHORTEST
        }
        forms = {
            form
            for secret in secrets
            for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
        }
        return tuple(sorted(forms, key=len, reverse=True))


def basic_authorization(url: str) -> str:
    """The authorization header for a URL's user and password, "" if it has no user."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _parts_of(value: str) -> Iterator[str]:
    """Yield the secrets in the value of a header: the whole, the token, a password."""
    yield value.strip()
    scheme, _, token = value.strip().partition(" ")
    yield token.strip()
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
            # A key alone is passed as the user.
            yield password or user


# The minimum rate of a long answer, in bytes per second.
_SLOWEST = 1024


class SlowAnswer(TimeoutError):
    """An answer began, but it did not arrive in time."""


class HttpReply(NamedTuple):
    """An answer.

    Attributes:
        status: The HTTP status.
        reason: The status in words.
        headers: The headers, with names in lower case.
        body: The body, cut after the maximum number of bytes.
    """

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class HttpConnection:
    """A connection to one server, opened when it is needed; used by one thread.

    Redirects are not followed, because they would carry credentials to another host.

    Args:
        url: The base URL. A user and password in it are sent as basic authorization.
        headers: Headers of every request.
        timeout: Seconds that an exchange may take.
        longest: Seconds that the exchange of a long answer may take, while it arrives at a
            reasonable rate; by default `timeout`.
        most_bytes: Bytes of a body that are read.

    Attributes:
        url: The base URL without a password, fit for messages.
        path: The path of the base URL.
        headers: The headers of every request.
        credentials: Their values, to be removed from messages of the server.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        timeout: float,
        longest: float | None = None,
        most_bytes: int,
    ) -> None:
        parts = urlsplit(url)
        self.url, self.path = shown_url(url).rstrip("/"), parts.path.rstrip("/")
        self.headers = {"User-Agent": "oteval", **headers}
        basic = basic_authorization(url)
        if basic and "authorization" not in map(str.lower, self.headers):
            self.headers["Authorization"] = basic
        self.credentials = Credentials(self.headers)
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._clock = _ExchangeClock(timeout, longest or timeout)
        self._most_bytes = most_bytes
        self._connection: http.client.HTTPConnection | None = None

    @property
    def is_open(self) -> bool:
        """Whether the connection of an earlier exchange is kept."""
        return self._connection is not None

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpReply:
        """Send a request, and return its answer.

        Args:
            method: The HTTP method.
            target: The path and query.
            body: The body, if any.
            headers: All headers of the request.

        Raises:
            OSError: The answer is missing; a `TimeoutError` if it did not arrive in time.
            http.client.HTTPException: The answer is not HTTP.
            ValueError: A header has a line break or a letter outside Latin-1.
        """
        self._clock.start()
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._opened()
            if connection.sock is not None:
                connection.sock.settimeout(self._clock.left())
            connection.request(method, target, body, dict(headers))
            response = connection.getresponse()
            content = response.read(self._most_bytes)
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        if response.will_close or not response.isclosed():
            self.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return HttpReply(response.status, response.reason, names, content)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> http.client.HTTPConnection:
        timeout = self._clock.left()
        connection: http.client.HTTPConnection
        if self._is_secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout, context=context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        connection.response_class = partial(  # type: ignore[assignment]
            _TimedResponse, clock=self._clock
        )
        return connection


class _ExchangeClock:
    """How long the present exchange may still take."""

    def __init__(self, timeout: float, longest: float) -> None:
        self._timeout, self._longest = timeout, longest
        self._started, self.received = 0.0, 0

    def start(self) -> None:
        self._started, self.received = time.monotonic(), 0

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            TimeoutError: No seconds are left.
        """
        limit = min(self._timeout + self.received / _SLOWEST, self._longest)
        left = self._started + limit - time.monotonic()
        if left > 0:
            return left
        raise self.timeout()

    def timeout(self) -> TimeoutError:
        spent = time.monotonic() - self._started
        if self.received:
            return SlowAnswer(f"only {self.received:,} bytes of it in {spent:.0f} s")
        return TimeoutError(f"none within {spent:.0f} s")


class _TimedReader(socket.SocketIO):
    """Reads from a socket until an exchange's time is over."""

    def __init__(self, sock: socket.socket, clock: _ExchangeClock) -> None:
        super().__init__(sock, "r")
        self._timed_socket, self._clock = sock, clock

    def readinto(self, buffer: Any) -> int | None:
        self._timed_socket.settimeout(self._clock.left())
        try:
            count = super().readinto(buffer)
        except TimeoutError:
            raise self._clock.timeout() from None
        self._clock.received += count or 0
        return count


class _TimedResponse(http.client.HTTPResponse):
    """A response that is read through `_TimedReader`."""

    def __init__(self, sock: socket.socket, *args: Any, clock: _ExchangeClock, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp.close()
        # As `socket.makefile` does: the socket stays open until the reader is closed.
        sock._io_refs += 1  # type: ignore[attr-defined]
        self.fp = io.BufferedReader(_TimedReader(sock, clock))
