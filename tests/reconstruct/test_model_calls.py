"""Model calls: attributes that all dialects share count in each of them."""

from __future__ import annotations

import json

import pytest

from oteval.model import Event
from oteval.reconstruct import reconstruct
from oteval.reconstruct.dialect import ModelCall
from oteval.reconstruct.span_reader import read_span

from .builders import DATA, capture, only, span

TOOL = {"type": "function", "name": "look"}
SCOPES = ("strands.telemetry.tracer", "semantic_kernel.utils", "a.client")


@pytest.mark.parametrize("scope", SCOPES)
def test_tools_and_the_answers_id_count_beside_messages_in_events(scope: str):
    """Only messages are in events: the conventions' other attributes stay on the span."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.response.id": "r",
        "gen_ai.tool.definitions": json.dumps([TOOL]),
    }
    events = (
        Event("gen_ai.user.message", 1, {"content": "hello"}),
        Event("gen_ai.choice", 2, {"message": "hi"}),
    )

    run = only(span("c", 1, scope=scope, attributes=attributes, events=events))

    assert [message.content for message in run.messages] == ["hello", "hi"]
    assert [dict(tool) for tool in run.tools] == [TOOL]


def test_a_model_that_the_answer_names_comes_before_the_one_asked_for():
    """An alias such as ``latest`` is asked for, and a dated model answers."""
    attributes = {
        "langwatch.span.type": "llm",
        "gen_ai.request.model": "latest",
        "langwatch.input": json.dumps({"messages": [{"role": "user", "content": "hello"}]}),
        "langwatch.output": json.dumps({"model": "m-2026", "output_text": "hi"}),
    }

    assert only(span("c", 1, attributes=attributes)).models == ("m-2026",)


def test_the_model_calls_of_llamaindex_count():
    """Calls that are put together from the steps of a workflow are calls of a model too."""
    runs = reconstruct(*capture("llamaindex_functionagent_traceloop", DATA / "frameworks"))

    assert [run.usage.model_calls for run in runs] == [2, 2]


RESPONSES = {
    "gemini": {"responseId": "r1", "candidates": [{"content": {"parts": [{"text": "hi"}]}}]},
    "langchain": {
        "generations": [
            [
                {
                    "message": {
                        "type": "ai",
                        "content": "hi",
                        "id": "run-1",
                        "response_metadata": {"id": "r1"},
                    }
                }
            ]
        ]
    },
}


@pytest.mark.parametrize("form", RESPONSES)
def test_the_providers_id_is_found_in_a_clients_response(form: str):
    """Ids of answers tell calls that two instrumentations recorded; LangChain's own do not."""
    attributes = {
        "langwatch.span.type": "llm",
        "langwatch.input": json.dumps([{"role": "user", "content": "hello"}]),
        "langwatch.output": json.dumps(RESPONSES[form]),
    }

    operation = read_span(span("c", 1, attributes=attributes), ())[1]

    assert isinstance(operation, ModelCall)
    assert operation.response_id == "r1"
