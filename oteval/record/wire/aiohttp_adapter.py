"""Interception of the requests that aiohttp sends, which LiteLLM and others use.

aiohttp calls *middlewares* for each request, before it connects: redirects are separate requests.
The hook on ``ClientSession._request`` adds a middleware below the agent's. The middleware describes
the request as a request of httpx, passes that to the interceptors, and returns a ``ClientResponse``
to the agent. It needs aiohttp 3.12 or later, see `is_supported`.

A response from the network is not replaced, except its ``content``. The new reader takes each piece
from the interceptors' stream, which takes it from the original reader. aiohttp decompresses bodies
as they arrive; the decompressed body is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from .requests_adapter import (
    CLIENT_EXTENSION,
    TELEMETRY_PATHS,
    description_library,
    native_error,
)
from .requests_responses import FAULTS

__all__ = ["intercepted_request", "is_supported"]

_log = logging.getLogger(__name__)

AsyncChain = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]

_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
_SWITCHING_PROTOCOLS = 101
_ERRORS = {
    "ConnectTimeout": "ConnectionTimeoutError",
    "PoolTimeout": "ConnectionTimeoutError",
    "ReadError": "ClientOSError",
    "ReadTimeout": "SocketTimeoutError",
    "RemoteProtocolError": "ServerDisconnectedError",
    "WriteTimeout": "SocketTimeoutError",
}


def is_supported(session_class: Any) -> bool:
    """Whether the version of aiohttp has middlewares; warn if not."""
    has_middlewares = "middlewares" in inspect.signature(session_class._request).parameters
    if not has_middlewares:
        _warn_of_version()
    return has_middlewares


@functools.cache
def _warn_of_version() -> None:
    _log.warning("requests of aiohttp are not recorded: upgrade it to 3.12 or later")


async def intercepted_request(
    request: Callable[..., Awaitable[Any]],
    session: Any,
    args: tuple[Any, ...],
    options: dict[str, Any],
    chain: AsyncChain,
) -> Any:
    """Send a request of aiohttp through the interceptors, and return its response.

    Args:
        request: The original method of the session.
        session: The session.
        args: The arguments of the method.
        options: Its arguments by name.
        chain: Passes a request to the interceptors, with the function that sends it.

    Raises:
        aiohttp.ClientError: The request failed, or an interceptor raised the error.
    """
    own = options.get("middlewares")
    own = tuple(getattr(session, "_middlewares", ()) if own is None else own)

    async def middleware(native: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await _intercepted(native, handler, chain)

    return await request(session, *args, **{**options, "middlewares": (*own, middleware)})


async def _intercepted(
    native: Any, handler: Callable[[Any], Awaitable[Any]], chain: AsyncChain
) -> Any:
    """Pass one request of aiohttp to the interceptors."""
    if native.url.path.endswith(TELEMETRY_PATHS):
        return await handler(native)
    try:
        library = description_library()
        call = _AiohttpCall(library, native, handler, await _description(library, native))
    except Exception as error:
        FAULTS.add(error)
        return await handler(native)
    try:
        response = await chain(call.request, call.send)
    except library.RequestError as error:
        raise _aiohttp_error(error, native, in_body=False) from error
    if response is call.response:
        return call.watched()
    if call.native_response is not None:
        call.native_response.close()
    return _answer(library, native, response)


async def _description(library: Any, native: Any) -> Any:
    """Describe a request of aiohttp as a request of httpx."""
    body = native.body
    content = body if isinstance(body, bytes) else await body.as_bytes()
    # A body that is to be compressed is not compressed yet.
    headers = [
        (name, value)
        for name, value in native.headers.items()
        if name.lower() not in ("content-encoding", "transfer-encoding")
    ]
    return library.Request(
        native.method,
        library.URL(str(native.url)),
        headers=headers,
        content=content,
        extensions={CLIENT_EXTENSION: "aiohttp"},
    )


class _AiohttpCall:
    """A request of aiohttp that goes through the interceptors.

    Attributes:
        request: Its description.
        native_response: The response of aiohttp, once the request was sent.
        response: The description of that response.
    """

    def __init__(
        self, library: Any, native: Any, handler: Callable[[Any], Awaitable[Any]], request: Any
    ) -> None:
        self._library, self._native, self._handler = library, native, handler
        self.request = request
        self.native_response: Any = None
        self.response: Any = None
        self._stream: Any = None

    async def send(self, request: Any) -> Any:
        """Send the request by aiohttp, and return a description of its response."""
        if request is not self.request:
            await self._edit(request)
        native = self.native_response = await self._handler(self._native)
        headers = [
            (name, value)
            for name, value in native.headers.items()
            if name.lower() not in _BODY_HEADERS
        ]
        self._stream = _native_stream(self._library)(native.content)
        self.response = self._library.Response(
            native.status, headers=headers, stream=self._stream, request=request
        )
        return self.response

    async def _edit(self, request: Any) -> None:
        """Change the request to the interceptor's request."""
        native = self._native
        url = _module("yarl").URL(str(request.url), encoded=True)
        native.method, native.url = request.method, url
        for name, value in request.headers.items():
            native.headers[name] = value
        native.headers.popall("Content-Length", None)
        await native.update_body(await request.aread())

    def watched(self) -> Any:
        """The network's response; its reader takes the pieces from the interceptors."""
        native, stream = self.native_response, self.response.stream
        if stream is not self._stream and native.status != _SWITCHING_PROTOCOLS:
            error_of = functools.partial(_aiohttp_error, native=self._native, in_body=True)
            native.content = _reader(stream, error_of, self._library)
        return native


