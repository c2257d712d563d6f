"""Families: the versions of an agent, if a monitor groups by version.

The first version of a family that learns a baseline passes it on to the others. Until then, the
observations of earlier versions count for the baseline of later versions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from ..base.jsontext import dumps
from ..store import GroupRow

__all__ = ["Families", "family_of", "with_those_of"]


def family_of(group: str, group_by: Sequence[str]) -> str:
    """A group's values without its version, if a monitor groups by version.

    Args:
        group: The values, as a JSON list.
        group_by: The names of the values.
    """
    if "version" not in group_by:
        return group
    values = json.loads(group)
    del values[group_by.index("version")]
    return dumps(values)


class Families:
    """The versions that are learning; none if a monitor does not group by version.

    Args:
        rows: The groups that are learning.
        group_by: The names of their values.
    """

    def __init__(self, rows: Iterable[GroupRow], group_by: Sequence[str]) -> None:
        self._group_by = group_by
        self._members: dict[tuple[str, str], list[GroupRow]] = {}
        if "version" in group_by:
            for row in sorted(rows, key=lambda row: row.first_ns):
                self._members.setdefault(self._key(row), []).append(row)

    def earlier(self, row: GroupRow) -> list[GroupRow]:
        """The earlier versions of a group's agent, the oldest first."""
        if not self._members:
            return []
        members = self._members.get(self._key(row), [])
        return [member for member in members if member.first_ns < row.first_ns]

    def _key(self, row: GroupRow) -> tuple[str, str]:
        return family_of(row.group, self._group_by), row.version


def with_those_of(earlier: Collection[object]) -> str:
    """The end of a sentence about observations, which names the earlier versions."""
    if not earlier:
        return ""
    versions = "earlier version" if len(earlier) == 1 else "earlier versions"
    return f", with those of {len(earlier):,} {versions}"
