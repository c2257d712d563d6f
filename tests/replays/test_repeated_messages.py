"""Messages that requests repeat are read once, and yet as if each request were read alone."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oteval.base.patterns import compile_pattern
from oteval.messages import NO_SOURCE
from oteval.messages.reader import from_messages
from oteval.model import Message, Recording, ToolCall
from oteval.reconstruct.apis import api_of
from oteval.reconstruct.apis.repeated_messages import repeated_messages
from oteval.replays.canonical_messages import CanonicalReader
from oteval.replays.conversations import Conversation
from oteval.replays.recording_files import load, save

from .shop import shop_recording


def _call(number: int) -> dict[str, Any]:
    return {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# Messages and loose items of all APIs, with empty and odd ones.
ITEMS: tuple[Any, ...] = (
    {"role": "system", "content": "s"},
    {"role": "developer", "content": [{"type": "text", "text": "d"}]},
    {"role": "user", "content": "hi"},
    {"role": "user", "content": "1", "extra": 1},
    {"role": "user", "content": "1", "extra": True},
    {"role": "user", "content": ""},
    {"role": "user", "content": [{"what": 1}]},
    {"role": "assistant", "content": "a"},
    {"role": "assistant", "content": None, "tool_calls": [_call(1)]},
    {"role": "assistant", "content": "b", "tool_calls": [_call(1), _call(2)]},
    {"role": "assistant", "content": "", "tool_calls": []},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]},
    {"role": "tool", "content": "r", "tool_call_id": "c1"},
    {"role": "tool", "content": "", "tool_call_id": "c2"},
    {"role": "tool", "content": [{"type": "tool-approval-response"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "z"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "think"}]},
    {"type": "function_call", "call_id": "k1", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "k2", "name": "g", "arguments": '{"b": 2}'},
    {"type": "function_call_output", "call_id": "k1", "output": "o"},
    {"type": "function_call_output", "call_id": "k2", "output": "p"},
    {"type": "item_reference", "id": "x"},
    {"role": ["odd"], "content": "y"},
    *({}, None, "text", {"type": "text", "text": "loose"}),
)


def test_any_items_are_read_as_all_at_once() -> None:
    """Neighbours that belong together stay together, wherever the list is split."""
    chance = random.Random(1)
    for _ in range(1500):
        items = [chance.choice(ITEMS) for _ in range(chance.randint(0, 6))]
        assert repr(repeated_messages(items)) == repr(from_messages(items, NO_SOURCE)), items


@pytest.mark.parametrize(
    ("url", "key", "turn"),
    [
        (
            "/v1/chat/completions",
            "messages",
            [
                {"role": "assistant", "content": None, "tool_calls": [_call(1)]},
                {"role": "tool", "content": "r", "tool_call_id": "c1"},
            ],
        ),
        (
            "/v1/responses",
            "input",
            [
                {"type": "function_call", "call_id": "k1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "k1", "output": "o"},
            ],
        ),
        (
            "/v1/messages",
            "messages",
            [
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}],
                },
            ],
        ),
    ],
)
def test_the_next_request_has_the_same_objects(url: str, key: str, turn: list[Any]) -> None:
    """In every API, only the messages after those of the last request are read."""
    api = api_of("POST", f"http://models.example{url}")
    assert api is not None
    messages = [{"role": "user", "content": "go"}, *turn]
    first, second = (
        api.parse_request(json.dumps({"model": "m", key: items}).encode()).messages
        for items in (messages, [*messages, *turn])
    )

    assert len(second) == len(first) + 2
    assert all(
        message is same_message for message, same_message in zip(first, second, strict=False)
    )


def _thread(chance: random.Random, length: int) -> list[Message]:
    """Return messages of few different contents: some with calls, results in any order."""
    messages = []
    for _ in range(length):
        role = chance.choice(("system", "user", "assistant", "tool", "tool"))
        ids = [f"c{chance.randint(1, 3)}" for _ in range(chance.randint(0, 2))]
        calls = tuple(ToolCall("f", {"n": name}, name) for name in ids)
        if role == "assistant":
            messages.append(Message(role, "a", calls))
        else:
            answered = f"c{chance.randint(1, 3)}" if role == "tool" else ""
            messages.append(Message(role, f"on 2026-01-0{chance.randint(1, 2)}", (), answered))
    return messages


def _threads(chance: random.Random) -> list[list[Message]]:
    """Return the messages of requests, most of which go on with an earlier one."""
    histories: list[list[Message]] = [[]]
    for _ in range(12):
        before = chance.choice(histories)
        start = before[: chance.randint(0, len(before))] if chance.random() < 0.2 else before
        if chance.random() < 0.2:
            start = [replace(message) for message in start]  # equal, but other objects
        histories.append([*start, *_thread(chance, chance.randint(0, 3))])
    return histories


@pytest.mark.parametrize("patterns", [(), (r"\d{4}-\d\d-\d\d",)])
def test_a_canonical_request_does_not_depend_on_those_before(patterns: Sequence[str]) -> None:
    """A reader that has read other requests gives the same as a new one."""
    normalize = tuple(map(compile_pattern, patterns))
    for seed in range(60):
        reader = CanonicalReader(normalize)
        for messages in _threads(random.Random(seed)):
            assert reader.read(messages) == CanonicalReader(normalize).read(messages)


def test_new_messages_are_those_after_the_longest_known_beginning() -> None:
    """Compared with the definition: one of two lists is the whole beginning of the other."""
    for seed in range(60):
        conversation, histories = Conversation(), list[list[Any]]()
        for messages in _threads(random.Random(seed)):
            spoken = [message for message in messages if message.role != "system"]
            keys = [(message.role, message.content, message.tool_calls) for message in spoken]
            pairs = [(keys[: len(history)], history[: len(keys)]) for history in histories]
            shared = max(
                (len(beginning) for beginning, history in pairs if beginning == history), default=0
            )

            new = conversation.add(messages, None)

            assert [message for message in new if message.role != "system"] == spoken[shared:]
            histories.append(keys)


def test_a_file_gives_equal_messages_as_one_object(tmp_path: Path) -> None:
    """Memory and time of a long session do not grow with the square of its messages."""
    recording = shop_recording("Refund 17", "Refund 18")
    save(recording, tmp_path / "one.jsonl")

    loaded = load(tmp_path / "one.jsonl")

    assert isinstance(loaded, Recording)
    assert loaded == recording
    first, *later = (call.request.messages for call in loaded.model_calls)
    for messages in later:
        assert all(
            message is same_message for message, same_message in zip(first, messages, strict=False)
        )
