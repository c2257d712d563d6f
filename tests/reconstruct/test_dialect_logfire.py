"""Logfire: spans by hand, as its instrumentations of clients and of the Agents SDK write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span

from .builders import brief, codes, only, span

SYSTEM = {"role": "system", "content": "s"}
USER = {"role": "user", "content": "q"}


def made(name: str, start: int, scope: str, template: str, **fields: Any) -> Span:
    """Return a span of Logfire's; values that are not text become JSON."""
    given = {
        "gen_ai.system": "openai",
        "logfire.msg_template": template,
        **fields.pop("values", {}),
    }
    attributes = {k: v if isinstance(v, str) else json.dumps(v) for k, v in given.items()}
    return span(name, start, scope=scope, attributes=attributes, **fields)


def in_agent(span_id: str, start: int, template: str, /, **values: Any) -> Span:
    error = values.pop("error", None)
    status = {} if error is None else {"status_code": 2, "status_message": "failed"}
    if error is not None:
        values["error"] = error
    return made(
        span_id, start, "logfire.openai_agents", template, parent="a", values=values, **status
    )


def run(*inside: Span) -> list[Span]:
    values = {"name": "desk", "tools": ["look"]}
    scope = "logfire.openai_agents"
    return [made("a", 1, scope, "Agent run: {name!r}", values=values, end=99), *inside]


CALLS = [
    {"id": f"k{x}", "type": "function", "function": {"name": "look", "arguments": f'{{"x": {x}}}'}}
    for x in (1, 2)
]
RESULTS = [{"role": "tool", "tool_call_id": f"k{x}", "content": f"r{x}"} for x in (1, 2)]
ASKED = {"role": "assistant", "content": None, "tool_calls": CALLS}
TOLD = [
    ("system", "s"),
    ("user", "q"),
    ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
    ("tool", "r1"),
    ("tool", "r2"),
    ("assistant", "a"),
]


def test_agents_over_chat_completions():
    """Input and output are the messages of the API; `request_data` repeats both."""
    chat = "Chat completion with {gen_ai.request.model!r}"
    found = only(
        *run(
            in_agent(
                "c",
                2,
                chat,
                input=[SYSTEM, USER],
                output=[ASKED],
                request_data={"messages": [SYSTEM, USER, ASKED]},
            ),
            in_agent("t", 4, "Function: {name}", name="look", input={"x": 1}, output="r1"),
            in_agent("u", 5, "Function: {name}", name="look", input={"x": 2}, output="r2"),
            in_agent(
                "d",
                7,
                chat,
                input=[SYSTEM, USER, ASKED, *RESULTS],
                output=[{"role": "assistant", "content": "a"}],
            ),
        )
    )

    assert brief(found.messages) == TOLD
    assert (found.agent, found.gaps, found.dialects) == ("desk", (), ("logfire",))
    assert found.tools == ({"type": "function", "name": "look"},)


@pytest.mark.parametrize("wrap", [dict, lambda answer: [answer]])
def test_agents_over_the_responses_api(wrap: Any):
    """The raw input and response count; a streamed answer is a list with the whole response."""
    items = [
        {
            "type": "function_call",
            "call_id": f"k{x}",
            "id": f"fc{x}",
            "name": "look",
            "arguments": f'{{"x": {x}}}',
        }
        for x in (1, 2)
    ]
    outputs = [
        {"type": "function_call_output", "call_id": f"k{x}", "output": f"r{x}"} for x in (1, 2)
    ]
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "a"}],
    }

    def response(*output: Any) -> Any:
        return wrap({"object": "response", "instructions": "s", "output": list(output)})

    api = "Responses API with {gen_ai.request.model!r}"
    found = only(
        *run(
            in_agent("c", 2, api, raw_input=[USER], response=response(*items)),
            in_agent("d", 7, api, raw_input=[USER, *items, *outputs], response=response(message)),
        )
    )

    said = [message for message in brief(found.messages) if message[0] != "system"]
    assert said == TOLD[1:]
    assert "content_not_captured" not in codes(found)


def test_a_failed_tool_is_an_error():
    """The span's status and its field `error` say so."""
    found = only(
        *run(in_agent("t", 4, "Function: {name}", name="look", input={}, output="sorry", error={}))
    )

    assert (found.messages[-1].content, found.messages[-1].is_error) == ("sorry", True)


def test_sensitive_data_off_is_a_gap():
    """Without content, the model call counts and says what is missing."""
    found = only(*run(in_agent("c", 2, "Responses API")))

    assert codes(found) == ["content_not_captured"]


def test_clients_before_the_current_conventions():
    """Request and answer are `request_data` and `response_data`, or a list of events."""
    data = made(
        "c",
        1,
        "logfire.openai",
        "Chat Completion",
        values={
            "request_data": {"messages": [SYSTEM, USER], "model": "m"},
            "response_data": {"message": ASKED, "usage": {"prompt_tokens": 5}},
        },
    )
    found = only(data)

    assert brief(found.messages)[:3] == TOLD[:3]
    assert found.usage.input_tokens == 5


def test_the_last_event_of_the_assistant_is_the_answer():
    """The Responses API's events name no choice."""
    events = [
        {"event.name": "gen_ai.user.message", **USER},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "tool_calls": CALLS[:1]},
        {"event.name": "gen_ai.tool.message", "id": "k1", "content": "r1"},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "a"},
    ]
    found = only(made("c", 1, "logfire.openai", "Responses API", values={"events": events}))

    assert brief(found.messages)[-1] == ("assistant", "a")
    assert found.gaps == ()


def test_anthropics_arguments_are_unwrapped():
    """The instrumentation writes a call's arguments as the one field `input`."""
    call = {"id": "k", "function": {"name": "look", "arguments": '{"input": {"x": 1}}'}}
    values = {
        "request_data": {"messages": [USER], "system": "s"},
        "response_data": {"message": {"role": "assistant", "tool_calls": [call]}},
    }
    found = only(made("c", 1, "logfire.anthropic", "Message", values=values))

    assert brief(found.messages)[-1] == ("assistant", [("look", {"x": 1})])


def test_spans_of_the_application_are_no_model_calls():
    """A provider's name alone makes no model call: Logfire names it on every span of a run."""
    found = only(*run(in_agent("x", 2, "Turn {turn} for agent desk", turn=1)))

    assert codes(found) == ["no_model_spans"]
