"""How much a database contains, and how much space it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from ..base.files import MEMORY
from .current_scores import current_scores

__all__ = ["StoreContents", "read_contents"]

_QUERY = f"""
SELECT
    (SELECT count(*) FROM spans),
    (SELECT count(*) FROM logs),
    (SELECT coalesce(sum("rows") FILTER (kind = 'spans'), 0) FROM archived_files
     WHERE state = 'kept'),
    (SELECT coalesce(sum("rows") FILTER (kind = 'logs'), 0) FROM archived_files
     WHERE state = 'kept'),
    (SELECT coalesce(sum(bytes), 0) FROM archived_files WHERE state = 'kept'),
    runs, agents, services, first_ns, last_ns,
    (SELECT count(*) FROM {current_scores()})
FROM (
    SELECT count(*) AS runs, count(DISTINCT nullif(agent, '')) AS agents,
           count(DISTINCT nullif(service, '')) AS services,
           min(start_ns) FILTER (start_ns > 0) AS first_ns,
           max(end_ns) FILTER (end_ns > 0) AS last_ns
    FROM current_trajectories
)
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class StoreContents:
    """The contents of a database.

    Attributes:
        spans: The spans in its file.
        logs: The log records in its file.
        archived_spans: The spans in the archive.
        archived_logs: The log records in the archive.
        archive_bytes: The size of the archive (bytes).
        trajectories: The current trajectories.
        agents: The different names of agents.
        services: The different names of services.
        first_ns: The start of the first run with a time (ns), or None.
        last_ns: The end of the last run with a time (ns), or None.
        scores: The current scores.
        bytes: The size of the file and of its write-ahead log (bytes).
    """

    spans: int
    logs: int
    archived_spans: int
    archived_logs: int
    archive_bytes: int
    trajectories: int
    agents: int
    services: int
    first_ns: int | None
    last_ns: int | None
    scores: int
    bytes: int

    @property
    def bytes_per_span(self) -> float | None:
        """The size of the file for each span in it (bytes); None without spans."""
        return self.bytes / self.spans if self.spans else None


def read_contents(connection: duckdb.DuckDBPyConnection, path: str) -> StoreContents:
    """Count the rows of a database, and measure its file.

    Args:
        connection: A connection to the database.
        path: The database's path.
    """
    (row,) = connection.execute(_QUERY).fetchall()
    return StoreContents(*(*row, _size(path)))


def _size(path: str) -> int:
    if path == MEMORY:
        return 0
    files = [Path(path), Path(f"{path}.wal")]
    return sum(file.stat().st_size for file in files if file.exists())
