"""Recordings of a session: the requests of an agent to models and tools, with their answers.

- An **exchange** is one HTTP request with its response, as the agent's HTTP client saw them.
- A **recorded model call** is a model's answer to one request; it has an exchange if the request
  itself was recorded, and otherwise only the messages that the trace contains.
- A **recorded tool call** is one execution of a tool.
- A **recording** has all of these for one session, in the order of their start. Its **fidelity** is
  ``wire`` if every model call has its exchange, and ``semconv`` if the requests and responses are
  rebuilt from the messages in the spans.

An exchange travels as an OpenTelemetry log event on every path of export. The event's **body** is a
map with everything that a replay needs. Its attributes serve searches; an SDK's limits may cut them
off, but not the body. Payloads that are text stay readable; others are base64. The body also
contains the payloads' sizes, so a payload that was cut off or changed on its way is noticed:
`from_log` raises `UnreadableExchange` then.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from ..base.errors import InputError
from .telemetry import LogRecord
from .trajectory import Message
from .usage import Usage

__all__ = [
    "EVENT_NAME",
    "Chunk",
    "Exchange",
    "Fidelity",
    "RecordedAnswer",
    "RecordedModelCall",
    "RecordedRequest",
    "RecordedToolCall",
    "Recording",
    "UnreadableExchange",
    "from_log",
    "to_event",
]

Fidelity = Literal["wire", "semconv"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a response body, as it arrived.

    Attributes:
        data: The bytes, after content decoding.
        offset_ns: The time since the request was sent (ns).
    """

    data: bytes
    offset_ns: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One HTTP request and its response, without secrets.

    Attributes:
        method: The request's method.
        url: The request's URL; secret query values are replaced.
        request_headers: The request's headers with lower-case names. Values that may be secret are
            missing, or replaced by a checksum; see `oteval.record.wire.request_headers`.
        request_body: The request's body.
        status: The response's status; 0 if no response came.
        response_headers: The response's headers that are safe to keep, with lower-case names.
        chunks: The response's body, piece by piece.
        error: The transport's error as ``ReadTimeout: text``, or "".
        is_complete: Whether the agent read the response to its end.
        start_ns: The time at which the request was sent.
        end_ns: The time at which the last chunk, or the error, arrived.
        trace_id: The id of the trace that the request belongs to, or "".
        span_id: The id of the span that was active when the request was made, or "".
        is_in_agent: Whether an agent of the session made it, rather than the code around it.
        has_all_headers: Whether `request_headers` has every header that a replay compares.
        thread: A label of the process, the thread and the asynchronous task that made the request,
            or "".
    """

    method: str
    url: str
    request_headers: Mapping[str, str] = field(default_factory=dict)
    request_body: bytes = b""
    status: int = 0
    response_headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[Chunk, ...] = ()
    error: str = ""
    is_complete: bool = True
    start_ns: int = 0
    end_ns: int = 0
    trace_id: str = ""
    span_id: str = ""
    is_in_agent: bool = False
    has_all_headers: bool = False
    thread: str = ""

    @property
    def response_body(self) -> bytes:
        """The response's whole body."""
        return b"".join(chunk.data for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request to a model, in the form that all APIs share.

    Attributes:
        api: The API's name, such as ``chat_completions``, ``responses`` or ``anthropic_messages``;
            "" if the trace does not show it.
        model: The model's name.
        messages: The conversation, with the system instructions first.
        tools: The definitions of the tools, in OpenAI's format.
        response_format: The requested format of the answer as plain JSON, or None.
        settings: Other options, such as ``temperature``.
        is_stream: Whether the answer is requested as a stream.
    """

    api: str = ""
    model: str = ""
    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    response_format: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_stream: bool = False


@dataclass(frozen=True, slots=True)
class RecordedModelCall:
    """A model's recorded answer to one request.

    Attributes:
        request: The request.
        answer: The answer; None if the call failed or the trace does not contain it.
        exchange: The HTTP exchange, or None if it was not recorded.
        error: The error of a failed call, or "".
        status: The HTTP status of a failed call, or 0 if it is unknown.
        choices: The answers besides `answer`, if the request asked for several.
        finish_reason: Why the model stopped, or "".
        model: The name of the model that answered, or "".
        response_id: The provider's id of the answer, or "".
        usage: The tokens that the model reported.
        start_ns: The start of the call.
        end_ns: The end of the call.
        trace_id: The id of the trace of the call.
        span_id: The id of the span of the call.
    """

    request: RecordedRequest
    answer: Message | None = None
    exchange: Exchange | None = None
    error: str = ""
    status: int = 0
    choices: tuple[Message, ...] = ()
    finish_reason: str = ""
    model: str = ""
    response_id: str = ""
    usage: Usage = Usage()
    start_ns: int = 0
    end_ns: int = 0
    trace_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, slots=True)
class RecordedToolCall:
    """One recorded execution of a tool.

    Attributes:
        name: The tool's name.
        arguments: The parsed arguments.
        result: The result as the model received it; None if the trace does not contain it.
        is_error: Whether the tool failed.
        call_id: The provider's call id, or "".
        start_ns: The start of the execution; 0 if it has no span.
        end_ns: The end of the execution; 0 if it has no span.
        trace_id: The id of the trace of the execution.
        span_id: The id of the span of the execution, or "".
        runs_agent: Whether the tool ran another agent, whose model calls are recorded too.
        own_result: The result as the tool returned it to the agent's code, if it is known and
            differs from `result`; otherwise None.
        own_arguments: The arguments that the function received, if they are known and differ from
            `arguments`; otherwise None.
        is_decorated: Whether `@oteval.tool` recorded it in an agent of the session: a replay
            intercepts every call of such a tool.
        returned: The recorded form of the value that the tool returned, with its type: its encoded
            text, or how to read the text of the result; None if its type is not known.
        raised: The encoded text of the exception that the tool raised; None if it is not known.
        thread: A label of the thread and the task of the call, or "".
        function: The import path of the plain function that was watched while it ran the tool, or
            "".
    """

    name: str
    arguments: Any = None
    result: str | None = None
    is_error: bool = False
    call_id: str = ""
    start_ns: int = 0
    end_ns: int = 0
    trace_id: str = ""
    span_id: str = ""
    runs_agent: bool = False
    own_result: str | None = None
    is_decorated: bool = False
    returned: str | None = None
    raised: str | None = None
    thread: str = ""
    own_arguments: Any = None
    function: str = ""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The recorded end of one run of an agent.

    Attributes:
        agent: The agent's name.
        question: The agent's input as the JSON text of messages, or "" if it is not known.
        answer: The answer as the JSON text of messages; None if the agent returned nothing, or it
            is not known.
        type: The type of the value that the agent's function returned, as ``module:Class``; "" if
            it is not known.
        error: The exception that ended the run, as ``ValueError: text``, or "".
        is_decorated: Whether `@oteval.agent` recorded it: a replay sees every end of its function.
        start_ns: The start of the run.
    """

    agent: str = ""
    question: str = ""
    answer: str | None = None
    type: str = ""
    error: str = ""
    is_decorated: bool = False
    start_ns: int = 0


@dataclass(frozen=True)
class Recording:
    """All recorded answers of one session.

    Attributes:
        session: The id of the session: of a trajectory, a trace or a conversation.
        fidelity: ``wire`` or ``semconv``.
        reasons: Why the fidelity is not ``wire``, and other missing information: one line each.
        inputs: The user's messages that started each turn, in order.
        model_calls: The model calls, by their start.
        tool_calls: The executions of tools, by their start.
        exchanges: Other HTTP exchanges, such as the exchanges of tools, by their start.
        trajectory_ids: The ids of the session's trajectories.
        answers: The ends of the agents' runs, by their start.
    """

    session: str
    fidelity: Fidelity
    reasons: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    model_calls: tuple[RecordedModelCall, ...] = ()
    tool_calls: tuple[RecordedToolCall, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    trajectory_ids: tuple[str, ...] = ()
    answers: tuple[RecordedAnswer, ...] = ()


EVENT_NAME = "oteval.http.exchange"
"""The name of the events."""

_VERSION = 1


class UnreadableExchange(InputError):
    """The event of an exchange cannot be used for a replay; the message has the reason."""


def to_event(exchange: Exchange, omitted: str = "") -> LogRecord:
    """The log event of an exchange, without the ids of its span.

    Args:
        exchange: The exchange, without secrets.
        omitted: Why parts of it were not kept, such as a body that is too large; "" if it is
            whole.
    """
    attributes: dict[str, str | int | bool] = {
        "http.request.method": exchange.method,
        "url.full": exchange.url,
        "server.address": _host(exchange.url),
    }
    if exchange.status:
        attributes["http.response.status_code"] = exchange.status
    if exchange.error:
        attributes["error.type"] = exchange.error.partition(":")[0]
    body: dict[str, Any] = {
        "version": _VERSION,
        "method": exchange.method,
        "url": exchange.url,
        "request": {
            "headers": dict(exchange.request_headers),
            **({"all_headers": True} if exchange.has_all_headers else {}),
            **_payload(exchange.request_body),
        },
        "start_ns": exchange.start_ns,
        "end_ns": exchange.end_ns,
        "complete": exchange.is_complete,
    }
    if exchange.thread:
        body["thread"] = exchange.thread
    if exchange.status:
        body["response"] = {
            "status": exchange.status,
            "headers": dict(exchange.response_headers),
            **_payload(exchange.response_body),
            # Two lists of equal length: the sizes of the pieces, and when they arrived.
            "chunk_sizes": [len(chunk.data) for chunk in exchange.chunks],
            "chunk_offsets_ns": [chunk.offset_ns for chunk in exchange.chunks],
        }
    if exchange.error:
        body["error"] = exchange.error
    if omitted:
        body["omitted"] = omitted
    return LogRecord(
        time_ns=exchange.start_ns, event_name=EVENT_NAME, body=body, attributes=attributes
    )


def from_log(record: LogRecord) -> Exchange | None:
    """The exchange of a log record; None for a record of another kind.

    Raises:
        UnreadableExchange: The record is of an exchange, but damaged, incomplete, or written by a
            newer version of oteval.
    """
    if record.event_name != EVENT_NAME:
        return None
    if not isinstance(record.body, Mapping):
        raise UnreadableExchange("a recorded HTTP exchange has no body: record it again")
    reader = _Reader(record.body)
    version = reader.get("version", int)
    if version != _VERSION:
        raise UnreadableExchange(
            f"a recorded HTTP exchange has version {version}: upgrade oteval to read it"
        )
    if "omitted" in record.body:
        raise UnreadableExchange(f"{reader.subject()}: {reader.get('omitted', str)}")
    request = reader.inner("request")
    response = reader.inner("response") if "response" in record.body else None
    return Exchange(
        method=reader.get("method", str),
        url=reader.get("url", str),
        request_headers=request.headers(),
        has_all_headers=request.flag("all_headers"),
        request_body=request.payload(),
        status=response.get("status", int) if response else 0,
        response_headers=response.headers() if response else {},
        chunks=response.chunks() if response else (),
        error=reader.get("error", str) if "error" in record.body else "",
        is_complete=reader.get("complete", bool),
        start_ns=reader.get("start_ns", int),
        end_ns=reader.get("end_ns", int),
        trace_id=record.trace_id,
        span_id=record.span_id,
        thread=reader.get("thread", str) if "thread" in record.body else "",
    )


class _Reader:
    """Reads the fields of an event's body, and names missing or wrong fields."""

    def __init__(self, fields: Mapping[str, Any], path: str = "", subject: str = "") -> None:
        self._fields = fields
        self._path = path
        self._subject = subject

    def subject(self) -> str:
        """The name of the exchange for messages."""
        if self._subject:
            return self._subject
        method, url = self._fields.get("method"), self._fields.get("url")
        is_request = isinstance(method, str) and isinstance(url, str)
        return f"{method} {url}" if is_request else "a recorded HTTP exchange"

    def get(self, name: str, kind: type[Any]) -> Any:
        value = self._fields.get(name)
        if type(value) is not kind:
            raise self._error(name, "is missing or damaged")
        return value

    def inner(self, name: str) -> _Reader:
        value = self._fields.get(name)
        if not isinstance(value, Mapping):
            raise self._error(name, "is missing or damaged")
        return _Reader(value, f"{self._path}{name}.", self.subject())

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def headers(self) -> dict[str, str]:
        value = self._fields.get("headers") or {}
        if not isinstance(value, Mapping):
            raise self._error("headers", "are damaged")
        return {str(name): str(text) for name, text in value.items()}

    def payload(self) -> bytes:
        """The body.

        Raises:
            UnreadableExchange: Its size differs from the recorded size.
        """
        text = self._fields.get("body")
        # An empty text may arrive as no value at all.
        text = "" if text is None else text
        if not isinstance(text, str):
            raise self._error("body", "is damaged")
        try:
            is_text = self._fields.get("encoding") != "base64"
            data = text.encode() if is_text else base64.b64decode(text, validate=True)
        except ValueError:
            raise self._error("body", "is damaged") from None
        size = self.get("size", int)
        if len(data) != size:
            raise self._error(
                "body", f"has {len(data)} bytes in place of {size}: it was cut off or redacted"
            )
        return data

    def chunks(self) -> tuple[Chunk, ...]:
        data = self.payload()
        sizes, offsets = self._numbers("chunk_sizes"), self._numbers("chunk_offsets_ns")
        if len(sizes) != len(offsets) or sum(sizes) != len(data) or min(sizes, default=0) < 0:
            raise self._error("chunk_sizes", "are damaged")
        out, at = [], 0
        for size, offset in zip(sizes, offsets, strict=True):
            out.append(Chunk(data[at : at + size], offset))
            at += size
        return tuple(out)

    def _numbers(self, name: str) -> list[int]:
        value = self._fields.get(name)
        value = [] if value is None else value
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise self._error(name, "are damaged")
        return value

    def _error(self, name: str, problem: str) -> UnreadableExchange:
        return UnreadableExchange(
            f"{self.subject()}: {self._path}{name} {problem}; record it again"
        )


def _payload(data: bytes) -> dict[str, Any]:
    """A body as fields: text as it is, other data as base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    # Some databases refuse text with NUL.
    if data and (not text or "\0" in text):
        encoded = base64.b64encode(data).decode()
        return {"body": encoded, "encoding": "base64", "size": len(data)}
    return {"body": text, "encoding": "text", "size": len(data)}


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
