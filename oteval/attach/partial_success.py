"""What an endpoint that took a request says it left out of it (OTLP's ``partial_success``)."""

from __future__ import annotations

from ..jsontext import loads
from .wire import fields, varint

__all__ = ["rejected"]


def rejected(body: bytes, encoding: str = "protobuf") -> tuple[int, str]:
    """Return how many spans or log records were left out, and why.

    Args:
        body: The answer; one that cannot be read says of none.
        encoding: ``protobuf`` or ``json``.
    """
    try:
        return _of_json(body) if encoding == "json" else _of_protobuf(body)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return 0, ""


def _of_protobuf(body: bytes) -> tuple[int, str]:
    # Answers for spans and for log records number their fields alike.
    count, reason = 0, ""
    for said in fields(body, 0, len(body)):
        for field in fields(body, said.at, said.end) if said.number == 1 else ():
            if field.number == 1:
                count = varint(body, field.at)[0]
            elif field.number == 2:
                reason = body[field.at : field.end].decode(errors="replace")
    # Of an int64, more than half of the range is negative.
    return (count if count < 1 << 63 else 0), reason


def _of_json(body: bytes) -> tuple[int, str]:
    said = (loads(body) if body else {}).get("partialSuccess") or {}
    count = said.get("rejectedSpans") or said.get("rejectedLogRecords") or 0
    return max(0, int(count)), str(said.get("errorMessage") or "")
