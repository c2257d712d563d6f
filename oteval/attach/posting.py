"""Requests to an OTLP/HTTP endpoint, one connection kept open."""

from __future__ import annotations

import base64
import gzip
import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from ..text import shown_url

__all__ = ["MOST_WAIT", "Answer", "Poster", "Target", "basic_authorization"]

_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
# What may go well another time: the endpoint is busy or gone, or its settings are to be changed.
_RETRIED = frozenset({401, 403, 404, 405, 407, 408, 425, 429, 500, 502, 503, 504})
_FAULT = 500
# So long (s) an endpoint may have oteval wait.
MOST_WAIT = 300.0


class Answer(NamedTuple):
    """What an endpoint answered.

    Attributes:
        status: The HTTP status; 0 when it could not be reached.
        reason: The status in words, or why it could not.
        wait: How many seconds it asks to wait; 0 where it does not.
        body: What it said beside that, which tells of a partial success.
    """

    status: int
    reason: str = ""
    wait: float = 0.0
    body: bytes = b""

    @property
    def is_taken(self) -> bool:
        """Whether it took the request."""
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether it never will take this very request."""
        return 400 <= self.status < 500 and self.status not in _RETRIED

    @property
    def may_be_the_request(self) -> bool:
        """Whether it failed for the endpoint's sake or for this very request's: one cannot tell."""
        return self.status == _FAULT


class Target(Protocol):
    """An endpoint that takes requests.

    Attributes:
        url: Its base URL, as it may be shown: without a password.
    """

    url: str

    def post(self, signal: str, body: bytes, encoding: str = "protobuf") -> Answer:
        """Send a request."""

    def close(self) -> None:
        """Close the connection."""


class Poster:
    """Sends requests to an endpoint; used by one thread.

    Args:
        url: The base URL; a user and password in it are sent as basic authorization.
        headers: Headers of every request.
        compress: Whether bodies are compressed.
        timeout: How long an answer may take (s).
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        *,
        compress: bool = False,
        timeout: float = 10.0,
    ) -> None:
        parts = urlsplit(url)
        self.url = shown_url(url)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._headers = {"User-Agent": "oteval", **(headers or {})}
        basic = basic_authorization(url)
        if basic and "authorization" not in map(str.lower, self._headers):
            self._headers["Authorization"] = basic
        self._compress, self._timeout = compress, timeout
        self._connection: http.client.HTTPConnection | None = None

    def post(self, signal: str, body: bytes, encoding: str = "protobuf") -> Answer:
        """Send a request.

        Args:
            signal: ``traces``, ``logs`` or ``metrics``.
            body: The request.
            encoding: ``protobuf`` or ``json``.
        """
        headers = {**self._headers, "Content-Type": _TYPES[encoding]}
        if self._compress:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        is_reused = self._connection is not None
        answer = self._asked(signal, body, headers)
        if answer.status == 0 and is_reused:
            # The endpoint may just have closed a connection that was idle.
            answer = self._asked(signal, body, headers)
        return answer

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _asked(self, signal: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request("POST", f"{self._path}/v1/{signal}", body, dict(headers))
            response = self._connection.getresponse()
            said = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Answer(0, f"{type(error).__name__}: {error}")
        if response.will_close:
            self.close()
        wait = _wait(response.getheader("Retry-After"))
        return Answer(response.status, response.reason, wait, said)

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


def _wait(value: str | None) -> float:
    try:
        return min(max(0.0, float(value or 0)), MOST_WAIT)
    except ValueError:
        return 0.0


def basic_authorization(url: str) -> str:
    """Return the authorization header for a URL's user and password; "" if it has no user."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
