"""A scripted server that speaks OpenAI's chat completions, on a real socket of this machine.

A **script** is called with the request's body and its number, from 1, and returns a `Reply`.
Everything a server may do to a judge is a reply: verdicts, refusals, errors with their headers,
text that is not JSON, streams, silence.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """One reply of the server, regular or broken.

    Attributes:
        body: The JSON body; a string is sent unchanged.
        status: The HTTP status.
        headers: More headers.
        delay: Seconds before the reply.
        chunks: The events of a stream, in place of a body.
        breaks: Whether the connection closes in the middle of the reply.
        drips: Where the server sends a byte now and then without end: in the ``head``, the
            ``body`` or as ``comments`` of a stream.
    """

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    chunks: tuple[Any, ...] = ()
    breaks: bool = False
    drips: str = ""


Script = Callable[[Body, int], Reply]


def completion(
    content: Any = None,
    *,
    arguments: str | None = None,
    refusal: str | None = None,
    finish: str | None = "stop",
    model: str = "scripted",
    tokens: tuple[int, int] | None = (100, 20),
    **more: Any,
) -> Reply:
    """Return a chat completion with a text, a tool call or a refusal; it may leave out usage."""
    message: Body = {"role": "assistant", "content": content, "refusal": refusal}
    if arguments is not None:
        function = {"name": "verdict", "arguments": arguments}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    body: Body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
    }
    if tokens is not None:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        body["usage"] = dict(zip(names, (*tokens, sum(tokens)), strict=True))
    return Reply(body, **more)


def verdict(score: Any = True, reasoning: str = "It does.", **more: Any) -> Reply:
    """Return a completion whose text is a verdict."""
    return completion(json.dumps({"reasoning": reasoning, "score": score}), **more)


def error(status: int, message: str, code: str | None = None, **headers: str) -> Reply:
    """Return an error in OpenAI's form."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return Reply(body, status, {key.replace("_", "-"): value for key, value in headers.items()})


def streamed(
    text: str,
    size: int = 7,
    finish: str | None = "stop",
    tokens: tuple[int, int] | None = (50, 5),
    **more: Any,
) -> Reply:
    """Return a text as a stream of small pieces, the tokens in the last event."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    events = [
        {**base, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]}
        for piece in pieces
    ]
    if finish is not None:
        events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if tokens is not None:
        usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
        events.append({**base, "choices": [], "usage": usage})
    return Reply(chunks=tuple(events), **more)


def asked_as(body: Body) -> str:
    """Return the output mode of a request."""
    kind = (body.get("response_format") or {}).get("type")
    return kind or ("tool" if body.get("tools") else "text")


def shown(body: Body) -> str:
    """Return the text of a request's messages."""
    texts = []
    for message in body["messages"]:
        content = message["content"]
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        texts += [part.get("text", "") for part in parts]
    return "\n".join(texts)


class Server:
    """The server, running.

    Attributes:
        script: Chooses the replies; may be changed at any time.
        requests: The bodies of the requests, in order.
        headers: The headers of the requests.
        busiest: The highest number of simultaneous requests.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.busiest = 0
        self._now = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        """The address to give as ``base_url``."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def modes(self) -> list[str]:
        """The output mode of each request."""
        return [asked_as(body) for body in self.requests]

    def start(self) -> None:
        """Start to listen."""
        self._thread.start()
        self._ready.wait(10)

    def stop(self) -> None:
        """Stop listening, and drop every connection."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        listening = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self._port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        listening.close()
        for task in asyncio.all_tasks(self._loop) - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        pairs = (line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        headers = {name.lower(): value for name, value in pairs}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
        self.requests.append(body)
        self.headers.append(headers)
        self._now += 1
        self.busiest = max(self.busiest, self._now)
        try:
            reply = self.script(body, len(self.requests))
            await asyncio.sleep(reply.delay)
        finally:
            self._now -= 1
        return await self._send(writer, reply)

    async def _drip(self, writer: asyncio.StreamWriter, where: str) -> bool:
        """Send bytes that mean nothing until the client is gone."""
        writer.write(b"HTTP/1.1 200 X\r\n")
        drop = b"x-drop: 1\r\n"
        if where != "head":
            kind = "text/event-stream" if where == "comments" else "application/json"
            writer.write(f"content-type: {kind}\r\ncontent-length: 100000\r\n\r\n".encode())
            drop = b": still here\n\n" if where == "comments" else b" "
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.02)

    async def _send(self, writer: asyncio.StreamWriter, reply: Reply) -> bool:
        if reply.drips:
            return await self._drip(writer, reply.drips)
        headers = dict(reply.headers)
        if reply.chunks:
            events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in reply.chunks)
            content = events if reply.breaks else f"{events}data: [DONE]\n\n"
            headers.setdefault("content-type", "text/event-stream")
        else:
            content = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            headers.setdefault("content-type", "application/json")
        data = content.encode()
        headers["content-length"] = str(len(data) + (1000 if reply.breaks else 0))
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode() + data)
        await writer.drain()
        return not reply.breaks


@contextmanager
def serving(script: Script | None = None) -> Iterator[Server]:
    """Run a server that gives a passing verdict, or the replies of a script."""
    server = Server(script or (lambda _body, _number: verdict()))
    server.start()
    try:
        yield server
    finally:
        server.stop()
