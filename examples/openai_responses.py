"""An agent on OpenAI's Responses API: a loop that runs the tools that the model asks for.

python examples/openai_responses.py [--stream] [--async] [QUESTION]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import openai
import shop

import oteval

SYSTEM = "You are the order desk of a shop. Use the tools, and answer in one sentence per order."
TOOLS: Any = [{"type": "function", "strict": True, **schema} for schema in shop.SCHEMAS]
RUN = {
    "track_parcel": oteval.tool(shop.track_parcel),
    "refund": oteval.tool(shop.refund),
}


def run_tool(item: Any) -> dict[str, Any]:
    """Run one tool call, and return its output item."""
    try:
        result = RUN[item.name](**json.loads(item.arguments))
    except ValueError as error:
        result = f"Error: {error}"
    return {"type": "function_call_output", "call_id": item.call_id, "output": result}


@oteval.agent(name="order-desk")
def answer(question: str, *, stream: bool = False) -> str:
    """Answer a question about orders."""
    items = start(question)
    client = openai.OpenAI()
    while True:
        request: Any = {"model": "scripted", "instructions": SYSTEM, "input": items, "tools": TOOLS}
        if stream:
            with client.responses.stream(**request) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(**request)
        if not take(items, response):
            return response.output_text


@oteval.agent(name="order-desk")
async def answer_async(question: str, *, stream: bool = False) -> str:
    """Answer a question about orders, without blocking."""
    items = start(question)
    client = openai.AsyncOpenAI()
    while True:
        request: Any = {"model": "scripted", "instructions": SYSTEM, "input": items, "tools": TOOLS}
        if stream:
            async with client.responses.stream(**request) as events:
                response = await events.get_final_response()
        else:
            response = await client.responses.create(**request)
        if not take(items, response):
            return response.output_text


def start(question: str) -> list[Any]:
    """Return the first items of a conversation."""
    context = shop.gather_context("ada@example.com")
    return [{"role": "user", "content": f"{context} Question: {question}"}]


def take(items: list[Any], response: Any) -> bool:
    """Append the model's calls and their results; return whether there were any."""
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        items.append(
            {
                "type": "function_call",
                "call_id": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            }
        )
    items.extend(run_tool(call) for call in calls)
    return bool(calls)


def main() -> None:
    """Answer the question on the command line."""
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    question = " ".join(words) or "Where are my orders A100 and B200?"
    if "--instrument" in options:
        oteval.instrument(os.environ.get("TRACES"))
    is_stream = "--stream" in options
    if "--async" in options:
        print(asyncio.run(answer_async(question, stream=is_stream)))
    else:
        print(answer(question, stream=is_stream))


if __name__ == "__main__":
    main()
