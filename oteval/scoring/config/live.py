"""The settings of `oteval serve`: completion, limits, forwarding, redaction and retention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ...base.patterns import PatternError, compile_pattern
from ...base.redaction import RedactionRule
from ...base.text import seconds, shown_url
from .base import Strict

__all__ = [
    "DEFAULT_ARCHIVE",
    "Completion",
    "Endpoint",
    "EndpointOrUrl",
    "Forward",
    "ForwardOrUrl",
    "Limits",
    "Metrics",
    "MetricsOrUrl",
    "Push",
    "Redaction",
    "Retention",
    "Seconds",
    "check_headers",
    "check_host",
    "resolved",
]


def _duration(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("write a duration, for instance 5s or 2m")
    duration = seconds(value)
    if not 0 <= duration < float("inf"):
        raise ValueError(f"{value!r} is not a duration; write for instance 5s or 2m")
    return duration


Seconds = Annotated[float, BeforeValidator(_duration, json_schema_input_type=float | str)]
"""A duration in seconds; the file may say 500ms, 5s, 2m, 1h or 1d."""

DEFAULT_ARCHIVE = "archive"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


class Completion(Strict):
    """When a trace counts as complete and is scored; a later span makes a new revision."""

    quiet: Seconds = Field(
        5.0, description="The time after its last span, if the root span has ended."
    )
    idle: Seconds = Field(300.0, description="The time after its last span, in any case.")
    max_age: Seconds = Field(
        3600.0, description="The time after its first span, even if spans still arrive."
    )
    backfill: Seconds = Field(
        86400.0,
        description="How old a complete trace may be for an evaluator that is new to score it; "
        "`oteval score` scores older ones.",
    )


class Endpoint(Strict):
    """An OTLP endpoint: over HTTP, or over gRPC if its URL begins with grpc or grpcs (TLS)."""

    url: str = Field(
        description="Its base URL; over HTTP /v1/traces, /v1/logs or /v1/metrics is added."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers; ${NAME} is taken from the environment."
    )
    gzip: bool = Field(False, description="Whether requests are compressed.")
    timeout: Seconds = Field(10.0, gt=0, description="How long a request may take.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not re.match(r"(https?://[^/\s]+|grpcs?://[^/\s]+/?$)", value):
            raise ValueError(
                f"{shown_url(value)!r} is not a URL; write http://HOST:PORT, https://HOST or grpc://HOST:PORT"
            )
        check_host(value)
        return value.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        return check_headers(value)


def check_host(url: str) -> None:
    """Refuse a URL without a host, or with a port that does not exist.

    Raises:
        ValueError: The URL is wrong; the message does not have it.
    """
    try:
        parts = urlsplit(url)
        is_wrong = not parts.hostname or parts.port == 0 or bool(re.search(r"\s", parts.netloc))
    except ValueError:
        is_wrong = True
    if is_wrong:
        # Not the URL: any part of it may be the secret.
        raise ValueError("its host or port is not valid; write http://HOST:PORT/PATH")


def check_headers(headers: dict[str, str]) -> dict[str, str]:
    """Return headers that HTTP allows.

    Raises:
        ValueError: A name or a value is not allowed; the message has no value.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a header; write for instance X-Team")
        if _NOT_IN_HEADERS.search(value):
            raise ValueError(
                f"the header {name!r} has a line break or a letter outside Latin-1; remove it"
            )
    return headers


def _from_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class Forward(Endpoint):
    """An endpoint to forward traces to, with their scores."""

    deadline: Seconds = Field(
        30.0, description="How long a span waits for scores before it is forwarded without them."
    )
    quota: int = Field(4 << 30, ge=1 << 20, description="The most bytes that may wait on disk.")


class Metrics(Endpoint):
    """An endpoint that metrics are sent to, in addition to /metrics."""

    interval: Seconds = Field(60.0, gt=0, description="How often.")


