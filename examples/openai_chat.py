"""An agent on OpenAI's chat completions: a loop that runs the tools that the model asks for.

python examples/openai_chat.py [--stream] [--async] [QUESTION]
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
TOOLS: Any = [{"type": "function", "function": schema} for schema in shop.SCHEMAS]
RUN = {
    "track_parcel": oteval.tool(shop.track_parcel),
    "refund": oteval.tool(shop.refund),
}


def run_tool(call: dict[str, Any]) -> dict[str, Any]:
    """Run one tool call, and return its message."""
    function = call["function"]
    try:
        result = RUN[function["name"]](**json.loads(function["arguments"]))
    except ValueError as error:
        result = f"Error: {error}"
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


@oteval.agent(name="order-desk")
def answer(question: str, *, stream: bool = False) -> str:
    """Answer a question about orders."""
    messages = start(question)
    client = openai.OpenAI()
    while True:
        request: Any = {"model": "scripted", "messages": messages, "tools": TOOLS}
        if stream:
            with client.chat.completions.stream(**request) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**request).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        take(messages, message)


@oteval.agent(name="order-desk")
async def answer_async(question: str, *, stream: bool = False) -> str:
    """Answer a question about orders, without blocking."""
    messages = start(question)
    client = openai.AsyncOpenAI()
    while True:
        request: Any = {"model": "scripted", "messages": messages, "tools": TOOLS}
        if stream:
            async with client.chat.completions.stream(**request) as events:
                message = (await events.get_final_completion()).choices[0].message
        else:
            message = (await client.chat.completions.create(**request)).choices[0].message
        if not message.tool_calls:
            return message.content or ""
        take(messages, message)


def start(question: str) -> list[dict[str, Any]]:
    """Return the first messages of a conversation."""
    context = shop.gather_context("ada@example.com")
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{context} Question: {question}"},
    ]


def take(messages: list[dict[str, Any]], message: Any) -> None:
    """Append the model's message and the results of its tool calls."""
    calls = [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls]
    for call in calls:
        call["function"] = {key: call["function"][key] for key in ("name", "arguments")}
    messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
    messages.extend(run_tool(call) for call in calls)


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
