"""The player without a client: what it answers, and which divergences it notes."""

from __future__ import annotations

import asyncio
import json
import pickle
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import oteval
from oteval.base.errors import ConfigError, NotFound, ReplayDiverged
from oteval.base.redaction.secrets import SecretRedactor
from oteval.model import (
    Chunk,
    Exchange,
    Message,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    ToolCall,
)
from oteval.replays.divergence import Divergence
from oteval.replays.http_answers import HttpRequest
from oteval.replays.player import Player
from oteval.replays.recording_files import save
from oteval.store import Store

from .agents import async_client

ASK = "http://models.example/v1/chat/completions"


def request(*messages: tuple[str, str], **fields: Any) -> HttpRequest:
    """Return a request for a chat completion."""
    plain_messages = [{"role": role, "content": content} for role, content in messages]
    body = {"model": "gpt-test", "messages": plain_messages, **fields}
    return HttpRequest("POST", ASK, {}, json.dumps(body).encode())


def rebuilt(*messages: tuple[str, str], answer: str = "Hello", **fields: Any) -> RecordedModelCall:
    """Return a model call as a trace contains it, without its exchange."""
    model_request = RecordedRequest(messages=tuple(Message(*message) for message in messages))
    return RecordedModelCall(model_request, Message("assistant", answer), **fields)


def recorded(*calls: RecordedModelCall, **fields: Any) -> Recording:
    """Return a recording that was rebuilt from a trace."""
    return Recording("session-1", "semconv", ("rebuilt",), (), calls, **fields)


def text_of(player: Player, http_request: HttpRequest) -> str:
    """Return the text of the answer to a request."""
    body = json.loads(player.answer(http_request).body)
    return body["choices"][0]["message"]["content"]


def test_a_trace_without_exchanges_is_replayed() -> None:
    """The answer is rebuilt; parts of the request that the trace lacks are not compared."""
    player = Player(recorded(rebuilt(("system", "Be kind."), ("user", "Hi"))))

    answer = text_of(player, request(("system", "Be kind."), ("user", "Hi"), temperature=0.5))

    result = player.finish()
    assert answer == "Hello"
    assert result.passed
    assert (result.fidelity, result.reasons) == ("semconv", ("rebuilt",))


def test_a_failed_call_of_a_trace_is_an_http_error() -> None:
    """The status comes from the error's text, and clients do not try again."""
    model_request = RecordedRequest(messages=(Message("user", "Hi"),))
    player = Player(recorded(RecordedModelCall(model_request, error="RateLimitError: slow down")))

    answer = player.answer(request(("user", "Hi")))

    assert answer.status == 429
    assert answer.headers["x-should-retry"] == "false"


def test_equal_requests_are_answered_in_order() -> None:
    """The same request gets the recorded answers one after the other."""
    player = Player(
        recorded(*(rebuilt(("user", "Roll"), answer=str(number)) for number in (4, 2, 6)))
    )

    assert [text_of(player, request(("user", "Roll"))) for _ in range(3)] == ["4", "2", "6"]


def test_the_intended_call_is_the_most_similar_one() -> None:
    """Of two agents' calls, a changed one is compared with its own recording."""
    player = Player(
        recorded(
            rebuilt(("system", "Plan."), ("user", "Go")),
            rebuilt(("system", "Write."), ("user", "Draft")),
        ),
        miss="ordinal",
    )

    player.answer(request(("system", "Write."), ("user", "Draft it")))

    (divergence,) = player.divergences
    assert (divergence.kind, divergence.call, divergence.message) == ("prompt", 2, 1)


def test_the_first_difference_is_the_only_one() -> None:
    """With strict misses, the replay stays at its first divergence."""
    player = Player(recorded(rebuilt(("user", "Hi")), rebuilt(("user", "Bye"))))

    for http_request in (
        request(("user", "Hi!")),
        request(("user", "Bye")),
        request(("user", "New")),
    ):
        with pytest.raises(ReplayDiverged, match="Hi!"):
            player.answer(http_request)

    assert [divergence.kind for divergence in player.finish().divergences] == ["prompt"]


def test_other_exchanges_are_replayed() -> None:
    """Requests besides model calls are matched by method, URL and body."""
    weather = Exchange(
        method="POST",
        url="https://weather.example/api?b=2&a=1",
        request_body=b'{"city": "Paris", "unit": "C"}',
        status=200,
        chunks=(Chunk(b"21 "), Chunk(b"degrees")),
    )
    with oteval.replay(recorded(exchanges=(weather,))) as replay, httpx.Client() as client:
        response = client.post(
            "https://weather.example/api?a=1&b=2", json={"unit": "C", "city": "Paris"}
        )

    assert response.text == "21 degrees"
    assert replay.result.served_exchanges == 1


