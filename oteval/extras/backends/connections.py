"""Open a backend by its name, with the environment variables that its own tools use."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...base.errors import ConfigError
from ...base.text import shown_url
from ...scoring import AnnotationTarget
from .clickhouse import ClickHouse
from .jaeger import Jaeger
from .json_api import JsonApi
from .langfuse import Langfuse
from .langsmith import LangSmith
from .mlflow import MLflow
from .phoenix import Phoenix
from .tempo import Tempo
from .transfer import TraceSource

__all__ = ["SOURCES", "TARGETS", "open_source", "open_target"]

SOURCES = ("phoenix", "mlflow", "langfuse", "langsmith", "clickhouse", "jaeger", "tempo")
"""The backends that traces are pulled from."""
TARGETS = ("phoenix", "mlflow", "langfuse", "langsmith")
"""The backends that scores are pushed to."""

Headers = Mapping[str, str]
Environment = Mapping[str, str]


class _Product(NamedTuple):
    """A product: its backend, and how its own tools find and open it.

    Attributes:
        backend: The backend.
        usual_url: Its base URL if none is given.
        urls: The environment variables with its base URL; the first that is set counts.
        headers: Returns the headers with the key.
        hint: The remedy when the key is missing or wrong.
        suffix: The end of URLs that its own tools use, which is not part of the base URL.
    """

    backend: type
    usual_url: str
    urls: tuple[str, ...]
    headers: Callable[[Environment], Headers]
    hint: str
    suffix: str = ""


def open_source(
    name: str, url: str | None, headers: Headers, environment: Environment
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
    environment: Environment,
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
    environment: Environment,
    timeout: float = 60.0,
    patience: float = 120.0,
) -> Any:
    product = _PRODUCTS[name]
    address = url or _first(environment, *product.urls) or product.usual_url
    address = re.sub(f"{product.suffix}/?$", "", address)
    api = JsonApi(
        _checked(address),
        product.backend.__name__,
        {**product.headers(environment), **headers},
        key_hint=product.hint,
        timeout=timeout,
        patience=patience,
    )
    return product.backend(api)


def _bearer(variable: str) -> Callable[[Environment], Headers]:
    """The headers with the token of an environment variable."""

    def headers(environment: Environment) -> Headers:
        token = environment.get(variable)
        return {"Authorization": f"Bearer {token}"} if token else {}

    return headers


def _basic(user: str, password: str) -> Callable[[Environment], Headers]:
    """The headers with the user and password of two environment variables."""

    def headers(environment: Environment) -> Headers:
        name = environment.get(user)
        if not name:
            return {}
        text = base64.b64encode(f"{name}:{environment.get(password, '')}".encode()).decode()
        return {"Authorization": f"Basic {text}"}

    return headers


def _mlflow(environment: Environment) -> Headers:
    by_user = _basic("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
    return _bearer("MLFLOW_TRACKING_TOKEN")(environment) or by_user(environment)


def _langsmith(environment: Environment) -> Headers:
    headers = {}
    if key := _first(environment, "LANGSMITH_API_KEY", "LANGCHAIN_API_KEY"):
        headers["X-API-Key"] = key
    if workspace := environment.get("LANGSMITH_WORKSPACE_ID"):
        headers["X-Tenant-Id"] = workspace
    return headers


def _clickhouse(environment: Environment) -> Headers:
    user = environment.get("CLICKHOUSE_USER")
    password = environment.get("CLICKHOUSE_PASSWORD", "")
    return {"X-ClickHouse-User": user, "X-ClickHouse-Key": password} if user else {}


_PRODUCTS: Mapping[str, _Product] = {
    "phoenix": _Product(
        backend=Phoenix,
        usual_url="http://localhost:6006",
        urls=("PHOENIX_COLLECTOR_ENDPOINT",),
        headers=_bearer("PHOENIX_API_KEY"),
        hint="set PHOENIX_API_KEY",
        suffix="/v1/traces",
    ),
    "mlflow": _Product(
        backend=MLflow,
        usual_url="http://localhost:5000",
        urls=("MLFLOW_TRACKING_URI",),
        headers=_mlflow,
        hint="set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    ),
    "langfuse": _Product(
        backend=Langfuse,
        usual_url="https://cloud.langfuse.com",
        urls=("LANGFUSE_BASE_URL", "LANGFUSE_HOST"),
        headers=_basic("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY"),
        hint="set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY",
    ),
    "langsmith": _Product(
        backend=LangSmith,
        usual_url="https://api.smith.langchain.com",
        urls=("LANGSMITH_ENDPOINT", "LANGCHAIN_ENDPOINT"),
        headers=_langsmith,
        hint="set LANGSMITH_API_KEY",
        suffix="/api(/v1)?",
    ),
    "clickhouse": _Product(
        backend=ClickHouse,
        usual_url="http://localhost:8123",
        urls=("CLICKHOUSE_URL",),
        headers=_clickhouse,
        hint="set CLICKHOUSE_USER and CLICKHOUSE_PASSWORD",
    ),
    "jaeger": _Product(
        backend=Jaeger,
        usual_url="http://localhost:16686",
        urls=("JAEGER_URL",),
        headers=_bearer("JAEGER_TOKEN"),
        hint="set JAEGER_TOKEN, or give --header",
    ),
    "tempo": _Product(
        backend=Tempo,
        usual_url="http://localhost:3200",
        urls=("TEMPO_URL",),
        headers=_bearer("TEMPO_TOKEN"),
        hint="set TEMPO_TOKEN, or give --header",
    ),
}


def _first(environment: Environment, *names: str) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")


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
