"""Messages in the forms that a page with chats shows: OpenAI, GenAI, Anthropic, LangChain.

MLflow stores a model span's request and answer as they are, and its page shows them as a chat.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ROLES = {"human": "user", "ai": "assistant", "model": "assistant"}


def chat(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the messages of a request or an answer."""
    if isinstance(value, list):
        for item in value:
            yield from chat(item)
    elif isinstance(value, dict):
        keys = ("messages", "input", "contents", "choices", "output", "generations", "candidates")
        inner = next((value[key] for key in (*keys, "message") if value.get(key)), None)
        if "role" in value or "kwargs" in value or value.get("type") in ("human", "ai", "tool"):
            yield from _message(value.get("kwargs") or value)
        elif value.get("type") in ("function_call", "function_call_output"):
            yield from _item(value)
        elif inner is not None:
            yield from chat(
                [{"role": "user", "content": inner}] if isinstance(inner, str) else inner
            )


def _message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role = message.get("role") or message.get("type") or ""
    content = message.get("content") or message.get("parts") or ""
    parts = (
        [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    texts = [str(part.get("text") or part.get("content") or "") for part in parts if _is_text(part)]
    functions = [call.get("function") or call for call in message.get("tool_calls") or []]
    ids = [call.get("id") for call in message.get("tool_calls") or []]
    calls = [_call(function, call_id) for function, call_id in zip(functions, ids, strict=True)]
    calls += [
        _call(part, part.get("id"))
        for part in parts
        if "call" in _kind(part) or "use" in _kind(part)
    ]
    results = [part for part in parts if "result" in _kind(part) or "response" in _kind(part)]
    calls = [call for call in calls if call["name"]]
    text = content if isinstance(content, str) else "".join(texts)
    if text or calls:
        known = {"role": _ROLES.get(role, role), "content": text, "calls": calls}
        yield {**known, "call_id": message.get("tool_call_id")}
    for part in results:
        answer = next((part[key] for key in ("response", "result", "content") if key in part), None)
        yield {
            "role": "tool",
            "content": answer,
            "call_id": part.get("tool_use_id") or part.get("id"),
        }


def _item(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an item of OpenAI's Responses API."""
    if item["type"] == "function_call":
        yield {"role": "assistant", "content": None, "calls": [_call(item, item.get("call_id"))]}
    else:
        yield {"role": "tool", "content": item.get("output"), "call_id": item.get("call_id")}


def _call(call: dict[str, Any], call_id: Any) -> dict[str, Any]:
    arguments = next((call[key] for key in ("arguments", "args", "input") if key in call), None)
    return {"id": call_id, "name": call.get("name"), "arguments": arguments}


def _kind(part: dict[str, Any]) -> str:
    return str(part.get("type", ""))


def _is_text(part: dict[str, Any]) -> bool:
    return _kind(part) in ("text", "output_text", "input_text", "") and "call" not in _kind(part)
