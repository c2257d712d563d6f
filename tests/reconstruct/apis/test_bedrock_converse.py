"""Bedrock's Converse: requests are read, and rebuilt answers are read again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message, ToolCall, Usage
from oteval.model.recording import RecordedRequest
from oteval.reconstruct.apis import api_of
from oteval.reconstruct.apis.bedrock_converse import BedrockConverse, encoded, read_messages

from .rebuilt import recorded

API = BedrockConverse()
URL = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/anthropic.claude%3A0/converse"
CALLS = (ToolCall("weather", {"city": "Bern"}, "tooluse_1"), ToolCall("time", {}, "tooluse_2"))


def test_a_request_is_read() -> None:
    """The instructions, calls, results, tools and options become those of other APIs."""
    spec = {"name": "weather", "inputSchema": {"json": {"type": "object"}}}
    use = {"toolUseId": "t1", "name": "weather", "input": {"city": "Bern"}}
    body = {
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [{"text": "Weather?"}]},
            {"role": "assistant", "content": [{"text": "Let me see."}, {"toolUse": use}]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "sunny"}]}}],
            },
        ],
        "toolConfig": {"tools": [{"toolSpec": spec}, {"cachePoint": {"type": "default"}}]},
        "inferenceConfig": {"temperature": 0.5},
    }
    api = api_of("POST", URL + "-stream")
    assert api is not None

    request = api.parse_request(json.dumps(body).encode(), URL + "-stream")

    assert (request.api, request.model) == ("bedrock_converse", "anthropic.claude:0")
    assert request.is_stream
    assert [(m.role, m.content, m.tool_call_id) for m in request.messages] == [
        ("system", "Be brief.", ""),
        ("user", "Weather?", ""),
        ("assistant", "Let me see.", ""),
        ("tool", "sunny", "t1"),
    ]
    assert request.messages[2].tool_calls[0].arguments == {"city": "Bern"}
    assert [tool["function"]["name"] for tool in request.tools] == ["weather"]
    assert request.settings == {"temperature": 0.5}


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
    """A plain answer and a binary stream give back the message that was recorded."""
    call = recorded(message)
    request = RecordedRequest(model="m", is_stream=is_stream)
    if is_stream:
        body = b"".join(API.write_stream(call, request))
    else:
        body = API.write_response(call, request)

    answer = API.parse_response(body)

    assert answer.message is not None
    assert (answer.message.content, answer.message.tool_calls) == (
        message.content,
        message.tool_calls,
    )
    assert answer.usage == Usage(11, 7, 0, 1)
    assert answer.finish_reason == ("tool_use" if message.tool_calls else "end_turn")
    assert API.is_finished(body)


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 30, -1])
def test_a_stream_that_is_cut_gives_its_whole_messages(cut: int) -> None:
    """A message counts once it is whole, and only the reason finishes an answer."""
    first = encoded("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}})
    second = encoded("messageStop", {"stopReason": "end_turn"})

    messages = list(read_messages(first + second[:cut]))

    assert [message.name for message in messages] == ["contentBlockDelta"]
    assert not API.is_finished(first + second[:cut])
    assert API.is_finished(first + second)


@pytest.mark.parametrize("fields", [{"message": "Too many requests"}, {"Message": "x"}])
def test_errors_are_read(fields: dict[str, Any]) -> None:
    """The body of an error has nothing but its message; the status says that it is one."""
    answer = API.parse_response(json.dumps(fields).encode())

    assert answer.error == fields.get("message", "")


def test_a_rebuilt_error_names_its_exception() -> None:
    """The header tells AWS's clients which one to raise."""
    failed = API.write_error(recorded(None, error="ThrottlingException: rate limit 429"))

    assert (failed.status, failed.headers["x-amzn-errortype"]) == (429, "ThrottlingException")
