"""LangSmith's export, and LangChain's dumps that it and others pass on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Event, Span, Usage
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span, texts
from .test_captures import GOLD, assert_gold, assert_joined, trajectories


def run(kind: str, name: str, start: int = 1, **fields: Any) -> Span:
    """Return a run's span; `sent` and `got` are its inputs and outputs."""
    attributes = {"langsmith.span.kind": kind, "langsmith.trace.name": fields.pop("of", name)}
    for field, key in (("sent", "gen_ai.prompt"), ("got", "gen_ai.completion")):
        if field in fields:
            value = fields.pop(field)
            attributes[key] = value if isinstance(value, str) else json.dumps(value)
    attributes |= fields.pop("attributes", {})
    return span(name, start, scope="langsmith", attributes=attributes, **fields)


def dump(kind: str, content: Any = "", **fields: Any) -> dict[str, Any]:
    """Return a message as LangChain's constructor."""
    path = ["langchain", "schema", "messages", kind]
    return {"lc": 1, "type": "constructor", "id": path, "kwargs": {"content": content, **fields}}


def result(*said: dict[str, Any]) -> dict[str, Any]:
    return {"generations": [[{"text": "", "message": message} for message in said]]}


def llm(sent: Any, got: Any, **fields: Any) -> Span:
    return run("llm", "c", 1, sent=sent, got=got, **fields)


def test_the_capture_holds_golds_conversation():
    """Messages come from LangChain's dumps; graph steps and middleware are no agents."""
    first, second, third, inner = trajectories("langgraph_langsmith")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    for turn, found in enumerate((first, second, third), 1):
        assert (found.turn, found.agent, found.gaps) == (turn, "support_agent", ())
        assert found.dialects == ("langsmith",)
        assert found.conversation_id == "conv-001"
        assert found.models == ("gpt-4o-mini-2026-01-01",)
    assert first.usage == Usage(170, 34, 16, 2)
    assert [tool["function"]["name"] for tool in first.tools] == [
        "get_weather_tool",
        "lookup_order_tool",
        "ask_weather_agent",
    ]
    assert inner.agent == "weather_agent"


def test_the_captures_subagent_is_linked_to_the_call_that_started_it():
    """Turn 3 asks another graph, whose run names its parent and the call."""
    *_, third, inner = trajectories("langgraph_langsmith")

    (call,) = third.messages[11].tool_calls
    assert call.name == "ask_weather_agent"
    assert (inner.parent_id, inner.parent_call_id) == (third.id, call.id)
    assert [m.role for m in inner.messages] == [m["role"] for m in GOLD[:6]]
    assert inner.messages[0].content == "Weather expert."
    assert inner.gaps == ()


@pytest.mark.parametrize(
    "said",
    [
        dump("HumanMessage", "hi", type="human"),
        dump("HumanMessage", "hi"),
        dump("HumanMessageChunk", [{"type": "text", "text": "hi"}], type="HumanMessageChunk"),
        {"type": "human", "data": {"content": "hi", "type": "human"}},
        {"type": "human", "content": "hi", "additional_kwargs": {}, "data": None},
        {"role": "user", "content": "hi"},
        ["user", "hi"],
        ["human", "hi"],
        "hi",
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_a_message_is_read_in_each_of_langchains_forms(said: Any, nested: bool):
    """The constructor, the older dict, the fields alone, and the short forms are one message."""
    found = only(llm({"messages": [[said]] if nested else [said]}, result(dump("AIMessage", "ho"))))

    assert brief(found.messages) == [("user", "hi"), ("assistant", "ho")]
    assert found.gaps == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_calls": [{"name": "f", "args": {"x": 1}, "id": "k", "type": "tool_call"}]},
        {
            "content": [
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "name": "f", "input": {"x": 1}, "id": "k"},
            ],
            "tool_calls": [{"name": "f", "args": {"x": 1}, "id": "k"}],
        },
        {"content": [{"type": "tool_use", "name": "f", "input": {"x": 1}, "id": "k"}]},
        {
            "additional_kwargs": {
                "tool_calls": [{"id": "k", "function": {"name": "f", "arguments": '{"x":1}'}}]
            }
        },
    ],
)
def test_a_call_is_read_once_from_wherever_it_stands(fields: dict[str, Any]):
    """Calls stand in `tool_calls`, in the content too, or in the provider's own fields."""
    content = fields.pop("content", "")

    found = only(llm({"messages": [["user", "q"]]}, result(dump("AIMessage", content, **fields))))

    (call,) = found.messages[-1].tool_calls
    assert (call.name, call.arguments, call.id) == ("f", {"x": 1}, "k")
    assert found.messages[-1].content in (None, "ok")


