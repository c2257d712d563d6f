"""Chat completions: requests of real clients are read, and they accept the rebuilt answers."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

from oteval.base.errors import InputError
from oteval.model import Message, ToolCall, Usage
from oteval.model.recording import Exchange
from oteval.reconstruct.apis import api_named, api_of
from oteval.reconstruct.apis.chat_completions import ChatCompletions

from .rebuilt import Rebuilt, asks, recorded, says

API = ChatCompletions()
USER = [{"role": "user", "content": "How is the weather in Bern?"}]
LONG = "Sunny, 21 degrees.\n\nWind: light.  From the north, \u00e9t\u00e9 \U0001f600.\n"
WEATHER = ToolCall("weather", {"city": "Bern", "days": [1, 2]}, "call_abc")
TIME = ToolCall("time", {}, "call_def")
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }
    for name in ("weather", "time")
]


class Weather(BaseModel):
    """The format of a structured answer."""

    city: str
    degrees: int


@pytest.mark.parametrize(
    ("method", "url", "name"),
    [
        ("POST", "https://api.openai.com/v1/chat/completions", "chat_completions"),
        ("post", "http://gateway/openai/v1/chat/completions/?x=1", "chat_completions"),
        (
            "POST",
            "https://a.azure.com/openai/deployments/gpt-5/chat/completions?api-version=1",
            "chat_completions",
        ),
        ("GET", "https://api.openai.com/v1/chat/completions", None),
        ("POST", "https://api.openai.com/v1/chat/completions/chatcmpl-1", None),
        ("POST", "https://api.openai.com/v1/embeddings", None),
        ("POST", "https://api.openai.com/v1/threads/t/messages", None),
    ],
)
def test_the_path_decides_the_api(method: str, url: str, name: str | None) -> None:
    """Any host and prefix; other methods and paths ask no model for an answer."""
    api = api_of(method, url)
    assert (api.name if api else None) == name
    assert api_named("chat_completions") is not None
    assert api_named("other") is None


def test_the_client_reads_a_rebuilt_answer() -> None:
    """Text, model, usage and finish reason are those of the recording; the request is parsed."""
    rebuilt = Rebuilt([says(LONG, model="gpt-5-2026", response_id="chatcmpl-9")])

    answer = rebuilt.client.chat.completions.create(
        model="gpt-5", messages=USER, temperature=0.5, tools=TOOLS
    )

    assert answer.choices[0].message.content == LONG
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.id, answer.model) == ("chatcmpl-9", "gpt-5-2026")
    assert answer.usage.prompt_tokens == 11
    assert answer.usage.total_tokens == 18
    (request,) = rebuilt.requests
    assert request.model == "gpt-5"
    assert not request.is_stream
    assert request.messages[0].content == USER[0]["content"]
    assert request.settings == {"temperature": 0.5}
    assert [tool["function"]["name"] for tool in request.tools] == ["weather", "time"]


def test_a_stream_has_the_same_answer() -> None:
    """The chunks make up the text; usage comes last, and only if it was asked for."""
    rebuilt = Rebuilt([says(LONG)])

    chunks = list(
        rebuilt.client.chat.completions.create(
            model="m", messages=USER, stream=True, stream_options={"include_usage": True}
        )
    )
    plain = list(rebuilt.client.chat.completions.create(model="m", messages=USER, stream=True))

    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == LONG
    assert len(texts) > 3
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 7
    assert all(chunk.usage is None for chunk in plain)
    assert plain[-1].choices[0].finish_reason == "stop"


def test_streamed_parallel_calls_reach_the_streaming_helper() -> None:
    """`chat.completions.stream` assembles both calls, with the ids of the recording."""
    rebuilt = Rebuilt([asks(WEATHER, TIME, content="One moment.")])

    with rebuilt.client.chat.completions.stream(model="m", messages=USER, tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()

    calls = final.choices[0].message.tool_calls
    assert [(call.id, call.function.name) for call in calls] == [
        ("call_abc", "weather"),
        ("call_def", "time"),
    ]
    assert json.loads(calls[0].function.arguments) == WEATHER.arguments
    assert final.choices[0].message.content == "One moment."
    assert final.choices[0].finish_reason == "tool_calls"
    assert "tool_calls.function.arguments.done" in kinds


def test_structured_answers_and_async_clients() -> None:
    """`parse` validates the rebuilt answer, also asynchronously and streamed."""
    rebuilt = Rebuilt([says('{"city": "Bern", "degrees": 21}')])

    async def ask() -> list[object]:
        client = rebuilt.async_client
        parsed = await client.chat.completions.parse(
            model="m", messages=USER, response_format=Weather
        )
        async with client.chat.completions.stream(
            model="m", messages=USER, response_format=Weather
        ) as stream:
            final = await stream.get_final_completion()
        return [parsed.choices[0].message.parsed, final.choices[0].message.parsed]

    assert asyncio.run(ask()) == [Weather(city="Bern", degrees=21)] * 2
    assert rebuilt.requests[0].response_format["json_schema"]["name"] == "Weather"


def test_ids_that_the_trace_lacks_are_made_up() -> None:
    """They differ from call to call, and are the same in every replay."""
    call = asks(ToolCall("a", {}), ToolCall("a", {}))
    ids = []
    for _ in range(2):
        answer = Rebuilt([call]).client.chat.completions.create(model="m", messages=USER)
        ids.append([asked.id for asked in answer.choices[0].message.tool_calls])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_other_choices_refusals_and_reasoning() -> None:
    """Everything that a recorded answer has reaches the client."""
    refused = Message("assistant", parts=({"type": "refusal", "content": "No."},))
    reasoned = Message("assistant", "Yes.", parts=({"type": "reasoning", "content": "Hm."},))
    audio = {"type": "audio", "id": "audio_1", "data": "AAAA", "transcript": "Hi", "expires_at": 1}
    call = recorded(refused, choices=(reasoned, Message("assistant", parts=(audio,))))
    rebuilt = Rebuilt([call])

    answer = rebuilt.client.chat.completions.create(model="m", messages=USER, n=3)
    with rebuilt.client.chat.completions.stream(model="m", messages=USER, n=3) as stream:
        streamed = stream.get_final_completion()

    for found in (answer, streamed):
        first, second, third = (choice.message for choice in found.choices)
        assert (first.content, first.refusal) == (None if found is answer else first.content, "No.")
        assert (second.content, second.reasoning_content) == ("Yes.", "Hm.")
        assert third.audio.data == "AAAA"
        assert third.audio.transcript == "Hi"


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_was_written_is_read_again(is_stream: bool) -> None:
    """`parse_response` of a rebuilt answer gives the recorded message, usage and reason."""
    message = Message(
        "assistant",
        "Look:",
        tool_calls=(WEATHER, TIME),
        parts=({"type": "reasoning", "content": "Think."},),
    )
    other = Message("assistant", "Or so.")
    call = recorded(message, choices=(other,), model="m1", finish_reason="tool_use")
    options = {"stream_options": {"include_usage": True}}
    request = API.parse_request(json.dumps({"model": "m", "messages": USER, **options}).encode())

    body = API.write_response(call, request)
    if is_stream:
        body = b"".join(API.write_stream(call, request))
    answer = API.parse_response(body)

    assert answer.message == message
    assert answer.choices == (other,)
    assert answer.finish_reason == "tool_calls"
    assert answer.model == "m1"
    assert answer.usage == Usage(11, 7, 0, 1)


def test_errors_are_raised_as_recorded() -> None:
    """A recorded response keeps its status and body; of a span, the error's name decides."""
    exchange = Exchange(
        "POST", "/v1/chat/completions", status=404, response_headers={"x-should-retry": "false"}
    )
    rebuilt = Rebuilt([recorded(None, error="gone", exchange=exchange)])
    with pytest.raises(openai.NotFoundError):
        rebuilt.client.chat.completions.create(model="m", messages=USER)

    rebuilt = Rebuilt([recorded(None, error="RateLimitError: too many requests")])
    with pytest.raises(openai.RateLimitError, match="too many requests"):
        rebuilt.client.chat.completions.create(model="m", messages=USER)
    assert len(rebuilt.requests) == 1


def test_errors_are_read() -> None:
    """An error's message is found in a body and in a stream; other bodies name the problem."""
    body = b'{"error": {"message": "No.", "type": "server_error"}}'
    assert API.parse_response(body).error == "No."
    assert API.parse_response(b"data: " + body + b"\n\n").error == "No."
    with pytest.raises(InputError, match="not JSON"):
        API.parse_response(b"<html>")
    with pytest.raises(InputError, match="not a JSON object"):
        API.parse_request(b"[]")


def test_an_azure_deployment_and_legacy_functions() -> None:
    """The deployment in the URL is the model of a request without one."""
    body = {"messages": USER, "functions": [{"name": "weather", "parameters": {}}]}
    url = "https://a/openai/deployments/my%20gpt/chat/completions?api-version=2"
    request = API.parse_request(json.dumps(body).encode(), url)
    assert request.model == "my gpt"
    assert request.tools[0]["function"]["name"] == "weather"
