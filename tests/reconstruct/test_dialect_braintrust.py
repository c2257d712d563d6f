"""Braintrust's SDKs: model calls, tools and agents by their types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span

QUESTION = [{"role": "user", "content": "weather?"}]
CALL = {"id": "k", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
BLOCK = {"type": "text", "text": "sunny"}
METRICS = {"prompt_tokens": 10, "completion_tokens": 5, "tokens": 15, "prompt_cached_tokens": 4}


def of_type(kind: str, name: str, start: int, sent: Any, received: Any, **fields: Any) -> Span:
    """Return a span of Braintrust's SDKs; `kind` "" leaves the type out."""
    attributes = {
        "braintrust.input_json": json.dumps(sent),
        "braintrust.output_json": json.dumps(received),
        **({"braintrust.span_attributes": json.dumps({"type": kind})} if kind else {}),
        **fields.pop("attributes", {}),
    }
    return span(name, start, attributes=attributes, **fields)


def chosen(**message: Any) -> list[dict[str, Any]]:
    """Return the choices of an answer by OpenAI's chat API."""
    return [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]


def agent_run(result: Any) -> list[Span]:
    """Return the spans of an agent that calls a tool once."""
    asking = {**QUESTION[0]}
    answering = [asking, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    answering += [{"role": "tool", "tool_call_id": "k", "content": result}]
    calling = chosen(content=None, tool_calls=[CALL])
    return [
        of_type("task", "agent:helper", 1, "weather?", "sunny", end=20),
        of_type("llm", "c", 2, QUESTION, calling, parent="agent:helper"),
        of_type(
            "function_call",
            "function:look",
            4,
            {"x": 1},
            result,
            parent="agent:helper",
            attributes={"function.name": "look"},
        ),
        of_type("llm", "d", 6, answering, chosen(content="sunny"), parent="agent:helper"),
    ]


def test_an_agent_with_a_tool_is_read():
    """The agent has its name, the call its arguments, and the tool's result is the message."""
    run = only(*agent_run("18 degrees"))

    assert brief(run.messages) == [
        ("user", "weather?"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "18 degrees"),
        ("assistant", "sunny"),
    ]
    assert (run.agent, run.dialects, run.gaps) == ("helper", ("braintrust",), ())


@pytest.mark.parametrize(
    ("sent", "received", "message"),
    [
        ("weather?", [{"type": "message", "role": "assistant",
                       "content": [{"type": "output_text", "text": "sunny"}]}], "sunny"),
        (QUESTION, [{"role": "assistant", "content": [BLOCK]}], "sunny"),
        (QUESTION, {"role": "assistant", "content": "sunny"}, "sunny"),
    ],
)  # fmt: skip
def test_answers_of_every_client_are_read(sent: Any, received: Any, message: str):
    """Items of the responses API, Anthropic's blocks and one message are all read."""
    attributes = {
        "braintrust.metadata": json.dumps({"model": "m", "provider": "p"}),
        "braintrust.metrics": json.dumps(METRICS),
    }
    run = only(of_type("llm", "c", 1, sent, received, attributes=attributes))

    assert brief(run.messages) == [("user", "weather?"), ("assistant", message)]
    usage = run.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (10, 5, 4)
    assert (run.models, run.gaps) == (("m",), ())


def test_a_model_call_without_a_type_is_known_by_its_model():
    """RubyLLM's model calls have metadata alone; the tools below them have a type."""
    metadata = {"braintrust.metadata": json.dumps({"provider": "ruby_llm", "model": "m"})}
    called = {"name": "look", "arguments": {"x": 1}}
    run = only(
        of_type("", "ruby_llm.chat", 1, QUESTION, [{"role": "assistant", "content": "sunny"}],
                attributes=metadata, end=20),
        of_type("tool", "ruby_llm.tool.look", 4, called, "18", parent="ruby_llm.chat",
                attributes={"tool.name": "look", "tool.call_id": "k"}),
    )  # fmt: skip

    assert brief(run.messages) == [
        ("user", "weather?"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "18"),
        ("assistant", "sunny"),
    ]


def test_attributes_set_by_hand_have_the_type_and_the_tokens_alone():
    """Programs set the type and each count as an attribute of its own."""
    attributes = {
        "braintrust.span_attributes.type": "llm",
        "braintrust.metrics.prompt_tokens": 10,
        "braintrust.metrics.completion_tokens": 5,
    }
    run = only(of_type("", "c", 1, QUESTION, chosen(content="sunny"), attributes=attributes))

    assert brief(run.messages) == [("user", "weather?"), ("assistant", "sunny")]
    assert (run.usage.input_tokens, run.usage.output_tokens) == (10, 5)


def test_scorers_and_embeddings_are_not_runs():
    """A score and the call of an embedding model belong to no conversation."""
    spans = [
        of_type("score", "score", 1, {"output": "x"}, {"exact": 1}),
        of_type("llm", "Embeddings", 3, "text", {"count": 1}),
    ]

    assert reconstruct(spans) == []


def test_a_model_call_without_content_has_the_gap():
    """A processor that removes both attributes leaves a gap, and no verdict."""
    bare = {"braintrust.span_attributes": json.dumps({"type": "llm"})}
    run = only(span("c", 1, attributes=bare))

    assert codes(run) == ["content_not_captured"]
