"""Interception of the requests that the library requests sends.

Interceptors know the requests and responses of httpx and httpx2. The hook on ``HTTPAdapter.send``
describes each request of requests as a request of httpx or httpx2, passes it to the interceptors,
and returns a ``requests.Response`` to the agent. It therefore needs httpx or httpx2; oteval's
dependencies always include one of them.

If nothing answers for the server, the agent's own ``PreparedRequest`` is sent by the agent's own
adapter, and the agent gets the very response that the adapter returned. Interceptors may watch its
body, see `requests_responses`, but cannot change it. A request that cannot be described is sent
without the interceptors, and counted. Telemetry is sent without them as well; a replay blocks it.

Redirects and authentication lie above the adapter: each of their requests is intercepted. Retries
of urllib3 lie below it, so only the last response is seen. Adapters that do not call
``HTTPAdapter.send`` are not hooked; they usually do not send to the network.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .requests_responses import FAULTS, StreamCopy, copied_stream, response_of, watched

__all__ = [
    "CLIENT_EXTENSION",
    "TELEMETRY_PATHS",
    "Chain",
    "description_library",
    "intercepted_send",
    "native_error",
]

TELEMETRY_PATHS = ("/v1/traces", "/v1/logs", "/v1/metrics", "/v1/traces/ingest")
"""Paths of telemetry: of OTLP, and of the tracing of the OpenAI Agents SDK."""

CLIENT_EXTENSION = "oteval.client"
"""The extension of a description that names the client of the agent's request."""

Chain = Callable[[Any, Callable[[Any], Any]], Any]

_BLOCK = 65536
_TIMEOUTS = {
    "ConnectTimeout": "ConnectTimeout",
    "PoolTimeout": "ConnectTimeout",
    "ReadTimeout": "ReadTimeout",
    "WriteTimeout": "ReadTimeout",
}
_ERRORS = {
    **_TIMEOUTS,
    "DecodingError": "ContentDecodingError",
    "ProxyError": "ProxyError",
    "TooManyRedirects": "TooManyRedirects",
    "UnsupportedProtocol": "InvalidSchema",
}


def intercepted_send(
    send: Callable[[Any], Any],
    adapter: Any,
    prepared: Any,
    chain: Chain,
    *,
    error_of: Callable[[Any, Any], Exception] | None = None,
) -> Any:
    """Send a request through the interceptors, and return the ``requests.Response``.

    Args:
        send: Sends a ``PreparedRequest`` with the original method, and returns its response.
        adapter: The adapter.
        prepared: The agent's request.
        chain: Passes a request to the interceptors, with the function that sends it.
        error_of: Returns the exception to raise for an exception of httpx and the agent's request;
            None to raise exceptions of requests.

    Raises:
        requests.RequestException: The request failed, or an interceptor raised the error.
    """
    if str(prepared.url).partition("?")[0].endswith(TELEMETRY_PATHS):
        # OpenTelemetry's exporters use requests. If httpx is not used, it is not imported.
        return send(prepared)
    try:
        library = description_library()
        call = _DescribedRequest(library, send, prepared)
    except Exception as error:
        FAULTS.add(error)
        return send(prepared)
    try:
        response = chain(call.request, call.send)
    except library.RequestError as error:
        raise (error_of or _requests_error)(error, prepared) from error
    except _NotDescribed:
        return call.native
    if response is call.response and call.body is None:
        return call.native
    if response is call.response and not call.body.was_read:
        return watched(call.native, response, call.body)
    if call.native is not None:
        call.native.close()
    is_read = response is call.response
    return response_of(library, adapter, prepared, response, is_read=is_read)


def description_library() -> Any:
    """The library that describes requests: httpx or httpx2, whichever is imported already."""
    if "httpx" in sys.modules and "httpx2" not in sys.modules:
        import httpx

        return httpx
    try:
        import httpx2
    except ImportError:
        import httpx

        return httpx
    return httpx2


class _NotDescribed(Exception):
    """A response that has arrived cannot be shown to the interceptors. It goes to the agent."""


