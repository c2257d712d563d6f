"""The credentials that a client sends, and messages of servers without them.

Servers repeat a key in their errors: "invalid key sk-...". Such a message goes to terminals, logs
and notifications.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from urllib.parse import quote, unquote, urlsplit

__all__ = ["Credentials", "basic_authorization"]

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
