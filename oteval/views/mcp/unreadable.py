"""Answers to messages that cannot be read as JSON-RPC, which the package ``mcp`` drops silently.

A client waits for an answer to each request. A request that is nested too deeply for the JSON
parser, or has no valid form, gets an error with its id, if the id can be found.
"""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

__all__ = ["AnsweringStream", "refusal"]

# The id of a request, where a client writes it: near the beginning or near the end of the line.
_ID = re.compile(r'"id"\s*:\s*(?:(-?\d{1,18})(?=\s*[,}])|"([^"\\]{1,200})")')
_LOOKED_AT = 2000  # characters at either end of a line
_MAX_REASON = 200


class AnsweringStream:
    """The readable messages of a client; messages that cannot be read are answered here.

    Args:
        incoming: The messages, and errors in place of messages that cannot be read.
        outgoing: Takes the answers.
    """

    def __init__(self, incoming: Any, outgoing: Any) -> None:
        self._incoming, self._outgoing = incoming, outgoing

    @property
    def last_context(self) -> Any:
        """The context that the last message was sent in."""
        return getattr(self._incoming, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message that can be read."""
        while True:
            item = await self._incoming.receive()
            if not isinstance(item, Exception):
                message: SessionMessage = item
                return message
            await self._outgoing.send(SessionMessage(refusal(item)))

    async def aclose(self) -> None:
        """Close the incoming messages."""
        await self._incoming.aclose()

    def __aiter__(self) -> AnsweringStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> AnsweringStream:
        await self._incoming.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self._incoming.__aexit__(exc_type, exc_val, exc_tb)
        return None


def refusal(error: Exception) -> types.JSONRPCError:
    """The answer to a message that cannot be read.

    Args:
        error: The error of the parser, which contains the message.
    """
    line, reason, code = "", type(error).__name__, types.INVALID_REQUEST
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        reason = str(first["msg"])
        if first["type"] == "json_invalid":
            code = types.PARSE_ERROR
            line = first["input"] if isinstance(first["input"], str) else ""
        elif isinstance(first["input"], dict):
            request_id = first["input"].get("id")
            line = (
                f'"id": {request_id}}}' if isinstance(request_id, int) else f'"id": "{request_id}"'
            )
    data = types.ErrorData(code=code, message=f"cannot read the message: {reason[:_MAX_REASON]}")
    return types.JSONRPCError(jsonrpc="2.0", id=_id_of(line), error=data)


def _id_of(line: str) -> int | str | None:
    """The id in a line that is not valid JSON, or None if it is not certain."""
    ends = (line[:_LOOKED_AT], line[-_LOOKED_AT:]) if len(line) > 2 * _LOOKED_AT else (line,)
    ids = {match.groups() for end in ends for match in _ID.finditer(end)}
    if len(ids) != 1:
        return None  # arguments may have a key "id" as well
    number, text = ids.pop()
    return int(number) if number is not None else str(text)
