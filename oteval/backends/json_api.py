"""Requests to a backend's JSON API, with retries and errors that a person can act on."""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from ..attach.otlp_client import basic_authorization
from ..errors import BackendError
from ..jsontext import dumps, loads
from ..text import shown_name, shown_url

__all__ = ["JsonApi", "Query"]

Query = Sequence[tuple[str, str]]

_TIMEOUT = 408
_RETRYABLE = frozenset({_TIMEOUT, 425, 429, 500, 502, 503, 504})
_RATE_LIMIT = 429
_TOO_LARGE = 413
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
# Bytes of an answer that are read.
MAX_ANSWER = 256 << 20


class JsonApi:
    """A JSON API over HTTP. It keeps one connection open; used by one thread.

    Redirects are not followed, because they would carry the key to another host.

    Args:
        url: The base URL. A user and password in it are sent as basic authorization.
        product: The backend's name, for messages.
        headers: Headers of every request, perhaps with a key.
        key_hint: The remedy when the key is missing or wrong.
        timeout: Seconds to wait for an answer.
        patience: Seconds for which a request is retried while the backend is busy or away.
        sleep: Waits a number of seconds.

    Attributes:
        url: The base URL without a password, fit for messages.
        last_headers: The headers of the last answer, with names in lower case.
    """

    def __init__(
        self,
        url: str,
        product: str,
        headers: Mapping[str, str],
        *,
        key_hint: str = "",
        timeout: float = 60.0,
        patience: float = 120.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        parts = urlsplit(url)
        self.url = shown_url(url).rstrip("/")
        self.last_headers: Mapping[str, str] = {}
        self._product, self._key_hint = product, key_hint
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._base = parts.path.rstrip("/")
        self._headers = {"User-Agent": "oteval", "Accept": "application/json", **headers}
        basic = basic_authorization(url)
        if basic and "authorization" not in map(str.lower, self._headers):
            self._headers["Authorization"] = basic
        self._timeout, self._patience, self._sleep = timeout, patience, sleep
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Query = (), *, once: Collection[int] = ()) -> Any:
        """Return the parsed answer to a GET request; see `request`."""
        return self.request("GET", path, query, once=once)

    def post(self, path: str, body: Any, query: Query = ()) -> Any:
        """Return the parsed answer to a POST request; see `request`."""
        return self.request("POST", path, query, body)

    def request(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: Any = None,
        *,
        once: Collection[int] = (),
    ) -> Any:
        """Send a request, and again while the backend is busy or away; return the parsed answer.

        Args:
            method: The HTTP method.
            path: The path below the base URL, quoted.
            query: Names and values of the query; a name may occur several times.
            body: The body, to be sent as JSON; None sends none.
            once: Statuses after which the request is not sent again.

        Raises:
            BackendError: The backend refuses the request, or its answer is not JSON. The status is
                0 without an answer.
        """
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        waited, wait = 0.0, _FIRST_WAIT
        while True:
            try:
                return self._once(method, target, body)
            except BackendError as error:
                pause = max(error.retry_after, wait)
                # A backend that never answered is not there, or the URL is wrong.
                is_retryable = error.status in _RETRYABLE or (
                    error.status == 0 and bool(self.last_headers)
                )
                if not is_retryable or error.status in once:
                    raise
                if waited + pause > self._patience:
                    raise
            self._sleep(pause)
            waited += pause
            wait = min(wait * 2, _LONGEST_WAIT)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _once(self, method: str, target: str, body: Any) -> Any:
        data = None if body is None else dumps(body).encode()
        headers = self._headers if data is None else {
            **self._headers, "Content-Type": "application/json"
        }  # fmt: skip
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request(method, target, data, headers)
            response = self._connection.getresponse()
            content = response.read(MAX_ANSWER + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise BackendError(
                f"{self.url}: no answer ({reason}); is {self._product} running there?",
                _TIMEOUT if isinstance(error, TimeoutError) else 0,
            ) from None
        if response.will_close or not response.isclosed():
            self.close()
        self.last_headers = {name.lower(): value for name, value in response.getheaders()}
        if len(content) > MAX_ANSWER:
            raise BackendError(f"{self.url}: the answer is too large", _TOO_LARGE)
        if not 200 <= response.status < 300:
            raise self._refusal(response.status, response.reason, content)
        try:
            return loads(content) if content.strip() else None
        except ValueError:
            raise BackendError(
                f"{self.url}: the answer is not JSON; is this the URL of {self._product}?",
                response.status,
            ) from None

    def _refusal(self, status: int, reason: str, content: bytes) -> BackendError:
        if status in (401, 403):
            hint = f"; {self._key_hint}" if self._key_hint else ""
            return BackendError(
                f"{self.url}: {status} {reason}: key missing or invalid{hint}", status
            )
        if status == _RATE_LIMIT:
            wait = _seconds(self.last_headers.get("retry-after", ""))
            later = f" in {wait:,.0f} s" if wait else " later"
            return BackendError(
                f"{self.url}: rate limit; run this again{later}, finished work is kept",
                status,
                retry_after=wait,
            )
        if 300 <= status < 400:
            place = shown_url(self.last_headers.get("location", "elsewhere"))
            return BackendError(f"{self.url}: redirects to {place}; give that URL", status)
        text = shown_name(content[:400].decode("utf-8", "replace"), 200)
        return BackendError(
            f"{self.url}: {status} {reason}: {text}",
            status,
            retry_after=_seconds(self.last_headers.get("retry-after", "")),
        )

    def _connect(self) -> http.client.HTTPConnection:
        if self._is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


def _seconds(value: str) -> float:
    """Parse a Retry-After header with seconds; a date or anything else is 0."""
    try:
        return max(0.0, float(value))
    except ValueError:
        return 0.0
