"""Agents that call the model by requests: recorded once, and replayed without a server."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.model import Chunk, Recording

from ..model_server import Body, Reply, completion, error, serving, streamed
from ..record.wire.recordings import recording
from ..record.wire.web_server import Answer, answering
from .agents import client
from .recorded import record, recording_of

URL = "http://127.0.0.1:65535/v1"  # nobody answers there; the port may differ
SYSTEM = "You are a refund agent."


def answer(body: Body, number: int) -> Reply:
    """Script: repeat the last message."""
    return completion(f"{body['messages'][-1]['content']}: answer {number}")


def messages(question: str, system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def chat(url: str, question: str = "Refund 17", system: str = SYSTEM) -> str:
    """Ask the model once."""
    response = requests.post(
        f"{url}/chat/completions",
        json={"model": "m", "messages": messages(question, system)},
        headers={"Authorization": "Bearer k"},
        timeout=30,
    )
    response.raise_for_status()
    return str(response.json()["choices"][0]["message"]["content"])


def chat_by_file(url: str) -> str:
    """Ask the model with a body that is read from a file."""
    body = json.dumps({"model": "m", "messages": messages("Refund 17", SYSTEM)}).encode()
    response = requests.post(f"{url}/chat/completions", data=io.BytesIO(body), timeout=30)
    return str(response.json()["choices"][0]["message"]["content"])


def stream_chat(url: str) -> list[str]:
    """Ask the model once, and return the pieces of its answer."""
    body = {"model": "m", "messages": messages("Refund 17", SYSTEM), "stream": True}
    with requests.post(f"{url}/chat/completions", json=body, stream=True, timeout=30) as response:
        response.raise_for_status()
        events = [line[6:] for line in response.iter_lines() if line.startswith(b"data: ")]
    texts = [json.loads(event)["choices"] for event in events if event != b"[DONE]"]
    return [text[0]["delta"].get("content", "") for text in texts if text]


def parallel_chats(url: str) -> list[str]:
    """Ask the model in threads."""
    with ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(lambda number: chat(url, f"Refund {number}"), range(8)))


def recorded(agent: Callable[[str], Any], script: Any = answer) -> tuple[Recording, Any]:
    """Return the recording of an agent as `oteval.instrument` makes it, and its result."""
    with serving(script) as server, recording() as recorder:
        result = agent(server.url)
        return recording_of(recorder.exchanges()), result


@pytest.mark.parametrize(
    ("agent", "script"),
    [
        (chat, answer),
        (chat_by_file, answer),
        (stream_chat, lambda *_: streamed("Hello there, friend")),
        (parallel_chats, lambda body, _number: completion(body["messages"][-1]["content"])),
    ],
)
def test_a_replay_needs_no_server(agent: Any, script: Any) -> None:
    """The agent gets what it got: answers, the pieces of streams, and in threads."""
    recording, result = recorded(agent, script)

    with oteval.replay(recording) as replay:
        assert agent(URL) == result

    assert replay.result.passed
    assert (replay.result.served, replay.result.coverage) == (len(recording.model_calls), 1)
    assert replay.result.fidelity == "wire"


def test_an_edited_prompt_is_the_only_divergence() -> None:
    """It names the message and the line of the agent's code."""
    recording, _ = recorded(chat)

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recording) as replay:
        chat(URL, system="You are a refund clerk.")

    (divergence,) = replay.result.divergences
    assert caught.value.divergence is divergence
    assert (divergence.kind, divergence.call, divergence.message) == ("prompt", 1, 0)
    assert "test_requests.py:" in divergence.line
    assert divergence.line.endswith(" in chat")


def test_errors_of_the_model_are_replayed() -> None:
    """The agent's own retry sees the status, and then the answer."""

    def agent(url: str) -> str:
        for _ in range(3):
            try:
                return chat(url)
            except requests.HTTPError as failed:
                refused = failed.response
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "0")
        raise AssertionError

    def script(_body: Body, number: int) -> Reply:
        return completion("Done.") if number == 3 else error(429, "Slow down", retry_after="0")

    recording, result = recorded(agent, script)

    with oteval.replay(recording) as replay:
        assert agent(URL) == result == "Done."
    assert replay.result.served == 3


