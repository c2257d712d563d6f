"""A Pydantic AI agent.

python examples/pydantic_ai_agent.py [QUESTION]
"""

from __future__ import annotations

import os
import sys

import shop
from opentelemetry import trace
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

import oteval

SYSTEM = "You are the order desk of a shop. Use the tools, and answer in one sentence per order."


@trace.get_tracer("shop").start_as_current_span("answer")
def answer(question: str) -> str:
    """Answer a question about orders, in a trace as a web framework would start it."""
    context = shop.gather_context("ada@example.com")
    agent = Agent(
        OpenAIChatModel("scripted"),
        name="order-desk",
        instructions=SYSTEM,
        tools=[shop.track_parcel, shop.refund],
    )
    return agent.run_sync(f"{context} Question: {question}").output


def main() -> None:
    """Answer the question on the command line."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--instrument" in sys.argv:
        oteval.instrument(os.environ.get("TRACES"))
    print(answer(" ".join(words) or "Where are my orders A100 and B200?"))


if __name__ == "__main__":
    main()
