"""Open a backend by its name, with the environment variables that its own tools use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..errors import ConfigError
from ..text import shown_url
from .interface import AnnotationTarget, TraceSource
from .json_api import JsonApi
from .phoenix import Phoenix

__all__ = ["SOURCES", "TARGETS", "open_source", "open_target"]

SOURCES = ("phoenix",)
"""The backends from which traces are pulled."""
TARGETS = ("phoenix",)
"""The backends to which scores are pushed."""

_PHOENIX_URL = "http://localhost:6006"


def open_source(
    name: str, url: str | None, headers: Mapping[str, str], environment: Mapping[str, str]
) -> TraceSource:
    """Return the backend from which traces are pulled.

    Args:
        name: One of `SOURCES`.
        url: Its base URL; None takes that of its environment variable, or its usual local one.
        headers: Further headers of every request.
        environment: The environment variables, from which the key comes.

    Raises:
        ConfigError: The URL is invalid.
    """
    del name  # Phoenix is the only one.
    return _phoenix(url, headers, environment)


def open_target(
    name: str, url: str | None, headers: Mapping[str, str], environment: Mapping[str, str]
) -> AnnotationTarget:
    """Return the backend to which scores are pushed; see `open_source`."""
    del name  # Phoenix is the only one.
    return _phoenix(url, headers, environment)


def _phoenix(
    url: str | None, headers: Mapping[str, str], environment: Mapping[str, str]
) -> Phoenix:
    given = url or environment.get("PHOENIX_COLLECTOR_ENDPOINT") or _PHOENIX_URL
    given = re.sub(r"/v1/traces/?$", "", given)
    key = environment.get("PHOENIX_API_KEY")
    known = {"Authorization": f"Bearer {key}"} if key else {}
    api = JsonApi(_checked(given), "Phoenix", {**known, **headers}, key_hint="set PHOENIX_API_KEY")
    return Phoenix(api)


def _checked(text: str) -> str:
    if not re.match(r"https?://[^/\s]+", text):
        raise ConfigError(f"{shown_url(text)!r}: write http://HOST:PORT or https://HOST")
    return text.rstrip("/")
