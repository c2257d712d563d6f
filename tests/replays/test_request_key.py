"""Requests are equal if they mean the same to the model; differences name the part that differs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.base.patterns import Pattern
from oteval.model import Message, ToolCall
from oteval.model.recording import RecordedRequest
from oteval.reconstruct.apis.chat_completions import ChatCompletions
from oteval.replays.request_key import RequestKey, difference, key_of
from oteval.replays.text_comparison import suggest_normalization

API = ChatCompletions()


def call(name: str, call_id: str, arguments: str = "{}") -> dict[str, Any]:
    """Return a call of a tool as chat completions has it."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(call_id: str, content: Any) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    """Return the definition of a tool."""
    schema = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Weather in Bern and Basel?"}
CALLS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call("weather", "a", '{"city": "Bern"}'), call("time", "b")],
}
RESULTS = (result("a", '{"degrees": 21.0}'), result("b", "noon"))


def key(*messages: Any, **fields: Any) -> RequestKey:
    """Return the key of a request."""
    body = {"model": "gpt-5", "messages": list(messages), **fields}
    return key_of(API.parse_request(json.dumps(body).encode()))


def partial(*messages: Message, **fields: Any) -> RequestKey:
    """Return the key of a request as a trace has it."""
    return key_of(RecordedRequest(**{"model": "gpt-5", "messages": messages, **fields}))


WHOLE = key(SYSTEM, USER, CALLS, *RESULTS, temperature=0.5, tools=[tool("weather"), tool("time")])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(
            key(
                {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
                USER,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call("weather", "x9", '{"city":"Bern"}'), call("time", "y9")],
                },
                result("y9", "noon"),
                result("x9", '{"degrees":21}'),
                temperature=0.5,
                tools=[tool("weather"), tool("time")],
            ),
            id="ids, order of results, JSON, developer, list of one text",
        ),
    ],
)
def test_equal_requests_have_equal_keys(other: RequestKey) -> None:
    """Ids and the formatting of JSON do not count."""
    assert other == WHOLE
    assert hash(other) == hash(WHOLE)
    assert difference(WHOLE, other) is None
    assert [order.numbers for order in WHOLE.result_orders] == [(1, 2)]
    assert [order.numbers for order in other.result_orders] == [(2, 1)]
    assert other.result_orders[0].names == ("time", "weather")


def test_ids_that_are_used_again_are_other_calls() -> None:
    """Some servers number the calls of each message from 0."""
    messages = [USER]
    for _ in range(2):
        messages += [{"role": "assistant", "tool_calls": [call("f", "0")]}, result("0", "x")]
    renumbered = json.loads(json.dumps(messages))
    renumbered[3]["tool_calls"][0]["id"] = renumbered[4]["tool_call_id"] = "call_1"
    assert key(*messages) == key(*renumbered)


TOOLS = [tool("weather"), tool("time")]


@pytest.mark.parametrize(
    ("changes", "kind", "summary"),
    [
        ({0: {"role": "system", "content": "Be long."}}, "prompt", "message 0 (system): the text"),
        (
            {1: {"role": "user", "content": "Weather in Bern?"}},
            "prompt",
            "message 1 (user): the text",
        ),
        ({3: result("a", '{"degrees": 22}')}, "tool_result", "the result of tool 'weather'"),
        ({4: result("b", "midnight")}, "tool_result", "the result of tool 'time'"),
        (
            {2: {**CALLS, "tool_calls": [call("weather", "a"), call("time", "b")]}},
            "tool_call",
            "message 2 (assistant): the tool calls",
        ),
        ({1: USER, 2: USER}, "prompt", "message 2 (user) is recorded as assistant"),
    ],
)
def test_a_changed_message_is_named(changes: dict[int, Any], kind: str, summary: str) -> None:
    """The kind says what was changed, and the summary where."""
    messages = [SYSTEM, USER, CALLS, *RESULTS]
    for index, message in changes.items():
        messages[index] = message
    divergence = difference(WHOLE, key(*messages, temperature=0.5, tools=TOOLS))
    assert divergence is not None
    assert divergence.kind == kind
    assert divergence.summary.startswith(summary)
    assert divergence.recorded != divergence.actual


@pytest.mark.parametrize(
    ("fields", "kind", "summary"),
    [
        ({"tools": TOOLS[:1]}, "tool_schema", "tool 'time' is not offered"),
        ({"tools": [*TOOLS, tool("x")]}, "tool_schema", "tool 'x' is not recorded"),
        (
            {"tools": [tool("weather", city={"type": "string"}), TOOLS[1]]},
            "tool_schema",
            "the definition of tool 'weather' differs",
        ),
        (
            {
                "tools": [
                    {**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}},
                    TOOLS[1],
                ]
            },
            "tool_schema",
            "the definition of tool 'weather' differs",
        ),
        (
            {"tools": TOOLS[::-1]},
            "tool_schema",
            "the order of the tool definitions differs",
        ),
        *(
            ({name: value}, "settings", f"{name} is ")
            for name, value in {
                "metadata": {"team": "red"},
                "prompt_cache_key": "shop",
                "service_tier": "flex",
                "store": True,
                "stream": True,
                "user": "ann",
            }.items()
        ),
        ({"model": "gpt-5-mini"}, "model", "the model is 'gpt-5-mini' instead of 'gpt-5'"),
        ({"temperature": 1}, "settings", "temperature is 1 instead of 0.5"),
        ({"temperature": None}, "settings", "temperature is not set"),
        (
            {"response_format": {"type": "json_object"}},
            "settings",
            "response_format is",
        ),
    ],
)
def test_other_parts_of_a_request(fields: dict[str, Any], kind: str, summary: str) -> None:
    """Tools, model, settings and format are compared after the messages."""
    changed = {"temperature": 0.5, "tools": TOOLS, **fields}
    divergence = difference(WHOLE, key(SYSTEM, USER, CALLS, *RESULTS, **changed))
    assert divergence.kind == kind
    assert divergence.summary.startswith(summary)


def test_missing_and_additional_messages() -> None:
    """A message too few or too many is the difference, not the message that takes its place."""
    recorded = key(SYSTEM, USER)
    missing = difference(recorded, key(USER))
    additional = difference(recorded, key(SYSTEM, {"role": "user", "content": "Hi"}, USER))
    last = difference(recorded, key(SYSTEM, USER, {"role": "user", "content": "Hurry!"}))
    assert (missing.summary, missing.actual) == ("message 0 (system) is missing", None)
    assert last.summary == "message 2 (user) is additional"
    assert last.actual.content == "Hurry!"
    assert additional.summary == "message 1 (user) is additional"
    assert additional.actual.content == "Hi"


def test_a_partial_request_compares_what_the_trace_has() -> None:
    """Without settings, schemas, system prompt and ids in the trace, none of them differ."""
    messages = (
        Message("user", " Weather in Bern and Basel?\n"),
        Message(
            "assistant", tool_calls=(ToolCall("weather", {"city": "Bern"}), ToolCall("time", None))
        ),
        Message("tool", '{"degrees":21}', name="weather"),
        Message("tool", "noon", name="time"),
    )
    assert difference(partial(*messages, tools=({"name": "weather"}, {"name": "time"})), WHOLE) is (
        None
    )
    assert difference(partial(), WHOLE) is None
    assert difference(partial(model="openai/gpt-5-2026-01-01"), WHOLE) is None
    changed = difference(partial(Message("user", "Weather in Chur?"), *messages[1:]), WHOLE)
    assert changed is not None
    assert (changed.kind, changed.message) == ("prompt", 1)
    hotter = difference(partial(*messages, settings={"temperature": 1.0}), WHOLE)
    assert hotter is not None
    assert hotter.kind == "settings"


def test_several_system_messages_equal_one_in_a_partial_request() -> None:
    """Traces join instructions that a request has separately."""
    recorded = partial(Message("system", "One.\nTwo."), Message("user", "Hi"))
    actual = key(
        {"role": "system", "content": "One."},
        {"role": "developer", "content": "Two."},
        {"role": "user", "content": "Hi"},
    )
    assert difference(recorded, actual) is None


def test_redacted_text_equals_any_text() -> None:
    """A recording holds no secrets; the agent still sends them."""
    recorded = key({"role": "user", "content": "The key is [redacted], the door [redacted]."})
    assert difference(recorded, key({"role": "user", "content": "The key is X, the door 5."})) is (
        None
    )
    assert difference(recorded, key({"role": "user", "content": "The key is X."})) is not None
    secret = [USER, {**CALLS, "tool_calls": [call("f", "a", '{"pin": "[redacted]", "x": 1}')]}]
    sent = [USER, {**CALLS, "tool_calls": [call("f", "a", '{"pin": 1234, "x": 1}')]}]
    changed = [USER, {**CALLS, "tool_calls": [call("f", "a", '{"pin": 1234, "x": 2}')]}]
    assert difference(key(*secret, stop="[redacted]"), key(*sent, stop="k-1")) is None
    assert difference(key(*secret), key(*changed)) is not None


def test_patterns_hide_variable_parts() -> None:
    """Both sides are compared without the parts that match; a difference suggests the pattern."""
    first, second = (
        RecordedRequest(api="x", messages=(Message("system", f"Today is {day}."),))
        for day in ("2026-11-21", "2026-11-22")
    )
    divergence = difference(key_of(first), key_of(second))
    assert divergence is not None
    pattern = r"\d{4}-\d{2}-\d{2}"
    assert divergence.suggestion == f"--normalize '{pattern}' allows this difference"
    assert key_of(first, [Pattern(pattern)]) == key_of(second, [Pattern(pattern)])


@pytest.mark.parametrize(
    ("recorded", "actual", "expected"),
    [
        ("at 10:31", "at 9:05", r"\d{1,2}:\d{2}"),
        ("on Monday", "on Sunday", "(?:Mon|"),
        ("2026-01-01T10:00:00Z", "2026-01-02T11:30:00.5Z", r"\d{4}-\d{2}-\d{2}[T ]"),
        ("order 12", "order 1345", r"\d+(?:\.\d+)?"),
        (
            "run 1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
            "run " + "0" * 8 + "-0000" * 3 + "-" + "1" * 12,
            "[0-9a-fA-F]{8}-",
        ),
        ("id 3f2a9c1e77", "id 99aa88bb77", r"\b[0-9a-f]{8,64}\b"),
        ("user_8sdfSDF8", "user_0aaaBBB1", r"\b[A-Za-z]{1,16}"),
        ("on Monday for order 5", "on Sunday for order 6", "day|"),
        ("a word", "another word", ""),
        ("same 5", "same 5", ""),
    ],
)
def test_suggestions(recorded: str, actual: str, expected: str) -> None:
    """The narrowest pattern that makes the texts equal is suggested, or none."""
    suggested = suggest_normalization(recorded, actual)
    assert expected in suggested if expected else not suggested
    if suggested:
        pattern = Pattern(suggested)
        assert pattern.replace(recorded, "") == pattern.replace(actual, "")


def test_a_request_that_continues_a_stored_one_compares_its_new_messages() -> None:
    """A trace has the whole history, while the request has an id instead of it."""
    history = (
        Message("system", "Be brief."),
        Message("user", "Weather?"),
        Message("assistant", tool_calls=(ToolCall("weather", {}, "a"),)),
        Message("tool", "sunny", tool_call_id="a"),
    )
    settings = {"previous_response_id": "resp_1"}
    new = RecordedRequest("responses", "gpt-5", history[3:], settings=settings)
    assert difference(partial(*history), key_of(new)) is None
    changed = RecordedRequest(
        "responses", "gpt-5", (Message("tool", "rain", tool_call_id="a"),), settings=settings
    )
    divergence = difference(partial(*history), key_of(changed))
    assert divergence is not None
    assert (divergence.kind, divergence.recorded, divergence.actual) == (
        "tool_result",
        "sunny",
        "rain",
    )
