"""Amazon Bedrock's Converse: ``converse`` and ``converse-stream``.

Facts from AWS's API reference. The model's id and the wish for a stream are in the URL. Streams are
AWS's binary event streams. Requests of ``invoke`` have the form of each model's provider; they are
answered as any other recorded request.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from ...base.jsontext import dumps, dumps_exact, loads
from ...messages import NO_SOURCE, from_blocks, is_reasoning, reasoning_text
from ...model import Message, RecordedModelCall, RecordedRequest, read_tokens
from .model_api import (
    ApiAnswer,
    ErrorAnswer,
    ModelApi,
    call_id,
    joined_answer,
    json_object,
    pieces,
    text_of_error,
    without,
)

__all__ = ["BedrockConverse", "StreamMessage", "encoded", "is_aws_event_stream", "read_messages"]

_METHOD, _STREAM_METHOD = "/converse", "/converse-stream"
_OWN_FIELDS = ("messages", "system", "toolConfig", "modelId", "inferenceConfig")
# In other providers' words for the same reasons.
_REASONS = {
    "completed": "end_turn",
    "stop": "end_turn",
    "content_filter": "content_filtered",
    "refusal": "content_filtered",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "tool_call": "tool_use",
    "tool_calls": "tool_use",
}
_ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    503: "ServiceUnavailableException",
}
_PRELUDE = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_TEXT = 7
# The size of the other types' values. Values with a length in front are texts and bytes.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_BYTES = 6


class BedrockConverse(ModelApi):
    """The API ``POST .../model/ID/converse`` and ``/converse-stream``."""

    name = "bedrock_converse"
    stream_type: ClassVar[str] = "application/vnd.amazon.eventstream"

    def has_path(self, path: str) -> bool:
        """Whether a path is one of a model's two paths, after any prefix."""
        return "/model/" in path and path.endswith((_METHOD, _STREAM_METHOD))

    def parse_request(self, body: bytes, url: str = "", /) -> RecordedRequest:
        """The request in a body; its model, and whether to stream, are in the URL."""
        fields = json_object(body)
        path = urlsplit(url).path.rstrip("/")
        config = fields.get("toolConfig") or {}
        settings = {**without(fields, *_OWN_FIELDS), **(fields.get("inferenceConfig") or {})}
        if choice := config.get("toolChoice"):
            settings["toolChoice"] = choice
        return RecordedRequest(
            api=self.name,
            model=_model_in(path),
            messages=tuple(_messages(fields)),
            tools=tuple(_tool(tool) for tool in config.get("tools") or () if _is_tool(tool)),
            settings=settings,
            is_stream=path.endswith(_STREAM_METHOD),
        )

    def parse_response(self, body: bytes, is_stream: bool | None = None) -> ApiAnswer:
        """The answer in a body: JSON, or the messages of an event stream."""
        if is_stream is False or not is_aws_event_stream(body):
            response: Mapping[str, Any] = json_object(body)
            if "output" not in response and isinstance(response.get("message"), str):
                response = {"error": response["message"]}
        else:
            events = []
            for message in read_messages(body):
                if message.is_error:
                    return ApiAnswer(error=str(message.fields.get("message") or message.name))
                events.append({message.name: message.fields})
            response = self._assembled(events)
        error = text_of_error(response)
        return ApiAnswer(error=error) if error else self._answer(response)

    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        response: dict[str, Any] = {}
        blocks: dict[int, dict[str, Any]] = {}
        for event in events:
            for name, fields in event.items():
                block = blocks.setdefault(fields.get("contentBlockIndex") or 0, {})
                if name == "contentBlockStart":
                    block.update(fields.get("start") or {})
                elif name == "contentBlockDelta":
                    _grow(block, fields.get("delta") or {})
                elif name in ("messageStop", "metadata"):
                    response.update(fields)
        content = [_finished(blocks[index]) for index in sorted(blocks) if blocks[index]]
        return {**response, "output": {"message": {"role": "assistant", "content": content}}}

    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        output = (response.get("output") or {}).get("message") or {}
        answers = from_blocks("assistant", output.get("content") or [], NO_SOURCE)
        return ApiAnswer(
            message=joined_answer(answers) if answers else Message("assistant", ""),
            output=tuple(answers),
            finish_reason=str(response.get("stopReason") or ""),
            usage=read_tokens(response.get("usage")).usage,
        )

    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """The answer of ``converse``."""
        del request
        message = {"role": "assistant", "content": list(_blocks(call))}
        return dumps(
            {
                "metrics": {"latencyMs": _latency(call)},
                "output": {"message": message},
                "stopReason": _stop_reason(call),
                "usage": _usage(call),
            }
        ).encode()

    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """The messages from ``messageStart`` to ``metadata``."""
        del request
        events = [encoded("messageStart", {"role": "assistant"})]
        for index, block in enumerate(_blocks(call)):
            events += [encoded(name, fields) for name, fields in _block_events(block, index)]
        metadata = {"metrics": {"latencyMs": _latency(call)}, "usage": _usage(call)}
        stop = encoded("messageStop", {"stopReason": _stop_reason(call)})
        return [*events, stop, encoded("metadata", metadata)]

    def write_error(self, call: RecordedModelCall) -> ErrorAnswer:
        """The response of a failed call; its header names the exception."""
        answer = super().write_error(call)
        kind = _ERRORS.get(answer.status, "InternalServerException")
        return ErrorAnswer(answer.status, answer.body, {"x-amzn-errortype": kind, **answer.headers})

    def _error_body(self, error: str, status: int) -> bytes:
        del status
        return dumps({"message": error}).encode()