class _DescribedRequest:
    """A request of requests, and the request of httpx that describes it.

    Attributes:
        request: The description.
        native: The response of requests, once the request was sent.
        response: The description of that response.
        body: The copy of that response's body.
    """

    def __init__(self, library: Any, send: Callable[[Any], Any], prepared: Any) -> None:
        self._library, self._send, self._prepared = library, send, prepared
        self._sent_body: StreamCopy | None = None
        if isinstance(prepared.body, str):
            options: dict[str, Any] = {"content": prepared.body.encode()}
        elif not prepared.body or isinstance(prepared.body, bytes | bytearray):
            options = {"content": bytes(prepared.body or b"")}
        else:
            self._sent_body = copied_stream(library, _pieces(prepared.body))
            options = {"stream": self._sent_body}
        headers = [(_bytes(name), _bytes(value)) for name, value in prepared.headers.items()]
        self._has_host = any(name.lower() == b"host" for name, _ in headers)
        self.request = library.Request(
            prepared.method,
            library.URL(prepared.url),
            headers=headers,
            extensions={CLIENT_EXTENSION: getattr(prepared, "client", "requests")},
            **options,
        )
        self.native: Any = None
        self.response: Any = None
        self.body: Any = None

    def send(self, request: Any) -> Any:
        """Send the request for real, and return the description of the response."""
        self.native = self._sent(request)
        try:
            raw = self.native.raw
            headers = [(_bytes(name), _bytes(value)) for name, value in raw.headers.items()]
            if isinstance(content := getattr(raw, "_body", None), bytes):
                # urllib3 has read and decoded it already.
                self.response = self._library.Response(
                    raw.status, headers=_decoded_headers(headers), content=content, request=request
                )
                return self.response
            self.body = copied_stream(self._library, raw.stream(_BLOCK, decode_content=False))
            self.response = self._library.Response(
                raw.status, headers=headers, stream=self.body, request=request
            )
        except Exception as error:
            FAULTS.add(error)
            raise _NotDescribed from error
        return self.response

    def _sent(self, request: Any) -> Any:
        if request is not self.request:
            return self._send(self._edited(request))
        copy = self._sent_body
        if copy is None or request.stream is copy:
            return self._send(self._prepared)
        if copy.was_read:
            return self._send(self._edited(request))
        return self._send_watched(request.stream, copy)

    def _send_watched(self, stream: Any, copy: StreamCopy) -> Any:
        """Send the agent's request while its body's pieces are shown to the interceptors."""
        prepared, body = self._prepared, self._prepared.body
        copy.follow(stream)
        prepared.body = _WatchedFile(body, copy) if hasattr(body, "read") else _Watched(body, copy)
        try:
            return self._send(prepared)
        finally:
            copy.end()
            prepared.body = body

    def _edited(self, request: Any) -> Any:
        """Build the request of requests that an interceptor sends instead."""
        edited = self._prepared.copy()
        edited.method, edited.url, edited.body = request.method, str(request.url), request.read()
        edited.headers.clear()
        for name, value in request.headers.multi_items():
            if self._has_host or name.lower() != "host":
                edited.headers[name] = value
        return edited


def _decoded_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a response whose body is decoded."""
    return [(name, value) for name, value in headers if name.lower() != b"content-encoding"]


def _bytes(text: Any) -> bytes:
    """Encode a header as it is sent."""
    if isinstance(text, bytes):
        return text
    with contextlib.suppress(UnicodeEncodeError):
        return str(text).encode("latin-1")
    return str(text).encode()


def _pieces(body: Any) -> Iterator[bytes]:
    """Yield the pieces of a body that is a file or a generator.

    Raises:
        TypeError: It is a text file, whose encoding depends on the version of urllib3.
    """
    if isinstance(body, io.TextIOBase):
        raise TypeError("a request's body is a text file")

    def pieces() -> Iterator[bytes]:
        blocks = iter(lambda: body.read(_BLOCK), b"") if hasattr(body, "read") else body
        for piece in blocks:
            if not piece:
                return
            yield piece.encode() if isinstance(piece, str) else piece

    return pieces()


class _Watched:
    """A request's body whose pieces are copied while they are sent."""

    def __init__(self, body: Iterable[Any], copy: StreamCopy) -> None:
        self._body, self._copy = body, copy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def __iter__(self) -> Iterator[Any]:
        for piece in self._body:
            self._show(piece)
            yield piece

    def _show(self, piece: Any) -> None:
        if piece:
            self._copy.show(piece.encode() if isinstance(piece, str) else bytes(piece))


class _WatchedFile(_Watched):
    """A file that is sent. A retry reads it again, and only new pieces are copied."""

    def __init__(self, body: Any, copy: StreamCopy) -> None:
        super().__init__(body, copy)
        self._size = self._again = 0

    def read(self, *size: Any) -> Any:
        """Read the next piece of the file."""
        body: Any = self._body
        piece = body.read(*size)
        self._show(piece[self._again :])
        self._size += len(piece[self._again :])
        self._again = max(self._again - len(piece), 0)
        return piece

    def seek(self, *position: Any) -> Any:
        """Go back to the file's start, where the request began."""
        self._again = self._size
        body: Any = self._body
        return body.seek(*position)


def _requests_error(error: Any, prepared: Any) -> Exception:
    """The exception of requests for an exception of httpx."""
    from requests import exceptions

    kind, message = native_error(
        error, exceptions, exceptions.RequestException, _ERRORS, "ConnectionError"
    )
    return kind(message, request=prepared)  # type: ignore[no-any-return]


def native_error(
    error: Any, module: Any, base: type, names: Mapping[str, str], default: str
) -> tuple[Any, str]:
    """The exception class of a client for an exception of httpx, and its message.

    A recording names the exceptions of the agent's client: the text begins with the name.

    Args:
        error: The exception of httpx.
        module: The module with the client's exceptions.
        base: The class that they are derived from.
        names: The client's names for the exceptions of httpx.
        default: The name for all other exceptions.
    """
    text = str(error)
    name, _, message = text.partition(": ")
    kind = getattr(module, name, None)
    if isinstance(kind, type) and issubclass(kind, base):
        return kind, message
    return getattr(module, names.get(type(error).__name__, default)), text
