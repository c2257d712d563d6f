"""Small agents that replays are tested with, on the real openai client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx2
import openai

from ..model_server import Body, Reply, completion
from .recorded import tool_request

SYSTEM = "You are a refund agent."
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"The tool {name}.",
            "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}},
        },
    }
    for name in ("lookup", "refund")
]
RESULTS = {"lookup": "paid 30 EUR", "refund": "done"}


def refunds(body: Body, _number: int) -> Reply:
    """Script: the model asks for both tools in one message, then answers."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return completion("Refunded.")
    return tool_request(("lookup", '{"order": 17}'), ("refund", '{"order": 17}'))


def chat(url: str, system: str = SYSTEM, question: str = "Refund 17", **options: Any) -> str:
    """Ask the model once, and return its answer."""
    with client(url) as model:
        messages: list[Any] = [
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ]
        done = model.chat.completions.create(model="gpt-test", messages=messages, **options)
        return done.choices[0].message.content or ""


def client(url: str, **options: Any) -> openai.OpenAI:
    """Return a client without retries."""
    http = httpx2.Client(verify=False)  # loading certificates takes longer than a test
    return openai.OpenAI(
        base_url=url, api_key="k", http_client=http, **{"max_retries": 0, **options}
    )


def async_client(url: str, **options: Any) -> openai.AsyncOpenAI:
    """Return an asynchronous client without retries."""
    http = httpx2.AsyncClient(verify=False)
    return openai.AsyncOpenAI(
        base_url=url, api_key="k", http_client=http, **{"max_retries": 0, **options}
    )


def refund_agent(
    url: str,
    *,
    system: str = SYSTEM,
    results: Mapping[str, str] = RESULTS,
    order: Sequence[int] = (0, 1),
    tools: Sequence[Any] = TOOLS,
    model: str = "gpt-test",
) -> str:
    """Ask the model and run its tools until it answers; the order of tools can be changed."""

    def lookup(order: int) -> str:
        return results["lookup"]

    def refund(order: int) -> str:
        return results["refund"]

    functions: dict[str, Callable[..., str]] = {"lookup": lookup, "refund": refund}
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": "Refund order 17."},
    ]
    with client(url) as models:
        while True:
            done = models.chat.completions.create(model=model, messages=messages, tools=list(tools))
            message = done.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.to_dict())
            for index in order:
                call: Any = message.tool_calls[index]
                result = functions[call.function.name](**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def parallel_agent(
    url: str, questions: Sequence[str], delays: Sequence[float] = ()
) -> list[str]:
    """Ask the model several questions at the same time."""

    async def ask(models: openai.AsyncOpenAI, question: str, delay: float) -> str:
        await asyncio.sleep(delay)
        messages: list[Any] = [{"role": "user", "content": question}]
        done = await models.chat.completions.create(model="gpt-test", messages=messages)
        return done.choices[0].message.content or ""

    waits = delays or [0.0] * len(questions)
    async with async_client(url) as models:
        jobs = (
            ask(models, question, delay) for question, delay in zip(questions, waits, strict=True)
        )
        return list(await asyncio.gather(*jobs))
