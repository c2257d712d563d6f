"""Recordings for tests of replays: agents that talk to a scripted server, recorded on the way."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from oteval.model import (
    Chunk,
    Exchange,
    RecordedModelCall,
    RecordedToolCall,
    Recording,
)
from oteval.reconstruct.apis import api_of
from oteval.record.wire.interception import add, library_of

from ..model_server import Reply, Script, Server, serving

MODEL_HEADERS = ("content-type", "x-should-retry", "retry-after")


class ExchangeLog:
    """An interceptor that keeps every exchange."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Send a request, and keep the exchange."""
        start, body = time.time_ns(), request.read()
        try:
            response = send(request)
        except Exception as error:
            self._keep(request, body, start, error=f"{type(error).__name__}: {error}")
            raise
        chunks = list(response.stream)
        response.close()
        self._keep(request, body, start, response, chunks)
        return self._response(request, response, chunks)

    async def handle_async(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Send a request of an asynchronous client, and keep the exchange."""
        start, body = time.time_ns(), await request.aread()
        response = await send(request)
        chunks = [chunk async for chunk in response.stream]
        await response.aclose()
        self._keep(request, body, start, response, chunks)
        return self._response(request, response, chunks)

    def _keep(
        self,
        request: Any,
        body: bytes,
        start: int,
        response: Any = None,
        chunks: Sequence[bytes] = (),
        error: str = "",
    ) -> None:
        headers = {} if response is None else dict(response.headers)
        self.exchanges.append(
            Exchange(
                method=request.method,
                url=str(request.url),
                request_body=body,
                status=0 if response is None else response.status_code,
                response_headers={k: v for k, v in headers.items() if k in MODEL_HEADERS},
                chunks=tuple(
                    Chunk(line) for chunk in chunks for line in chunk.splitlines(keepends=True)
                ),
                error=error,
                start_ns=start,
                end_ns=time.time_ns(),
            )
        )

    def _response(self, request: Any, response: Any, chunks: Sequence[bytes]) -> Any:
        library = library_of(request)

        class Pieces(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
            def __iter__(self) -> Iterator[bytes]:
                yield from chunks

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for chunk in chunks:
                    yield chunk

        headers = dict(response.headers)
        return library.Response(response.status_code, headers=headers, stream=Pieces())


def model_call(exchange: Exchange) -> RecordedModelCall:
    """Return the model call that an exchange is."""
    api = api_of(exchange.method, exchange.url)
    assert api is not None
    request = replace(api.parse_request(exchange.request_body, exchange.url), api=api.name)
    times = {"start_ns": exchange.start_ns, "end_ns": exchange.end_ns}
    if exchange.status != 200:
        error = exchange.error or f"status {exchange.status}"
        return RecordedModelCall(request, None, exchange, error, **times)
    answer = api.parse_response(exchange.response_body)
    return RecordedModelCall(request, answer.message, exchange, **times)


def recording_of(
    exchanges: Sequence[Exchange], tools: Sequence[RecordedToolCall] = (), **fields: Any
) -> Recording:
    """Return the recording that exchanges make up."""
    model_exchanges = [exchange for exchange in exchanges if api_of(exchange.method, exchange.url)]
    calls = tuple(map(model_call, sorted(model_exchanges, key=lambda exchange: exchange.start_ns)))
    other_exchanges = tuple(
        exchange for exchange in exchanges if not api_of(exchange.method, exchange.url)
    )
    return Recording("session-1", "wire", (), (), calls, tuple(tools), other_exchanges, **fields)


def record(
    agent: Callable[[str], Any], script: Script, tools: Sequence[RecordedToolCall] = ()
) -> Recording:
    """Run an agent, called with the address of a scripted server, and return its recording."""
    log = ExchangeLog()
    with serving(script) as server, add(log):
        agent(server.url)
    return recording_of(log.exchanges, tools)


def host_of(server: Server) -> str:
    """Return the address of a server as ``host:port``."""
    return urlsplit(server.url).netloc


def tool_request(*calls: tuple[str, str], call_id: str = "call_") -> Reply:
    """Return a completion that asks for tools: names and JSON arguments."""
    model_calls = [
        {
            "id": f"{call_id}{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(calls, 1)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": model_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted"}
    return Reply({**head, "choices": [choice]})
