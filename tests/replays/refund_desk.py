"""An agent that refunds orders after the user's confirmation, and recordings of its sessions.

`desk` is the script of its model: a function of the conversation, so that it also makes the
recordings. The scripts of tests take `desk` and change single sessions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from oteval.model import Chunk, Exchange, RecordedToolCall, Recording
from oteval.replays.recording_files import save

from ..model_server import Body, Reply
from .recorded import model_call
from .shop import START, URL

__all__ = [
    "AGENT",
    "calls_of",
    "desk",
    "desk_files",
    "is_confirmed",
    "order_of",
    "reply_of",
    "write_desk",
]

AGENT = """
import json
import os

import httpx

from oteval.record.decorators import tool

URL = os.environ["MODEL_URL"]
client = httpx.Client(verify=False)
conversations = {}


@tool
def get_order(order_id: str) -> str:
    raise AssertionError("a tool ran")


@tool
def check_policy(order_id: str) -> str:
    raise AssertionError("a tool ran")


@tool
def refund_order(order_id: str, amount: float) -> str:
    raise AssertionError("a tool ran")


TOOLS = {"get_order": get_order, "check_policy": check_policy, "refund_order": refund_order}


def target(question, *, session, turn):
    prompt = {"role": "system", "content": "You are the refund desk."}
    messages = conversations.setdefault(session, [prompt])
    messages.append({"role": "user", "content": question})
    while True:
        reply = client.post(URL + "/chat/completions", json={"model": "m", "messages": messages})
        reply.raise_for_status()
        message = reply.json()["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            function = call["function"]
            result = TOOLS[function["name"]](**json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
"""

RESULTS = {
    "get_order": '{"amount": 42.0}',
    "check_policy": '{"refund": "full"}',
    "refund_order": '{"state": "refunded"}',
}


def write_desk(folder: Path) -> None:
    """Write the agent's module ``refund_desk`` into a folder."""
    (folder / "refund_desk.py").write_text(AGENT)


def order_of(body: Body) -> str:
    """Return the number of the order that a conversation is about."""
    questions = [message["content"] for message in body["messages"] if message["role"] == "user"]
    return re.findall(r"\d+", questions[0])[0]


def calls_of(body: Body) -> list[str]:
    """Return the tools that were called since the user's last message."""
    names: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            names = []
        names += [call["function"]["name"] for call in message.get("tool_calls") or ()]
    return names


def is_confirmed(body: Body) -> bool:
    """Return whether the user has written twice."""
    return sum(message["role"] == "user" for message in body["messages"]) > 1


def reply_of(body: Body, tool: str = "", text: str | None = None, **arguments: Any) -> Reply:
    """Return a reply of the model: a call of a tool for the order, or a text."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool:
        inside = json.dumps({"order_id": order_of(body), **arguments})
        call = {"id": f"call_{len(body['messages'])}", "type": "function"}
        message["tool_calls"] = [{**call, "function": {"name": tool, "arguments": inside}}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tool else "stop"}
    completion = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return Reply({**completion, "choices": [choice]})


def desk(body: Body, _number: int = 0) -> Reply:
    """Script: look the order up, check the policy, ask the user, and refund after the answer."""
    calls = calls_of(body)
    if is_confirmed(body):
        if not calls:
            return reply_of(body, "refund_order", amount=42.0)
        return reply_of(body, text="It is refunded.")
    steps = ["get_order", "check_policy"]
    if len(calls) < len(steps):
        return reply_of(body, steps[len(calls)])
    return reply_of(body, text="Shall I refund 42.00?")


def desk_files(folder: Path, orders: range) -> list[Path]:
    """Save a recorded session for each order, and return the files."""
    return [_desk_file(folder, order) for order in orders]


def _desk_file(folder: Path, order: int) -> Path:
    inputs = (f"Please refund order {order}", "Yes, please.")
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You are the refund desk."}]
    exchanges: list[Exchange] = []
    tools: list[RecordedToolCall] = []
    for question in inputs:
        messages.append({"role": "user", "content": question})
        while messages[-1]["role"] != "assistant":
            answer = desk({"messages": messages}).body
            exchanges.append(_exchange(messages, answer, len(exchanges)))
            messages.append(answer["choices"][0]["message"])
            for call in messages[-1].get("tool_calls") or ():
                name, arguments = (
                    call["function"]["name"],
                    json.loads(call["function"]["arguments"]),
                )
                tools.append(RecordedToolCall(name, arguments, RESULTS[name], call_id=call["id"]))
                result = {"role": "tool", "tool_call_id": call["id"], "content": RESULTS[name]}
                messages.append(result)
    recording = Recording(
        f"order-{order}",
        "wire",
        inputs=inputs,
        model_calls=tuple(map(model_call, exchanges)),
        tool_calls=tuple(tools),
    )
    path = folder / f"order-{order}.jsonl"
    save(recording, path)
    return path


def _exchange(messages: list[dict[str, Any]], answer: Any, number: int) -> Exchange:
    start = START + number * 1_000_000_000
    return Exchange(
        method="POST",
        url=URL,
        request_body=json.dumps({"model": "m", "messages": messages}).encode(),
        status=200,
        response_headers={"content-type": "application/json"},
        chunks=(Chunk(json.dumps(answer).encode()),),
        start_ns=start,
        end_ns=start + 500_000_000,
    )
