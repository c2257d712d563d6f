"""aiohttp: its calls are recorded whole and replayed, and the agent notices nothing."""

from __future__ import annotations

import asyncio
import gc
import io
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import oteval
from oteval.model import Exchange
from oteval.record.wire import interception

from ...replays.recorded import recording_of
from .recordings import recording
from .test_requests import EVENTS, serve
from .test_urllib3 import Editing
from .web_server import Answer, Web, answering

aiohttp = pytest.importorskip("aiohttp", "3.12")


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with answering(serve) as running:
        yield running


async def shown(response: Any) -> tuple[Any, ...]:
    """Return what an agent may look at."""
    headers = {name: value for name, value in response.headers.items() if name != "Date"}
    return (
        *(response.status, response.reason, headers, await response.read(), await response.text()),
        *(str(response.url), response.ok, response.method, len(response.history)),
    )


async def pieces() -> AsyncIterator[bytes]:
    for piece in (b"one ", b"two ", b"three"):
        yield piece


async def lines(response: Any) -> list[bytes]:
    """Return the lines of a response."""
    return [line async for line in response.content]


async def chunks(response: Any) -> bytes:
    """Return a response that is read as its pieces arrive."""
    return b"".join([chunk async for chunk in response.content.iter_any()])


async def small(response: Any) -> bytes:
    """Return a response that is read four bytes at a time.

    Joined, for a read ends where the network cut the stream.
    """
    pieces_read = []
    while not response.content.at_eof():
        pieces_read.append(await response.content.read(4))
    return b"".join(pieces_read)


async def first(response: Any) -> bytes:
    """Return the first line, and leave the rest."""
    line: bytes = await response.content.readline()
    return line


async def adds_a_header(request: Any, handler: Any) -> Any:
    """A middleware of the agent's."""
    request.headers["X-Own"] = "1"
    return await handler(request)


Read = Callable[[Any], Awaitable[Any]]
CASES: dict[str, tuple[str, str, Read, dict[str, Any]]] = {
    "json": ("POST", "/echo?q=a%20b", shown, {"json": {"a": 1}}),
    "text": ("POST", "/echo", shown, {"data": "grüße"}),
    "form": ("POST", "/echo", shown, {"data": {"a": "1"}}),
    "generator": ("POST", "/echo", shown, {"data": pieces}),
    "file": ("POST", "/echo", shown, {"data": lambda: io.BytesIO(b"x" * 50_000)}),
    "compressed": ("POST", "/list", shown, {"data": b"x" * 100, "compress": "deflate"}),
    "redirect": ("POST", "/moved", shown, {"data": b"again"}),
    "gzip": ("GET", "/gzip", shown, {}),
    "lines": ("GET", "/events", lines, {}),
    "chunks": ("GET", "/events", chunks, {}),
    "small": ("GET", "/events", small, {}),
    "first": ("GET", "/events", first, {}),
    "cut": ("GET", "/cut", shown, {}),
    "middleware": ("POST", "/echo", shown, {"data": b"x", "middlewares": (adds_a_header,)}),
}


def outcome(name: str, url: str) -> str:
    """Return what an agent reads of a response, or its error, as text."""
    method, path, read, options = CASES[name]

    async def work() -> Any:
        made = {key: value() if callable(value) else value for key, value in options.items()}
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url + path, **made) as response,
        ):
            return await read(response)

    try:
        found: Any = asyncio.run(work())
    except Exception as error:
        found = (type(error), re.sub(r"0x\w+", "", str(error)))
    return repr(found)


@pytest.mark.parametrize("name", CASES)
def test_the_agent_gets_the_same_as_without_recording(name: str, web: Web) -> None:
    """Bodies, files, redirects, streams, middlewares and errors."""
    plain = outcome(name, web.url)
    arrived = len(web.arrived)

    with recording() as recorded:
        assert outcome(name, web.url) == plain
        gc.collect()

        assert recorded.recorder.failures == 0
        assert recorded.exchanges()
    assert web.arrived[arrived:] == web.arrived[2 * arrived - len(web.arrived) : arrived]


@pytest.mark.parametrize(
    ("name", "sent", "received"),
    [
        ("json", b'{"a": 1}', b'{"a": 1}'),
        ("generator", b"one two three", b"one two three"),
        ("file", b"x" * 50_000, b"x" * 50_000),
        ("compressed", b"x" * 100, None),
        ("gzip", b"", b"hello " * 1000),
        ("lines", b"", b"".join(EVENTS)),
        ("small", b"", b"".join(EVENTS)),
    ],
)
def test_a_request_is_recorded_whole(
    name: str, sent: bytes, received: bytes | None, web: Web
) -> None:
    """Bodies are those that the agent gave and read, not as they were compressed."""
    with recording() as recorded:
        outcome(name, web.url)
        made = recorded.one()

    assert made.url == web.url + CASES[name][1]
    assert made.request_body == sent
    assert made.response_body == (received if received is not None else made.response_body)
    assert (made.status, made.is_complete, made.error) == (200, True, "")


