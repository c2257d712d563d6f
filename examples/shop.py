"""The tools of the example agents: an order desk that keeps its data in memory.

The functions answer the same arguments always with the same result, so that a replay can run them.
"""

from __future__ import annotations

import json

import oteval

CUSTOMERS = {"ada@example.com": {"name": "Ada", "since": 2019}}
ORDERS = {"ada@example.com": ["A100", "B200"]}
PARCELS = {"A100": "in transit, arrives on Friday", "B200": "lost by the carrier"}


@oteval.tool
def find_customer(email: str) -> str:
    """Return the customer with an email address, as JSON."""
    return json.dumps(CUSTOMERS[email])


@oteval.tool
def recent_orders(email: str) -> str:
    """Return the ids of a customer's recent orders, as JSON."""
    return json.dumps(ORDERS[email])


def track_parcel(order_id: str) -> str:
    """Return where the parcel of an order is."""
    if order_id not in PARCELS:
        raise ValueError(f"unknown order {order_id}")
    return f"{order_id}: {PARCELS[order_id]}"


def refund(order_id: str, reason: str) -> str:
    """Refund an order."""
    return f"{order_id}: refunded, because {reason}"


SCHEMAS = [
    {
        "name": "track_parcel",
        "description": "Return where the parcel of an order is.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
            "additionalProperties": False,
        },
    },
    {
        "name": "refund",
        "description": "Refund an order.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "reason": {"type": "string"}},
            "required": ["order_id", "reason"],
            "additionalProperties": False,
        },
    },
]
"""The definitions of the model's tools: name, description and JSON schema."""


def gather_context(email: str) -> str:
    """Return the context that every conversation starts with; two tools, one after the other."""
    customer = find_customer(email)
    orders = recent_orders(email)
    return f"Customer: {customer}. Recent orders: {orders}."
