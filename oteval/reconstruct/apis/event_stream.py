"""Server-sent events, as model APIs stream their answers.

Events end with a blank line; lines end with LF, CRLF or CR. Only the data of an event matters:
every API repeats the event's name in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...base.jsontext import dumps, loads

__all__ = ["DONE", "event", "is_event_stream", "read_events"]

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream of OpenAI's chat completions."""

_LINES = re.compile(rb"\r\n|\n|\r")
_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_event_stream(body: bytes) -> bool:
    """Whether a body consists of server-sent events."""
    return body.lstrip()[:6].startswith(_FIELDS)


def read_events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the data of the events of a stream.

    Events whose data is not a JSON object, such as ``[DONE]``, are left out. A last event that the
    end of the stream cuts is left out too.
    """
    data: list[bytes] = []
    for line in _LINES.split(body):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield from _objects(b"\n".join(data))
            data = []
    if data:
        yield from _objects(b"\n".join(data))


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        value = loads(data)
    except ValueError:
        return
    if isinstance(value, dict):
        yield value


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return one event with JSON data.

    Args:
        data: The data.
        name: The event's name; "" for an event without a name.
    """
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(data)}\n\n".encode()
