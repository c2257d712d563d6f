"""Open a backend by its name, with the environment variables that its own tools use."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from ...base.errors import ConfigError
from ...base.text import shown_url
from ...scoring import AnnotationTarget
from .clickhouse import ClickHouse
from .interface import TraceSource
from .jaeger import Jaeger
from .json_api import JsonApi
from .langfuse import Langfuse
from .langsmith import LangSmith
from .mlflow import MLflow
from .phoenix import Phoenix
from .tempo import Tempo

__all__ = ["SOURCES", "TARGETS", "open_source", "open_target"]

SOURCES = ("phoenix", "mlflow", "langfuse", "langsmith", "clickhouse", "jaeger", "tempo")
"""The backends that traces are pulled from."""
TARGETS = ("phoenix", "mlflow", "langfuse", "langsmith")
"""The backends that scores are pushed to."""

Headers = Mapping[str, str]

_PHOENIX_URL = "http://localhost:6006"
_MLFLOW_URL = "http://localhost:5000"
_LANGFUSE_URL = "https://cloud.langfuse.com"
_LANGSMITH_URL = "https://api.smith.langchain.com"
_CLICKHOUSE_URL = "http://localhost:8123"
_JAEGER_URL = "http://localhost:16686"
_TEMPO_URL = "http://localhost:3200"


@dataclass(frozen=True, slots=True)
class _Address:
    """The address of a backend, and how to get access.

    Attributes:
        url: The base URL.
        headers: The headers with the key.
        hint: The remedy when the key is missing or wrong.
    """

    url: str
    headers: Headers
    hint: str


def open_source(
    name: str, url: str | None, headers: Headers, environment: Mapping[str, str]
) -> TraceSource:
    """The backend that traces are pulled from.

    Args:
        name: One of `SOURCES`.
        url: Its base URL; None takes the URL of its environment variable, or its usual local URL.
        headers: Further headers of every request.
        environment: The environment variables, which contain the key.

    Raises:
        ConfigError: The URL is invalid.
    """
    source: TraceSource = _open(name, url, headers, environment)
    return source


def open_target(
    name: str,
    url: str | None,
    headers: Headers,
    environment: Mapping[str, str],
    *,
    timeout: float = 60.0,
    patience: float = 120.0,
) -> AnnotationTarget:
    """The backend that scores are pushed to, one of `TARGETS`; see `open_source`.

    Args:
        name: One of `TARGETS`.
        url: Its base URL, or None.
        headers: Further headers of every request.
        environment: The environment variables.
        timeout: As for `JsonApi`.
        patience: As for `JsonApi`.
    """
    target: AnnotationTarget = _open(name, url, headers, environment, timeout, patience)
    return target


def _open(
    name: str,
    url: str | None,
    headers: Headers,
    environment: Mapping[str, str],
    timeout: float = 60.0,
    patience: float = 120.0,
) -> Any:
    backend, address_of = _BACKENDS[name]
    address = address_of(url, environment)
    request_headers = {**address.headers, **headers}
    api = JsonApi(
        address.url,
        backend.__name__,
        request_headers,
        key_hint=address.hint,
        timeout=timeout,
        patience=patience,
    )
    return backend(api)


def _phoenix(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or environment.get("PHOENIX_COLLECTOR_ENDPOINT") or _PHOENIX_URL
    address = re.sub(r"/v1/traces/?$", "", address)
    headers = _bearer(environment.get("PHOENIX_API_KEY"))
    hint = "set PHOENIX_API_KEY"
    return _Address(_checked(address), headers, hint)


def _mlflow(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or environment.get("MLFLOW_TRACKING_URI") or _MLFLOW_URL
    headers = _bearer(environment.get("MLFLOW_TRACKING_TOKEN"))
    user = environment.get("MLFLOW_TRACKING_USERNAME")
    if user and not headers:
        headers = _basic(user, environment.get("MLFLOW_TRACKING_PASSWORD", ""))
    hint = "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
    return _Address(_checked(address), headers, hint)


def _langfuse(url: str | None, environment: Mapping[str, str]) -> _Address:
    host = environment.get("LANGFUSE_BASE_URL") or environment.get("LANGFUSE_HOST")
    headers = {}
    if key := environment.get("LANGFUSE_PUBLIC_KEY"):
        headers = _basic(key, environment.get("LANGFUSE_SECRET_KEY", ""))
    hint = "set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY"
    address = _checked(url or host or _LANGFUSE_URL)
    return _Address(address, headers, hint)


def _langsmith(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or _first(environment, "LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT")
    address = re.sub(r"/api(/v1)?/?$", "", address or _LANGSMITH_URL)
    headers = {}
    if key := _first(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY"):
        headers["X-API-Key"] = key
    if workspace := environment.get("LANGSMITH_WORKSPACE_ID"):
        headers["X-Tenant-Id"] = workspace
    hint = "set LANGSMITH_API_KEY"
    return _Address(_checked(address), headers, hint)


def _clickhouse(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or environment.get("CLICKHOUSE_URL") or _CLICKHOUSE_URL
    headers = {}
    if user := environment.get("CLICKHOUSE_USER"):
        password = environment.get("CLICKHOUSE_PASSWORD", "")
        headers = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
    hint = "set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD"
    return _Address(_checked(address), headers, hint)


def _jaeger(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or environment.get("JAEGER_URL") or _JAEGER_URL
    headers = _bearer(environment.get("JAEGER_TOKEN"))
    hint = "set JAEGER_TOKEN, or give --header"
    return _Address(_checked(address), headers, hint)


def _tempo(url: str | None, environment: Mapping[str, str]) -> _Address:
    address = url or environment.get("TEMPO_URL") or _TEMPO_URL
    headers = _bearer(environment.get("TEMPO_TOKEN"))
    hint = "set TEMPO_TOKEN, or give --header"
    return _Address(_checked(address), headers, hint)


_BACKENDS: Mapping[str, tuple[type, Callable[[str | None, Mapping[str, str]], _Address]]] = {
    "phoenix": (Phoenix, _phoenix),
    "mlflow": (MLflow, _mlflow),
    "langfuse": (Langfuse, _langfuse),
    "langsmith": (LangSmith, _langsmith),
    "clickhouse": (ClickHouse, _clickhouse),
    "jaeger": (Jaeger, _jaeger),
    "tempo": (Tempo, _tempo),
}


def _first(environment: Mapping[str, str], *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _basic(user: str, password: str) -> dict[str, str]:
    text = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {text}"}


def _checked(text: str) -> str:
    try:
        is_valid = bool(re.match(r"https?://[^/\s]+", text)) and urlsplit(text).port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError(f"{shown_url(text)!r}: write http://HOST:PORT or https://HOST")
    return text.rstrip("/")


# The entry points of the group ``oteval.backends``.
phoenix, mlflow, langfuse, langsmith = (partial(open_target, name) for name in TARGETS)
