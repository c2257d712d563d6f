"""A server that answers every chat completion with the same verdict after a while.

    python -m benchmarks.judge_server SECONDS

A request for a stream gets 200 events, each a piece of its own. It prints its address and runs
until its standard input ends. It is a separate process, so that its CPU time does not count for the
caller.
"""

from __future__ import annotations

import asyncio
import json
import sys

_VERDICT = json.dumps({"reasoning": "The run does what was asked for.", "score": True})
_BODY = json.dumps(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": _VERDICT},
            }
        ],
        "usage": {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920},
    }
).encode()
_REPLY = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_BODY)
) + _BODY


def _event(index: int) -> bytes:
    delta = {"content": f" word{index}"} if index else {"role": "assistant", "content": ""}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    event = b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    + b"".join(map(_event, range(200)))
    + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            await asyncio.sleep(delay)
            is_stream = head.startswith(b"post /v1/chat") and b'"stream":true' in body
            writer.write(_STREAM if is_stream else _REPLY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()


async def main(delay: float) -> None:
    """Serve until standard input ends."""
    server = await asyncio.start_server(
        lambda reader, writer: _answer(reader, writer, delay), "127.0.0.1", 0, backlog=512
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
