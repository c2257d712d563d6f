"""The secrets of HTTP exchanges: in headers and URLs, and in the fields of forms.

Secrets in the headers and the URL of a request, or of its response, are removed wherever they recur
in the exchange, if they are plausible. A key without a known form is recognised by the header that
contains it. From then on it is removed from everything that the process records: servers echo keys
in answers and in errors, and clients quote them in exceptions.

A part of a multipart body is named by its header; its value may have several lines. A value of an
encoded form may be JSON, as in ``payload=%7B%22password%22...``.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote_plus, unquote, unquote_plus

from .secret_names import is_secret_header, is_secret_parameter, secret_kind
from .secret_values import is_plausible, is_words
from .text_edits import Edit

__all__ = [
    "AUTHORITY",
    "PROCESS_SECRETS",
    "KnownSecrets",
    "credentials",
    "encoded_edits",
    "is_credential_header",
    "multipart_secrets",
    "request_secrets",
    "response_secrets",
]

_MAX_SECRETS = 64


def is_credential_header(name: str) -> bool:
    """Whether a header contains a credential that is the same in many requests.

    Names of sessions and cookies are in other headers; they may also name a conversation.
    """
    return secret_kind(name) in ("secret", "token", "bare token")


class KnownSecrets:
    """A bounded set of secrets. If it is full, the oldest are dropped."""

    def __init__(self, limit: int = _MAX_SECRETS) -> None:
        self._limit = limit
        self._seen: dict[str, None] = {}
        self._secrets: frozenset[str] = frozenset()
        # Reentrant: a handler of a signal may send a request.
        self._lock = threading.RLock()

    def add(self, secrets: Iterable[str]) -> None:
        """Add plausible secrets. Servers without keys receive words: "not-needed", "lm-studio"."""
        for secret in secrets:
            if secret in self._seen or not is_plausible(secret):
                continue
            with self._lock:
                self._seen[secret] = None
                for oldest in list(self._seen)[: -self._limit]:
                    del self._seen[oldest]
                self._secrets = frozenset(self._seen)

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets; the same object until a secret is added."""
        return self._secrets


PROCESS_SECRETS = KnownSecrets()
"""The secrets that the clients of this process have sent while it was recorded."""


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


_BOUNDARY = re.compile(r"boundary=\"?([^\";\s]+)", re.IGNORECASE)
_HEADERS = re.compile(r"[ \t]*\r?\n((?:[^\r\n]+\r?\n)*)\r?\n")
_NAME = re.compile(r"(?i)\bname=(?:\"([^\"\r\n]*)\"|([^\s;\"]+))")
_ENCODED = re.compile(r"(?<==)[^&\s]*%[^&\s]*")


def multipart_secrets(text: str, content_type: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values of fields that name secrets.

    Args:
        text: The body.
        content_type: Its ``Content-Type``, with the boundary.
    """
    for name, start, end in _form_fields(text, content_type):
        is_secret = bool(secret_kind(name))
        if not is_secret and is_secret_parameter(name):
            is_secret = not is_words(text[start:end])
        if is_secret and end > start:
            yield start, end


def _form_fields(text: str, content_type: str) -> Iterator[tuple[str, int, int]]:
    """Yield the names of the fields of a multipart body, with the places of their values."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return
    mark = f"--{boundary[1]}"
    at = text.find(mark)
    while at >= 0:
        at += len(mark)
        following = text.find(mark, at)
        headers = _HEADERS.match(text, at)
        if headers is not None and (name_match := _NAME.search(headers[1])):
            end = len(text) if following < 0 else following
            value = text[headers.end() : end]
            length = len(value.removesuffix("\n").removesuffix("\r"))
            name = name_match[1] or name_match[2] or ""
            yield name, headers.end(), headers.end() + length
        at = following


def encoded_edits(text: str, redact: Callable[[str], str]) -> Iterator[Edit]:
    """Yield the edits of values of an encoded form that contain secrets after decoding.

    Args:
        text: The form.
        redact: Returns a decoded value without secrets.
    """
    for match in _ENCODED.finditer(text):
        plain = unquote_plus(match[0])
        redacted = redact(plain)
        if redacted != plain:
            yield Edit(*match.span(), quote_plus(redacted))
