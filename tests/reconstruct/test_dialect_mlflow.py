"""MLflow Tracing: every value in JSON, also text."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from oteval.model import Event, Span, Usage
from oteval.reconstruct import reconstruct

from .builders import brief, capture, codes, only, span, texts
from .test_captures import GOLD, assert_gold, assert_joined, trajectories


def made(kind: str, name: str, start: int = 1, **fields: Any) -> Span:
    """Return a span with MLflow's encoding of its type, inputs and outputs."""
    attributes = {"mlflow.spanType": json.dumps(kind)}
    for field, key in (("sent", "mlflow.spanInputs"), ("got", "mlflow.spanOutputs")):
        if field in fields:
            attributes[key] = json.dumps(fields.pop(field))
    attributes |= {key: json.dumps(value) for key, value in fields.pop("told", {}).items()}
    return span(name, start, attributes=attributes, **fields)


def model(sent: Any, got: Any, **fields: Any) -> Span:
    return made("CHAT_MODEL", "c", 2, sent=sent, got=got, **fields)


def asked(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def said(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_the_capture_holds_golds_conversation():
    """Requests and responses of the client, tools by their names, an agent at the root."""
    first, second = trajectories("mlflow")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    for found in (first, second):
        assert (found.agent, found.gaps, found.dialects) == ("support_agent", (), ("mlflow",))
        assert found.models == ("gpt-4o-mini-2026-01-01",)
        assert [tool["function"]["name"] for tool in found.tools] == ["get_weather", "lookup_order"]
    assert first.usage == Usage(170, 34, 16, 2)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)


def test_calls_carry_the_times_of_their_tools_spans():
    """Without an id on the tools' spans, name and arguments tell which call ran."""
    spans, _ = capture("mlflow")
    ran = [s for s in spans if s.attributes["mlflow.spanType"] == '"TOOL"']

    found = reconstruct(spans)[-1]

    calls = [call for m in found.messages for call in m.tool_calls]
    assert {c.span_id for c in calls} == {s.span_id for s in ran}


def test_a_root_that_was_never_exported_leaves_its_turns_whole():
    """The spans below a missing parent stay together, and the gap names it once a trace."""
    first, second = trajectories("mlflow_orphan_root_missing")

    assert_gold(first.messages, GOLD[:6])
    assert_gold(second.messages, GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    assert codes(first) == codes(second) == ["missing_parent"]
    assert "7f4554cf83f154bb" in first.gaps[0].detail
    assert len({call.span_id for m in second.messages for call in m.tool_calls}) == 3


def test_text_that_looks_like_json_stays_text():
    """One layer of encoding is MLflow's own; what is inside is the tool's."""
    found = only(
        made("AGENT", "a", 1, sent={"user": "[1]"}, got='{"a": 1}', end=9),
        made("TOOL", "look", 2, parent="a", sent={"x": 1}, got='{"b":  2}'),
    )

    assert texts(found) == ["[1]", None, '{"b":  2}', '{"a": 1}']


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (asked("q"), said("a")),
        ({"input": "q"}, {"output": [{"type": "message", "role": "assistant", "content": "a"}]}),
        (
            [[{"type": "human", "content": "q"}]],
            {"generations": [[{"text": "a", "message": {"type": "ai", "content": "a"}}]]},
        ),
        (
            {"messages": [{"role": "user", "content": "q"}]},
            {"role": "assistant", "type": "message", "content": [{"type": "text", "text": "a"}]},
        ),
        ("q", "a"),
    ],
)
def test_each_clients_requests_and_responses_are_read(sent: Any, got: Any):
    """OpenAI's two APIs, LangChain's, Anthropic's, and plain text."""
    found = only(model(sent, got))

    assert brief(found.messages) == [("user", "q"), ("assistant", "a")]
    assert found.gaps == ()


def test_several_answers_are_kept_apart():
    """With `n` above one the first is the answer, and the others are not lost."""
    got = {"choices": [{"message": {"role": "assistant", "content": text}} for text in "ab"]}

    found = only(model(asked("q"), got))

    assert texts(found) == ["q", "a"]
    assert [m.content for r in found.rewrites for m in r.messages] == ["b"]


