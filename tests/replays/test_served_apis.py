"""Every API of models that is known is served, also where only the spans of a call are recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Message, RecordedModelCall, RecordedRequest, Recording
from oteval.replays.http_answers import HttpRequest
from oteval.replays.player import Player

GOOGLE = "https://generativelanguage.googleapis.com/v1beta/models/m"
BEDROCK = "https://bedrock-runtime.eu-central-1.amazonaws.com/model/m"
TO_GOOGLE = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
TO_BEDROCK = {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]}
TO_OTHERS = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Gemini": (f"{GOOGLE}:generateContent", TO_GOOGLE),
    "Gemini, streamed": (f"{GOOGLE}:streamGenerateContent?alt=sse", TO_GOOGLE),
    "Converse": (f"{BEDROCK}/converse", TO_BEDROCK),
    "Converse, streamed": (f"{BEDROCK}/converse-stream", TO_BEDROCK),
    "chat completions": ("https://api.openai.com/v1/chat/completions", TO_OTHERS),
    "messages": ("https://api.anthropic.com/v1/messages", TO_OTHERS),
    "responses": ("https://api.openai.com/v1/responses", {"model": "m", "input": "Hi"}),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_rebuilt_answer_is_served_in_the_form_of_the_api(name: str) -> None:
    """The agent gets the recorded text, and the replay passes."""
    url, body = REQUESTS[name]
    request = RecordedRequest("", "m", (Message("user", "Hi"),))
    call = RecordedModelCall(request, Message("assistant", "Hello"), None, start_ns=1, end_ns=2)
    player = Player(Recording("s", "semconv", model_calls=(call,)))

    answer = player.answer(HttpRequest("POST", url, {}, json.dumps(body).encode()))

    assert answer.status == 200
    assert b"Hello" in answer.body
    assert player.finish().passed
