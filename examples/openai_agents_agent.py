"""An agent of the OpenAI Agents SDK.

python examples/openai_agents_agent.py [QUESTION]
"""

from __future__ import annotations

import os
import sys

import shop
from agents import Agent, Runner, function_tool, set_default_openai_client
from openai import AsyncOpenAI
from opentelemetry import trace

import oteval

SYSTEM = "You are the order desk of a shop. Use the tools, and answer in one sentence per order."


@trace.get_tracer("shop").start_as_current_span("answer")
def answer(question: str) -> str:
    """Answer a question about orders, in a trace as a web framework would start it."""
    context = shop.gather_context("ada@example.com")
    # The SDK would send its own traces to OpenAI with the key in OPENAI_API_KEY.
    client = AsyncOpenAI(api_key=os.environ.get("MODEL_KEY", "none"))
    set_default_openai_client(client, use_for_tracing=False)
    agent = Agent(
        name="order-desk",
        model="scripted",
        instructions=SYSTEM,
        tools=[function_tool(shop.track_parcel), function_tool(shop.refund)],
    )
    return str(Runner.run_sync(agent, f"{context} Question: {question}").final_output)


def main() -> None:
    """Answer the question on the command line."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--instrument" in sys.argv:
        oteval.instrument(os.environ.get("TRACES"))
    print(answer(" ".join(words) or "Where are my orders A100 and B200?"))


if __name__ == "__main__":
    main()