def test_an_agent_below_a_tool_is_linked_to_its_call():
    """A tool that calls an agent has its trajectory below the call."""
    asks = {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "tool_calls": [{"id": "k", "function": {"name": "ask", "arguments": "{}"}}],
                }
            }
        ]
    }
    main, inner = reconstruct(
        [
            made("AGENT", "a", 1, end=90),
            made("CHAT_MODEL", "c1", 2, parent="a", sent=asked("q"), got=asks),
            made("TOOL", "ask", 4, parent="a", end=50, sent={}, got="r"),
            made("AGENT", "b", 5, parent="ask", end=40),
            made("CHAT_MODEL", "c2", 6, parent="b", sent=asked("in"), got=said("r")),
        ]
    )

    assert (inner.parent_id, inner.parent_call_id, inner.agent) == (main.id, "k", "b")
    assert texts(inner) == ["in", "r"]


def test_a_langchain_tools_message_is_its_result():
    """LangChain's autologging keeps the tool's message, with its id and status."""
    message = {"type": "tool", "content": "no", "tool_call_id": "k", "status": "error"}

    found = only(
        made("AGENT", "a", 1, end=9),
        made("TOOL", "look", 2, parent="a", sent={"x": 1}, got=message),
    )

    answer = found.messages[-1]
    assert (answer.content, answer.tool_call_id, answer.is_error) == ("no", "k", True)


def test_a_failed_tool_says_why():
    """Without an output, the exception is the result."""
    event = Event("exception", 3, {"exception.message": "gone"})

    found = only(made("TOOL", "look", 2, sent={"x": 1}, status_code=2, events=(event,)))

    assert (found.messages[-1].content, found.messages[-1].is_error) == ("Error: gone", True)


def test_chains_are_wrappers():
    """A chain, a retriever and a parser around a model call are no agents."""
    found = only(
        made("CHAIN", "r", 1, sent=asked("q"), got="a", end=9),
        made("RETRIEVER", "d", 2, parent="r"),
        made("CHAT_MODEL", "c", 3, parent="r", sent=asked("q"), got=said("a")),
    )

    assert (texts(found), found.agent) == (["q", "a"], "")


def test_content_that_is_not_there_names_what_takes_it_out():
    """Spans without inputs and outputs, and values that were cut, have their gaps."""
    bare = only(made("CHAT_MODEL", "c", 2))
    cut = only(
        span(
            "c",
            2,
            attributes={
                "mlflow.spanType": '"CHAT_MODEL"',
                "mlflow.spanInputs": '{"messages": [{"role": "us',
            },
        )
    )
    odd = only(model({"x": 1}, {"y": 2}))

    assert codes(bare) == ["content_not_captured"]
    assert "span_processors" in bare.gaps[0].detail
    assert codes(cut) == ["content_truncated"]
    assert codes(odd) == ["content_unreadable"]


KEYS = ["spanType", "spanInputs", "spanOutputs", "chat.tokenUsage", "chat.tools", "llm.model"]
VALUES: list[Any] = [
    None,
    7,
    True,
    "",
    "{",
    '"',
    "null",
    "7",
    "[]",
    "[[]]",
    '"\\"x\\""',
    '{"messages":7}',
    '{"messages":[7,null]}',
    '{"choices":[{"message":7}]}',
    '{"input":[7]}',
    "__REDACTED__",
    '{"output":[null]}',
    '[{"role":"tool","content":{"function":7}}]',
    '{"input_tokens":"x"}',
]


@pytest.mark.parametrize("kind", ["CHAT_MODEL", "TOOL", "AGENT", "LLM"])
def test_no_value_makes_it_fail(kind: str):
    """Whatever an attribute holds, a span is the root of no other trajectory than its own."""
    for key, value in product(KEYS, VALUES):
        attributes = {"mlflow.spanType": f'"{kind}"', f"mlflow.{key}": value}

        runs = reconstruct([span("c", 1, attributes=attributes)])

        assert {t.root_span.span_id for t in runs} <= {"c"}, (key, value)