def test_a_call_with_broken_arguments_is_kept():
    """Arguments that are no JSON make LangChain set the call apart; it is a call all the same."""
    broken = {"name": "f", "args": '{"x":', "id": "k", "error": "no JSON"}
    said = dump("AIMessage", "", invalid_tool_calls=[broken])

    found = only(llm({"messages": [["user", "q"]]}, result(said)))

    assert [(c.name, c.arguments) for c in found.messages[-1].tool_calls] == [("f", '{"x":')]


def test_images_and_thoughts_stay_with_their_message():
    """Parts that are not text are kept as they were written."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked = dump("HumanMessage", [{"type": "text", "text": "what?"}, image], type="human")
    thought = {"type": "thinking", "thinking": "hm"}
    said = dump("AIMessage", [thought, {"type": "text", "text": "that"}], type="ai")

    found = only(llm({"messages": [[asked]]}, result(said)))

    assert [m.parts for m in found.messages] == [(image,), (thought,)]
    assert texts(found) == ["what?", "that"]


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (
            {"model": "m", "messages": [{"role": "user", "content": "q"}]},
            {"id": "r", "choices": [{"message": {"role": "assistant", "content": "a"}}]},
        ),
        (
            {"system": [], "messages": [{"role": "user", "content": "q"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "a"}]},
        ),
        (
            {"input": "q"},
            {
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "a"}],
                    }
                ]
            },
        ),
        ({"prompts": ["q"]}, {"generations": [[{"text": "a", "type": "Generation"}]]}),
        ({"prompt": "q"}, {"output": "a"}),
        ({"messages": [{"role": "user", "content": "q"}]}, {"role": "assistant", "content": "a"}),
        ({"messages": [["user", "q"]]}, {"output": dump("AIMessage", "a", type="ai")}),
    ],
)
def test_wrapped_clients_hold_their_requests_and_responses(sent: Any, got: Any):
    """OpenAI's two APIs, Anthropic's, completions, and traced functions are read alike."""
    found = only(llm(sent, got))

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert found.gaps == ()


def test_items_of_the_responses_api_are_calls_results_and_thoughts():
    """Calls and their results carry the call's id; a thought stays with what it led to."""
    thought = {"type": "reasoning", "id": "rs", "summary": []}
    call = {"type": "function_call", "id": "fc", "call_id": "k", "name": "f", "arguments": "{}"}
    answer = {"type": "function_call_output", "id": "fo", "call_id": "k", "output": "r"}
    sent = {
        "instructions": "be kind",
        "input": [{"role": "user", "content": "q"}, thought, call, answer],
    }

    found = only(llm(sent, {"output": [{"type": "message", "role": "assistant", "content": "a"}]}))

    assert [m.role for m in found.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert found.messages[2].parts == (thought,)
    assert [(c.name, c.id) for c in found.messages[2].tool_calls] == [("f", "k")]
    assert (found.messages[3].content, found.messages[3].tool_call_id) == ("r", "k")


def agent_with(*children: Span) -> list[Span]:
    agent = {"langsmith.metadata.lc_agent_name": "helper"}
    root = run(
        "chain", "a", 0, of="helper", end=90, attributes=agent, sent={"messages": [["user", "q"]]}
    )
    asks = dump("AIMessage", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "k"}])
    return [
        root,
        run("llm", "c", 1, parent="a", sent={"messages": [["user", "q"]]}, got=result(asks)),
        *children,
    ]


