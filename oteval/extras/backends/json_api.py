"""Requests to a backend's JSON API, with retries and errors that a person can act on."""

from __future__ import annotations

import http.client
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from ...base.clients.http_connection import HttpConnection, HttpReply, SlowAnswer
from ...base.errors import BackendError
from ...base.jsontext import dumps, loads
from ...base.text import printable, shown_name, shown_url

__all__ = ["JsonApi", "Query"]

Query = Sequence[tuple[str, str]]

_TIMEOUT = 408
_RETRYABLE = frozenset({_TIMEOUT, 425, 429, 500, 502, 503, 504})
_RATE_LIMIT = 429
_TOO_LARGE = 413
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
# Bytes of an answer that are read.
MAX_ANSWER = 256 << 20
# An answer that arrives at a reasonable rate may take this many times the timeout.
_LONG_ANSWER = 10
# Characters of an error that are searched for credentials, and characters that are shown.
_ERROR_READ, _ERROR_SHOWN = 4000, 200


class JsonApi:
    """A JSON API over HTTP. It keeps one connection open; used by one thread.

    Redirects are not followed, because they would carry the key to another host.

    Args:
        url: The base URL. A user and password in it are sent as basic authorization.
        product: The backend's name, for messages.
        headers: Headers of every request, perhaps with a key.
        key_hint: The remedy when the key is missing or wrong.
        timeout: Seconds until an answer must arrive. A long answer may take up to ten times as
            long, while it arrives at a reasonable rate.
        patience: Seconds of retries for a request while the backend is busy or away.
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
        self._connection = HttpConnection(
            url,
            {"Accept": "application/json", **headers},
            timeout=timeout,
            longest=_LONG_ANSWER * timeout,
            most_bytes=MAX_ANSWER + 1,
        )
        self.url = self._connection.url
        self.last_headers: Mapping[str, str] = {}
        self._product, self._key_hint = product, key_hint
        self._patience, self._sleep = patience, sleep

    def get(self, path: str, query: Query = (), *, once: Collection[int] = ()) -> Any:
        """The parsed answer to a GET request; see `request`."""
        return self.request("GET", path, query, once=once)

    def post(self, path: str, body: Any, query: Query = ()) -> Any:
        """The parsed answer to a POST request; see `request`."""
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
        target = f"{self._connection.path}{path}" + (f"?{urlencode(query)}" if query else "")
        spent, wait = 0.0, _FIRST_WAIT
        while True:
            started = time.monotonic()
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
                spent += time.monotonic() - started
                if spent + pause > self._patience:
                    raise
            self._sleep(pause)
            spent += pause
            wait = min(wait * 2, _LONGEST_WAIT)

    def error(self, text: str, status: int = 0, *, retry_after: float = 0.0) -> BackendError:
        """An error of one line, which begins with the URL.

        Args:
            text: The error. Texts of the backend in it come from `quoted`.
            status: The HTTP status.
            retry_after: Seconds that the backend requests to wait.
        """
        line = " ".join(printable(text).split())
        return BackendError(f"{self.url}: {line}", status, retry_after=retry_after)

    def quoted(self, text: str) -> str:
        """Return text of the backend for a message: without credentials, short, on one line."""
        safe = self._connection.credentials.removed_from(text[:_ERROR_READ])
        return shown_name(safe[: 2 * _ERROR_SHOWN], _ERROR_SHOWN)

    def foreign(self, detail: str = "") -> BackendError:
        """The error for an answer that does not follow the backend's API.

        Args:
            detail: The fault in it.
        """
        wrong = f" ({self.quoted(detail)})" if detail else ""
        return self.error(
            f"the answer is not one of {self._product}{wrong}; is this the right URL?"
        )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn the exceptions of a block that reads an answer into an error of one line.

        Raises:
            BackendError: A value is missing, or has another type or form than in the API.
        """
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            is_missing = isinstance(error, KeyError) and bool(error.args)
            raise self.foreign(f"it has no {error.args[0]}" if is_missing else str(error)) from None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _once(self, method: str, target: str, body: Any) -> Any:
        data = None if body is None else dumps(body).encode()
        headers = self._connection.headers if data is None else {
            **self._connection.headers, "Content-Type": "application/json"
        }  # fmt: skip
        try:
            answer = self._connection.exchange(method, target, data, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._silence(error) from None
        except ValueError:
            # Without the message of the library, which shows the key.
            hint = f" ({self._key_hint})" if self._key_hint else ""
            raise self.error(
                f"a key or header{hint} has a line break or a letter outside Latin-1"
            ) from None
        self.last_headers = answer.headers
        if len(answer.body) > MAX_ANSWER:
            raise self.error("the answer is too large", _TOO_LARGE)
        if not 200 <= answer.status < 300:
            raise self._refusal(answer)
        try:
            return loads(answer.body) if answer.body.strip() else None
        except ValueError:
            raise self.error(
                f"the answer is not JSON; is this the URL of {self._product}?", answer.status
            ) from None

    def _silence(self, error: Exception) -> BackendError:
        """The error for a request without a whole answer."""
        if isinstance(error, SlowAnswer):
            # A smaller page would be as slow.
            return self.error(f"the answer comes too slowly ({error})")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return self.error(
            f"no answer ({self.quoted(reason)}); is {self._product} running there?",
            _TIMEOUT if isinstance(error, TimeoutError) else 0,
        )

    def _refusal(self, answer: HttpReply) -> BackendError:
        status, reason = answer.status, self.quoted(answer.reason)
        wait = _seconds(answer.headers.get("retry-after", ""))
        if status in (401, 403):
            hint = f"; {self._key_hint}" if self._key_hint else ""
            return self.error(f"{status} {reason}: key missing or invalid{hint}", status)
        if status == _RATE_LIMIT:
            later = f" in {wait:,.0f} s" if wait else " later"
            text = f"rate limit; run this again{later}, finished work is kept"
            return self.error(text, status, retry_after=wait)
        if 300 <= status < 400:
            target = self.quoted(shown_url(answer.headers.get("location", "elsewhere")))
            return self.error(f"redirects to {target}; give that URL", status)
        text = self.quoted(answer.body[:_ERROR_READ].decode("utf-8", "replace"))
        return self.error(f"{status} {reason}: {text}", status, retry_after=wait)


def _seconds(value: str) -> float:
    """Parse a Retry-After header with seconds; a date or anything else is 0."""
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return seconds if 0 < seconds < math.inf else 0.0
