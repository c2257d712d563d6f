"""The tools that a request offers to a model, by their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.jsontext import loads
from ...model import RecordedRequest

__all__ = ["offered_tools"]

# The keys of the tools of a request, in the APIs of models.
_OFFERS = ("tools", "functions", "toolConfig", "tool_config")


def offered_tools(request: bytes | RecordedRequest) -> list[str]:
    """The names of the tools that a request offers to a model.

    Args:
        request: The body of a request, or a request of a known API.
    """
    if isinstance(request, RecordedRequest):
        return list(dict.fromkeys(_names(list(request.tools))))
    try:
        body = loads(request)
    except ValueError:
        return []
    offers = [body.get(key) for key in _OFFERS] if isinstance(body, Mapping) else []
    return list(dict.fromkeys(name for offer in offers for name in _names(offer)))


def _names(definitions: Any) -> Iterator[str]:
    """Yield the names of tools in definitions, without the names of their parameters."""
    if isinstance(definitions, Mapping):
        name = definitions.get("name")
        if isinstance(name, str):
            yield name
            return
        for value in definitions.values():
            yield from _names(value)
    elif isinstance(definitions, Sequence) and not isinstance(definitions, (str, bytes)):
        for value in definitions:
            yield from _names(value)
