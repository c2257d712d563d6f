"""Google's Gemini: ``generateContent`` and ``streamGenerateContent``, also of Vertex AI.

Facts from Google's API reference. The URL names the model and the method, which decides whether
to stream. Calls usually have no ids: a result names its function. A stream is events (``alt=sse``),
which Google's clients request, or one JSON list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from ...base.errors import InputError
from ...base.jsontext import dumps, loads
from ...messages import (
    NO_SOURCE,
    as_list,
    definitions,
    first_of,
    from_candidate,
    from_messages,
    is_reasoning,
    reasoning_text,
    system_messages,
)
from ...model import Message, RecordedModelCall, RecordedRequest, ToolCall, read_tokens
from .model_api import (
    ApiAnswer,
    ModelApi,
    event,
    joined_answer,
    json_object,
    pieces,
    response_id,
    text_of_error,
    without,
)
from .repeated_messages import repeated_messages

__all__ = ["Gemini"]

_METHOD, _STREAM_METHOD = ":generateContent", ":streamGenerateContent"
_SYSTEM = ("systemInstruction", "system_instruction")
_CONFIG = ("generationConfig", "generation_config")
_OWN_FIELDS = (*_SYSTEM, *_CONFIG, "contents", "tools", "model")
_FORMATS = ("responseSchema", "responseJsonSchema", "response_schema", "response_json_schema")
_FUNCTIONS = ("functionDeclarations", "function_declarations")
# Other providers' names for the same reasons.
_REASONS = {
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "length": "MAX_TOKENS",
    "max_tokens": "MAX_TOKENS",
    "max_output_tokens": "MAX_TOKENS",
}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class Gemini(ModelApi):
    """The API ``POST .../models/NAME:generateContent`` and ``:streamGenerateContent``."""

    name = "gemini"

    def has_path(self, path: str) -> bool:
        """Whether a path names one of the two methods of a model."""
        return path.endswith((_METHOD, _STREAM_METHOD))

    def parse_request(self, body: bytes, url: str = "", /) -> RecordedRequest:
        """The request in a body; the URL names the model and decides whether to stream."""
        fields = json_object(body)
        path = urlsplit(url).path.rstrip("/")
        config = first_of(fields, _CONFIG) or {}
        formats = {key: value for key, value in config.items() if key in _FORMATS}
        return RecordedRequest(
            api=self.name,
            model=_model_in(path) or str(fields.get("model") or ""),
            messages=(*system_messages(fields, NO_SOURCE), *repeated_messages(_contents(fields))),
            tools=tuple(_tools(fields)),
            response_format=formats or None,
            settings={**without(fields, *_OWN_FIELDS), **without(config, *_FORMATS)},
            is_stream=path.endswith(_STREAM_METHOD),
        )

    def parse_response(self, body: bytes, is_stream: bool | None = None) -> ApiAnswer:
        """The answer in a body: JSON, the events of a stream, or a list of answers."""
        if not body.lstrip().startswith(b"["):
            return super().parse_response(body, is_stream)
        try:
            answers = loads(body)
        except ValueError as error:
            raise InputError(f"the body is not JSON: {error}") from error
        response = self._assembled([answer for answer in answers if isinstance(answer, dict)])
        problem = text_of_error(response)
        return ApiAnswer(error=problem) if problem else self._answer(response)

    def _assembled(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        response: dict[str, Any] = {}
        candidates: dict[int, dict[str, Any]] = {}
        for chunk in events:
            if "error" in chunk:
                return chunk
            response.update(without(chunk, "candidates"))
            for piece in chunk.get("candidates") or ():
                candidate = candidates.setdefault(piece.get("index") or 0, {"parts": []})
                content = piece.get("content") or {}
                for part in content.get("parts") or ():
                    _grow(candidate["parts"], part)
                candidate.update(without(piece, "content"))
        whole_candidates = [_whole_candidate(candidates[index]) for index in sorted(candidates)]
        return {**response, "candidates": whole_candidates}

    def _answer(self, response: Mapping[str, Any]) -> ApiAnswer:
        candidates = response.get("candidates") or ()
        answers = [_messages_of(candidate) for candidate in candidates]
        messages = [joined_answer(answer) for answer in answers]
        blocked = (response.get("promptFeedback") or {}).get("blockReason")
        return ApiAnswer(
            message=messages[0] if messages else Message("assistant", ""),
            output=tuple(answers[0]) if answers else (),
            choices=tuple(messages[1:]),
            finish_reason=str((candidates[0] if candidates else {}).get("finishReason") or "")
            or str(blocked or ""),
            usage=read_tokens(response.get("usageMetadata")).usage,
            model=str(response.get("modelVersion") or ""),
            response_id=str(response.get("responseId") or ""),
        )

    def write_response(self, call: RecordedModelCall, request: RecordedRequest) -> bytes:
        """A ``GenerateContentResponse``."""
        return dumps(_written(call, request)).encode()

    def write_stream(self, call: RecordedModelCall, request: RecordedRequest) -> list[bytes]:
        """The events of a stream; the last has the finish reason and the usage."""
        response = _written(call, request)
        first = response["candidates"][0]
        head = {key: response[key] for key in ("modelVersion", "responseId")}
        deltas = list(_deltas(first["content"]["parts"])) or [{"text": ""}]
        events = [
            event({"candidates": [{"content": _content([delta]), "index": 0}], **head})
            for delta in deltas[:-1]
        ]
        last = {**first, "content": _content(deltas[-1:])}
        return [*events, event({**response, "candidates": [last, *response["candidates"][1:]]})]

    def _error_body(self, error: str, status: int) -> bytes:
        name = _STATUSES.get(status, "UNKNOWN")
        return dumps({"error": {"code": status, "message": error, "status": name}}).encode()


def _model_in(path: str) -> str:
    """The name of the model in a path such as ``/v1beta/models/NAME:generateContent``."""
    _, separator, name = path.rpartition("/models/")
    return unquote(name.rpartition(":")[0]) if separator else ""


def _contents(fields: Mapping[str, Any]) -> list[Any]:
    """The contents as messages; a content without a role is the user's."""
    return [
        {**content, "role": content.get("role") or "user"}
        if isinstance(content, Mapping)
        else content
        for content in as_list(fields.get("contents"))
    ]


