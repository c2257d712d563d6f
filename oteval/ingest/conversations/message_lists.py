"""Lists of messages, and objects that contain one.

- ``[{"role": "user", ...}, ...]``, in any form that `oteval.messages` reads;
- ``{"messages": [...], "tools": [...]}``, as for fine-tuning; other keys become attributes;
- ``{"inputs": {...}, "outputs": {...}}``: an example of LangSmith's datasets;
- ``{"conversations": [{"from": "human", "value": ...}]}``: ShareGPT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base.errors import InputError
from ...base.jsontext import dumps, loads
from ...messages import ROLES, forms_of
from ...model import ANSWER_ONLY, Message
from .recorded_run import RecordedRun, content_digest, read_messages, short_attributes, time_ns

__all__ = ["is_message", "is_message_list", "is_record", "run_of_list", "run_of_record"]

_LISTS = ("messages", "traj", "trajectory", "conversation", "conversations")
_TEXTS = ("input", "question", "query", "prompt", "output", "answer", "response", "text", "content")
_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "system": "system",
    "tool": "tool",
    "observation": "tool",
    "function_response": "tool",
}
_FORMAT = "messages"
_CONVERSATIONS = ("conversation_id", "session_id", "thread_id")


def is_message(document: Any) -> bool:
    """Whether an object is a message, or an item of OpenAI's Responses API."""
    if not isinstance(document, dict):
        return False
    if any(form.get("role") in ROLES for form in forms_of(document, "")):
        return True
    kind = document.get("type")
    return isinstance(kind, str) and kind.endswith(("_call", "_call_output", "reasoning"))


def is_message_list(document: Any) -> bool:
    """Whether a document is a list of messages."""
    return isinstance(document, list) and bool(document) and all(map(is_message, document))


def is_record(document: Mapping[str, Any]) -> bool:
    """Whether an object contains a list of messages, or an example's inputs and outputs."""
    if "inputs" in document and "outputs" in document:
        return isinstance(document["inputs"], dict)
    items = _list_of(document)
    return items is not None and all(isinstance(item, dict) for item in items)


def _list_of(document: Mapping[str, Any]) -> list[Any] | None:
    return next((document[key] for key in _LISTS if isinstance(document.get(key), list)), None)


def run_of_list(items: list[Any], ordinal: int) -> RecordedRun:
    """The run of a list of messages.

    Args:
        items: The messages.
        ordinal: The number of the run in its file, which distinguishes equal runs.
    """
    return RecordedRun(
        _FORMAT, f"{content_digest(items)}:{ordinal}", read_messages(items, "the list")
    )


def run_of_record(document: Mapping[str, Any], ordinal: int) -> RecordedRun:
    """The run of an object that contains messages.

    Args:
        document: The object.
        ordinal: The number of the run in its file, which distinguishes equal runs.

    Raises:
        InputError: An item of its list is not a message.
    """
    messages = _messages_of(document)
    text = _text_of(document)
    tools = document.get("tools")
    reward = document.get("reward")
    has_reward = isinstance(reward, (int, float)) and not isinstance(reward, bool)
    start = next((document[key] for key in ("start_time", "created_at") if key in document), None)
    metadata = document.get("metadata")
    attributes = {
        **short_attributes(metadata if isinstance(metadata, Mapping) else {}),
        **short_attributes({key: value for key, value in document.items() if key != "content"}),
    }
    return RecordedRun(
        _FORMAT,
        f"{content_digest(document)}:{0 if text('id') else ordinal}",
        messages,
        conversation_id=next(filter(None, map(text, _CONVERSATIONS)), ""),
        models=(text("model"),),
        tools=[tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else (),
        start_ns=time_ns(start),
        gaps=() if _has_messages(document) else (ANSWER_ONLY,),
        attributes=attributes,
        scores={"reward": (float(reward or 0), None, "")} if has_reward else {},
    )


def _text_of(document: Mapping[str, Any]) -> Callable[[str], str]:
    """A function that returns a text of an object, or ""."""
    return lambda key: value if isinstance(value := document.get(key), str) else ""


def _has_messages(document: Mapping[str, Any]) -> bool:
    """Whether the outputs of an example are messages, and not the answer alone."""
    if "inputs" not in document or "outputs" not in document:
        return True
    outputs = document["outputs"]
    return isinstance(outputs, Mapping) and _list_of(outputs) is not None


def _messages_of(document: Mapping[str, Any]) -> tuple[Message, ...]:
    if "inputs" in document and "outputs" in document:
        input_messages = _side(document["inputs"], "inputs", "user")
        return (*input_messages, *_side(document["outputs"], "outputs", "assistant"))
    key = next(key for key in _LISTS if isinstance(document.get(key), list))
    items = document[key]
    if any(isinstance(item, dict) and "from" in item for item in items):
        items = [_of_sharegpt(item, index) for index, item in enumerate(items)]
    return read_messages(items, key)


def _side(fields: Any, field_path: str, role: str) -> tuple[Message, ...]:
    """The messages of an example's inputs or outputs."""
    if fields is None:
        return ()
    if isinstance(fields, str):
        return (Message(role, fields),)
    if not isinstance(fields, Mapping):
        raise InputError(f"{field_path} is neither an object nor a text")
    if (items := _list_of(fields)) is not None:
        return read_messages(items, f"{field_path}.messages")
    for key in ("message", "output", "input"):
        if isinstance(fields.get(key), dict) and is_message(fields[key]):
            return read_messages([fields[key]], f"{field_path}.{key}")
    texts = [fields[key] for key in _TEXTS if isinstance(fields.get(key), str)]
    if not texts and len(fields) == 1:
        texts = [value for value in fields.values() if isinstance(value, str)]
    return (Message(role, texts[0] if texts else dumps(dict(fields))),)


def _of_sharegpt(item: Any, index: int) -> dict[str, Any]:
    speaker = item.get("from") if isinstance(item, dict) else None
    value = item.get("value") if isinstance(item, dict) else None
    if speaker == "function_call" and isinstance(value, str):
        return {"role": "assistant", "tool_calls": [{"function": _call_of(value, index)}]}
    if speaker not in _SHAREGPT_ROLES:
        names = ", ".join((*_SHAREGPT_ROLES, "function_call"))
        raise InputError(f"conversations[{index}].from is {speaker!r}; known are {names}")
    return {"role": _SHAREGPT_ROLES[speaker], "content": value}


def _call_of(text: str, index: int) -> dict[str, Any]:
    try:
        call = loads(text)
    except (ValueError, RecursionError):
        call = None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise InputError(f"conversations[{index}].value is not a call with a name, as JSON")
    return {"name": call["name"], "arguments": call.get("arguments", call.get("parameters"))}