def _model_in(path: str) -> str:
    _, _, tail = path.rpartition("/model/")
    return unquote(tail.rpartition("/")[0])


def _messages(fields: Mapping[str, Any]) -> Iterator[Message]:
    if system := fields.get("system"):
        yield from from_blocks("system", system, NO_SOURCE)
    for message in fields.get("messages") or ():
        yield from from_blocks(str(message.get("role")), message.get("content"), NO_SOURCE)


def _is_tool(tool: Any) -> bool:
    return isinstance(tool, Mapping) and "cachePoint" not in tool


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """A definition in the form of chat completions."""
    spec = tool.get("toolSpec")
    if not isinstance(spec, Mapping):
        return tool  # The provider runs it.
    function = {key: spec[key] for key in ("name", "description") if key in spec}
    schema = (spec.get("inputSchema") or {}).get("json")
    return {"type": "function", "function": {**function, "parameters": schema}}


def _grow(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add the delta of an event; the text of a tool's input is parsed once it is whole."""
    if isinstance(delta.get("text"), str):
        block["text"] = block.get("text", "") + delta["text"]
    tool = delta.get("toolUse")
    if isinstance(tool, Mapping):
        use = dict(block.get("toolUse") or {})
        use["input"] = str(use.get("input") or "") + str(tool.get("input") or "")
        block["toolUse"] = use
    thought = delta.get("reasoningContent")
    if isinstance(thought, Mapping):
        content = block.setdefault("reasoningContent", {})
        text = content.setdefault("reasoningText", {})
        for key in ("text", "signature"):
            if isinstance(thought.get(key), str):
                text[key] = text.get(key, "") + thought[key]
        if "redactedContent" in thought:
            block["reasoningContent"] = {"redactedContent": thought["redactedContent"]}


def _finished(block: dict[str, Any]) -> dict[str, Any]:
    tool = block.get("toolUse")
    if isinstance(tool, Mapping) and isinstance(tool.get("input"), str):
        try:
            arguments = loads(tool["input"]) if tool["input"] else {}
        except ValueError:
            arguments = tool["input"]
        return {**block, "toolUse": {**tool, "input": arguments}}
    return block


def _stop_reason(call: RecordedModelCall) -> str:
    reason = _REASONS.get(call.finish_reason.lower(), call.finish_reason.lower())
    if call.answer and call.answer.client_calls and reason in ("", "end_turn"):
        return "tool_use"
    return reason or "end_turn"


def _latency(call: RecordedModelCall) -> int:
    return max(call.end_ns - call.start_ns, 0) // 10**6


def _usage(call: RecordedModelCall) -> dict[str, int]:
    sent, received = call.usage.input_tokens, call.usage.output_tokens
    return {"inputTokens": sent, "outputTokens": received, "totalTokens": sent + received}


def _blocks(call: RecordedModelCall) -> Iterator[dict[str, Any]]:
    """Yield the blocks of an answer: reasoning, text, calls."""
    message = call.answer or Message("assistant")
    for part in message.parts:
        if isinstance(part.get("reasoningContent"), Mapping):
            yield {"reasoningContent": part["reasoningContent"]}
        elif is_reasoning(part) and (thought := reasoning_text(part)):
            yield {"reasoningContent": {"reasoningText": {"text": thought}}}
    if message.content or not message.tool_calls:
        yield {"text": message.content or ""}
    for index, tool_call in enumerate(message.tool_calls):
        arguments = tool_call.arguments
        if not isinstance(arguments, Mapping):
            arguments = {} if arguments is None else {"input": arguments}
        use_id = call_id(call, index, "tooluse_")
        kind = {"type": "server_tool_use"} if tool_call.executed_by else {}
        use = {"toolUseId": use_id, "name": tool_call.name, "input": arguments}
        yield {"toolUse": {**use, **kind}}


def _block_events(block: Mapping[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events that stream one block."""
    at = {"contentBlockIndex": index}
    deltas: list[dict[str, Any]]
    if "toolUse" in block:
        use = block["toolUse"]
        start = {"toolUse": {key: value for key, value in use.items() if key != "input"}}
        yield "contentBlockStart", {"start": start, **at}
        texts = pieces(dumps_exact(use["input"]))
        deltas = [{"toolUse": {"input": piece}} for piece in texts]
    elif "reasoningContent" in block:
        content = block["reasoningContent"]
        text = content.get("reasoningText")
        parts = {key: {key: value} for key, value in (text or content).items()}
        deltas = [{"reasoningContent": part} for part in parts.values()]
    else:
        deltas = [{"text": piece} for piece in pieces(block["text"])]
    for delta in deltas:
        yield "contentBlockDelta", {"delta": delta, **at}
    yield "contentBlockStop", at


class StreamMessage(NamedTuple):
    """One message of a stream.

    Attributes:
        name: The name of the event or of the exception, or "".
        is_error: Whether it reports an exception.
        fields: The JSON object in its payload.
    """

    name: str
    is_error: bool
    fields: Mapping[str, Any]


def is_aws_event_stream(body: bytes) -> bool:
    """Whether a body begins with a message of such a stream."""
    if len(body) < _PRELUDE.size:
        return False
    _, _, checksum = _PRELUDE.unpack_from(body)
    return bool(zlib.crc32(body[:8]) == checksum)


def read_messages(body: bytes) -> Iterator[StreamMessage]:
    """Yield the messages of a stream, up to a message that the end of the body cuts."""
    start = 0
    while is_aws_event_stream(body[start : start + _PRELUDE.size]):
        length, header_length, _ = _PRELUDE.unpack_from(body, start)
        payload_at = start + _PRELUDE.size + header_length
        end = start + length
        if end > len(body) or payload_at > end - _CHECKSUM.size:
            return
        headers = dict(_headers(body[start + _PRELUDE.size : payload_at]))
        is_error = headers.get(":message-type") in ("exception", "error")
        name = headers.get(":exception-type" if is_error else ":event-type", "")
        yield StreamMessage(name, is_error, _object(body[payload_at : end - _CHECKSUM.size]))
        start = end


def encoded(name: str, fields: Mapping[str, Any]) -> bytes:
    """The message of an event with a JSON payload."""
    headers = b"".join(
        bytes([len(key)]) + key.encode() + bytes([_TEXT]) + _SHORT.pack(len(text)) + text.encode()
        for key, text in (
            (":event-type", name),
            (":content-type", "application/json"),
            (":message-type", "event"),
        )
    )
    payload = dumps(fields).encode()
    length = _PRELUDE.size + len(headers) + len(payload) + _CHECKSUM.size
    lengths = struct.pack(">II", length, len(headers))
    message = lengths + _CHECKSUM.pack(zlib.crc32(lengths)) + headers + payload
    return message + _CHECKSUM.pack(zlib.crc32(message))


def _headers(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the headers that are texts."""
    at = 0
    while at < len(data):
        size = data[at]
        name = data[at + 1 : at + 1 + size].decode("utf-8", "replace")
        at += 1 + size
        kind = data[at] if at < len(data) else 0
        at += 1
        if kind not in (_TEXT, _BYTES):
            at += _SIZES.get(kind, len(data))
            continue
        if at + _SHORT.size > len(data):
            return
        (size,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
        if kind == _TEXT:
            yield name, data[at : at + size].decode("utf-8", "replace")
        at += size


def _object(payload: bytes) -> Mapping[str, Any]:
    try:
        fields = loads(payload)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
