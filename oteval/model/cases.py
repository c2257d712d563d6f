"""Cases: runs of the same case are compared with each other.

An attribute names the case of a run, or else the user's question does: its text without regard to
white space, and its place in the conversation. The system prompt, the tools and the model do not
count: they change between the compared runs. A run without a name and a question is a separate
case: two runs with missing content are never the same case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.jsontext import canonical, dumps
from .trajectory import Trajectory

__all__ = [
    "CASE_ATTRIBUTES",
    "LONGEST_CASE",
    "case_id",
    "case_text",
    "first_attribute",
    "input_hash",
    "normal_text",
    "turn_case_id",
]

CASE_ATTRIBUTES = ("test.case.id", "oteval.example_id", "case_name", "example.id")
"""Attributes that name a run's case; the first one present counts."""

LONGEST_CASE = 2000
"""The longest question (characters) that alone is the text of its case; see `case_text`."""

_QUESTIONS = frozenset(
    {
        *("question", "query", "prompt", "input", "message", "text"),
        *("user_input", "user_message", "user_prompt"),
    }
)
"""Names of inputs that are a question, if it is the only input."""

_SETTINGS = frozenset({"model", "system", "system_prompt", "tools", "tool_choice"})
"""Names of inputs that describe how to answer, and are not part of the question."""


def normal_text(text: str) -> str:
    """A question as questions are compared: white space does not count, and case does."""
    return " ".join(text.split())


def first_attribute(trajectory: Trajectory, keys: Sequence[str]) -> str:
    """The first attribute in `keys` that a run has, as text; "" if it has none."""
    values = (trajectory.attributes.get(key) for key in keys)
    return next((str(value) for value in values if value not in (None, "")), "")


def case_text(trajectory: Trajectory, keys: Sequence[str]) -> str:
    r"""The text of a run's case: exactly the runs of the same case have the same text.

    Args:
        trajectory: The run.
        keys: The attributes that name a case; the first one present counts.

    Returns:
        The name; the question, with the number of a later turn; the question and its parts, after
        ``\0``, if it is long or has parts such as images; or the run's id.
    """
    case_name = first_attribute(trajectory, keys).strip()
    user_message = trajectory.question
    if case_name or user_message is None:
        return case_name or trajectory.id
    question = normal_text(user_message.content or "")
    text = question if trajectory.turn <= 1 else f"turn {trajectory.turn}: {question}"
    if not user_message.parts and len(question) <= LONGEST_CASE:
        return text
    return f"\0{text}\0{dumps(list(user_message.parts)) if user_message.parts else ''}"


def input_hash(inputs: Any) -> str:
    """A hash of an example's inputs."""
    return hashlib.blake2b(canonical(inputs).encode(), digest_size=8).hexdigest()


def case_id(inputs: Any) -> str:
    """The hash of the question in an example's inputs.

    If the inputs are messages, only the user's messages count. Inputs without messages of a user,
    and without a question as the only input, count as they are.
    """
    return input_hash(_asked(inputs))


def turn_case_id(inputs: Any, turn: int) -> str:
    """The hash of the question of a turn, with the number of the turn from the second on."""
    return case_id(inputs) if turn <= 1 else f"{case_id(inputs)}.{turn}"


def _asked(inputs: Any) -> Any:
    if isinstance(inputs, str):
        return normal_text(inputs)
    if isinstance(inputs, (list, tuple)):
        return _user_messages(inputs) or inputs
    if not isinstance(inputs, Mapping):
        return inputs
    asking = {name: value for name, value in inputs.items() if name not in _SETTINGS}
    for name in ("messages", "input"):
        if messages := _user_messages(asking.get(name)):
            other_inputs = {key: asking[key] for key in asking if key not in (name, "instructions")}
            return {**other_inputs, "messages": messages} if other_inputs else messages
    if len(asking) == 1:
        [(name, value)] = asking.items()
        if name in _QUESTIONS and isinstance(value, str):
            return normal_text(value)
    return inputs


def _user_messages(messages: Any) -> Any:
    """The content of a user's messages: a text if there is one message, else a list.

    A message is an object with ``role`` (or LangChain's ``type``) and ``content``, or a pair of
    both. Returns "" if the value is not a list of messages, or if the user wrote nothing.
    """
    if not isinstance(messages, (list, tuple)):
        return ""
    contents = []
    for message in messages:
        if isinstance(message, Mapping):
            role = message.get("role") or message.get("type")
            content, parts = message.get("content"), message.get("parts")
        elif isinstance(message, (list, tuple)) and len(message) == 2:
            (role, content), parts = message, None
        else:
            return ""
        if role in ("user", "human") and not _is_tool_result(content):
            contents.append(_content(content, parts))
    if not any(contents):
        return ""
    return contents[0] if len(contents) == 1 else contents


def _is_tool_result(content: Any) -> bool:
    """Whether the content of a user's message is the result of a tool, as in Anthropic's API."""
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content
    )


def _content(content: Any, parts: Any) -> Any:
    """The content of a message; content with parts other than text is a list."""
    if isinstance(content, (list, tuple)):
        blocks = [block.get("text") if isinstance(block, Mapping) else block for block in content]
        texts = [text for text in blocks if isinstance(text, str)]
        if len(texts) < len(blocks):
            return [content, parts] if parts else list(content)
        content = "\n".join(texts)
    text = normal_text(content) if isinstance(content, str) else content
    return [text, parts] if parts else text
