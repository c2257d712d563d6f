"""The transport of a replay: answers the requests of httpx, httpx2 and requests from a player.

`ReplayTransport` is added to `record.wire.interception` while a replay is open. The replay of a
request's thread or task answers it. Streams arrive chunk by chunk as recorded; errors of the
transport are raised as exceptions of the library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.request import getproxies

from ..model import Chunk
from ..reconstruct import api_of
from ..record import AnswerDelay, add, library_of
from .address_list import DEFAULT_PORTS
from .call_site import call_site
from .http_answers import HttpAnswer, HttpRequest
from .open_replays import OpenReplay, current_replay

__all__ = ["ReplayTransport", "answering", "async_http_client", "http_client"]

# The answer to telemetry: after other errors, exporters would wait and try again.
_FORBIDDEN = 403
_ABOUT_THE_BODY = ("content-length", "transfer-encoding")


class ReplayTransport:
    """Answers requests from the replay of the current thread or task.

    Args:
        replay: The replay; by default the replay of the thread or task.
    """

    def __init__(self, replay: OpenReplay | None = None) -> None:
        self._replay = replay

    def handle(self, request: Any, send: Callable[[Any], Any]) -> Any:
        """Answer a request of a synchronous client.

        Args:
            request: The request.
            send: Sends the request for real.
        """
        replay = self._replay or current_replay()
        if replay is None:
            return send(request)
        body = request.read()
        answer = _answer(replay, request, body)
        if answer is None:
            return send(request)
        if answer.is_live:
            sent = _live_request(replay, request, answer)
            return answer.recorder.handle(sent, send) if answer.recorder else send(sent)
        return _response(request, answer, replay)

    async def handle_async(self, request: Any, send: Callable[[Any], Awaitable[Any]]) -> Any:
        """Answer a request of an asynchronous client.

        Args:
            request: The request.
            send: Sends the request for real.
        """
        replay = self._replay or current_replay()
        if replay is None:
            return await send(request)
        body = await request.aread()
        answer = _answer(replay, request, body)
        if answer is None:
            return await send(request)
        if answer.is_live:
            sent = _live_request(replay, request, answer)
            if answer.recorder is None:
                return await send(sent)
            return await answer.recorder.handle_async(sent, send)
        return _response(request, answer, replay)


@contextmanager
def answering() -> Iterator[None]:
    """Answer the requests of all clients of the process from the open replays."""
    interception = add(ReplayTransport())
    try:
        yield
    finally:
        interception.remove()


def _answer(replay: OpenReplay, request: Any, body: bytes) -> HttpAnswer | None:
    """Answer a request; None sends it on."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    http_request = HttpRequest(
        request.method, str(request.url), headers, body, limit=_limit(request)
    )
    port = request.url.port or DEFAULT_PORTS.get(request.url.scheme, 0)
    if api_of(http_request.method, http_request.url) is None:
        if not replay.player.has(http_request) and replay.allowed.allows(request.url.host, port):
            return None
        # Even if the request is recorded: telemetry differs in every run.
        if not replay.player.is_live and call_site().is_telemetry:
            address = f"{request.url.host}:{port}"
            replay.player.note(f"telemetry to {address} was blocked")
            replay.player.skip(http_request)
            return HttpAnswer(_FORBIDDEN)
    answer = replay.player.answer(http_request)
    if answer.is_live:
        return answer
    if replay.answered is not None:
        replay.answered(answer.end_ns)
    if answer.status == 0:
        raise _error(request, answer.error or "ConnectError: no response was recorded")
    return answer


def _limit(request: Any) -> float | None:
    """The seconds that a client waits for a response, as `HttpRequest.limit` has them."""
    limits = getattr(request, "extensions", {}).get("timeout")
    if not isinstance(limits, Mapping):
        return None
    seconds = limits.get("read")
    return math.inf if seconds is None else float(seconds)


def _live_request(replay: OpenReplay, request: Any, answer: HttpAnswer) -> Any:
    """Make the request that is sent for real, and allow the address of its model."""
    edited = answer.request
    if edited is None:
        return request
    library = library_of(request)
    url = library.URL(edited.url)
    replay.models.add(url.host, url.port or DEFAULT_PORTS.get(url.scheme, 0))
    for proxy in getproxies().values():
        with suppress(ValueError, library.InvalidURL):
            through = library.URL(proxy)
            replay.models.add(through.host, through.port or DEFAULT_PORTS.get(through.scheme, 0))
    # The new body has another length.
    headers = [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() not in _ABOUT_THE_BODY
    ]
    return library.Request(
        edited.method, url, headers=headers, content=edited.body, extensions=request.extensions
    )


def _response(request: Any, answer: HttpAnswer, replay: OpenReplay) -> Any:
    library = library_of(request)
    stream = _stream_class(library)(request, answer, replay)
    headers = dict(answer.headers)
    return library.Response(answer.status, headers=headers, stream=stream, request=request)


def _error(request: Any, text: str) -> Exception:
    """The library's exception for an error as ``ReadTimeout: text``."""
    library = library_of(request)
    name, _, message = text.partition(": ")
    kind = getattr(library, name, None)
    if not (isinstance(kind, type) and issubclass(kind, library.RequestError)):
        kind, message = library.ConnectError, text
    error: Exception = kind(message or name, request=request)
    return error


def _delays(answer: HttpAnswer, replay: OpenReplay) -> Iterator[tuple[Chunk, float]]:
    """Yield the chunks of an answer with the seconds to wait before each."""
    before = 0
    for chunk in answer.chunks:
        delay = max(chunk.offset_ns - before, 0) / 1e9 if replay.timing == "recorded" else 0.0
        before = max(chunk.offset_ns, before)
        yield chunk, delay


@functools.cache
def _stream_class(library: Any) -> Any:
    """The class of a library's response streams that return recorded chunks."""

    class RecordedStream(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, request: Any, answer: HttpAnswer, replay: OpenReplay) -> None:
            self._request, self._answer, self._replay = request, answer, replay

        def __iter__(self) -> Iterator[bytes]:
            for chunk, delay in _delays(self._answer, self._replay):
                if delay:
                    AnswerDelay(delay).wait()
                yield chunk.data
            self._end()

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk, delay in _delays(self._answer, self._replay):
                if delay:
                    await AnswerDelay(delay).wait_async()
                yield chunk.data
            self._end()

        def _end(self) -> None:
            if self._answer.error:
                raise _error(self._request, self._answer.error)

    return RecordedStream


def http_client(replay: OpenReplay, library: Any, **options: Any) -> Any:
    """Make a client of httpx or httpx2 that a replay answers.

    Args:
        replay: The replay.
        library: The module of the library.
        options: More arguments of the client.
    """
    answers = ReplayTransport(replay)

    class RecordedTransport(library.HTTPTransport):  # type: ignore[misc]
        def handle_request(self, request: Any) -> Any:
            return answers.handle(request, super().handle_request)

    return library.Client(transport=RecordedTransport(), **options)


def async_http_client(replay: OpenReplay, library: Any, **options: Any) -> Any:
    """Make an asynchronous client of httpx or httpx2 that a replay answers.

    Args:
        replay: The replay.
        library: The module of the library.
        options: More arguments of the client.
    """
    answers = ReplayTransport(replay)

    class RecordedAsyncTransport(library.AsyncHTTPTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            return await answers.handle_async(request, super().handle_async_request)

    return library.AsyncClient(transport=RecordedAsyncTransport(), **options)
