"""The model of the agents: it calls each tool that it is offered once, and then says so.

It speaks OpenAI's chat completions, also streamed, and Gemini's ``generateContent``.
"""

from __future__ import annotations

import json
from typing import Any

from ...model_server import Body, Reply

_ANSWER = "Order 17: done."
_CODE = "Thought: refund it.\n<code>\nprint(refund(order_id=17, amount=40))\n</code>"
_END = f"Thought: done.\n<code>\nfinal_answer('{_ANSWER}')\n</code>"


def script(body: Body, number: int) -> Reply:
    """Answer a request."""
    if "contents" in body:
        return Reply(_gemini(body))
    messages = body["messages"]
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    is_done = "Please try again" in json.dumps(messages) or any(
        message["role"] in ("tool", "assistant") for message in messages
    )
    if not names and "<code>" in json.dumps(messages[0]["content"]):
        return _completion(body, {"content": _END if is_done else _CODE})
    if is_done and "final_answer" in names:
        return _completion(body, _call(number, "final_answer", {"answer": _ANSWER}))
    if is_done or not names:
        return _completion(body, {"content": _ANSWER})
    tool = next(tool["function"] for tool in body["tools"])
    return _completion(body, _call(number, tool["name"], _arguments(tool.get("parameters") or {})))


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of the right types for a tool."""
    values = {"order_id": 17, "amount": 40}
    return {name: values.get(name, "Please refund order 17") for name in schema["properties"]}


def _call(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def _completion(body: Body, message: dict[str, Any]) -> Reply:
    base = {"id": "c", "created": 1, "model": body["model"]}
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not body.get("stream"):
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": finish,
        }
        return Reply({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    delta = {"role": "assistant", **message}
    delta["tool_calls"] = [{"index": 0, **call} for call in message.get("tool_calls") or ()]
    base["object"] = "chat.completion.chunk"
    events = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**base, "choices": [], "usage": usage},
    ]
    return Reply(chunks=tuple(events))


def _gemini(body: Body) -> dict[str, Any]:
    is_done = any(
        "functionResponse" in part for content in body["contents"] for part in content["parts"]
    )
    call = {"name": "refund", "args": {"order_id": 17, "amount": 40}}
    part = {"text": _ANSWER} if is_done else {"functionCall": call}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return {"candidates": [candidate], "usageMetadata": usage}