@pytest.mark.parametrize(
    ("got", "content", "failed"),
    [
        ({"output": {"type": "tool", "content": "r", "tool_call_id": "k"}}, "r", False),
        ({"output": dump("ToolMessage", "r", tool_call_id="k")}, "r", False),
        (
            {"output": {"type": "tool", "content": "no", "tool_call_id": "k", "status": "error"}},
            "no",
            True,
        ),
        (
            {
                "output": {
                    "graph": None,
                    "update": {"messages": [{"type": "tool", "content": "r", "tool_call_id": "k"}]},
                }
            },
            "r",
            False,
        ),
        ({"output": "r"}, "r", False),
        ({"output": {"t": 1}}, '{"t":1}', False),
        ({"t": 1}, '{"t":1}', False),
    ],
)
def test_a_tools_result_is_read_from_what_it_returned(got: Any, content: str, failed: bool):
    """A tool returns a message, a command to the graph that holds one, text, or a value."""
    ran = run("tool", "t", 2, of="look", parent="a", sent={"x": 1}, got=got)

    found = only(*agent_with(ran))

    (result_,) = [m for m in found.messages if m.role == "tool"]
    assert (result_.content, result_.is_error, result_.tool_call_id) == (content, failed, "k")
    assert found.messages[1].tool_calls[0].span_id == "t"


def test_a_tools_failure_is_its_exceptions_text():
    """The exporter writes the repr and the traceback as one text; the message is taken out."""
    why = "ValueError('no \"x\"')Traceback (most recent call last):\n\n  File ..."
    event = Event("exception", 3, {"exception.message": why, "exception.type": "Exception"})
    ran = run(
        "tool",
        "t",
        2,
        of="look",
        parent="a",
        sent={"x": 1},
        got="{}",
        status_code=2,
        events=(event,),
    )

    found = only(*agent_with(ran))

    assert (found.messages[-1].content, found.messages[-1].is_error) == ('Error: no "x"', True)


def test_older_tools_have_their_arguments_as_one_text():
    """LangChain gave a tool's arguments as the repr of a dict under `input`."""
    ran = run(
        "tool",
        "t",
        2,
        of="other",
        sent={"input": "{'city': 'Paris'}"},
        got={"output": "r"},
    )

    (found,) = reconstruct([ran])

    assert found.messages[0].tool_calls[0].arguments == {"city": "Paris"}


def test_values_that_were_cut_are_not_taken_for_whole():
    """Of cut messages the last is left out; arguments and results that were cut stay text."""
    sent = '{"messages":[["user","q"],{"role":"assistant","tool_calls":[{"name":"f","args":{"x'
    call = only(llm(sent, '{"generations":[[{"text":"a","message":{"role":"ai","content":"a'))
    tool = only(run("tool", "t", 1, sent='{"x": 1, "y": "z', got='{"output": "r'))

    assert texts(call) == ["q", None]
    assert call.messages[1].tool_calls == ()
    assert set(codes(call)) == {"content_truncated"}
    assert tool.messages[0].tool_calls[0].arguments == '{"x": 1, "y": "z'
    assert tool.messages[1].content == '{"output": "r'
    assert "content_truncated" in codes(tool)


def test_hidden_inputs_and_outputs_name_the_switch():
    """Both switches leave an empty object behind, which is no call without arguments."""
    found = only(
        run(
            "chain",
            "a",
            0,
            end=9,
            sent="{}",
            got="{}",
            attributes={"langsmith.metadata.lc_agent_name": "a"},
        ),
        run("llm", "c", 1, parent="a", sent="{}", got="{}"),
        run("tool", "t", 3, of="look", parent="a", sent="{}", got="{}"),
    )

    (call,) = found.messages[0].tool_calls
    assert (call.name, call.arguments) == ("look", None)
    assert set(codes(found)) == {"content_not_captured"}
    assert all("LANGSMITH_HIDE_INPUTS" in gap.detail for gap in found.gaps)


