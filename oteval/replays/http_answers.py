"""HTTP requests of an agent, and the answers of a replay.

The answer of a recorded exchange is the recorded response, chunk by chunk. Without an exchange, the
answer is rebuilt from the messages of the trace. Recorded errors are answers as well: an HTTP
status, or the error of the transport. A client that tries again after an error need not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..base.errors import InputError
from ..base.jsontext import dumps, loads
from ..model import Chunk, Exchange, RecordedModelCall, RecordedRequest
from ..reconstruct import ModelApi, api_of
from ..record import ExchangeRecorder
from .divergence import Divergence

__all__ = [
    "NO_WAIT",
    "READING_METHODS",
    "HttpAnswer",
    "HttpRequest",
    "exchange_answer",
    "has_whole_answer",
    "live_answer",
    "model_answer",
    "parsed",
    "refusal",
]

READING_METHODS = ("GET", "HEAD", "OPTIONS")
"""The methods of requests without effects."""

REFUSAL_STATUS = 409
"""The status of the answer to a request that the recording does not have (``miss="error"``)."""

# Headers about the encoding of a body: the recorded body is decoded, and not chunked.
_ABOUT_THE_BODY = ("content-encoding", "content-length", "transfer-encoding", "connection")
# Clients wait for these times before they try again. Clients that know the header in milliseconds
# prefer it, and treat 0 as missing.
NO_WAIT = {"retry-after-ms": "1", "retry-after": "0"}
"""The headers of errors, so that clients try again at once."""


@dataclass(frozen=True)
class HttpRequest:
    """A request that an agent sends, or the request of a recorded exchange.

    Attributes:
        method: The method.
        url: The URL; only path and query if it was sent to a replay's own endpoint.
        headers: The headers, with lower-case names.
        body: The body.
        has_all_headers: Whether `headers` has every header that is compared.
        limit: The seconds that the client waits for the response, which may be infinite; None if
            they are not known.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    has_all_headers: bool = True
    limit: float | None = None

    @classmethod
    def of_exchange(cls, exchange: Exchange) -> HttpRequest:
        """The request of a recorded exchange."""
        return cls(
            exchange.method,
            exchange.url,
            exchange.request_headers,
            exchange.request_body,
            has_all_headers=exchange.has_all_headers,
        )

    @cached_property
    def json(self) -> Any:
        """The body as plain JSON; the text of the body if it is not JSON."""
        try:
            return loads(self.body)
        except ValueError:
            return self.body.decode("latin-1")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request.

    Attributes:
        status: The HTTP status; 0 if the transport failed before a response arrived.
        headers: The headers, with lower-case names.
        chunks: The body, piece by piece.
        error: The transport's error as ``ReadTimeout: text``, raised after the chunks, or "".
        is_live: Whether to send the request for real instead.
        end_ns: The recorded end of the exchange; 0 if it is unknown.
        request: The request to send in place of the agent's; None to send the agent's.
        recorder: Keeps the exchange of a request that is sent for real, or None.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = ()
    error: str = ""
    is_live: bool = False
    end_ns: int = 0
    request: HttpRequest | None = None
    recorder: ExchangeRecorder | None = None

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(chunk.data for chunk in self.chunks)


def live_answer() -> HttpAnswer:
    """The answer that lets the request through to the network."""
    return HttpAnswer(is_live=True)


def exchange_answer(exchange: Exchange) -> HttpAnswer:
    """Return the response of a recorded exchange."""
    headers = {
        name: value
        for name, value in exchange.response_headers.items()
        if name not in _ABOUT_THE_BODY
    }
    if exchange.status >= 400:
        headers.update(NO_WAIT)
    return HttpAnswer(
        status=exchange.status,
        headers=headers,
        chunks=exchange.chunks,
        error=exchange.error or _end_of(exchange),
        end_ns=exchange.end_ns,
    )


def has_whole_answer(exchange: Exchange) -> bool:
    """Whether an exchange has a model's whole answer, though it was not read to its end."""
    api = api_of(exchange.method, exchange.url)
    return api is not None and api.is_finished(exchange.response_body)


def _end_of(exchange: Exchange) -> str:
    """The error for reading on after the recorded agent stopped, or ""."""
    if exchange.is_complete or has_whole_answer(exchange):
        return ""
    return (
        "RemoteProtocolError: the recorded response ends here, because the recorded agent read no "
        "further"
    )


def model_answer(call: RecordedModelCall, request: RecordedRequest, api: ModelApi) -> HttpAnswer:
    """Return the answer of a recorded model call.

    An answer is rebuilt if the exchange was not recorded, or if only one of the two requests is for
    a stream.

    Args:
        call: The recorded call.
        request: The request to answer.
        api: The API of that request.
    """
    exchange = call.exchange
    if exchange is not None and _fits(exchange, call.request, request):
        return exchange_answer(exchange)
    if call.answer is None:
        error = api.write_error(call)
        headers = {**error.headers, **NO_WAIT}
        return _answer(error.status, headers, (error.body,), call.end_ns)
    if request.is_stream:
        headers = {"content-type": api.stream_type}
        return _answer(200, headers, api.write_stream(call, request), call.end_ns)
    body = api.write_response(call, request)
    return _answer(200, {"content-type": "application/json"}, (body,), call.end_ns)


def _fits(exchange: Exchange, recorded: RecordedRequest, request: RecordedRequest) -> bool:
    """Whether a recorded response has the form that a request expects."""
    is_error = exchange.status >= 400 or exchange.status == 0
    same_api = not recorded.api or recorded.api == request.api
    return is_error or (recorded.is_stream == request.is_stream and same_api)


def _answer(
    status: int, headers: Mapping[str, str], pieces: Iterable[bytes], end_ns: int
) -> HttpAnswer:
    chunks = tuple(Chunk(piece) for piece in pieces)
    return HttpAnswer(status, dict(headers), chunks, end_ns=end_ns)


def refusal(divergence: Divergence) -> HttpAnswer:
    """The HTTP error of a divergence; clients do not retry after it."""
    error = {
        "message": f"oteval replay: {divergence.summary}",
        "type": "replay_diverged",
        "param": None,
        "code": divergence.kind,
    }
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    body = dumps({"error": error}).encode()
    return _answer(REFUSAL_STATUS, headers, (body,), 0)


def parsed(api: ModelApi, request: HttpRequest) -> RecordedRequest:
    """Parse a request to a model into the form that all APIs share; an unreadable one is empty."""
    try:
        return replace(api.parse_request(request.body, request.url), api=api.name)
    except InputError:
        return RecordedRequest(api=api.name)
