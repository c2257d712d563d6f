"""URLs that may hold a password: how they are shown, and how the password is sent."""

from __future__ import annotations

import base64
import re
from urllib.parse import unquote, urlsplit

__all__ = ["basic_authorization", "shown_url"]


def shown_url(url: str) -> str:
    """Return a URL as logs and messages may have it: without user, password and query.

    All up to the last @ is hidden: a password that is not quoted may hold anything.
    """
    scheme, slashes, rest = url.partition("//")
    if not slashes:
        scheme, rest = "", url
    _, at, place = rest.rpartition("@")
    return scheme + slashes + ("***@" if at else "") + re.split(r"[?#]", place, maxsplit=1)[0]


def basic_authorization(url: str) -> str:
    """Return the value of the authorization header that a URL's user and password stand for."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
