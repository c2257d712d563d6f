"""The endpoint of `oteval replay serve`, asked by real clients on real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from oteval.base.errors import ConfigError
from oteval.model import RecordedToolCall, Recording
from oteval.replays.player import Player
from oteval.replays.server import ReplayServer, client_environment

from ..model_server import Body, Reply, completion, error, streamed
from .agents import SYSTEM, chat, client, refund_agent, refunds
from .recorded import record

TOOLS = (
    RecordedToolCall("lookup", {"order": 17}, "paid 30 EUR"),
    RecordedToolCall("refund", {"order": 17}, "the order is too old", is_error=True),
)


@contextmanager
def replaying(*recordings: Recording, **options: Any) -> Iterator[ReplayServer]:
    """Serve recordings."""
    players = {recording.session: Player(recording, **options) for recording in recordings}
    with ReplayServer(players).running() as server:
        yield server


QUESTION = {"role": "user", "content": "Refund 17"}


def chat_in_vain(url: str) -> None:
    """Ask a model that fails."""
    with pytest.raises(openai.APIStatusError):
        chat(url)


def greet(body: Body, _number: int) -> Reply:
    """Script: greet."""
    if body.get("stream"):
        return streamed("Good morning")
    return completion("Good morning")


@pytest.fixture(scope="module")
def refund() -> Recording:
    """The recording of an agent with two tools."""
    return record(refund_agent, refunds, TOOLS)


def test_an_agent_is_answered_over_http(refund: Recording):
    """The whole agent runs against the endpoint; the result says what was served."""
    with replaying(refund) as server:
        assert refund_agent(f"{server.url}/v1") == "Refunded."
        results = httpx2.get(f"{server.url}/result").json()
        models = httpx2.get(f"{server.url}/v1/models").json()

    (result,) = server.results()
    assert result.passed
    assert results == [result.as_dict()]
    assert results[0]["model_calls"] == {"recorded": 2, "served": 2}
    assert [model["id"] for model in models["data"]] == ["gpt-test"]


def test_a_stream_is_sent_as_a_stream():
    """Chunks come one after the other, as they were recorded."""

    def agent(url: str) -> list[str]:
        with client(url) as model:
            messages: Any = [{"role": "user", "content": "Hi"}]
            events = model.chat.completions.create(model="m", messages=messages, stream=True)
            return [event.choices[0].delta.content or "" for event in events if event.choices]

    recording = record(agent, greet)

    with replaying(recording) as server:
        pieces = agent(f"{server.url}/v1")

    assert "".join(pieces) == "Good morning"
    assert len(pieces) > 2


def test_a_request_that_differs_is_an_error_that_is_not_repeated(refund: Recording):
    """The client raises at once, and the result has one divergence."""
    with replaying(refund) as server:
        question: Any = [{"role": "system", "content": "Another"}, QUESTION]
        with (
            client(f"{server.url}/v1", max_retries=2) as model,
            pytest.raises(openai.APIStatusError, match="oteval replay") as raised,
        ):
            model.chat.completions.create(model="gpt-test", messages=question)
        with pytest.raises(openai.APIStatusError):
            chat(f"{server.url}/v1")

    assert raised.value.status_code == 409
    (result,) = server.results()
    assert [divergence.kind for divergence in result.divergences] == ["prompt"]


def test_recorded_errors_are_sent_as_recorded():
    """A rate limit is a 429 for the client; a timeout, which has no HTTP form, is a 504."""
    limited = record(chat_in_vain, lambda _body, _number: error(429, "slow down"))
    (call,) = limited.model_calls
    assert call.exchange is not None
    late = replace(call.exchange, status=0, chunks=(), error="ReadTimeout: too late")
    timed_out = replace(limited, model_calls=(replace(call, exchange=late),))

    with replaying(limited) as server, pytest.raises(openai.RateLimitError, match="slow down"):
        chat(f"{server.url}/v1")
    with replaying(timed_out) as server, pytest.raises(openai.InternalServerError) as raised:
        chat(f"{server.url}/v1")
    assert raised.value.status_code == 504


def test_of_several_sessions_each_answers_its_own_requests():
    """A request goes to the session of its path, else to the one that expects it."""
    sessions = [
        replace(record(lambda url, q=q: chat(url, question=q), echo), session=q)
        for q in ("first", "second")
    ]

    with replaying(*sessions) as server:
        assert chat(f"{server.url}/v1", question="second") == "You said second"
        assert chat(f"{server.url}/sessions/first/v1", question="first") == "You said first"
        unknown = httpx2.post(f"{server.url}/sessions/third/v1/chat/completions", json={})

    assert all(result.passed for result in server.results())
    assert unknown.status_code == 404
    assert "first, second" in unknown.json()["error"]["message"]


def echo(body: Body, _number: int) -> Reply:
    """Script: repeat the question."""
    return completion(f"You said {body['messages'][-1]['content']}")


async def test_recorded_tools_are_an_mcp_server(refund: Recording):
    """A real MCP client lists the tools, and gets recorded results and errors."""
    with replaying(refund, miss="error") as server:
        async with (
            streamable_http_client(f"{server.url}/mcp") as streams,
            ClientSession(*streams[:2]) as session,
        ):
            await session.initialize()
            listed = (await session.list_tools()).tools
            done = await session.call_tool("lookup", {"order": 17})
            failed = await session.call_tool("refund", {"order": 17})
            unknown = await session.call_tool("lookup", {"order": 99})

    assert [(tool.name, tool.description) for tool in listed] == [
        ("lookup", "The tool lookup."),
        ("refund", "The tool refund."),
    ]
    assert listed[0].input_schema["properties"] == {"order": {"type": "integer"}}
    assert (done.is_error, done.content[0].text) == (False, "paid 30 EUR")
    assert (failed.is_error, failed.content[0].text) == (True, "the order is too old")
    assert unknown.is_error
    assert [divergence.kind for divergence in server.results()[0].divergences] == ["tool_call"]


def test_a_used_port_is_a_clear_error(refund: Recording):
    """The error names the address."""
    with replaying(refund) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: cannot listen"):
            ReplayServer({refund.session: Player(refund)}, port=port)


def test_the_usual_clients_find_the_endpoint_by_their_environment(refund: Recording):
    """The variables of OpenAI's and Anthropic's clients; keys that are there are kept."""
    variables = client_environment("http://127.0.0.1:1", {"OPENAI_API_KEY": "mine"})

    assert variables["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert (variables["OPENAI_API_KEY"], variables["ANTHROPIC_API_KEY"]) == ("mine", "replay")
    assert SYSTEM in json.dumps([m.as_dict() for m in refund.model_calls[0].request.messages])
