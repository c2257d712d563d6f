"""Export straight into a DuckDB database, which one process at a time can write."""

from __future__ import annotations

from pathlib import Path

from ..base.errors import OtevalError
from ..base.files import make_folder
from .export_pipeline import Exportable, ExportFailed

__all__ = ["DatabaseExporter"]

_TIMEOUT_MS = 30_000
_FORKED = (
    "only one process can write a database, and this is a fork of it; export to a file "
    '(to="traces.jsonl") or to oteval serve'
)


class DatabaseExporter:
    """Writes batches to a database, with the recorder that `oteval.InProcess` is."""

    def __init__(self, path: Path) -> None:
        """Open the database.

        Raises:
            StoreError: The database cannot be used; the subclass says why.
        """
        # Imported here, as it brings DuckDB along.
        from ..serve import InProcess

        self._path = path.absolute()
        make_folder(self._path.parent)
        self._recorder = InProcess(self._path)
        self._is_forked = False

    @property
    def trouble(self) -> str:
        """Why the last batch could not be written, "" if it was."""
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
        for one in batch:
            if one.is_log:
                recorder.logs.on_emit(one.item)
            else:
                recorder.on_end(one.item)
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
