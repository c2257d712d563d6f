"""Messages in the attributes and events from before the current conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Event

from .builders import brief, codes, only, said, span, user

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "hello"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.prompt": [HI], "gen_ai.completion": "hello", "gen_ai.system": "openai"},
        {
            "gen_ai.prompt": json.dumps([HI]),
            "gen_ai.completion": json.dumps([HELLO]),
            "gen_ai.system": "openai",
        },
        {
            **CHAT,
            "gen_ai.prompt": json.dumps({"messages": [HI]}),
            "gen_ai.completion": json.dumps({"completion": "hello"}),
        },
        {
            **CHAT,
            "gen_ai.prompt": json.dumps({"messages": [HI]}),
            "gen_ai.completion": json.dumps({"choices": [{"message": HELLO}]}),
        },
        {**CHAT, "gen_ai.content.prompt": "hi", "gen_ai.content.completion": "hello"},
        {
            "gen_ai.system": "openai",
            "gen_ai.request.model": "m",
            "gen_ai.content.prompt": "hi",
            "gen_ai.content.completion": "hello",
        },
        {
            **CHAT,
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "hi",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "hello",
        },
        {**CHAT, "gen_ai.prompt.0.content": "hi", "gen_ai.completion.0.content": "hello"},
    ],
    ids=[
        "a list, without an operation",
        "JSON, without an operation",
        "a request and a completion",
        "a request and a response",
        "named like the events",
        "named like the events, without an operation",
        "indices beside an operation",
        "indices without roles",
    ],
)
def test_a_prompt_and_a_completion(attributes: dict[str, Any]):
    """Gateways and SDKs write them in several forms; each is read, and none leaves a gap."""
    run = only(span("c", attributes=attributes))

    assert brief(run.messages) == [("user", "hi"), ("assistant", "hello")]
    assert codes(run) == []


def test_events_that_are_named_like_the_attributes():
    """Microsoft Foundry's client writes one for each message, with the operation "responses"."""
    events = tuple(
        Event(name, attributes={"gen_ai.event.content": json.dumps([message])})
        for name, message in (
            ("gen_ai.input.messages", user("hi")),
            ("gen_ai.input.messages", user("there")),
            ("gen_ai.output.messages", said("hello")),
        )
    )
    attributes = {**CHAT, "gen_ai.operation.name": "responses", "gen_ai.provider.name": "azure"}
    run = only(span("c", attributes=attributes, events=events))

    assert brief(run.messages) == [("user", "hi"), ("user", "there"), ("assistant", "hello")]
    assert codes(run) == []


@pytest.mark.parametrize("name", ["process_thread_run", "list_messages", "a_new_one"])
def test_messages_of_an_operation_that_nobody_knows_are_a_gap(name: str):
    """The trace is kept, with a gap: its messages are not read."""
    events = (
        Event("gen_ai.user.message", attributes={"gen_ai.event.content": '{"content": "hi"}'}),
    )
    attributes = {"gen_ai.operation.name": name, "gen_ai.system": "az.ai.agents"}

    assert codes(only(span("c", attributes=attributes, events=events))) == ["unknown_dialect"]


def test_a_value_that_holds_no_messages_is_named():
    """It is not said that nothing was captured."""
    attributes = {**CHAT, "gen_ai.prompt": '{"x": 1}', "gen_ai.completion": '{"y": 2}'}
    run = only(span("c", attributes=attributes))

    assert codes(run) == ["content_unreadable"]
