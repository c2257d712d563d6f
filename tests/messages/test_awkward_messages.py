"""Content that few providers and emitters write, or that they write in unusual fields."""

from __future__ import annotations

import json

import pytest

from oteval.messages import NO_SOURCE
from oteval.messages.kinds import reasoning_text
from oteval.messages.reader import from_messages
from oteval.model import Message

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize("field", ["thinking", "tool_plan", "reasoning_content"])
def test_reasoning_beside_the_content(field: str):
    """Ollama and Cohere have names of their own for it."""
    [message] = from_messages(
        [{"role": "assistant", "content": "", field: "I look it up", "tool_calls": [CALL]}],
        NO_SOURCE,
    )

    assert [reasoning_text(part) for part in message.parts] == ["I look it up"]
    assert [call.name for call in message.tool_calls] == ["look"]


@pytest.mark.parametrize("data", ['{"t": 1}', {"t": 1}])
def test_a_result_of_documents_is_their_text(data: object):
    """Cohere's tools answer with documents."""
    content = [{"type": "document", "document": {"data": data, "id": "1"}}]

    [result] = from_messages(
        [{"role": "tool", "tool_call_id": "c1", "content": content}], NO_SOURCE
    )

    assert json.loads(result.content or "") == {"t": 1}
    assert not result.parts


def test_what_is_said_aloud_is_the_answer():
    """The transcript of an audio answer is its text, and is not repeated when it is read again."""
    audio = {"id": "a", "transcript": "hello there", "data": "AA"}
    [message] = from_messages([{"role": "assistant", "content": None, "audio": audio}], NO_SOURCE)

    assert message.content == "hello there"
    assert [part["data"] for part in message.parts] == ["AA"]
    assert from_messages([message.as_dict()], NO_SOURCE) == [message]


def test_a_result_of_an_image_alone_has_no_text():
    """Neither is its text empty, nor is the image there twice."""
    image = {"type": "image_url", "image_url": {"url": "u"}}

    [result] = from_messages(
        [{"role": "tool", "tool_call_id": "c1", "content": [image]}], NO_SOURCE
    )

    assert (result.content, len(result.parts)) == (None, 1)


def test_a_list_of_messages_as_texts():
    """Some SDKs write an attribute that is a list of texts, each with one message."""
    question = {"role": "user", "parts": [{"type": "text", "content": "hi"}]}
    data = '{"city": "Oslo"}'

    assert from_messages([json.dumps(question)], NO_SOURCE) == [Message("user", "hi")]
    assert from_messages([data], NO_SOURCE) == [Message("user", data)]


def test_a_result_of_a_text_and_media_is_the_text_and_a_part():
    """The AI SDK's typed results hold both."""
    output = {
        "type": "content",
        "value": [
            {"type": "text", "text": "sunny"},
            {"type": "media", "data": "AA", "mediaType": "image/png"},
        ],
    }
    part = {"type": "tool-result", "toolCallId": "c1", "toolName": "look", "output": output}

    [result] = from_messages([{"role": "tool", "content": [part]}], NO_SOURCE)

    assert (result.content, [p["data"] for p in result.parts]) == ("sunny", ["AA"])
