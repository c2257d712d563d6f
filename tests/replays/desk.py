"""An agent for tests of written tests: two tools before its loop, and two that the model calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oteval.model import RecordedToolCall, Recording
from oteval.record.wire.interception import add

from ..model_server import serving
from .agents import refunds
from .recorded import ExchangeLog, recording_of

__all__ = ["DESK", "EDITS", "QUESTION", "desk_recording"]

QUESTION = "Refund order 17, please"
RESULTS = {
    "find_customer": '{"name":"Ada"}',
    "recent_orders": '["A100"]',
    "lookup": 'Result: {"order": 17, "paid": 30}',
    "refund": 'Result: "done"',
}

DESK = """
import asyncio
import json

import httpx2
import openai

import oteval

SYSTEM = "You refund orders."


@oteval.tool
def find_customer(email):
    return {"name": "Ada"}


@oteval.tool
def recent_orders(email):
    return ["A100"]


@oteval.tool
def lookup(order):
    return {"order": order, "paid": 30}


@oteval.tool
def refund(order):
    return "done"


TOOLS = {"lookup": lookup, "refund": refund}


def ask(question):
    customer = find_customer("ada@example.com")
    orders = recent_orders("ada@example.com")
    messages = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{customer['name']} has {orders}: {question}"},
    ]
    http = httpx2.Client(verify=False)
    with openai.OpenAI(max_retries=0, http_client=http) as client:
        while True:
            answered = client.chat.completions.create(model="gpt-test", messages=messages)
            message = answered.choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.to_dict())
            for call in message.tool_calls:
                result = TOOLS[call.function.name](**json.loads(call.function.arguments))
                text = f"Result: {json.dumps(result)}"
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


async def aask(question):
    return await asyncio.to_thread(ask, question)
"""

EDITS = {
    "the model's tools in another order": (
        "in message.tool_calls:",
        "in reversed(message.tool_calls):",
        "tool_order: refund ran before lookup",
    ),
    "the agent's tools in another order": (
        """    customer = find_customer("ada@example.com")
    orders = recent_orders("ada@example.com")
""",
        """    orders = recent_orders("ada@example.com")
    customer = find_customer("ada@example.com")
""",
        "tool_order: recent_orders ran before find_customer",
    ),
    "another prompt": (
        "You refund orders.",
        "You refund orders quickly.",
        "actual:   You refund orders quickly.",
    ),
    "a dropped tool": (
        'orders = recent_orders("ada@example.com")',
        'orders = ["A100"]',
        "recent_orders",
    ),
}
"""Changes of the agent: the old text, the new one, and a part of the failure that it causes."""


def desk_recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Return a recording of the agent, with a scripted server as its model."""
    namespace: dict[str, Any] = {}
    exec(compile(DESK, "desk.py", "exec"), namespace)
    log = ExchangeLog()
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with serving(refunds) as server, add(log):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert namespace["ask"](QUESTION) == "Refunded."
    monkeypatch.delenv("OPENAI_API_KEY")
    first, second = log.exchanges
    spans = [
        _tool("find_customer", first.start_ns - 400, {"email": "ada@example.com"}),
        _tool("recent_orders", first.start_ns - 200, {"email": "ada@example.com"}),
        _tool("lookup", first.end_ns + 100, {"order": 17}, '{"order":17,"paid":30}', "call_1"),
        _tool("refund", first.end_ns + 300, {"order": 17}, "done", "call_2"),
    ]
    assert second.start_ns > spans[-1].end_ns
    recording = recording_of(log.exchanges, spans)
    return replace(recording, session="4f2a91c0d1e2f3a4", inputs=(QUESTION,))


def _tool(
    name: str, start: int, arguments: Any, own: str | None = None, call_id: str = ""
) -> RecordedToolCall:
    return RecordedToolCall(
        name,
        arguments,
        RESULTS[name],
        call_id=call_id,
        start_ns=start,
        end_ns=start + 100,
        span_id=name,
        own_result=own,
    )
