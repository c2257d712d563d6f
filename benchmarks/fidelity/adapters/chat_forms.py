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
        candidate = value.get("content")
        inner = candidate if inner is None and isinstance(candidate, dict) else inner
        if "role" in value or "kwargs" in value or value.get("type") in ("human", "ai", "tool"):
            yield from _message(value.get("kwargs") or value.get("data") or value)
        elif value.get("type") in ("function_call", "function_call_output"):
            yield from _item(value)
        elif inner is not None:
            yield from chat(
                [{"role": "user", "content": inner}] if isinstance(inner, str) else inner
            )


def _message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role = message.get("role") or message.get("type") or ""
    content = message.get("content") or message.get("parts") or ""
    parts = [_part(each) for each in content] if isinstance(content, list) else []
    requested = message.get("tool_calls") or [
        p for p in parts if "call" in p["type"] or "use" in p["type"]
    ]
    results = [part for part in parts if "result" in part["type"] or "response" in part["type"]]
    calls = [_call(each) for each in requested if each not in results]
    texts = [str(part.get("text") or part.get("content") or "") for part in parts if _is_text(part)]
    text = content if isinstance(content, str) else "".join(texts)
    if text or calls:
        message_form = {"role": _ROLES.get(role, role), "content": text, "calls": calls}
        yield {**message_form, "call_id": message.get("tool_call_id")}
    for part in results:
        answer = next((part[key] for key in ("response", "result", "content") if key in part), None)
        yield {
            "role": "tool",
            "content": answer,
            "call_id": part.get("tool_use_id") or part.get("toolUseId") or part.get("id"),
        }


def _part(part: Any) -> dict[str, Any]:
    """Return a part with a type; Gemini's have the type as their only key."""
    part = part if isinstance(part, dict) else {"text": str(part)}
    for kind in ("function_call", "function_response", "toolUse", "toolResult"):
        if isinstance(part.get(kind), dict):
            part = {"type": kind.lower(), **part[kind]}
    return {"type": "text", **part}


def _item(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an item of OpenAI's Responses API."""
    if item["type"] == "function_call":
        yield {"role": "assistant", "content": None, "calls": [_call(item)]}
    else:
        yield {"role": "tool", "content": item.get("output"), "call_id": item.get("call_id")}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call
    arguments = next(
        (function[key] for key in ("arguments", "args", "input") if key in function), None
    )
    call_id = call.get("call_id") or call.get("toolUseId") or call.get("id")
    return {"id": call_id, "name": function.get("name"), "arguments": arguments}


def _is_text(part: dict[str, Any]) -> bool:
    return part["type"] in ("text", "output_text", "input_text")
