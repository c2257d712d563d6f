"""How long spans stay in the database, and where they go then."""

from __future__ import annotations

from pydantic import Field

from .base import Strict
from .live import Seconds

__all__ = ["DEFAULT_ARCHIVE", "Retention"]

DEFAULT_ARCHIVE = "archive"


class Retention(Strict):
    """When spans move from the database into Parquet files, and when other rows are deleted."""

    hot: Seconds = Field(
        14 * 86400.0, description="So long after its last span, a trace stays in the database."
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