@pytest.mark.parametrize("name", CASES)
def test_a_replay_gives_the_same(name: str, web: Web) -> None:
    """What was recorded comes back as it was, and nothing reaches the server."""
    with recording() as recorded:
        plain = outcome(name, web.url)
        gc.collect()
    arrived = len(web.arrived)

    with oteval.replay(recording_of(recorded.exchanges())) as replayed:
        found = outcome(name, web.url)

    assert replayed.result.passed
    assert len(web.arrived) == arrived
    if name != "cut":
        # Headers of secrets and of lengths are not kept.
        assert re.sub(r"\{.*?\}", "", found) == re.sub(r"\{.*?\}", "", plain)


def test_the_agent_gets_each_chunk_before_the_next_is_sent() -> None:
    """The server sends a piece only after the agent has read the one before."""
    read = [threading.Event() for _ in range(3)]

    def events() -> Iterator[bytes]:
        for index in range(3):
            yield b"data: %d\n\n" % index
            assert read[index].wait(60)

    async def work(url: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            index = 0
            async for _piece in response.content.iter_any():
                read[index].set()
                index += 1

    with answering(lambda _request: Answer(events())) as slow, recording() as recorded:
        asyncio.run(work(slow.url))
        made = recorded.one()

    assert [chunk.data for chunk in made.chunks] == [b"data: %d\n\n" % n for n in range(3)]
    assert made.is_complete


def test_ends_of_responses(web: Web) -> None:
    """A broken connection is an error; a response that is left early is none."""
    with recording() as recorded:
        outcome("cut", web.url)
        outcome("first", web.url)
        outcome("json", "http://127.0.0.1:1")
        gc.collect()
        cut, left, refused = sorted(recorded.exchanges(), key=lambda exchange: exchange.start_ns)

    assert cut.error.startswith("ClientPayloadError: ")
    assert left.error == ""
    assert refused.error.startswith("ClientConnectorError: ")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ClientConnectorError: refused", aiohttp.ClientConnectorError),
        ("ServerDisconnectedError: gone", aiohttp.ServerDisconnectedError),
        ("ClientResponseError: 400, bad", aiohttp.ClientResponseError),
        ("ServerTimeoutError: slow", aiohttp.ServerTimeoutError),
        ("TimeoutError: ", asyncio.TimeoutError),
        ("ReadTimeout: slow", aiohttp.SocketTimeoutError),
        ("no name", aiohttp.ClientConnectionError),
    ],
)
def test_recorded_errors_come_back_as_their_type(error: str, kind: type[Exception]) -> None:
    """By the name in their text."""

    async def work() -> None:
        async with aiohttp.ClientSession() as session:
            await session.post("http://model/")

    failed = Exchange("POST", "http://model/", error=error, is_complete=False)

    with oteval.replay(recording_of([failed])), pytest.raises(kind):
        asyncio.run(work())


def test_a_request_has_a_span(web: Web) -> None:
    """No instrumentation writes one: the exchange can be placed in the trace of the agent."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("agent")

    with recording(tracer_provider=provider) as recorded:
        with tracer.start_as_current_span("agent"):
            outcome("json", web.url)
        outcome("cut", web.url)
        gc.collect()
        made, cut = recorded.exchanges()

    sent, agent, broken = memory.get_finished_spans()
    assert sent.parent == agent.context
    assert int(made.span_id, 16) == sent.context.span_id
    assert int(cut.span_id, 16) == broken.context.span_id
    assert sent.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "url.full": f"{web.url}/echo",
    }
    assert not broken.status.is_ok


def test_an_instrumentation_of_the_client_writes_the_span(web: Web) -> None:
    """Then there is no second one."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    attributes = {"http.request.method": "POST"}

    with recording(tracer_provider=provider) as recorded:
        with provider.get_tracer("a").start_as_current_span("POST", attributes=attributes) as span:
            outcome("json", web.url)
        made = recorded.one()

    assert len(memory.get_finished_spans()) == 1
    assert int(made.span_id, 16) == span.get_span_context().span_id


def test_an_interceptor_may_send_another_request(web: Web) -> None:
    """As a what-if does: another path and another body, with its length."""

    async def work() -> bytes:
        async with aiohttp.ClientSession() as session:
            response = await session.post(f"{web.url}/old", data=b"x")
            body: bytes = await response.read()
            return body

    with interception.add(Editing()):
        assert asyncio.run(work()) == b"edited body"

    assert web.arrived[-1].path == "/echo"
