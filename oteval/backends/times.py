"""ISO times of backends' APIs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

__all__ = ["iso_of", "ns_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"\.(\d+)")
_NS_DIGITS = 9


def ns_of(text: str) -> int:
    """Return an ISO time in nanoseconds; one without a zone is UTC.

    Raises:
        ValueError: The text is not an ISO time.
    """
    match = _FRACTION.search(text)
    digits = match[1][:_NS_DIGITS].ljust(_NS_DIGITS, "0") if match else "0"
    when = datetime.fromisoformat(_FRACTION.sub("", text, count=1))
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - _EPOCH) // timedelta(seconds=1) * 10**9 + int(digits)


def iso_of(ns: int) -> str:
    """Return a time in nanoseconds as ISO text in UTC, with microseconds, rounded down."""
    seconds, rest = divmod(ns, 10**9)
    when = _EPOCH + timedelta(seconds=seconds, microseconds=rest // 1000)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")
