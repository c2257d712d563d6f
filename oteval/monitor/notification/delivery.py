"""The result of an attempt to deliver a notification, and the HTTP requests of attempts.

Redirects are not followed, so that no header reaches another host. An error names the host of a
destination, but neither its path nor its query, because the path or query of a webhook often is
the secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from ...base.clients.otlp_client import ExportResult, HttpClient
from ...base.text import printable

__all__ = [
    "MAX_WAIT",
    "WRONG_HEADER",
    "WRONG_URL",
    "DeliveryResult",
    "post",
    "result_of",
    "with_variables",
]

# Seconds that a destination may request to wait.
MAX_WAIT = 86400.0
# Refused now, but perhaps not later: a timeout, a request that was too early, or too many requests.
_TEMPORARY = frozenset({408, 425, 429})
WRONG_URL = "its URL is not valid"
WRONG_HEADER = "one of its headers has a line break or a letter outside Latin-1"
_VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Whether a notification was delivered.

    Attributes:
        is_delivered: Whether the destination accepted it.
        error: Why not, in words without secrets.
        is_refused: Whether the destination will never accept it.
        retry_after: Seconds that the destination requests to wait; 0 if it does not.
    """

    is_delivered: bool
    error: str = ""
    is_refused: bool = False
    retry_after: float = 0.0


def post(
    url: str, body: bytes, headers: Mapping[str, str], *, timeout: float = 10.0
) -> DeliveryResult:
    """Send a POST request, without following redirects.

    Args:
        url: The URL. A user and password in it are sent as basic authorization.
        body: The body.
        headers: The headers.
        timeout: Seconds that the whole request may take.
    """
    # Errors of the library quote the URL or a header, so they are replaced.
    try:
        parts = urlsplit(url)
        client = HttpClient(url, headers, timeout=timeout, max_retry_after=MAX_WAIT)
    except ValueError:
        return DeliveryResult(False, WRONG_URL, is_refused=True)
    # With a space or a letter outside ASCII, the request would be an error.
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~")
    if parts.query:
        target += f"?{quote(parts.query, safe='/?%:@!$&()*+,;=~')}"
    try:
        response = client.post(target, body)
    except ValueError:
        return DeliveryResult(False, WRONG_HEADER)
    finally:
        client.close()
    return result_of(response, url)


def result_of(response: ExportResult, url: str) -> DeliveryResult:
    """The result for a response.

    Args:
        response: The response.
        url: The destination's URL, whose host is named.
    """
    if response.is_accepted:
        return DeliveryResult(True)
    parts = urlsplit(url)
    host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    reason = printable(response.reason)[:200]
    error = f"{host}: {response.status or ''} {reason}".replace(":  ", ": ")
    if 300 <= response.status < 400:
        # Not refused for good, because pages about maintenance are often redirects.
        error += "; redirects are not followed"
    return DeliveryResult(
        False,
        error,
        is_refused=400 <= response.status < 500 and response.status not in _TEMPORARY,
        retry_after=response.retry_after,
    )


def with_variables(text: str, environment: Mapping[str, str], *, quoted: bool = False) -> str:
    """Return text with ``${NAME}`` replaced by the environment's values.

    Args:
        text: The text.
        environment: The environment's variables.
        quoted: Whether values are quoted as parts of a URL, unless the text is one variable.

    Raises:
        ValueError: A variable is not set; the message names it.
    """
    is_whole = _VARIABLE.fullmatch(text) is not None

    def value(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ValueError(f"the environment has no {match[1]}")
        variable = environment[match[1]]
        return quote(variable, safe="") if quoted and not is_whole else variable

    return _VARIABLE.sub(value, text)
