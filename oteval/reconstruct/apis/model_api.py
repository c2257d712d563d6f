"""A model's HTTP API: reads its requests and answers, and writes answers.

The readers of the reconstruction read requests and answers, so the messages of a recorded request
equal the trace's messages. Rebuilt answers have every field that clients of the API read.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...base.errors import InputError
from ...base.jsontext import dumps, loads
from ...model import Message, RecordedModelCall, RecordedRequest, Usage

__all__ = [
    "DONE",
    "ApiAnswer",
    "ErrorAnswer",
    "ModelApi",
    "call_id",
    "created",
    "event",
    "is_event_stream",
    "joined_answer",
    "json_object",
    "made_up_id",
    "offered_tools",
    "pieces",
    "read_events",
    "refusal_of",
    "response_id",
    "text_of_error",
    "without",
]

DONE = b"data: [DONE]\n\n"
"""The event that ends a stream of OpenAI's chat completions."""

_LINES = re.compile(rb"\r\n|\n|\r")
_STREAM_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
# The keys of the tools of a request, in the APIs of models.
_OFFERS = ("tools", "functions", "toolConfig", "tool_config")


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A model's answer as an API returned it.

    Attributes:
        message: The answer; None if the call failed.
        output: The answer with the results of tools that the provider ran, as separate messages.
        choices: Other answers to the same request.
        finish_reason: The API's name for why the model stopped, or "".
        usage: The tokens that the API reported.
        model: The name of the model that answered, or "".
        response_id: The API's id of the answer, or "".
        error: The message of an error, or "".
    """

    message: Message | None = None
    output: tuple[Message, ...] = ()
    choices: tuple[Message, ...] = ()
    finish_reason: str = ""
    usage: Usage = Usage()
    model: str = ""
    response_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The HTTP response of a failed call.

    Attributes:
        status: The HTTP status.
        body: The body.
        headers: The headers.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class ModelApi(ABC):
    """One API of models.

    Attributes:
        name: The name in `RecordedRequest.api`.
        stream_type: The content type of answers that are streams.
    """

    name: ClassVar[str]
    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    @abstractmethod
    def has_path(self, path: str) -> bool:
        """Whether POST requests to a path request an answer of a model."""

    @abstractmethod
    def parse_request(self, body: bytes, url: str = "", /) -> RecordedRequest:
        """The request in a body.

        Args:
            body: The body.
            url: The URL, which names the model in some APIs.

        Raises:
            InputError: The body is not a JSON object.
        """

    def parse_response(self, body: bytes, is_stream: bool | None = None) -> ApiAnswer:
        """The answer in a body.

        Args:
            body: The body: JSON, or the events of a stream.
            is_stream: Whether it is a stream; None to decide by the body.

        Raises:
            InputError: The body is neither JSON nor a stream.
        """
        if is_event_stream(body) if is_stream is None else is_stream:
            response = self._assembled(list(read_events(body)))
        else:
            response = json_object(body)
        error = text_of_error(response)
        return ApiAnswer(error=error) if error else self._answer(response)

    def assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The response that the events of a stream make up."""
        return self._assembled(events)

    def is_finished(self, body: bytes) -> bool:
        """Whether a body, which may be cut, has the whole answer and its finish reason.

        Clients stop reading a stream there, before its last events.
        """
        try:
            answer = self.parse_response(body)
        except InputError:
            return False
        return bool(answer.error or answer.finish_reason)

    @abstractmethod
    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """The body of the answer to a request that is not for a stream.

        Args:
            call: The recorded call with its answer.
            request: The request to answer.
        """

    @abstractmethod
    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """The body of the answer to a request for a stream, one event after another.

        Args:
            call: The recorded call with its answer.
            request: The request to answer.
        """

    def write_error(self, call: RecordedModelCall) -> ErrorAnswer:
        """The response of a failed call, as recorded or rebuilt from its error.

        A rebuilt error requests that clients do not retry: the trace has one span for all attempts.
        """
        exchange = call.exchange
        if exchange is not None and exchange.status:
            return ErrorAnswer(exchange.status, exchange.response_body, exchange.response_headers)
        status = call.status or _status_of(call.error)
        headers = {"content-type": "application/json", "x-should-retry": "false"}
        return ErrorAnswer(status, self._error_body(call.error, status), headers)

    @abstractmethod
    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The response that the events of a stream make up."""

    @abstractmethod
    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        """The answer in a response."""

    def _error_body(self, error: str, status: int) -> bytes:
        """The body of an error in the API's form."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        fields = {"message": error, "type": kind, "param": None, "code": None}
        return dumps({"error": fields}).encode()


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        InputError: The body is not a JSON object.
    """
    try:
        value = loads(body)
    except ValueError as error:
        raise InputError(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError("the body is not a JSON object")
    return value


def without(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The fields that have a value, except the named ones."""
    return {name: v for name, v in fields.items() if name not in names and v is not None}


def text_of_error(response: Mapping[str, Any]) -> str:
    """The message of the error that a response reports, or ""."""
    error = response.get("error")
    if not error:
        return ""
    message = error.get("message") if isinstance(error, Mapping) else error
    return message if isinstance(message, str) and message else dumps(error)


