"""A small agent without a framework, as a module of the user's, and recordings of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oteval.model import Chunk, Exchange, Recording
from oteval.replays.recording_files import save

from .recorded import model_call

__all__ = ["SHOP", "START", "recording_file", "shop_recording", "write_shop"]

URL = "http://models.example/v1/chat/completions"
START = 1_700_000_000_000_000_000

SHOP = """
import datetime
import json
import os
import sys
import threading

import httpx

client = httpx.Client(verify=False)
turns = {}


def chat(messages):
    body = {"model": "m", "messages": messages}
    reply = client.post("http://models.example/v1/chat/completions", json=body)
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]


def answer(question, prompt="You refund orders."):
    messages = [{"role": "system", "content": prompt}, {"role": "user", "content": question}]
    return run(messages)


def run(messages):
    while True:
        reply = chat(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            content = refund(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


def refund(order):
    with open("refunds", "a") as file:
        file.write(f"{order}\\n")
    return "refunded"


def target(question):
    print("asked:", question)
    if question == "raises":
        raise ValueError("no such order")
    if question == "crashes":
        os._exit(7)
    if question == "hangs":
        threading.Event().wait()
    if question == "hidden":
        try:
            return answer(question, prompt="You refund nothing.")
        except Exception:
            return "sorry"
    if question == "today":
        return answer(question, prompt=f"Today is {datetime.date.today()}.")
    return answer(question)


async def in_turns(question, *, session, turn):
    messages = turns.setdefault(session, [{"role": "system", "content": "You refund orders."}])
    assert len([one for one in messages if one["role"] == "user"]) == turn - 1
    messages.append({"role": "user", "content": question})
    return run(messages)


if __name__ == "__main__":
    for question in sys.argv[1:] or sys.stdin.read().splitlines():
        print(target(question))
"""


def write_shop(folder: Path) -> None:
    """Write the agent's module ``shop`` into a folder."""
    (folder / "shop.py").write_text(SHOP)


def shop_recording(
    *questions: str, prompt: str = "You refund orders.", session: str = ""
) -> Recording:
    """Return the recording of a conversation: each turn calls a tool once."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}]
    exchanges: list[Exchange] = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        call = {"id": f"c{len(messages)}", "type": "function"}
        call["function"] = {"name": "refund", "arguments": '{"order": 17}'}
        tool_request = {"role": "assistant", "content": None, "tool_calls": [call]}
        exchanges.append(_exchange(messages, tool_request, len(exchanges)))
        result = {"role": "tool", "tool_call_id": call["id"], "content": "refunded"}
        messages += [tool_request, result]
        reply = {"role": "assistant", "content": f"{question}: done"}
        exchanges.append(_exchange(messages, reply, len(exchanges)))
        messages.append(reply)
    name = session or "-".join(questions).replace(" ", "_")
    calls = tuple(map(model_call, exchanges))
    return Recording(name, "wire", inputs=tuple(questions), model_calls=calls)


def _exchange(messages: Sequence[Any], reply: dict[str, Any], number: int) -> Exchange:
    choice = {"index": 0, "message": reply, "finish_reason": "stop"}
    body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    start = START + number * 1_000_000_000
    return Exchange(
        method="POST",
        url=URL,
        request_body=json.dumps({"model": "m", "messages": list(messages)}).encode(),
        status=200,
        response_headers={"content-type": "application/json"},
        chunks=(Chunk(json.dumps(body).encode()),),
        start_ns=start,
        end_ns=start + 500_000_000,
    )


def recording_file(folder: Path, *questions: str, **options: Any) -> Path:
    """Save the recording of a conversation, and return its file."""
    recording = shop_recording(*questions, **options)
    path = folder / f"{recording.session}.jsonl"
    save(recording, path)
    return path
