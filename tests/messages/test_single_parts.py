"""Messages of one part are read without a body, to the same result."""

import pytest

from oteval.messages import NO_SOURCE
from oteval.messages.reader import from_form

_CALL = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"query": "oslo"}}
PARTS = {
    "text": {"type": "text", "content": "hello"},
    "text of parts": {"type": "text", "content": '[{"type": "text", "text": "hello"}]'},
    "text with a field": {"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}},
    "thought": {"type": "text", "text": "let me see", "thought": True},
    "call": _CALL,
    "call of Anthropic": {"type": "tool_use", "id": "c1", "name": "search", "input": {}},
    "call of the provider": {**_CALL, "type": "server_tool_call"},
    "call without a name": {"type": "tool_call", "id": "c1"},
    "result": {"type": "tool_call_response", "id": "c1", "response": "12 results"},
    "failed result": {"type": "tool_result", "tool_use_id": "c1", "content": "", "is_error": True},
    "result with an image": {
        "type": "tool_result",
        "tool_use_id": "c1",
        "content": [{"type": "text", "text": "a map"}, {"type": "image", "source": {}}],
    },
    "approval": {"type": "tool-approval-response", "approvalId": "a1", "approved": True},
    "image": {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    "parts": {"parts": [{"type": "text", "content": "hello"}, _CALL]},
}


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_single_part_gives_the_message_that_its_body_gives(part, role):
    """A message that holds one part is the same as one that needs a body for an empty field."""
    item = {"role": role, "name": "weather", "parts": [part]}
    by_body = from_form({**item, "refusal": None}, NO_SOURCE)
    assert from_form(item, NO_SOURCE) == by_body
    outcomes = [message.is_outcome_recorded for message in by_body]
    assert [m.is_outcome_recorded for m in from_form(item, NO_SOURCE)] == outcomes