def test_a_hidden_answer_is_a_gap():
    """With only the outputs hidden, the question stays and the answer is missing."""
    found = only(llm({"messages": [["user", "q"]]}, "{}"))

    assert texts(found) == ["q", None]
    assert codes(found) == ["content_not_captured"]


def test_the_roots_state_stands_in_for_hidden_calls():
    """A graph's own messages tell the turn where its model calls do not."""
    said = [
        dump("HumanMessage", "old", type="human"),
        dump("AIMessage", "then", type="ai"),
        dump("HumanMessage", "q", type="human"),
        dump("AIMessage", "a", type="ai"),
    ]
    found = only(
        run(
            "chain",
            "LangGraph",
            0,
            end=9,
            sent={"messages": [["user", "q"]]},
            got={"messages": said},
        ),
        run("llm", "c", 1, parent="LangGraph", sent="{}", got="{}"),
    )

    assert texts(found) == ["old", "then", "q", "a"]
    assert (found.new_from, found.agent) == (2, "LangGraph")


def test_chains_that_only_group_are_no_agents():
    """A sequence, a prompt and a parser around a model call leave one nameless run."""
    found = only(
        run("chain", "RunnableSequence", 0, end=9, sent={"input": "q"}, got={"output": "a"}),
        run("prompt", "p", 1, parent="RunnableSequence"),
        run(
            "llm",
            "c",
            2,
            parent="RunnableSequence",
            sent={"messages": [["user", "q"]]},
            got=result(dump("AIMessage", "a")),
        ),
        run("parser", "o", 4, parent="RunnableSequence"),
    )

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert (found.agent, found.gaps) == ("", ())


def test_a_failed_model_call_says_why():
    """The exception's text is the reason, and the missing answer no gap of its own."""
    event = Event("exception", 2, {"exception.message": "APIError('429')"})
    found = only(llm({"messages": [["user", "q"]]}, "{}", status_code=2, events=(event,)))

    assert texts(found) == ["q"]
    assert codes(found) == ["model_call_failed"]


def test_its_kind_beside_anothers_content_is_not_its_own():
    """LangSmith's documentation has users set its kind on spans of other dialects."""
    attributes = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
        "gen_ai.completion.0.content": "a",
        "langsmith.span.kind": "LLM",
    }

    found = only(span("c", 1, attributes=attributes))

    assert texts(found) == ["q", "a"]
    assert found.dialects == ("traceloop",)


@pytest.mark.parametrize("key", ["gen_ai.prompt", "gen_ai.completion"])
@pytest.mark.parametrize("kind", ["llm", "tool", "chain", "LLM", "7"])
@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        True,
        [],
        "",
        "{",
        "[[[",
        '{"messages": 7}',
        '{"messages": [[[]]]}',
        '{"messages":[null,7,{"lc":1,"kwargs":null}]}',
        '{"generations":[[7,{"message":7}]]}',
        '{"generations":[]}',
        '{"output":{"type":"constructor","kwargs":7}}',
        '{"choices":[7]}',
        '{"messages":[{"lc":1,"type":"not_implemented","id":["x"],"repr":"?"}]}',
        "__REDACTED__",
        '{"output":[{"type":7}]}',
        '{"tools":7,"messages":[["user"]]}',
    ],
)
def test_no_value_makes_it_fail(kind: str, key: str, value: Any):
    """Whatever an attribute holds, a span is the root of no other trajectory than its own."""
    attributes = {
        "langsmith.span.kind": kind,
        key: value,
        "langsmith.metadata.usage_metadata": value,
    }

    runs = reconstruct([span("c", 1, scope="langsmith", attributes=attributes)])

    assert {t.root_span.span_id for t in runs} <= {"c"}
