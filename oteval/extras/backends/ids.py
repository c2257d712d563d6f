"""Ids of OpenTelemetry for the ids of other systems.

Both directions must return the same result everywhere, because scores go back to the spans that
were read. So an id is kept if it has the right form; else it is derived from the other id alone.
"""

from __future__ import annotations

import re
from hashlib import blake2b

__all__ = ["dashed_uuid", "span_id_of", "trace_id_of"]

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_HEX = {size: re.compile(rf"[0-9a-f]{{{size}}}").fullmatch for size in (16, 32)}


def trace_id_of(text: str) -> str:
    """32 hex digits: the id itself, the digits of a UUID, or a hash of any other text."""
    return _hex_of(text, 32)


def span_id_of(text: str) -> str:
    """16 hex digits: the id itself, the last digits of a UUID, or a hash of any other text.

    The first half of a UUID of version 7 is a time, which spans of one trace may share.
    """
    return _hex_of(text, 16)


def dashed_uuid(trace_id: str) -> str:
    """The UUID with the digits of a trace id."""
    parts = (trace_id[:8], trace_id[8:12], trace_id[12:16], trace_id[16:20], trace_id[20:])
    return "-".join(parts)


def _hex_of(text: str, digits: int) -> str:
    lower = text.lower()
    if _HEX[digits](lower):
        return lower
    if _UUID(lower):
        return lower.replace("-", "")[-digits:]
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=digits // 2).hexdigest()