def test_secrets_of_a_request_are_not_compared() -> None:
    """The recording has neither the key in the URL nor the password in the body."""
    url = "https://weather.example/api?api_key={}&city=Paris"
    exchange = Exchange(
        "POST",
        SecretRedactor().url(url.format("sk-live-0123456789abcdef")),
        request_body=SecretRedactor().body(b'{"password": "correct horse"}'),
        status=204,
    )
    assert "sk-live" not in exchange.url
    player = Player(recorded(exchanges=(exchange,)))

    http_request = HttpRequest(
        "POST", url.format("sk-test-fedcba9876543210"), {}, b'{"password": "battery staple"}'
    )

    assert player.answer(http_request).status == 204


def test_a_changed_body_of_another_exchange_is_shown() -> None:
    """The divergence has both bodies."""
    player = Player(
        recorded(exchanges=(Exchange("POST", "https://weather.example", request_body=b"Paris"),)),
        miss="error",
    )

    player.answer(HttpRequest("POST", "https://weather.example", {}, b"Rome"))

    (divergence,) = player.divergences
    assert (divergence.kind, divergence.recorded, divergence.actual) == (
        "extra_call",
        "Paris",
        "Rome",
    )


def test_calls_inside_an_answered_tool_are_not_missing() -> None:
    """A tool that asks a model is answered as a whole; the result says so."""
    tool = RecordedToolCall("research", {}, "found", start_ns=10, end_ns=50)
    inner = rebuilt(("user", "Search"), start_ns=20, end_ns=30)
    player = Player(recorded(inner, tool_calls=(tool,)))

    assert player.answer_tool("research", {}) == tool

    result = player.finish()
    assert result.passed
    assert "1 model call inside answered tools" in result.reasons[-1]


def test_an_agent_that_is_a_tool_is_run() -> None:
    """The model calls of the inner agent are replayed, so the tool itself must run."""
    tool = RecordedToolCall("research", {}, "found", start_ns=10, end_ns=50, runs_agent=True)
    player = Player(recorded(rebuilt(("user", "Search")), tool_calls=(tool,)))

    assert player.answer_tool("research", {}) is None
    assert text_of(player, request(("user", "Search"))) == "Hello"
    assert player.finish().passed


def test_a_tool_without_a_recorded_result_diverges() -> None:
    """An answer is never made up."""
    player = Player(recorded(tool_calls=(RecordedToolCall("lookup", {}),)))

    with pytest.raises(ReplayDiverged, match="does not contain the result"):
        player.answer_tool("lookup", {})


def test_an_intercepted_tool_that_is_not_called_is_missing() -> None:
    """A second execution of a tool that the replay intercepts must come."""
    calls = tuple(
        RecordedToolCall("lookup", {"n": n}, "x", start_ns=n * 10, end_ns=n * 10 + 5)
        for n in (1, 2)
    )
    player = Player(recorded(tool_calls=calls))
    player.answer_tool("lookup", {"n": 1})

    (divergence,) = player.finish().divergences

    assert (divergence.kind, divergence.recorded) == (
        "missing_call",
        {"name": "lookup", "arguments": {"n": 2}},
    )


@pytest.mark.parametrize(("asked", "is_noted"), [("one", False), ("two", True)])
def test_tools_that_were_not_intercepted_are_noted_if_their_turn_came(
    asked: str, is_noted: bool
) -> None:
    """A replay that diverges before the first tool says nothing about tools."""
    calls = tuple(
        rebuilt(("user", text), start_ns=start) for text, start in (("one", 10), ("two", 30))
    )
    tool = RecordedToolCall("lookup", {}, "x", start_ns=20, end_ns=25)
    player = Player(recorded(*calls, tool_calls=(tool,)))
    if asked == "two":
        player.answer(request(("user", "one")))

    with pytest.raises(ReplayDiverged):
        player.answer(request(("user", f"{asked}, changed")))

    reasons = player.finish().reasons
    assert any("no tool was intercepted" in reason for reason in reasons) == is_noted


def test_a_decorated_tool_that_is_not_called_is_missing() -> None:
    """A replay intercepts every decorated tool, so one that the agent has dropped must come."""
    times = {"start_ns": 10, "end_ns": 15}
    tools = (
        RecordedToolCall("audit", {}, "x", is_decorated=True, **times),
        RecordedToolCall("plain", {}, "x", **times),
    )

    (divergence,) = Player(recorded(tool_calls=tools)).finish().divergences
    served = Player(recorded(tool_calls=tools), in_process=False).finish()

    assert divergence.summary == "the agent did not call the tool audit"
    assert served.passed


