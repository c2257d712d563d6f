"""Counts with their nouns in the right number."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["counted", "listed"]


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: ``1 run``, ``0 runs``, ``1,200 runs``.

    Args:
        number: How many.
        noun: The noun in the singular.
        plural: Its plural, unless that is the noun with an "s", or "ies" for a final "y".
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or _plural(noun)}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return names with commas, and how many more there are: ``a, b and 3 more``.

    Args:
        names: The names.
        most: How many to name.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
