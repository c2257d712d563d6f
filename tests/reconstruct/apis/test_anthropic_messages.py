"""Anthropic's messages: requests are read, and rebuilt answers are read again."""

from __future__ import annotations

import json

import pytest

from oteval.model import Message, ToolCall, Usage
from oteval.reconstruct.apis import api_of
from oteval.reconstruct.apis.anthropic_messages import AnthropicMessages
from oteval.reconstruct.apis.model_api import read_events

from .rebuilt import recorded

API = AnthropicMessages()
CALLS = (ToolCall("weather", {"city": "Bern"}, "toolu_1"), ToolCall("time", {}, "toolu_2"))


def test_a_request_with_blocks_is_read() -> None:
    """The system prompt, calls, results and tools become those of other APIs."""
    body = {
        "model": "claude",
        "max_tokens": 100,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                    {"type": "text", "text": "Hurry!", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}}],
        "stream": True,
    }
    api = api_of("POST", "https://api.anthropic.com/v1/messages")
    assert api is not None
    request = api.parse_request(json.dumps(body).encode())
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief."),
        ("user", "Weather?"),
        ("assistant", "Let me see."),
        ("tool", "sunny"),
        ("user", "Hurry!"),
    ]
    assert request.messages[2].tool_calls[0].arguments == {"x": 1}
    assert request.tools[0]["function"]["parameters"] == {"type": "object"}
    assert (request.settings, request.is_stream) == ({"max_tokens": 100}, True)


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_was_written_is_read_again(is_stream: bool) -> None:
    """Thinking, text and calls survive in a message and in its events."""
    thinking = {"type": "thinking", "thinking": "Hm, let me think.", "signature": "abc"}
    message = Message("assistant", "Look at this:", tool_calls=CALLS, parts=(thinking,))
    call = recorded(message, model="claude-1", finish_reason="tool_calls")
    request = API.parse_request(b"{}")
    body = API.write_response(call, request)
    if is_stream:
        events = API.write_stream(call, request)
        kinds = [one["type"] for one in read_events(b"".join(events))]
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
        assert kinds.count("content_block_stop") == 4
        body = b"".join(events)
    answer = API.parse_response(body)
    assert answer.message == message
    assert (answer.finish_reason, answer.model) == ("tool_use", "claude-1")
    assert answer.usage == Usage(11, 7, 0, 1)
    assert answer.response_id.startswith("msg_")


def test_errors() -> None:
    """An error has Anthropic's form, with the status that its name says."""
    failed = API.write_error(recorded(None, error="OverloadedError: try later"))
    assert failed.status == 529
    assert json.loads(failed.body)["error"]["type"] == "overloaded_error"
    assert API.parse_response(failed.body).error == "OverloadedError: try later"
    assert API.parse_response(b"event: error\ndata: " + failed.body + b"\n\n").error
    assert api_of("POST", "https://x/v1/messages/count_tokens") is None