_STATUSES = {
    "badrequest": 400,
    "authentication": 401,
    "permissiondenied": 403,
    "notfound": 404,
    "conflict": 409,
    "unprocessableentity": 422,
    "ratelimit": 429,
    "internalserver": 500,
    "overloaded": 529,
}
_STATUS = re.compile(r"\b(?:[Ee]rror code: |[Ss]tatus(?: code)?:? )?([45]\d\d)\b")


def _status_of(error: str) -> int:
    """The HTTP status that the text of an error names; 500 if it names none."""
    words = error.lower().replace("_", "").replace(" ", "")
    status_by_word = next((status for word, status in _STATUSES.items() if word in words), 0)
    match = _STATUS.search(error)
    return status_by_word or (int(match[1]) if match else 500)


_WORDS = re.compile(r"(?:\s*\S+){1,4}\s*|\s+")


def pieces(text: str) -> Iterator[str]:
    """Yield a text in pieces of a few words, as models stream it."""
    return (match[0] for match in _WORDS.finditer(text))


def call_id(call: RecordedModelCall, index: int, prefix: str = "call_") -> str:
    """The recorded id of a tool call in an answer, or a made-up id.

    Args:
        call: The recorded model call.
        index: The index of the tool call in its answer.
        prefix: The prefix of made-up ids.
    """
    recorded_id = call.answer.tool_calls[index].id if call.answer else ""
    return recorded_id or made_up_id(call, str(index), prefix)


def made_up_id(call: RecordedModelCall, part: str, prefix: str) -> str:
    """An id for a part of an answer; it is the same in every replay."""
    return prefix + _digest(f"{_identity(call)}:{part}")


def response_id(call: RecordedModelCall, prefix: str) -> str:
    """The id of an answer: the recorded one if it has the prefix, otherwise made up."""
    recorded_id = call.response_id
    if recorded_id.startswith(prefix):
        return recorded_id
    return prefix + _digest(recorded_id or _identity(call))


def created(call: RecordedModelCall) -> int:
    """The time of an answer in seconds."""
    return (call.end_ns or call.start_ns) // 10**9


def _identity(call: RecordedModelCall) -> str:
    return f"{call.trace_id}:{call.span_id}:{call.start_ns}"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def joined_answer(messages: Sequence[Message]) -> Message:
    """The messages of an answer as one, without the results of the provider's tools."""
    answers = [message for message in messages if message.role == "assistant"]
    if len(answers) == 1:
        return answers[0]
    texts = [message.content for message in answers if message.content]
    return Message(
        "assistant",
        "\n".join(texts) if texts else None,
        tool_calls=tuple(call for message in answers for call in message.tool_calls),
        parts=tuple(part for message in answers for part in message.parts),
    )


def refusal_of(message: Message) -> tuple[str | None, str]:
    """An answer's text and its refusal, which the reader may have stored as the text."""
    marks = [part for part in message.parts if part.get("type") == "refusal"]
    texts = [part.get("content") or part.get("refusal") for part in marks]
    refusal = " ".join(text for text in texts if isinstance(text, str))
    if not marks or refusal:
        return message.content, refusal
    return None, message.content or ""


def is_event_stream(body: bytes) -> bool:
    """Whether a body consists of server-sent events."""
    return body.lstrip()[:6].startswith(_STREAM_FIELDS)


def read_events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the data of the events of a stream.

    Events whose data is not a JSON object, such as ``[DONE]``, are left out. A last event that the
    end of the stream cuts is left out too.
    """
    data: list[bytes] = []
    for line in _LINES.split(body):
        if line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
        elif not line and data:
            yield from _objects(b"\n".join(data))
            data = []
    if data:
        yield from _objects(b"\n".join(data))


def _objects(data: bytes) -> Iterator[dict[str, Any]]:
    try:
        value = loads(data)
    except ValueError:
        return
    if isinstance(value, dict):
        yield value


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return one event with JSON data.

    Args:
        data: The data.
        name: The event's name; "" for an event without a name.
    """
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {dumps(data)}\n\n".encode()


def offered_tools(request: bytes | RecordedRequest) -> list[str]:
    """The names of the tools that a request offers to a model.

    Args:
        request: The body of a request, or a request of a known API.
    """
    if isinstance(request, RecordedRequest):
        return list(dict.fromkeys(_names(list(request.tools))))
    try:
        body = loads(request)
    except ValueError:
        return []
    offers = [body.get(key) for key in _OFFERS] if isinstance(body, Mapping) else []
    return list(dict.fromkeys(name for offer in offers for name in _names(offer)))


def _names(definitions: Any) -> Iterator[str]:
    """Yield the names of tools in definitions, without the names of their parameters."""
    if isinstance(definitions, Mapping):
        name = definitions.get("name")
        if isinstance(name, str):
            yield name
            return
        for value in definitions.values():
            yield from _names(value)
    elif isinstance(definitions, Sequence) and not isinstance(definitions, (str, bytes)):
        for value in definitions:
            yield from _names(value)
