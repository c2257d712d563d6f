"""The agent of `oteval demo`, whose sessions it replays without a model, a key or a network.

oteval replay verify 9a49abde --db oteval-demo/demo.duckdb -- python examples/refunds_agent.py
"""

from __future__ import annotations

import json
import sys
from typing import Any

import openai

SYSTEM = "You are a refund agent. Read the order and the policy before you refund anything."


def get_order(order_id: str) -> dict[str, Any]:
    """Return an order."""
    return {"order_id": order_id, "item": "headphones", "amount": 42.0, "state": "delivered"}


def check_policy(category: str) -> dict[str, Any]:
    """Return the refund policy of a category of goods."""
    return {"category": category, "days": 30, "refund": "full"}


def refund_order(order_id: str, amount: float) -> dict[str, Any]:
    """Refund an order; a replay answers this function from the recording and does not call it."""
    raise RuntimeError(f"{amount} EUR would be paid for order {order_id}")


TOOLS: Any = {
    "get_order": get_order,
    "check_policy": check_policy,
    "refund_order": refund_order,
}
DEFINITIONS: Any = [{"type": "function", "function": {"name": name}} for name in TOOLS]


def answer(question: str) -> str:
    """Answer a customer."""
    client = openai.OpenAI()
    messages: Any = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question},
    ]
    while True:
        completion = client.chat.completions.create(
            model="gpt-5-mini", messages=messages, tools=DEFINITIONS
        )
        message = completion.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        messages.append(message.model_dump(exclude_none=True))
        for call in message.model_dump()["tool_calls"]:
            function = call["function"]
            result = TOOLS[function["name"]](**json.loads(function["arguments"]))
            content = json.dumps(result)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


if __name__ == "__main__":
    print(answer(sys.stdin.read()))