def _tools(fields: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield definitions in the form of chat completions; tools that Google runs stay as they are.

    A tool of a request may declare several functions and name Google's own tools as well.
    """
    for definition in definitions(fields):
        function = {key: definition[key] for key in ("name", "description") if definition.get(key)}
        parameters = definition.get("parameters")
        if parameters is not None:
            function["parameters"] = parameters
        yield {"type": "function", "function": function}
    for tool in fields.get("tools") or ():
        if isinstance(tool, Mapping) and (own := without(tool, *_FUNCTIONS)):
            yield own


def _grow(parts: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Add a part of a stream, joined to the last one if both are texts of the same kind."""
    last = parts[-1] if parts else {}
    is_same_text = "text" in last and "text" in part
    if is_same_text and bool(last.get("thought")) == bool(part.get("thought")):
        parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
    elif part.get("text") != "" or len(part) > 1:
        parts.append(dict(part))


def _whole_candidate(candidate: Mapping[str, Any]) -> dict[str, Any]:
    return {**without(candidate, "parts"), "content": _content(candidate["parts"])}


def _content(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"parts": list(parts), "role": "model"}


def _messages_of(candidate: Mapping[str, Any]) -> list[Message]:
    return from_messages(from_candidate(candidate), NO_SOURCE) or [Message("assistant", "")]


def _written(call: RecordedModelCall, request: RecordedRequest) -> dict[str, Any]:
    answers = [call.answer or Message("assistant"), *call.choices]
    reason = call.finish_reason
    reason = _REASONS.get(reason.lower(), reason if reason.isupper() else "STOP")
    return {
        "candidates": [
            {
                "content": _content(list(_written_parts(message))),
                "finishReason": reason,
                "index": index,
            }
            for index, message in enumerate(answers)
        ],
        "usageMetadata": {
            "promptTokenCount": call.usage.input_tokens,
            "candidatesTokenCount": call.usage.output_tokens,
            "totalTokenCount": call.usage.input_tokens + call.usage.output_tokens,
        },
        "modelVersion": call.model or call.request.model or request.model,
        "responseId": response_id(call, ""),
    }


def _written_parts(message: Message) -> Iterator[dict[str, Any]]:
    """Yield the parts of an answer: thoughts, text, calls."""
    for part in message.parts:
        if is_reasoning(part) and (thought := reasoning_text(part)):
            yield {"text": thought, "thought": True}
    for call in message.tool_calls:
        if call.executed_by and call.name == "code_execution":
            yield {"executableCode": call.arguments or {}}
    if message.content or not message.client_calls:
        yield {"text": message.content or ""}
    for call in message.client_calls:
        yield {"functionCall": _written_call(call)}


def _written_call(call: ToolCall) -> dict[str, Any]:
    arguments = call.arguments
    if not isinstance(arguments, Mapping):
        arguments = {} if arguments is None else {"input": arguments}
    fields = {"name": call.name, "args": arguments}
    return {"id": call.id, **fields} if call.id else fields


def _deltas(parts: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a stream: texts a few words at a time."""
    for part in parts:
        if "text" in part:
            yield from ({**part, "text": piece} for piece in pieces(part["text"]))
        else:
            yield dict(part)
