"""Gemini's contents: requests are read, and rebuilt answers are read again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message, ToolCall, Usage
from oteval.model.recording import RecordedRequest
from oteval.reconstruct.apis import api_of
from oteval.reconstruct.apis.gemini import Gemini
from oteval.reconstruct.apis.model_api import event

from .rebuilt import recorded

API = Gemini()
URL = "https://generativelanguage.googleapis.com/v1beta/models/gemini-9-flash:generateContent"
STREAM = URL.replace(":generate", ":streamGenerate") + "?alt=sse"
CALLS = (ToolCall("weather", {"city": "Bern"}, ""), ToolCall("time", {}, "id-2"))


def chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return one answer of a stream."""
    return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, **fields}]}


def test_a_request_is_read() -> None:
    """The instruction, calls, results, tools and options become those of other APIs."""
    function = {"name": "weather", "parametersJsonSchema": {"type": "object"}}
    body = {
        "systemInstruction": {"parts": [{"text": "Be brief."}], "role": "user"},
        "contents": [
            {"parts": [{"text": "Weather?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Let me see."},
                    {"functionCall": {"name": "weather", "args": {"city": "Bern"}}},
                ],
            },
            {
                "role": "user",
                "parts": [{"functionResponse": {"name": "weather", "response": {"result": 7}}}],
            },
        ],
        "tools": [{"functionDeclarations": [function]}, {"googleSearch": {}}],
        "generationConfig": {"temperature": 0.5, "responseSchema": {"type": "STRING"}},
        "safetySettings": [],
    }
    api = api_of("POST", STREAM)
    assert api is not None

    request = api.parse_request(json.dumps(body).encode(), STREAM)

    assert (request.api, request.model, request.is_stream) == ("gemini", "gemini-9-flash", True)
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief."),
        ("user", "Weather?"),
        ("assistant", "Let me see."),
        ("tool", '{"result":7}'),
    ]
    assert request.messages[2].tool_calls[0].arguments == {"city": "Bern"}
    assert request.tools == (
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}},
        {"googleSearch": {}},
    )
    assert request.response_format == {"responseSchema": {"type": "STRING"}}
    assert request.settings == {"temperature": 0.5, "safetySettings": []}


@pytest.mark.parametrize(
    ("url", "model", "is_stream"),
    [
        (URL, "gemini-9-flash", False),
        (STREAM, "gemini-9-flash", True),
        (
            "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/"
            "google/models/gemini-9-pro:streamGenerateContent",
            "gemini-9-pro",
            True,
        ),
    ],
)
def test_the_url_names_the_model_and_the_stream(url: str, model: str, is_stream: bool) -> None:
    """Both of Google's services have them there."""
    request = API.parse_request(b'{"contents": []}', url)

    assert (request.model, request.is_stream) == (model, is_stream)


@pytest.mark.parametrize("is_list", [False, True])
def test_the_answers_of_a_stream_are_one(is_list: bool) -> None:
    """Texts are joined; the reason, the usage and the names come with any of them."""
    answers = [
        {**chunk({"text": "Hel"}), "modelVersion": "g-1", "responseId": "r1"},
        chunk({"text": "lo."}),
        {
            **chunk({"functionCall": {"name": "time"}}, finishReason="STOP"),
            "usageMetadata": {
                "promptTokenCount": 5,
                "candidatesTokenCount": 3,
                "thoughtsTokenCount": 2,
            },
        },
    ]
    body = json.dumps(answers).encode() if is_list else b"".join(map(event, answers))

    answer = API.parse_response(body)

    assert answer.message is not None
    assert answer.message.content == "Hello."
    assert [(call.name, call.arguments) for call in answer.message.tool_calls] == [("time", {})]
    assert (answer.finish_reason, answer.model, answer.response_id) == ("STOP", "g-1", "r1")
    assert answer.usage == Usage(5, 5, 0, 1, reasoning_tokens=2)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", "It is sunny in Bern, and it will be tomorrow."),
        Message("assistant", "Let me see.", tool_calls=CALLS),
        Message("assistant", None, tool_calls=CALLS),
    ],
)
def test_rebuilt_answers_are_read_again(message: Message, is_stream: bool) -> None:
    """A plain answer and a stream give back the message that was recorded."""
    call = recorded(message)
    request = RecordedRequest(model="m", is_stream=is_stream)
    if is_stream:
        body = b"".join(API.write_stream(call, request))
    else:
        body = API.write_response(call, request)

    answer = API.parse_response(body, is_stream)

    assert answer.message is not None
    assert (answer.message.content, answer.message.tool_calls) == (
        message.content,
        message.tool_calls,
    )
    assert (answer.usage, answer.finish_reason) == (Usage(11, 7, 0, 1), "STOP")


@pytest.mark.parametrize("is_list", [False, True])
def test_errors_are_read(is_list: bool) -> None:
    """A plain error, and one in the list of a stream."""
    error: Any = {"error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED"}}

    answer = API.parse_response(json.dumps([error] if is_list else error).encode())

    assert answer.error == "slow down"


def test_a_rebuilt_error_has_googles_form() -> None:
    """Its status is the one that the text names."""
    failed = API.write_error(recorded(None, error="ClientError: 429 RESOURCE_EXHAUSTED"))

    assert failed.status == 429
    assert json.loads(failed.body)["error"]["status"] == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("is_finished", [False, True])
def test_a_stream_is_finished_by_its_reason(is_finished: bool) -> None:
    """Clients leave it there."""
    fields = {"finishReason": "STOP"} if is_finished else {}

    assert API.is_finished(event(chunk({"text": "Hello"}, **fields))) is is_finished