class Push(Strict):
    """A trace backend that scores are written to as they come, as `oteval push` does."""

    backend: Literal["phoenix", "mlflow", "langfuse", "langsmith"] = Field(
        description="Its kind; its key comes from its usual environment variable."
    )
    url: str | None = Field(
        None, description="Its base URL; by default that of its environment variable."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers; ${NAME} is taken from the environment."
    )
    evaluators: list[str] = Field(
        default_factory=list, description="The evaluators whose scores are written; all by default."
    )
    wait: Seconds = Field(
        600.0, description="How long a score waits for its span to arrive in the backend."
    )
    quota: int = Field(1 << 30, ge=1 << 20, description="The most bytes that may wait on disk.")
    timeout: Seconds = Field(10.0, gt=0, description="How long a request may take.")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if not re.match(r"https?://[^/\s]+", value):
            raise ValueError(f"{shown_url(value)!r} is not a URL; write http://HOST:PORT")
        check_host(value)
        return value.rstrip("/")

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        return check_headers(value)


# In the file, a URL alone is enough for each of these.
EndpointOrUrl = Annotated[
    Endpoint, BeforeValidator(_from_url, json_schema_input_type=Endpoint | str)
]
ForwardOrUrl = Annotated[Forward, BeforeValidator(_from_url, json_schema_input_type=Forward | str)]
MetricsOrUrl = Annotated[Metrics, BeforeValidator(_from_url, json_schema_input_type=Metrics | str)]


class Limits(Strict):
    """The limits on a slow evaluator in live scoring."""

    concurrency: int = Field(4, ge=1, le=256, description="How many of its calls run at once.")
    max_per_minute: float | None = Field(None, gt=0, description="Calls a minute.")
    max_cost_per_day: float | None = Field(
        None, ge=0, description="US dollars a day (UTC); then evaluations wait for the next day."
    )
    timeout: Seconds | None = Field(
        None, gt=0, description="The time limit of a call; by default the evaluator's, or 60s."
    )
    attempts: int = Field(4, ge=1, description="How often a run is tried when the evaluator fails.")


class Redaction(Strict):
    """Data to remove from everything that comes in, before anything is written to disk."""

    keys: list[str] = Field(
        default_factory=list,
        description="Attribute names whose values are replaced; * matches any text.",
    )
    pattern: str | None = Field(
        None,
        description="A regular expression: its matches in any text, number or key are removed.",
    )
    data: Literal["", "cards", "ibans", "emails", "phones", "presidio"] = Field(
        "",
        description="Personal data to remove from any text, by kind. A rule may be just the kind.",
    )
    entities: list[str] = Field(
        default_factory=list,
        description="With presidio: the names of the entities to remove; by default all.",
    )
    replace: str | None = Field(
        None, description="The replacement; by default [redacted], or [redacted card] and so on."
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {"data": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Redaction:
        if not self.keys and self.pattern is None and not self.data:
            raise ValueError("give keys or a pattern")
        if self.entities and self.data != "presidio":
            raise ValueError("entities are those of Presidio: give data: presidio")
        if self.pattern is not None:
            try:
                matches_nothing = compile_pattern(self.pattern).fullmatch("")
            except PatternError as error:
                raise ValueError(f"pattern: not a valid regular expression: {error}") from None
            if matches_nothing:
                raise ValueError("pattern: it matches the empty text, and so every text")
        return self

    def rule(self) -> RedactionRule:
        """The rule as redactors take it."""
        return RedactionRule(
            keys=tuple(self.keys),
            pattern=self.pattern,
            replace=self.replace,
            data=self.data,
            entities=tuple(self.entities),
        )


def resolved(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return headers with ``${NAME}`` replaced by the environment's values.

    Raises:
        ValueError: A variable is not set; the message names it and the header.
    """
    values = {}
    for name, value in headers.items():
        for variable in _VARIABLE.findall(value):
            if variable not in environment:
                raise ValueError(f"header {name!r}: the environment has no {variable}")
        values[name] = _VARIABLE.sub(lambda match: environment[match[1]], value)
    return values


class Retention(Strict):
    """When spans move from the database into Parquet files, and when other rows are deleted."""

    hot: Seconds = Field(
        14 * 86400.0, description="How long a trace stays in the database after its last span."
    )
    trajectories: Seconds | None = Field(
        None, description="After this time, runs are deleted with their scores; never by default."
    )
    scores: Seconds | None = Field(
        None, description="After this time, scores are deleted; never by default."
    )
    judge_calls: Seconds | None = Field(
        None, description="After this time, cached answers of judges are deleted."
    )
    archive: str = Field(
        DEFAULT_ARCHIVE,
        min_length=1,
        description="The folder they move to; relative to that of the file.",
    )
