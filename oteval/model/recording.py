"""Recordings of a session: the requests of an agent to models and tools, with their answers.

- An **exchange** is one HTTP request with its response, as the agent's HTTP client saw them.
- A **recorded model call** is a model's answer to one request; it has an exchange if the request
  itself was recorded, and otherwise only the messages that the trace contains.
- A **recorded tool call** is one execution of a tool.
- A **recording** has all of these for one session, in the order of their start. Its **fidelity** is
  ``wire`` if every model call has its exchange, and ``semconv`` if the requests and responses are
  rebuilt from the messages in the spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .trajectory import Message
from .usage import Usage

__all__ = [
    "Chunk",
    "Exchange",
    "Fidelity",
    "RecordedAnswer",
    "RecordedModelCall",
    "RecordedRequest",
    "RecordedToolCall",
    "Recording",
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
