"""any-agent: spans by hand, as its span generation writes them for each framework."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import agent, brief, codes, only, span

SCOPE = "any_agent"
SENT = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
CALLS = [
    {"tool.name": "look", "tool.args": '{"x": 1}'},
    {"tool.name": "look", "tool.args": '{"x": 2}'},
]


def llm(name: str, start: int, output: Any = None, sent: Any = None, **fields: Any) -> Span:
    attributes = {"gen_ai.operation.name": "call_llm", "gen_ai.request.model": "m"}
    if sent is not None:
        attributes["gen_ai.input.messages"] = json.dumps(sent)
    if output is not None:
        text = output if isinstance(output, str) else json.dumps(output)
        attributes["gen_ai.output"] = text
    attributes.update(fields.pop("attributes", {}))
    fields.setdefault("parent", "a")
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def run(name: str, start: int, arguments: Any, output: Any = None, **fields: Any) -> Span:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    if arguments is not None:
        attributes["gen_ai.tool.args"] = json.dumps(arguments)
    if output is not None:
        attributes["gen_ai.output"] = output
    attributes.update(fields.pop("attributes", {}))
    return span(name, start, parent="a", scope=SCOPE, attributes=attributes, **fields)


def test_a_run_is_told_by_its_answers():
    """Only the first call holds what was sent; the tools' spans hold the rest."""
    usage = {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cached_tokens": 4,
    }
    found = only(
        agent("a", 1, of="desk", scope=SCOPE, title="invoke_agent [desk]"),
        llm("c", 2, CALLS, SENT, attributes=usage),
        run("t", 3, {"x": 1}, "r1", attributes={"gen_ai.tool.call.id": "k1"}),
        run("u", 4, {"x": 2}, '{"r": 2}'),
        llm("d", 5, "done"),
    )

    assert brief(found.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
        ("tool", "r1"),
        ("tool", '{"r": 2}'),
        ("assistant", "done"),
    ]
    assert [c.span_id for c in found.messages[2].tool_calls] == ["t", "u"]
    assert found.messages[2].tool_calls[0].id == found.messages[3].tool_call_id == "k1"
    assert (found.agent, found.gaps, found.dialects) == ("desk", (), ("any-agent",))
    assert (found.models, found.usage.cached_tokens, found.usage.model_calls) == (("m",), 4, 2)


def test_the_old_keys_are_read():
    """Before, outputs were ``genai.output``, calls had other keys, and text was encoded twice."""
    calls = '[{"name": "look", "arguments": "{\\"x\\": 1}"}]'
    found = only(
        agent("a", 1, scope=SCOPE),
        llm("c", 2, sent=SENT, attributes={"genai.output": calls}),
        run("t", 3, {"x": 1}, attributes={"genai.output": '"it\\u0027s r"'}),
        llm("d", 4, attributes={"genai.output": "a"}),
    )

    assert brief(found.messages)[2:] == [
        ("assistant", [("look", {"x": 1})]),
        ("tool", "it's r"),
        ("assistant", "a"),
    ]


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ('{"steps": [1]}', '{"steps": [1]}'),
        ("42", "42"),
        ("[1, 2]", "[1, 2]"),
        ("[]", "[]"),
        ('[{"role": "assistant", "content": "a"}]', "a"),
        ('[{"name": "ann", "content": "a"}]', "a"),
        ('"quoted"', "quoted"),
    ],
)
def test_an_answer_that_is_json_is_a_text_still(output: str, text: str):
    """Of JSON, only a list of calls asks for tools."""
    found = only(agent("a", 1, scope=SCOPE), llm("c", 2, output, SENT))

    assert (found.messages[-1].content, found.messages[-1].tool_calls) == (text, ())


def test_a_failed_tool_is_an_error():
    """The status says so, and the output tells it."""
    text = "Error calling tool: no"
    found = only(
        agent("a", 1, scope=SCOPE),
        llm("c", 2, CALLS[:1], SENT),
        run("t", 3, {"x": 1}, text, status_code=2, status_message=text),
    )

    assert (found.messages[-1].content, found.messages[-1].is_error) == (text, True)


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({}, "content_not_captured"),
        ({"gen_ai.output": "__REDACTED__"}, "redacted"),
        ({"gen_ai.output": '[{"tool.name": "lo'}, "content_truncated"),
    ],
)
def test_a_call_without_its_answer_says_why(attributes: dict[str, Any], code: str):
    """What is missing, hidden or cut is a gap, and never a text."""
    found = only(agent("a", 1, scope=SCOPE), llm("c", 2, sent=SENT, attributes=attributes))

    assert codes(found) == [code]
    assert found.messages[-1].content is None


@pytest.mark.parametrize("value", [7, [None], {"a": 1}, '[{"tool.name": 7}]', "[null]", ""])
def test_malformed_values_survive(value: Any):
    """Whatever stands where content is expected, there is a trajectory."""
    odd = {"gen_ai.output": value, "gen_ai.tool.args": value, "gen_ai.input.messages": value}

    (found,) = reconstruct(
        [
            agent("a", 1, scope=SCOPE),
            llm("c", 2, attributes=odd),
            run("t", 3, None, attributes=odd),
        ]
    )

    assert found.agent == "helper"


def test_an_agent_as_a_tool_is_linked():
    """An agent that runs inside a tool is a trajectory of its own."""
    inner = agent("b", 4, of="expert", parent="t", scope=SCOPE)
    outer, sub = reconstruct(
        [
            agent("a", 1, scope=SCOPE),
            llm("c", 2, CALLS[:1], SENT),
            run("t", 3, {"x": 1}, "y", attributes={"gen_ai.tool.call.id": "k1"}),
            inner,
            llm("d", 5, "y", SENT, parent="b"),
        ]
    )

    assert (sub.agent, sub.parent_id, sub.parent_call_id) == ("expert", outer.id, "k1")
