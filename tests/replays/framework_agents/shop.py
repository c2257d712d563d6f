"""The shop's tools, which act: each call is a line in the file of effects."""

from __future__ import annotations

import os
from pathlib import Path

MODEL = "gpt-5-mini"
KEY = "sk-none"
SYSTEM = "You are the shop clerk."


def base_url() -> str:
    """Return the address of the model."""
    return os.environ["OPENAI_BASE_URL"]


def act(order_id: int, amount: int) -> dict[str, object]:
    """Give the money back."""
    with Path(os.environ["EFFECTS"]).open("a") as effects:
        effects.write(f"refund {order_id} {amount}\n")
    return {"state": "refunded", "amount": amount}


def refund(order_id: int, amount: int) -> dict[str, object]:
    """Refund an order."""
    return act(order_id, amount)


async def refund_later(order_id: int, amount: int) -> dict[str, object]:
    """Refund an order."""
    return act(order_id, amount)


def refund_fails(order_id: int, amount: int) -> str:
    """Refund an order."""
    act(order_id, amount)
    raise ValueError("the till is closed")
