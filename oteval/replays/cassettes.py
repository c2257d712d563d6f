"""Cassettes of vcrpy and pytest-recording: read as recordings, and written from them.

A cassette is a YAML or JSON file with a list of HTTP requests and responses (version 1, see
https://vcrpy.readthedocs.io). It has no times and no chunks: a response that was streamed is one
piece. Secrets are removed in both directions, as from every recording.

A cassette has only HTTP exchanges, so the user's messages and the tools of its recording come from
the requests to models. A recording without exchanges becomes a cassette of rebuilt requests and
responses; vcrpy matches requests by method and URL, not by their body.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..base.errors import InputError
from ..base.files import make_folder, write_private
from ..base.jsontext import dumps
from ..model import Chunk, Exchange, Message, RecordedModelCall, RecordedRequest, Recording
from ..reconstruct import ModelApi, api_named
from .conversations import conversation_of
from .model_calls import call_name, wire_call
from .recorded_executions import executions_in

__all__ = [
    "CASSETTE_FILES",
    "cassette_exchanges",
    "read_cassette",
    "recording_of_cassette",
    "write_cassette",
]

_VERSION = 1
_DECOMPRESSED = ("content-encoding", "content-length", "transfer-encoding")


def read_cassette(path: str | Path) -> list[Exchange]:
    """Read the exchanges of a cassette, in its order.

    Args:
        path: A file of vcrpy's YAML or JSON format.

    Raises:
        InputError: The file cannot be read, or an interaction is invalid.
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        document = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not a cassette: {' '.join(str(error).split())}") from error
    interactions = document.get("interactions") if isinstance(document, dict) else None
    if not isinstance(interactions, list):
        raise InputError(f"{path}: not a cassette: the list `interactions` is missing")
    exchanges = []
    for number, interaction in enumerate(interactions, 1):
        try:
            exchanges.append(_exchange(interaction, number))
        except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
            raise InputError(
                f"{path}: interaction {number} is invalid: {type(error).__name__}: {error}"
            ) from error
    return exchanges


def write_cassette(exchanges: Iterable[Exchange], path: str | Path) -> int:
    """Write exchanges as a cassette in YAML, or in JSON for ``.json``; return their number.

    A cassette cannot represent an exchange without a response, such as a timeout: it is left out.

    Args:
        exchanges: The exchanges, in the order of their replay.
        path: The file to write.

    Raises:
        InputError: The file cannot be written.
    """
    path = Path(path)
    interactions = [_interaction(exchange) for exchange in exchanges if exchange.status]
    document = {"interactions": interactions, "version": _VERSION}
    try:
        if path.suffix == ".json":
            text = json.dumps(document, indent=2) + "\n"
        else:
            text = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    except TypeError:
        raise InputError(f"{path}: JSON cannot hold binary bodies: write a .yaml file") from None
    try:
        make_folder(path.parent)
        write_private(path, text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return len(interactions)


def _exchange(interaction: Mapping[str, Any], number: int) -> Exchange:
    request, response = interaction["request"], interaction["response"]
    headers = _headers(response.get("headers") or {})
    body = _decoded(_bytes((response.get("body") or {}).get("string")), headers)
    sent_headers = {name: value for name, value in headers.items() if name not in _DECOMPRESSED}
    return Exchange(
        method=str(request["method"]).upper(),
        url=str(request["uri"]),
        request_headers=_headers(request.get("headers") or {}),
        request_body=_bytes(request.get("body")),
        status=int(response["status"]["code"]),
        response_headers=sent_headers,
        chunks=(Chunk(body),) if body else (),
        # A cassette has only the order of exchanges, not their times.
        start_ns=number,
        end_ns=number,
    )


def _headers(headers: Mapping[str, Any]) -> dict[str, str]:
    return {
        str(name).lower(): ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in headers.items()
    }


def _bytes(value: Any) -> bytes:
    if value is None:
        return b""
    return value if isinstance(value, bytes) else str(value).encode()


def _decoded(body: bytes, headers: Mapping[str, str]) -> bytes:
    """A body without its content encoding; older cassettes keep compressed bodies."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if not body or encoding in ("", "identity"):
        return body
    if encoding in ("gzip", "x-gzip") and body[:2] == b"\x1f\x8b":
        return zlib.decompress(body, 47)
    if encoding == "deflate":
        try:
            return zlib.decompress(body)
        except zlib.error:
            return zlib.decompress(body, -15)
    if encoding in ("br", "zstd") and not _is_text(body):
        raise ValueError(
            f"its body is compressed with {encoding}: record it with decode_compressed_response"
        )
    return body


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _interaction(exchange: Exchange) -> dict[str, Any]:
    return {
        "request": {
            "method": exchange.method,
            "uri": exchange.url,
            "body": _text(exchange.request_body) if exchange.request_body else None,
            "headers": {name: [value] for name, value in exchange.request_headers.items()},
        },
        "response": {
            "status": {"code": exchange.status, "message": ""},
            "headers": {name: [value] for name, value in exchange.response_headers.items()},
            "body": {"string": _text(exchange.response_body)},
        },
    }


def _text(body: bytes) -> str | bytes:
    """The body as text if it is text: YAML then shows it as it is."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


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

    Model calls without an exchange are rebuilt, or left out if they have no answer.

    Args:
        recording: The recording.
        base_url: The address of the model for rebuilt calls, such as ``https://host/v1``.
        api: The API of rebuilt calls, where the trace does not name it.

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
    """The body of a rebuilt request; it has the messages only if they have the API's form."""
    body: dict[str, object] = {"model": request.model}
    if api == "chat_completions":
        body["messages"] = [message.as_dict() for message in request.messages]
        body |= {"tools": [dict(tool) for tool in request.tools]} if request.tools else {}
    body |= dict(request.settings)
    return dumps(body).encode()
