"""How long spans stay in the database, and where they go then."""

from __future__ import annotations

from pydantic import Field

from .base import Strict
from .live import Seconds

__all__ = ["DEFAULT_ARCHIVE", "Retention"]

DEFAULT_ARCHIVE = "archive"


class Retention(Strict):
    """When spans and log records move from the database into Parquet files."""

    hot: Seconds = Field(
        14 * 86400.0, description="So long after its last span, a trace stays in the database."
    )
    archive: str = Field(
        DEFAULT_ARCHIVE,
        min_length=1,
        description="The folder they move to; relative to that of the file.",
    )
