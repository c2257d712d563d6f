"""Export into a file of OTLP/JSON, one request per line, which `oteval ingest` loads.

Several processes may write to the same file: each batch is appended as a whole, under a lock. In a
compressed file, each batch is a separate gzip member, so that the file can be read at any time.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from ..base.files import append_shared, make_folder
from .export_pipeline import Exportable, ExportFailed
from .otlp_json import log_lines, span_lines

__all__ = ["TraceFileExporter"]

# Fast: a third of the time of the usual level, for files that are a tenth larger.
_GZIP_LEVEL = 3


class TraceFileExporter:
    """Appends batches to a file."""

    def __init__(self, path: Path) -> None:
        """Set the file; it is created, with its folder, by the first batch.

        Args:
            path: The file; one that ends in ``.gz`` is compressed.
        """
        # The agent may change its working directory.
        self._path = path.absolute()
        self._is_compressed = path.suffix == ".gz"
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """Why the last batch could not be written, "" if it was."""
        return self._trouble

    def export(self, batch: list[Exportable]) -> None:
        """Append a batch.

        Raises:
            ExportFailed: The file cannot be written; nothing of the batch is in it.
        """
        spans = span_lines(one.item for one in batch if not one.is_log)
        logs = log_lines(one.item for one in batch if one.is_log)
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
