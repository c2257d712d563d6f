"""Replays with a live model, in this process: streams, continued responses, sub-agents, network."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from oteval.model import Recording
from oteval.replays.agent_threads import AgentThreads, rerun_trajectory, threads_of
from oteval.replays.what_if_session import WhatIfOptions, WhatIfSession

from ..model_server import Body, Reply, Script, completion, serving, streamed
from .agents import client, refund_agent, refunds
from .recorded import record


def repeat(
    recording: Recording, agent: Callable[[str], Any], script: Script, **options: Any
) -> tuple[WhatIfSession, list[Body]]:
    """Run an agent with a live model, and return the session and the requests."""
    session = WhatIfSession(recording, WhatIfOptions(**options))
    with serving(script) as server, session:
        agent(server.url)
    return session, server.requests


def streaming(url: str) -> str:
    """Ask for a stream and return its text."""
    with client(url) as model:
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        stream = model.chat.completions.create(model="old", messages=messages, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_streams_reach_the_agent_and_the_new_recording() -> None:
    """The edited request is sent; the answer is put together from its chunks."""
    recording = record(streaming, lambda _body, _number: streamed("Hello there."))
    heard: list[str] = []

    session, requests = repeat(
        *(recording, lambda url: heard.append(streaming(url))),
        lambda _body, _number: streamed("Good evening."),
        model="new",
    )

    (call,) = session.player.new_recording.model_calls
    assert heard == ["Good evening."]
    assert call.answer is not None
    assert call.answer.content == "Good evening."
    assert (call.usage.input_tokens, call.usage.output_tokens) == (50, 5)
    assert requests[0]["model"] == "new"


def response(body: Body, number: int) -> Reply:
    """Script of the Responses API: each answer names its question."""
    text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
    item = {"type": "message", "id": f"m{number}", "role": "assistant", "content": [text]}
    item["status"] = "completed"
    head = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": body["model"]}
    return Reply({**head, "status": "completed", "output": [item]})


def continuing(url: str) -> None:
    """Ask twice; the provider keeps the history."""
    ask = {"model": "old", "instructions": "Be kind.", "input": "One"}
    with httpx2.Client(verify=False) as http:
        first = http.post(f"{url}/responses", json=ask).json()
        more = {"model": "old", "previous_response_id": first["id"], "input": "Two"}
        http.post(f"{url}/responses", json=more).raise_for_status()


def test_continued_responses_are_one_conversation() -> None:
    """The second request has no prompt, and names the live answer before it."""
    recording = replace(record(continuing, response), inputs=("One", "Two"))

    session, requests = repeat(recording, continuing, response, prompt="Be brief.")

    calls = session.player.new_recording.model_calls
    threads = AgentThreads(recording, "Be brief.").divide(calls)
    messages = rerun_trajectory("s", threads).messages
    assert [message.content for message in messages] == [
        "Be brief.",
        "One",
        "answer 1",
        "Two",
        "answer 2",
    ]
    assert [body.get("instructions") for body in requests] == ["Be brief.", None]


def test_only_the_model_is_reachable() -> None:
    """Another address is refused and counted, also for clients that are not intercepted."""
    recording = record(streaming, lambda _body, _number: streamed("Hello."))

    def curious(url: str) -> None:
        import socket

        streaming(url)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 9))

    session, _ = repeat(recording, curious, lambda _body, _number: streamed("Hello."))

    assert session.player.coverage.blocked == ("the agent tried to connect to 127.0.0.1:9",)


def test_tools_that_the_user_lets_run_are_counted() -> None:
    """They ran; the coverage says so."""
    recording = record(refund_agent, refunds)

    session, _ = repeat(recording, refund_agent, refunds, run_tools=("lookup", "refund"))

    assert session.player.coverage.ran == 2
    assert session.player.coverage.text == "2 ran"


def test_a_guardrail_before_the_agent_is_not_the_lead_agent() -> None:
    """The lead agent has the most requests; dates in its prompt do not matter."""

    def team(day: str) -> Callable[[str], None]:
        def run(url: str) -> None:
            def ask(prompt: str, *more: Any) -> Any:
                head = [{"role": "system", "content": prompt}, {"role": "user", "content": "Hi"}]
                with client(url) as model:
                    done = model.chat.completions.create(model="m", messages=[*head, *more])
                    return done.choices[0].message.to_dict()

            ask("Is this safe?")
            first = ask(f"Today is {day}.")
            ask(f"Today is {day}.", first, {"role": "user", "content": "And?"})

        return run

    def script(body: Body, number: int) -> Reply:
        return completion(f"{len(body['messages'])} {number}")

    recording = replace(record(team("2026-11-01"), script), inputs=("Hi", "And?"))

    _, requests = repeat(recording, team("2026-11-22"), script, prompt="New")

    prompts = [body["messages"][0]["content"] for body in requests]
    assert prompts == ["Is this safe?", "New", "New"]
    assert [len(thread) for thread in threads_of(recording)] == [2, 1]
    assert json.dumps(requests[2]["messages"]).count("And?") == 1
