"""The Responses API: requests of real clients are read, and they accept the rebuilt answers."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

from oteval.model import Message, ToolCall, Usage
from oteval.reconstruct.apis import api_of
from oteval.reconstruct.apis.responses import Responses

from .rebuilt import Rebuilt, asks, recorded, says

API = Responses()
LONG = "Sunny, 21 degrees.\n\nWind: light.  From the north, \u00e9t\u00e9 \U0001f600.\n"
WEATHER = ToolCall("weather", {"city": "Bern", "days": [1, 2]}, "call_abc")
TIME = ToolCall("time", {}, "call_def")
TOOLS = [
    {"type": "function", "name": name, "parameters": {"type": "object"}, "strict": False}
    for name in ("weather", "time")
]


class Weather(BaseModel):
    """The format of a structured answer."""

    city: str
    degrees: int


def test_the_client_reads_a_rebuilt_answer() -> None:
    """Text, id, model and usage are those of the recording; the request is parsed."""
    rebuilt = Rebuilt([says(LONG, model="gpt-5-2026", response_id="resp_9")])

    answer = rebuilt.client.responses.create(
        model="gpt-5", instructions="Be brief.", input="Hi", tools=TOOLS, temperature=0.5
    )

    assert answer.output_text == LONG
    assert (answer.id, answer.model, answer.status) == ("resp_9", "gpt-5-2026", "completed")
    assert (answer.usage.input_tokens, answer.usage.total_tokens) == (11, 18)
    (request,) = rebuilt.requests
    assert (request.api, request.settings) == ("responses", {"temperature": 0.5})
    assert [(m.role, m.content) for m in request.messages] == [
        ("system", "Be brief."),
        ("user", "Hi"),
    ]
    assert request.tools[0]["function"]["name"] == "weather"
    assert answer.tools[0].name == "weather"


def test_the_items_of_an_agent_loop_are_read() -> None:
    """Reasoning, parallel calls and results become messages, as in other APIs."""
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        {"type": "function_call_output", "call_id": "b", "output": "noon"},
    ]
    request = API.parse_request(json.dumps({"model": "m", "input": items}).encode())
    assert [message.role for message in request.messages] == [
        *("user", "assistant", "tool", "tool")
    ]
    assert [call.name for call in request.messages[1].tool_calls] == ["weather", "time"]
    assert request.messages[3].tool_call_id == "b"


def test_a_stream_reaches_the_streaming_helper() -> None:
    """`responses.stream` assembles reasoning, text and calls; events are numbered."""
    reasoning = {"type": "reasoning", "content": "Let me think about that."}
    message = Message("assistant", LONG, tool_calls=(WEATHER, TIME), parts=(reasoning,))
    rebuilt = Rebuilt([recorded(message)])

    with rebuilt.client.responses.stream(model="m", input="Hi", tools=TOOLS) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert [item.type for item in final.output] == [
        *("reasoning", "message", "function_call", "function_call")
    ]
    assert final.output_text == LONG
    assert final.output[0].summary[0].text == "Let me think about that."
    assert json.loads(final.output[2].arguments) == WEATHER.arguments
    assert final.output[3].call_id == "call_def"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "response.reasoning_summary_text.delta" in kinds
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == LONG


def test_structured_answers_and_async_clients() -> None:
    """`parse` validates the rebuilt answer, also asynchronously and streamed."""
    rebuilt = Rebuilt([says('{"city": "Bern", "degrees": 21}')])

    async def ask() -> list[object]:
        client = rebuilt.async_client
        parsed = await client.responses.parse(model="m", input="Hi", text_format=Weather)
        async with client.responses.stream(model="m", input="Hi", text_format=Weather) as stream:
            final = await stream.get_final_response()
        raw = await client.responses.create(model="m", input="Hi", stream=True)
        last = [event async for event in raw][-1]
        return [parsed.output_parsed, final.output_parsed, last.response.output_text]

    weather = Weather(city="Bern", degrees=21)
    assert asyncio.run(ask()) == [weather, weather, '{"city": "Bern", "degrees": 21}']
    assert rebuilt.requests[0].response_format["name"] == "Weather"


@pytest.mark.parametrize("is_stream", [False, True])
def test_what_was_written_is_read_again(is_stream: bool) -> None:
    """`parse_response` of a rebuilt answer gives the recorded message, usage and reason."""
    parts = ({"type": "refusal", "content": "Not that."},)
    message = Message("assistant", "Look:", tool_calls=(WEATHER, TIME), parts=parts)
    call = recorded(message, model="m1")
    request = API.parse_request(b'{"model": "m", "input": "Hi"}')
    body = API.write_response(call, request)
    if is_stream:
        body = b"".join(API.write_stream(call, request))
    answer = API.parse_response(body)
    assert answer.message is not None
    assert (answer.message.content, answer.message.tool_calls) == (
        "Look:\nNot that.",
        (WEATHER, TIME),
    )
    assert [part["type"] for part in answer.message.parts] == ["refusal"]
    assert (answer.finish_reason, answer.model) == ("tool_calls", "m1")
    assert answer.usage == Usage(11, 7, 0, 1)


def test_streams_without_an_end_and_errors() -> None:
    """A broken-off stream has the text so far; an error event is an error."""
    events = API.write_stream(says(LONG), API.parse_request(b"{}"))
    part = API.parse_response(b"".join(events[:7])).message
    assert part is not None
    assert part.content
    assert LONG.startswith(part.content)
    cut = API.parse_response(
        API.write_response(says("A", finish_reason="length"), API.parse_request(b"{}"))
    )
    assert cut.finish_reason == "length"
    failed = b'data: {"type": "error", "message": "No.", "code": "x"}\n\n'
    assert API.parse_response(failed).error == "No."
    rebuilt = Rebuilt([recorded(None, error="Error code: 400 - bad")])
    with pytest.raises(openai.BadRequestError):
        rebuilt.client.responses.create(model="m", input="Hi")


def test_paths_of_the_api() -> None:
    """Other operations on responses are not requests for an answer."""
    assert api_of("POST", "https://api.openai.com/v1/responses") is not None
    assert api_of("POST", "https://api.openai.com/v1/responses/resp_1/cancel") is None
    assert api_of("GET", "https://api.openai.com/v1/responses/resp_1") is None


def test_custom_tools_have_text_instead_of_arguments() -> None:
    """The definition in the request decides."""
    call = asks(ToolCall("shell", "ls -l", "call_1"))
    rebuilt = Rebuilt([call])
    tools = [{"type": "custom", "name": "shell"}]
    answer = rebuilt.client.responses.create(model="m", input="Hi", tools=tools)
    assert (answer.output[0].type, answer.output[0].input) == ("custom_tool_call", "ls -l")
    with rebuilt.client.responses.stream(model="m", input="Hi", tools=tools) as stream:
        assert stream.get_final_response().output[0].input == "ls -l"
