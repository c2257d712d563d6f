"""Destinations of an export: an OTLP endpoint, a file of OTLP/JSON lines, or a database."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ..base.errors import ConfigError
from ..base.text import shown_url
from .export_pipeline import BatchExporter
from .otlp_export import OtlpExporter, otlp_endpoint

__all__ = ["Destination", "parse_destination"]

_SCHEMES = ("http", "https", "grpc", "grpcs")
_FILES = (".jsonl", ".jsonl.gz")
_DATABASES = (".duckdb", ".db")


class Destination(NamedTuple):
    """A destination of an export.

    Attributes:
        kind: "otlp", "file" or "database".
        name: The URL or the absolute path, for messages and to tell destinations apart.
        address: The base URL of an endpoint, None for that of the environment; else the path.
    """

    kind: str
    name: str
    address: str | None

    def open(self) -> BatchExporter:
        """Return an exporter to the destination.

        Raises:
            ImportError: A package that it needs is not installed.
            OtevalError: The database cannot be used.
            OSError: The folder of the database cannot be created.
        """
        if self.kind == "otlp":
            return OtlpExporter(self.address)
        path = Path(self.name)
        if self.kind == "file":
            from .trace_file import TraceFileExporter

            return TraceFileExporter(path)
        from .database_export import DatabaseExporter

        return DatabaseExporter(path)


def parse_destination(to: str | Path | None) -> Destination:
    """Return the destination that an argument names.

    Args:
        to: A URL, a path, or None for the endpoint of the environment or of `oteval serve`.

    Raises:
        ConfigError: It names none.
    """
    if to is None:
        url = otlp_endpoint(None)
        return Destination("otlp", url or _environment_url(), url)
    text = os.fspath(to)
    if isinstance(to, str) and "://" in to:
        parts = urlsplit(to)
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise ConfigError(
                f"to={shown_url(text)!r}: give a URL such as http://127.0.0.1:4318 or "
                "grpc://127.0.0.1:4317"
            )
        if parts.username or parts.password:
            raise ConfigError(
                f"to={shown_url(text)!r}: a URL cannot hold a password; set "
                "OTEL_EXPORTER_OTLP_HEADERS=authorization=..."
            )
        url = otlp_endpoint(to)
        return Destination("otlp", url or "", url)
    path = str(Path(text).expanduser().absolute())
    if text.endswith(_FILES):
        return Destination("file", path, path)
    if text.endswith(_DATABASES):
        return Destination("database", path, path)
    raise ConfigError(
        f"to={text!r}: give the URL of an OTLP endpoint (http://127.0.0.1:4318), a file "
        "(traces.jsonl or traces.jsonl.gz) or a database (oteval.duckdb)"
    )


def _environment_url() -> str:
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next(os.environ[name] for name in names if os.environ.get(name))
