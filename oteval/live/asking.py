"""Asking the storing process, from the event loop of the one that listens."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import orjson

__all__ = ["ask"]

_LENGTH = struct.Struct("<I")


async def ask(socket_path: str, path: str, query: dict[str, Any] | None = None) -> bytes:
    """Return the answer to a question; the frames are those of `oteval.store.frames`.

    Raises:
        OSError: The process does not answer.
    """
    reader, writer = await asyncio.open_unix_connection(socket_path)
    try:
        question = {"path": path, "query": query or {}}
        head = orjson.dumps({"op": "ask", "question": question, "sizes": []})
        writer.write(_LENGTH.pack(len(head)) + head)
        await writer.drain()
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        answer = orjson.loads(await reader.readexactly(length))
        if "error" in answer:
            raise OSError(str(answer["error"]))
        return await reader.readexactly(answer["sizes"][0])
    except asyncio.IncompleteReadError as error:
        raise OSError("the storing process ended") from error
    finally:
        writer.close()
