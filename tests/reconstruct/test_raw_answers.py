"""Requests and answers that an SDK recorded as they are, in any provider's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Trajectory

from .builders import brief, codes, only, span

GEMINI_ASKED = {
    "contents": [
        {"role": "user", "parts": [{"text": "weather?"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"c": "Oslo"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"t": 1}}}]},
    ],
    "config": {"systemInstruction": {"parts": [{"text": "be brief"}]}},
}
GEMINI_ANSWERED = {
    "candidates": [
        {"content": {"role": "model", "parts": [{"text": "1 degree"}]}, "finishReason": "STOP"}
    ],
    "usageMetadata": {
        "promptTokenCount": 10,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 2,
    },
}
SDKS = ["langfuse", "mlflow", "langsmith", "openinference"]


def recorded(sdk: str, request: Any, response: Any) -> Trajectory:
    """Return the run of a model call as an SDK that traces any function records it."""
    sent, received = json.dumps(request), json.dumps(response)
    attributes = {
        "langfuse": {
            "langfuse.observation.type": "generation",
            "langfuse.observation.input": sent,
            "langfuse.observation.output": received,
        },
        "mlflow": {
            "mlflow.spanType": '"CHAT_MODEL"',
            "mlflow.spanInputs": sent,
            "mlflow.spanOutputs": received,
        },
        "langsmith": {
            "langsmith.span.kind": "llm",
            "gen_ai.prompt": sent,
            "gen_ai.completion": received,
        },
        "openinference": {
            "openinference.span.kind": "LLM",
            "input.value": sent,
            "input.mime_type": "application/json",
            "output.value": received,
            "output.mime_type": "application/json",
        },
    }[sdk]
    return only(span("call", 1, attributes=attributes))


@pytest.mark.parametrize("sdk", SDKS)
def test_a_request_and_answer_of_gemini(sdk: str):
    """Contents, candidates and the system instruction are read, and no gap is left."""
    run = recorded(sdk, GEMINI_ASKED, GEMINI_ANSWERED)

    assert brief(run.messages) == [
        ("system", "be brief"),
        ("user", "weather?"),
        ("assistant", [("look", {"c": "Oslo"})]),
        ("tool", '{"t":1}'),
        ("assistant", "1 degree"),
    ]
    assert codes(run) == []


CHAT = {"choices": [{"message": {"role": "assistant", "content": "hi"}}]}
ANTHROPIC = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    ("answered", "counts"),
    [
        (GEMINI_ANSWERED, (10, 7, 2)),
        (
            {
                **CHAT,
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 3},
                },
            },
            (10, 5, 3),
        ),
        (
            {
                **ANTHROPIC,
                "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90},
            },
            (100, 5, 90),
        ),
    ],
)
def test_tokens_are_read_from_the_answer(
    sdk: str, answered: dict[str, Any], counts: tuple[int, int, int]
):
    """A span without counts has the counts of the provider's answer (langfuse#7177)."""
    usage = recorded(sdk, [{"role": "user", "content": "hi"}], answered).usage

    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == counts
    assert usage.model_calls == 1


def test_counts_beside_the_answer_are_the_calls():
    """They are not added to the counts of the answer."""
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": '"hi"',
        "langfuse.observation.output": json.dumps({**CHAT, "usage": {"prompt_tokens": 99}}),
        "langfuse.observation.usage_details": '{"input": 10, "output": 5}',
    }

    assert only(span("call", 1, attributes=attributes)).usage.input_tokens == 10


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    ("answered", "reason"),
    [
        (
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [
                    {
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "It beg"}],
                    }
                ],
            },
            "length",
        ),
        ({"promptFeedback": {"blockReason": "SAFETY"}}, "content_filter"),
    ],
)
def test_an_answer_that_is_not_whole_tells_why(sdk: str, answered: dict[str, Any], reason: str):
    """The Responses API and Gemini say so in places of their own."""
    run = recorded(sdk, [{"role": "user", "content": "hi"}], answered)

    assert list(run.finish_reasons) == [reason]
