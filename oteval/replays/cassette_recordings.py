"""Recordings from cassettes of vcrpy and pytest-recording, and cassettes from recordings.

A cassette has only HTTP exchanges, so the user's messages and the tools of its recording are those
in the requests to models. A recording without exchanges becomes a cassette of rebuilt requests and
responses; vcrpy matches requests by method and URL, not by their body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..base.errors import InputError
from ..base.jsontext import dumps
from ..model import Chunk, Exchange, Message, RecordedModelCall, RecordedRequest, Recording
from ..reconstruct import ModelApi, api_named
from .cassettes import read_cassette
from .conversations import conversation_of
from .rebuilt_calls import call_name
from .recorded_executions import executions_in
from .wire_calls import wire_call

__all__ = ["CASSETTE_FILES", "cassette_exchanges", "recording_of_cassette"]

CASSETTE_FILES = (".yaml", ".yml", ".json")
"""The endings of the names of cassettes."""

_PATHS = {
    "chat_completions": "https://api.openai.com/v1/chat/completions",
    "responses": "https://api.openai.com/v1/responses",
    "anthropic_messages": "https://api.anthropic.com/v1/messages",
}


def recording_of_cassette(path: str | Path) -> Recording:
    """Read the recording in a cassette.

    Args:
        path: A file of vcrpy's YAML or JSON format.

    Raises:
        InputError: The file cannot be read, or is not a cassette.
    """
    calls: list[RecordedModelCall] = []
    other_exchanges: list[Exchange] = []
    reasons: list[str] = []
    for exchange in read_cassette(path):
        model_call = wire_call(exchange)
        if model_call is None:
            other_exchanges.append(exchange)
            continue
        calls.append(model_call.call)
        if model_call.problem:
            reasons.append(f"{call_name(len(calls), model_call.call)}: {model_call.problem}")
    if not calls:
        reasons.append("the cassette has no model calls")
    messages = conversation_of(calls)
    return Recording(
        session=Path(path).name.partition(".")[0],
        fidelity="wire" if calls and not reasons else "semconv",
        reasons=tuple(reasons),
        inputs=tuple(_inputs(messages)),
        model_calls=tuple(calls),
        tool_calls=tuple(executions_in(messages)),
        exchanges=tuple(other_exchanges),
    )


def _inputs(messages: Sequence[Message]) -> Iterator[str]:
    """Yield the messages of the user that begin a turn."""
    is_turn = True
    for message in messages:
        if message.role == "user" and is_turn and message.content:
            yield message.content
            is_turn = False
        elif message.role == "assistant":
            is_turn = not message.client_calls


def cassette_exchanges(
    recording: Recording, *, base_url: str = "", api: str = "chat_completions"
) -> list[Exchange]:
    """The exchanges of a recording for a cassette, by their start.

    Model calls without an exchange are rebuilt; those without an answer are left out.

    Args:
        recording: The recording.
        base_url: The address of the model for rebuilt calls, such as ``https://host/v1``.
        api: The API of rebuilt calls of which the trace does not name it.

    Raises:
        InputError: The API is unknown.
    """
    exchanges = list(recording.exchanges)
    for call in recording.model_calls:
        if call.exchange is not None:
            exchanges.append(call.exchange)
        elif call.answer is not None or call.error:
            exchanges.append(_rebuilt(call, call.request.api or api, base_url))
    return sorted(exchanges, key=lambda exchange: exchange.start_ns)


def _rebuilt(call: RecordedModelCall, name: str, base_url: str) -> Exchange:
    api = api_named(name)
    if api is None or name not in _PATHS:
        raise InputError(f"{name}: unknown API; choose {', '.join(_PATHS)}")
    url = _PATHS[name]
    if base_url:
        url = f"{base_url.rstrip('/')}/{url.partition('/v1/')[2]}"
    status, content_type, pieces = _response(api, call)
    return Exchange(
        method="POST",
        url=url,
        request_headers={"content-type": "application/json"},
        request_body=_request_body(call.request, name),
        status=status,
        response_headers={"content-type": content_type},
        chunks=tuple(Chunk(piece) for piece in pieces),
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        trace_id=call.trace_id,
        span_id=call.span_id,
    )


def _response(api: ModelApi, call: RecordedModelCall) -> tuple[int, str, list[bytes]]:
    """The status, the type and the body of a rebuilt response."""
    if call.answer is None:
        error = api.write_error(call)
        return error.status, "application/json", [error.body]
    if call.request.is_stream:
        return 200, "text/event-stream", api.write_stream(call, call.request)
    return 200, "application/json", [api.write_response(call, call.request)]


def _request_body(request: RecordedRequest, api: str) -> bytes:
    """The body of a rebuilt request; its messages only where they have the API's form."""
    body: dict[str, object] = {"model": request.model}
    if api == "chat_completions":
        body["messages"] = [message.as_dict() for message in request.messages]
        body |= {"tools": [dict(tool) for tool in request.tools]} if request.tools else {}
    body |= dict(request.settings)
    return dumps(body).encode()
