"""The secrets in the headers and the URL of an HTTP request, or of its response.

They are removed wherever they recur in the exchange, if they are plausible.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote, unquote_plus

from .known_secrets import is_credential_header
from .secret_names import is_secret_header, is_secret_parameter
from .secret_values import is_plausible

__all__ = ["AUTHORITY", "credentials", "request_secrets", "response_secrets"]

AUTHORITY = re.compile(r"(?<=://)[^/?#@]*@")
"""The user and password in a URL."""


def request_secrets(headers: Iterable[tuple[str, str]], url: str) -> frozenset[str]:
    """The literal secrets of a request, to be removed wherever they recur.

    Args:
        headers: The request's headers.
        url: Its URL.
    """
    secrets: set[str] = set()
    for name, value in headers:
        if not is_secret_header(name):
            continue
        if "cookie" in name.lower():
            secrets.update(_cookie_values(value))
            continue
        scheme, _, token = value.strip().partition(" ")
        secrets.update((value.strip(), token.strip()))
        if scheme.lower() == "basic":
            secrets.update(_basic_parts(token.strip()))
    authority = AUTHORITY.search(url)
    if authority:
        secrets.update(unquote(part) for part in authority[0][:-1].split(":"))
    query = url.partition("?")[2].partition("#")[0]
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if is_secret_parameter(name):
            secrets.add(unquote_plus(value))
    return frozenset(filter(is_plausible, secrets))


def credentials(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the credentials in the headers of a request, which recur in other requests.

    Args:
        headers: The headers.
    """
    for name, value in headers:
        if is_credential_header(name) and not value.startswith("AWS4-"):
            yield from _credentials(value)


@functools.lru_cache(256)
def _credentials(value: str) -> tuple[str, ...]:
    scheme, _, token = value.strip().partition(" ")
    if not token:
        return (scheme,)
    token = token.strip()
    return (token, *(_basic_parts(token)[1:] if scheme.lower() == "basic" else ()))


def response_secrets(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The values of the cookies that a response sets.

    Args:
        headers: The headers of the response.
    """
    return frozenset(
        value.strip().strip('"')
        for name, header in headers
        if name.lower() == "set-cookie"
        for value in [header.partition(";")[0].partition("=")[2]]
        if is_plausible(value)
    )


def _cookie_values(header: str) -> Iterator[str]:
    for part in header.split(";"):
        yield part.partition("=")[2].strip()


def _basic_parts(token: str) -> list[str]:
    try:
        user, _, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return []
    return [user, password]
