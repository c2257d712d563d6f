"""The counts of a write of spans, log records or runs to the store.

Reports of files add them up. Loading a file again stores nothing. A span that arrives again with
other content is a conflict: the first span is kept. Only a few conflicts are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["MAX_CONFLICTS", "WriteResult"]

MAX_CONFLICTS = 20
"""The most ids that a result lists."""


@dataclass
class WriteResult:
    """Counts of the spans, log records or runs that a write stored or skipped.

    It is not frozen: the counts of several writes are added to one.

    Attributes:
        stored: The new items.
        duplicate: The items that the store had already.
        conflicts: ``trace/span`` ids of up to 20 duplicates with other content than the stored
            span.
        runs: The new items that are runs reconstructed elsewhere.
    """

    stored: int = 0
    duplicate: int = 0
    conflicts: list[str] = field(default_factory=list)
    runs: int = 0

    def add(self, other: WriteResult) -> None:
        """Add the counts of another write."""
        self.stored += other.stored
        self.duplicate += other.duplicate
        self.runs += other.runs
        self.conflicts = (self.conflicts + other.conflicts)[:MAX_CONFLICTS]
