"""Recording real requests of real clients: whole, in time, and without getting in the way."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest
import zstandard
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.trace import TracerProvider

from oteval.model.recording import UnreadableExchange, from_log
from oteval.record.wire import interception
from oteval.record.wire.recorder import WireRecorder

from ...model_server import completion, serving, streamed
from .recordings import recording
from .web_server import Answer, Arrived, answering

LIBRARIES: list[Any] = [httpx, httpx2]
QUESTION: Any = [{"role": "user", "content": "Where is my order?"}]


def echo(_request: Arrived) -> Answer:
    return Answer([b"pong"], headers={"Content-Type": "text/plain", "X-Request-Id": "r1"})


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_request_is_recorded_whole(library: Any) -> None:
    """Method, URL, headers, bodies, status and times, in the context of the current span."""
    tracer = TracerProvider().get_tracer("agent")
    with answering(echo) as web, recording() as recorded, library.Client(verify=False) as client:
        with tracer.start_as_current_span("call model") as span:
            response = client.post(f"{web.url}/v1/x?api-version=1", content=b"ping")
        assert response.text == "pong"
        made = recorded.one()
        assert (made.method, made.url) == ("POST", f"{web.url}/v1/x?api-version=1")
        assert (made.request_body, made.response_body, made.status) == (b"ping", b"pong", 200)
        assert made.response_headers["x-request-id"] == "r1"
        assert made.is_complete
        assert not made.error
        assert 0 < made.chunks[0].offset_ns <= made.end_ns - made.start_ns
        assert int(made.trace_id, 16) == span.get_span_context().trace_id
        assert int(made.span_id, 16) == span.get_span_context().span_id
        (log,) = recorded.logs()
        assert log.time_ns == made.start_ns
        assert log.attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_agent_gets_each_chunk_before_the_next_is_sent(library: Any) -> None:
    """The server sends a piece only after the agent has read the one before."""
    read = [threading.Event() for _ in range(3)]

    def pieces() -> Iterator[bytes]:
        for index in range(3):
            yield b"data: %d\n\n" % index
            assert read[index].wait(60)

    answer = Answer(pieces(), headers={"Content-Type": "text/event-stream"})
    with answering(lambda _request: answer) as web, recording() as recorded:
        with library.Client(verify=False) as client, client.stream("POST", web.url) as response:
            for index, _piece in enumerate(response.iter_bytes()):
                read[index].set()
        made = recorded.one()
        assert [chunk.data for chunk in made.chunks] == [b"data: %d\n\n" % n for n in range(3)]
        offsets = [chunk.offset_ns for chunk in made.chunks]
        assert offsets == sorted(offsets)
        assert made.is_complete


@pytest.mark.parametrize("library", LIBRARIES)
def test_streams_of_asynchronous_clients(library: Any) -> None:
    """Request bodies that are generated are recorded as they are sent, once."""
    made_pieces: list[int] = []

    async def upload() -> AsyncIterator[bytes]:
        for index in range(3):
            made_pieces.append(index)
            yield b"part%d " % index

    async def ask(url: str) -> bytes:
        async with (
            library.AsyncClient(verify=False) as client,
            client.stream("POST", url, content=upload()) as response,
        ):
            return b"".join([piece async for piece in response.aiter_bytes()])

    answer = Answer([b"a", b"b"])
    with answering(lambda _request: answer) as web, recording() as recorded:
        assert asyncio.run(ask(web.url)) == b"ab"
        assert web.arrived[0].body == b"part0 part1 part2 "
        made = recorded.one()
    assert made_pieces == [0, 1, 2]
    assert made.request_body == b"part0 part1 part2 "
    assert made.response_body == b"ab"
    assert made.is_complete


@pytest.mark.parametrize("library", LIBRARIES)
def test_generated_request_bodies_survive_a_redirect(library: Any) -> None:
    """The request keeps its own stream, so the client decides whether it can be sent again."""

    def answer(request: Arrived) -> Answer:
        if request.path == "/old":
            return Answer(status=307, headers={"Location": "/new"})
        return Answer([request.body])

    with answering(answer) as web, recording() as recorded:
        with library.Client(verify=False, follow_redirects=True) as client:
            files = {"file": ("a.txt", b"content")}
            response = client.post(f"{web.url}/old", files=files)
        first, second = recorded.exchanges()
    assert b"content" in response.content
    assert (first.status, second.status) == (307, 200)
    assert first.request_body == second.request_body == second.response_body
    assert first.response_headers["location"] == "/new"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, deflate"])
def test_bodies_are_recorded_as_the_agent_reads_them(library: Any, encoding: str) -> None:
    """Compressed responses are decoded; one that the client cannot decode stays as it is."""
    body = json.dumps({"text": "grüße " * 500}).encode()
    encoders: dict[str, Any] = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "zstd": zstandard.compress,
    }
    data = body
    for name in encoding.split(", "):
        data = encoders[name](data)
    chunks = [data[at : at + 20] for at in range(0, len(data), 20)]
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    answer = Answer(chunks, headers=headers)
    with answering(lambda _request: answer) as web, recording() as recorded:
        with library.Client(verify=False) as client:
            content = client.get(web.url).content
        made = recorded.one()
    assert made.response_body == content
    assert ("content-encoding" in made.response_headers) == (content != body)
    assert made.is_complete


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_compressed_request_is_recorded_decoded(library: Any) -> None:
    """So that its secrets can be found."""
    with answering(echo) as web, recording() as recorded, library.Client(verify=False) as client:
        packed = gzip.compress(b'{"password": "hunter2"}')
        client.post(web.url, content=packed, headers={"Content-Encoding": "gzip"})
        assert web.arrived[0].body == packed
        made = recorded.one()
    assert made.request_body == b'{"password": "[redacted]"}'
    assert "content-encoding" not in made.request_headers


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stream_closed_early_is_incomplete(library: Any) -> None:
    gate = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        gate.wait(60)
        yield b"second"

    with answering(lambda _request: Answer(pieces())) as web, recording() as recorded:
        with library.Client(verify=False) as client, client.stream("GET", web.url) as response:
            assert next(response.iter_bytes()) == b"first"
        gate.set()
        made = recorded.one()
    assert made.response_body == b"first"
    assert not made.is_complete
    assert not made.error


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_response_that_nobody_reads_is_recorded_when_it_is_closed(library: Any) -> None:
    with answering(echo) as web, recording() as recorded, library.Client(verify=False) as client:
        with client.stream("GET", web.url):
            assert not recorded.exchanges()
        made = recorded.one()
    assert made.status == 200
    assert made.chunks == ()
    assert not made.is_complete


@pytest.mark.parametrize("library", LIBRARIES)
def test_transport_errors_are_recorded_and_reach_the_agent(library: Any) -> None:
    """Before the response, and in the middle of it."""
    cut = Answer([b"half"], is_cut=True)
    with answering(lambda _request: cut) as web, recording() as recorded:
        with library.Client(verify=False) as client:
            with pytest.raises(library.RemoteProtocolError):
                client.get(web.url)
            with pytest.raises(library.ConnectError):
                client.get("http://127.0.0.1:1/")
        middle, before = recorded.exchanges()
    assert (middle.status, middle.response_body) == (200, b"half")
    assert middle.error.startswith("RemoteProtocolError: ")
    assert not middle.is_complete
    assert (before.status, before.chunks) == (0, ())
    assert before.error.startswith("ConnectError: ")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_cancelled_request_is_recorded(library: Any) -> None:
    """The server never answers; the agent gives up."""
    arrived, gate = threading.Event(), threading.Event()

    def hang(_request: Arrived) -> Answer:
        arrived.set()
        gate.wait(60)
        return Answer()

    async def ask(url: str) -> None:
        async with library.AsyncClient(verify=False, timeout=60) as client:
            task = asyncio.ensure_future(client.get(url))
            await asyncio.to_thread(arrived.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with answering(hang) as web, recording() as recorded:
        asyncio.run(ask(web.url))
        gate.set()
        made = recorded.one()
    assert made.error.startswith("CancelledError")


def test_openai_chat_completions_and_responses() -> None:
    """Whole answers and streams; the client closes a stream without reading its very end."""
    replies = {1: completion("Hello."), 2: streamed("It arrives tomorrow.")}
    with serving(lambda _body, number: replies[number]) as server, recording() as recorded:
        with openai.OpenAI(base_url=server.url, api_key="sk-planted-key-12345") as client:
            client.chat.completions.create(model="m", messages=QUESTION)
            stream = client.chat.completions.create(model="m", messages=QUESTION, stream=True)
            text = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
        plain, pieces = recorded.exchanges()
        assert "planted" not in recorded.text()
    assert text == "It arrives tomorrow."
    assert json.loads(plain.request_body) == server.requests[0]
    assert json.loads(plain.response_body)["choices"][0]["message"]["content"] == "Hello."
    assert plain.url.endswith("/v1/chat/completions")
    assert pieces.response_body.endswith(b"data: [DONE]\n\n")
    assert plain.is_complete
    assert pieces.is_complete


def test_openai_asynchronous_streams_of_the_responses_api() -> None:
    """The last event of a response ends the stream, although no `[DONE]` follows."""
    events = [
        {"type": "response.output_text.delta", "delta": "Hi", "item_id": "i", "output_index": 0},
        {"type": "response.completed", "response": {"id": "r", "output": []}},
    ]
    chunks = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
    answer = Answer(chunks, headers={"Content-Type": "text/event-stream"})

    async def ask(url: str) -> list[str]:
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            stream: Any = await client.responses.create(model="m", input="Hello", stream=True)
            seen = []
            async for event in stream:
                seen.append(event.type)
                if event.type == "response.completed":
                    await stream.close()
                    break
            return seen

    with answering(lambda _request: answer) as web, recording() as recorded:
        assert asyncio.run(ask(web.url)) == [event["type"] for event in events]
        made = recorded.one()
    assert made.response_body == b"".join(chunks)
    assert made.is_complete


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("side", ["request", "response"])
def test_large_bodies_are_not_kept_and_the_event_says_so(library: Any, side: str) -> None:
    """Memory is bounded: the agent gets everything, the recording a reason."""
    question, pieces = (b"y" * 3000, 1) if side == "request" else (b"y", 3)
    answer = Answer([b"x" * 1000] * pieces)
    with answering(lambda _request: answer) as web, recording(max_body=2000) as recorded:
        with library.Client(verify=False) as client:
            content = client.post(web.url, content=question).content
        assert len(content) == 1000 * pieces
        (log,) = recorded.logs()
    with pytest.raises(UnreadableExchange, match=f"the {side} body is larger than max_body"):
        from_log(log)


def test_a_compressed_bomb_is_not_kept() -> None:
    """A small response that decodes to a large one counts by its decoded size."""
    bomb = Answer([gzip.compress(b"0" * 5_000_000)], headers={"Content-Encoding": "gzip"})
    with answering(lambda _request: bomb) as web, recording(max_body=100_000) as recorded:
        with httpx.Client(verify=False) as client:
            assert len(client.get(web.url).content) == 5_000_000
        (log,) = recorded.logs()
    with pytest.raises(UnreadableExchange, match="larger than max_body"):
        from_log(log)


def test_hosts_can_be_chosen() -> None:
    with answering(echo) as web, httpx.Client(verify=False) as client:
        port = web.url.rpartition(":")[2]
        for options, count in [
            ({"include_hosts": ["*.openai.com"]}, 0),
            ({"include_hosts": [f"127.0.0.1:{port}"]}, 1),
            ({"exclude_hosts": ["127.*"]}, 0),
            ({"include_hosts": ["*"], "exclude_hosts": ["other"]}, 1),
        ]:
            with recording(**options) as recorded:
                client.get(web.url)
                assert len(recorded.exchanges()) == count, options


def test_exports_of_telemetry_are_not_recorded() -> None:
    """Neither OTLP over httpx, nor requests of code that suppresses instrumentation."""
    with answering(echo) as web, recording() as recorded, httpx.Client(verify=False) as client:
        client.post(f"{web.url}/prefix/v1/traces", content=b"spans")
        client.post(f"{web.url}/v1/traces/ingest", json={"data": []})
        token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        client.get(web.url)
        context.detach(token)
        assert not recorded.exchanges()


@pytest.mark.parametrize("library", LIBRARIES)
def test_mock_transports_are_recorded_on_request(library: Any) -> None:
    """Responses that a test made: whole at once, and already decoded."""
    body = gzip.compress(b"unpacked")
    mock = library.MockTransport(
        lambda _request: library.Response(200, content=body, headers={"content-encoding": "gzip"})
    )
    with recording(mocks=True) as recorded, library.Client(transport=mock) as client:
        assert client.get("http://mocked/").content == b"unpacked"
        made = recorded.one()
    assert made.response_body == b"unpacked"
    assert made.is_complete


def test_failures_of_the_recorder_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever goes wrong while recording, the agent's request succeeds."""

    class Broken:
        def get_logger(self, *_args: Any, **_kwargs: Any) -> Any:
            return self

        def emit(self, **_kwargs: Any) -> None:
            raise RuntimeError("disk full: secret text")

    recorder = WireRecorder(Broken())
    with (
        caplog.at_level(logging.WARNING),
        answering(echo) as web,
        interception.add(recorder),
        httpx.Client(verify=False) as client,
    ):
        assert client.get(web.url).text == client.get(web.url).text == "pong"
    assert (recorder.recorded, recorder.failures) == (0, 2)
    assert len(caplog.records) == 1
    assert "secret text" not in caplog.text


def test_threads_record_their_requests_separately() -> None:
    with answering(lambda request: Answer([request.body])) as web, recording() as recorded:

        def work(name: bytes) -> None:
            with httpx.Client(verify=False) as client:
                for index in range(10):
                    client.post(web.url, content=b"%s%d" % (name, index))

        threads = [threading.Thread(target=work, args=(b"worker%d-" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        made = recorded.exchanges()
    assert len(made) == 40
    assert all(each.request_body == each.response_body for each in made)