@functools.cache
def _native_stream(library: Any) -> Any:
    class NativeStream(library.AsyncByteStream):  # type: ignore[misc]
        """The pieces that an original reader returns, as they arrive."""

        def __init__(self, content: Any) -> None:
            self._content = content

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while piece := await self._content.readany():
                yield piece

    return NativeStream


def _reader(stream: Any, error_of: Callable[[Any], BaseException], library: Any) -> Any:
    """A reader of aiohttp that takes its data from a stream of httpx.

    Args:
        stream: The stream.
        error_of: Returns the exception of aiohttp for an exception of the library.
        library: The module httpx or httpx2.
    """
    return _reader_class()(stream, error_of, library)


@functools.cache
def _reader_class() -> Any:
    base: Any = _module("aiohttp").StreamReader

    class StreamedReader(base):  # type: ignore[misc]
        def __init__(self, stream: Any, error_of: Any, library: Any) -> None:
            super().__init__(_Unpaused(), 1 << 30, loop=asyncio.get_running_loop())
            self._oteval_pieces: Any = aiter(stream)
            self._oteval_error_of, self._oteval_library = error_of, library

        async def _wait(self, func_name: str) -> None:
            del func_name
            if self._exception is not None:
                raise self._exception
            if self._oteval_pieces is None:
                return
            try:
                piece = await anext(self._oteval_pieces)
            except StopAsyncIteration:
                self._oteval_pieces = None
                self.feed_eof()
            except self._oteval_library.RequestError as error:
                raise self._oteval_failed(self._oteval_error_of(error)) from error
            except BaseException as error:
                raise self._oteval_failed(error)  # noqa: B904  # as the original reader does
            else:
                self.feed_data(piece)

        async def wait_eof(self) -> None:
            while not self._eof:
                await self._wait("wait_eof")

        def set_exception(self, exc: Any, *cause: Any) -> None:
            # The response is closed: the recorder notices that the stream is free.
            self._oteval_pieces = None
            super().set_exception(exc, *cause)

        def _oteval_failed(self, error: BaseException) -> BaseException:
            self._oteval_pieces = None
            if isinstance(error, Exception):
                self._exception = error
            return error

    return StreamedReader


class _Unpaused:
    """Stands for the connection of a reader: there is nothing to pause."""

    connected = True
    _reading_paused = False

    def pause_reading(self, *_args: Any, **_options: Any) -> None:
        """Do nothing."""

    def resume_reading(self, *_args: Any, **_options: Any) -> None:
        """Do nothing."""


def _answer(library: Any, native: Any, response: Any) -> Any:
    """Build the response of aiohttp with the status, headers and body of a response of httpx."""
    aiohttp, multidict = _module("aiohttp"), _module("multidict")
    is_read = hasattr(response, "_content")
    headers = multidict.CIMultiDict(
        (name, value)
        for name, value in response.headers.multi_items()
        if not (is_read and name.lower() in _BODY_HEADERS)
    )
    sent_headers = multidict.CIMultiDictProxy(native.headers)
    info = aiohttp.RequestInfo(native.url, native.method, sent_headers, native.url)
    arguments: dict[str, Any] = {
        "writer": None,
        "continue100": None,
        "timer": _module("aiohttp.helpers").TimerNoop(),
        "request_info": info,
        "traces": [],
        "loop": asyncio.get_running_loop(),
        "session": native._session if hasattr(native, "_session") else None,
        "stream_writer": SimpleNamespace(output_size=0),  # of a request that was not sent
    }
    kind = native.response_class
    parameters = inspect.signature(kind.__init__).parameters
    answer = kind(
        native.method,
        native.url,
        **{name: value for name, value in arguments.items() if name in parameters},
    )
    answer.version, answer.status = aiohttp.HttpVersion11, response.status_code
    answer.reason = response.reason_phrase or _phrase(response.status_code)
    answer._headers = multidict.CIMultiDictProxy(headers)
    answer._raw_headers = tuple(
        (name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()
    )
    if cookies := tuple(headers.getall("Set-Cookie", ())):
        with contextlib.suppress(AttributeError):
            answer._raw_cookie_headers = cookies
    stream = _once(response.content) if is_read else response.stream
    error_of = functools.partial(_aiohttp_error, native=native, in_body=True)
    answer.content = _reader(stream, error_of, library)
    answer._closed = False
    return answer


def _module(name: str) -> Any:
    """A module that aiohttp has imported; it is not a dependency of oteval."""
    return import_module(name)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    if content:
        yield content


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _aiohttp_error(error: Any, native: Any, *, in_body: bool) -> BaseException:
    """The exception of aiohttp for one of httpx, whose text names a recorded exception.

    Args:
        error: The exception of httpx.
        native: The request.
        in_body: Whether the response had begun.
    """
    aiohttp = _module("aiohttp")
    name, _, message = str(error).partition(": ")
    if name in ("TimeoutError", "CancelledError"):
        return TimeoutError(message)
    default = "ClientPayloadError" if in_body else "ClientConnectionError"
    names = {} if in_body else _ERRORS
    kind, message = native_error(error, aiohttp, aiohttp.ClientError, names, default)
    if issubclass(kind, aiohttp.ClientConnectorError):
        return kind(native.connection_key, OSError(message))  # type: ignore[no-any-return]
    if issubclass(kind, aiohttp.ClientResponseError):
        return kind(native.request_info, (), message=message)  # type: ignore[no-any-return]
    try:
        return kind(message)  # type: ignore[no-any-return]
    except TypeError:
        return aiohttp.ClientConnectionError(message)  # type: ignore[no-any-return]