def test_a_response_that_breaks_off_breaks_off_again() -> None:
    """The agent gets the recorded part, and the exception of its library."""

    def agent(url: str) -> list[bytes]:
        body = {"model": "m", "messages": messages("Refund 17", SYSTEM), "stream": True}
        pieces: list[bytes] = []
        with (
            requests.post(f"{url}/chat/completions", json=body, stream=True) as response,
            pytest.raises(requests.exceptions.ChunkedEncodingError),
        ):
            pieces.extend(iter(response.iter_lines()))
        return [line for line in pieces if line]

    events = [b"data: %s\n\n" % json.dumps(event).encode() for event in streamed("Hello").chunks]
    cut = Answer(events[:2], headers={"Content-Type": "text/event-stream"}, is_cut=True)
    with answering(lambda _request: cut) as web, recording() as recorder:
        result = agent(web.url)
        (exchange,) = recorder.exchanges()
    assert (len(result), exchange.is_complete) == (2, False)

    with oteval.replay(recording_of([exchange])):
        assert agent(web.url) == result


def test_a_refused_connection_is_refused_again() -> None:
    """An error of the connection is recorded by its name, and raised as the same exception."""

    def agent(url: str) -> None:
        with pytest.raises(requests.ConnectionError, match="Max retries exceeded"):
            chat(url)

    with recording() as recorder:
        agent("http://127.0.0.1:1/v1")
    attempts = recording_of(recorder.exchanges())

    with oteval.replay(attempts) as replay:
        agent("http://127.0.0.1:1/v1")
    assert replay.result.served == 1


def test_recordings_serve_other_clients() -> None:
    """A session recorded by requests is replayed to the openai client, and the reverse."""

    def by_openai(url: str) -> str | None:
        with client(url) as model:
            request_messages: Any = messages("Refund 17", SYSTEM)
            done = model.chat.completions.create(model="m", messages=request_messages)
            return done.choices[0].message.content

    recording, result = recorded(chat)
    # Clients have their own default of this header.
    with oteval.replay(recording, normalize=["accept: .*"]):
        assert by_openai(URL) == result
    with oteval.replay(record(by_openai, answer)):
        assert chat(URL) == result
    # Another recorder than oteval's own, which reads each response before the agent does.
    with oteval.replay(record(chat, answer)):
        assert by_openai(URL) == result


def test_the_recorded_pace_is_kept_on_request() -> None:
    """With ``timing="recorded"`` the chunks of a stream arrive at their recorded times."""
    recording, result = recorded(stream_chat, lambda *_: streamed("Hello there, friend"))
    exchange = recording.model_calls[0].exchange
    assert exchange is not None
    slow = [Chunk(chunk.data, index * 20_000_000) for index, chunk in enumerate(exchange.chunks)]
    object.__setattr__(exchange, "chunks", tuple(slow))

    with oteval.replay(recording, timing="recorded"):
        began = time.monotonic()
        assert stream_chat(URL) == result
    assert time.monotonic() - began >= (len(slow) - 1) * 0.02


@pytest.mark.parametrize("make_body", [lambda: b"same", lambda: iter([b"sa", b"me"])])
def test_requests_to_allowed_addresses_are_sent(make_body: Callable[[], Any]) -> None:
    """What is not recorded reaches an allowed address, also if its body is generated."""
    body = make_body()
    with (
        answering(lambda request: Answer([request.body])) as web,
        oteval.replay(
            Recording("session-1", "wire"), allow=[web.url.removeprefix("http://")]
        ) as replay,
    ):
        sent = requests.post(f"{web.url}/other", data=body)

    assert (sent.status_code, sent.text) == (200, "same")
    assert sent.request.headers.get("Content-Length") == web.arrived[0].headers.get(
        "content-length"
    )
    assert replay.result.passed


def test_requests_that_are_not_recorded_are_refused() -> None:
    """Another address is a divergence that names the line of the agent's code."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(Recording("session-1", "wire")):
        requests.get("https://api.example.com/orders")

    assert "GET https://api.example.com/orders" in str(caught.value)
    assert "test_requests.py:" in caught.value.divergence.line