@pytest.mark.parametrize(
    ("change", "allow", "is_missing"),
    [
        ({}, [], True),
        ({}, ["shop.example:443"], False),
        ({"method": "GET"}, [], False),
        ({"is_in_agent": False}, [], False),
    ],
)
def test_a_request_that_is_not_sent_is_missing(
    change: dict[str, Any], allow: list[str], is_missing: bool
) -> None:
    """A refund over HTTP that the agent no longer sends is a divergence; reading is not."""
    refund = Exchange(
        method="POST",
        url="https://shop.example/refunds",
        request_body=b'{"order": 17}',
        status=200,
        is_in_agent=True,
    )

    replay = oteval.replay(recorded(exchanges=(replace(refund, **change),)), allow=allow)
    with suppress(ReplayDiverged), replay:
        pass

    summaries = [divergence.summary for divergence in replay.divergences]
    assert summaries == ["the agent did not send POST https://shop.example/refunds"] * is_missing


def test_defaults_of_a_tool_are_not_a_difference() -> None:
    """The model did not ask for the arguments that the tool's own code adds."""
    player = Player(recorded(tool_calls=(RecordedToolCall("search", {"q": "x"}, "found"),)))

    answer = player.answer_tool("search", {"q": "x", "limit": 10})

    assert answer is not None
    assert answer.result == "found"


def test_calls_of_different_messages_have_no_order() -> None:
    """Tools of two agents ran at different times by chance."""
    calls = [
        rebuilt(("user", name), start_ns=1, end_ns=2) for name in ("first agent", "second agent")
    ]
    tool_calls = [
        RecordedModelCall(
            call.request, Message("assistant", None, (ToolCall("go", {"n": n}, f"call_{n}"),))
        )
        for n, call in enumerate(calls)
    ]
    tools = tuple(
        RecordedToolCall("go", {"n": n}, "x", call_id=f"call_{n}", start_ns=n + 1, end_ns=n + 2)
        for n in range(2)
    )
    player = Player(recorded(*tool_calls, tool_calls=tools))

    assert player.answer_tool("go", {"n": 1})
    assert player.answer_tool("go", {"n": 0})
    assert not player.divergences


async def asks_in_a_library_task() -> None:
    """Let asyncio run a coroutine of the client as a task."""
    messages: list[Any] = [{"role": "user", "content": "Hello"}]
    async with async_client("http://models.example/v1") as model:
        await asyncio.gather(model.chat.completions.create(model="gpt-test", messages=messages))


async def test_the_line_of_a_request_in_a_task_of_a_library() -> None:
    """The task that waits for a gathered request is found."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recorded(rebuilt(("user", "Hi")))):
        await asks_in_a_library_task()

    line = caught.value.divergence.line
    assert "test_player.py:" in line
    assert line.endswith("in asks_in_a_library_task")


def test_a_divergence_can_be_sent_to_another_process() -> None:
    """Processes that verify sessions report their divergences."""
    divergence = Divergence("prompt", "it differs", recorded=Message("user", "a"), actual="b")
    error = ReplayDiverged(divergence.text(), divergence)

    copy = pickle.loads(pickle.dumps(error))

    assert (str(copy), copy.divergence) == (str(error), divergence)
    assert json.loads(json.dumps(divergence.as_dict()))["recorded"]["content"] == "a"


def test_long_texts_are_shown_around_their_first_difference() -> None:
    """Both texts are cut, and the difference is visible."""
    same = "word " * 100
    text = Divergence("prompt", "it differs", recorded=f"{same}old", actual=f"{same}new").text()

    assert "old" in text
    assert "new" in text
    assert len(text) < 400


def test_a_saved_recording_is_replayed(tmp_path: Path) -> None:
    """A file needs no database."""
    save(recorded(rebuilt(("user", "Hi"))), tmp_path / "session.jsonl")

    with oteval.replay(recording=tmp_path / "session.jsonl") as replay:
        assert text_of(replay.player, request(("user", "Hi"))) == "Hello"


def test_an_unknown_session_is_not_found(store: Store) -> None:
    """The message names the session."""
    with pytest.raises(NotFound, match="4f2a"):
        oteval.replay("4f2a", store=store)


@pytest.mark.parametrize(
    "options", [{"miss": "other"}, {"tools": "none"}, {"normalize": ["("]}, {"timing": "slow"}]
)
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    """The message names the option."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        oteval.replay(recorded(), **options)
