"""A server that answers every chat completion with the same verdict after a while.

    python -m benchmarks.judge_server SECONDS

A request for a stream gets 200 events, each a piece of its own. Spans that are exported to it are
counted if they have the content of the benchmark's calls; GET /v1/recorded returns the number. It
prints its address and runs until its standard input ends. It is a separate process, so that its CPU
time does not count for the caller.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys

CONTENT = b"arrived broken"
"""A text in the arguments or messages of each call of `instrumented_agent`."""
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


class Recorded:
    """The spans that were exported.

    Attributes:
        count: How many have the content of the benchmark's calls.
    """

    def __init__(self) -> None:
        self.count = 0

    def add(self, body: bytes) -> None:
        """Count the spans of a request."""
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in group.scope_spans:
                self.count += sum(CONTENT in span.SerializeToString() for span in scope.spans)

    def reply(self) -> bytes:
        """Return the answer with the number."""
        body = str(self.count).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, recorded: Recorded
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            body = await reader.readexactly(length)
            if head.startswith(b"post /v1/traces"):
                recorded.add(gzip.decompress(body) if b"content-encoding: gzip" in head else body)
            await asyncio.sleep(delay)
            is_stream = head.startswith(b"post /v1/chat") and b'"stream":true' in body
            reply = _STREAM if is_stream else _REPLY
            writer.write(recorded.reply() if head.startswith(b"get /v1/recorded") else reply)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        writer.close()


async def main(delay: float) -> None:
    """Serve until standard input ends."""
    recorded = Recorded()
    server = await asyncio.start_server(
        lambda reader, writer: _answer(reader, writer, delay, recorded),
        *("127.0.0.1", 0),
        backlog=512,
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
