"""Destinations of an export: an OTLP endpoint, a file of OTLP/JSON lines, or a database.

Several processes may write to one file: each batch is appended as a whole, under a lock. In a
compressed file, each batch is a separate gzip member, so that the file can be read at any time.
A database has one writing process.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from ..base.errors import ConfigError, OtevalError
from ..base.files import append_shared, make_folder
from ..base.text import shown_url
from .export_pipeline import BatchExporter, Exportable, ExportFailed
from .otlp_export import OtlpExporter, otlp_endpoint
from .otlp_json import log_lines, span_lines

__all__ = ["DatabaseExporter", "Destination", "TraceFileExporter", "parse_destination"]

_SCHEMES = ("http", "https", "grpc", "grpcs")
_FILES = (".jsonl", ".jsonl.gz")
_DATABASES = (".duckdb", ".db")


class Destination(NamedTuple):
    """A destination of an export.

    Attributes:
        kind: "otlp", "file" or "database".
        name: The URL or the absolute path, for messages and to distinguish destinations.
        address: The base URL of an endpoint, None for the endpoint of the environment; for a file
            or a database, its path.
    """

    kind: str
    name: str
    address: str | None

    def open(self) -> BatchExporter:
        """Create the exporter to the destination.

        Raises:
            ImportError: A package that it needs is not installed.
            OtevalError: The database cannot be used.
            OSError: The folder of the database cannot be created.
        """
        if self.kind == "otlp":
            return OtlpExporter(self.address)
        path = Path(self.name)
        if self.kind == "file":
            return TraceFileExporter(path)
        return DatabaseExporter(path)


def parse_destination(to: str | Path | None) -> Destination:
    """Parse the argument `to` of `oteval.instrument`.

    Args:
        to: A URL, a path, or None for the endpoint of the environment or of `oteval serve`.

    Raises:
        ConfigError: `to` names no destination.
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


# Fast: a third of the time of the usual level, for files that are a tenth larger.
_GZIP_LEVEL = 3


class TraceFileExporter:
    """Appends batches to a file."""

    def __init__(self, path: Path) -> None:
        """Set the file; it is created, with its folder, by the first batch.

        Args:
            path: The file; it is compressed if its name ends in ``.gz``.
        """
        # The agent may change its working directory.
        self._path = path.absolute()
        self._is_compressed = path.suffix == ".gz"
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the last batch could not be written, "" if it could."""
        return self._trouble

    def export(self, batch: list[Exportable]) -> None:
        """Append a batch.

        Raises:
            ExportFailed: The file cannot be written; nothing of the batch is in it.
        """
        spans = span_lines(exportable.item for exportable in batch if not exportable.is_log)
        logs = log_lines(exportable.item for exportable in batch if exportable.is_log)
        data = b"".join(spans + logs)
        try:
            self._append(data)
        except OSError as error:
            self._trouble = str(error.strerror)
            raise ExportFailed(self._trouble) from error
        self._trouble = ""

    def close(self) -> None:
        """Do nothing: the file is open only while a batch is written."""

    def after_fork(self) -> None:
        """Do nothing: the file is open only while a batch is written."""

    def _append(self, data: bytes) -> None:
        if not self._path.parent.is_dir():
            make_folder(self._path.parent)
        if self._is_compressed:
            append_shared(self._path, gzip.compress(data, _GZIP_LEVEL))
        else:
            append_shared(self._path, data, are_lines=True)


_TIMEOUT_MS = 30_000
_FORKED = (
    "only one process can write a database, and this is a fork of it; export to a file "
    '(to="traces.jsonl") or to oteval serve'
)


class DatabaseExporter:
    """Writes batches to a database, with `oteval.InProcess` as the recorder."""

    def __init__(self, path: Path) -> None:
        """Open the database.

        Raises:
            StoreError: The database cannot be used; see the subclass.
        """
        # Imported here, because it imports DuckDB.
        from ..serve import InProcess

        self._path = path.absolute()
        make_folder(self._path.parent)
        self._recorder = InProcess(self._path)
        self._is_forked = False

    @property
    def trouble(self) -> str:
        """Why the last batch could not be written, "" if it could."""
        return str(self._recorder.error or "") if not self._is_forked else _FORKED

    def export(self, batch: list[Exportable]) -> None:
        """Write a batch.

        Raises:
            ExportFailed: The database cannot be written.
        """
        recorder = self._recorder
        if self._is_forked:
            raise ExportFailed(_FORKED)
        before = recorder.dropped
        for exportable in batch:
            if exportable.is_log:
                recorder.logs.on_emit(exportable.item)
            else:
                recorder.on_end(exportable.item)
        is_written = recorder.force_flush(_TIMEOUT_MS)
        lost = recorder.dropped - before
        if lost or not is_written:
            reason = recorder.error or OtevalError("the database is too slow")
            raise ExportFailed(str(reason), lost)

    def close(self) -> None:
        """Close the database."""
        if not self._is_forked:
            self._recorder.shutdown()

    def after_fork(self) -> None:
        """Leave the database to the parent; closing it here would write to it."""
        self._is_forked = True
