"""An agent with intercepted tools and a live model, and recordings of its sessions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oteval.model import RecordedToolCall, Recording
from oteval.replays.recording_files import save

from ..model_server import Body, Reply, completion
from .recorded import tool_request
from .shop import shop_recording

__all__ = ["CLERK", "clerk", "clerk_file", "clerk_recording", "write_clerk"]

CLERK = """
import json
import os
import sys

import httpx

from oteval.record.decorators import tool

URL = os.environ["MODEL_URL"]
client = httpx.Client(verify=False)
async_client = httpx.AsyncClient(verify=False)


@tool
def refund(order: int, reason: str = "none") -> str:
    with open("refunds", "a") as file:
        file.write(f"{order}\\n")
    return "refunded for real"


@tool
def lookup(order: int) -> str:
    raise AssertionError("a tool ran")


TOOLS = {"refund": refund, "lookup": lookup}


def body_of(messages, **more):
    return {"model": "m", "messages": messages, **more}


def chat(messages):
    reply = client.post(URL + "/chat/completions", json=body_of(messages))
    if reply.status_code >= 500:
        reply = client.post(URL + "/chat/completions", json=body_of(messages))
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]


def started(question):
    prompt = "You refund orders."
    return [{"role": "system", "content": prompt}, {"role": "user", "content": question}]


def use_tools(messages, reply):
    messages.append(reply)
    for call in reply.get("tool_calls") or ():
        function = TOOLS[call["function"]["name"]]
        try:
            result = function(**json.loads(call["function"]["arguments"]))
        except Exception as error:
            result = f"failed: {error}"
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return bool(reply.get("tool_calls"))


def target(question):
    messages = started(question)
    if question == "helped":
        help = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Help"}]
        chat(help)
    while use_tools(messages, chat(messages)):
        pass
    if question == "network":
        try:
            httpx.get("http://127.0.0.1:9/orders")
        except Exception:
            pass


async def later(question):
    messages = started(question)
    while True:
        reply = await async_client.post(URL + "/chat/completions", json=body_of(messages))
        reply.raise_for_status()
        if not use_tools(messages, reply.json()["choices"][0]["message"]):
            return


def hides(question):
    try:
        target(question)
    except Exception:
        print("sorry")


if __name__ == "__main__":
    target(sys.argv[1])
"""


def write_clerk(folder: Path) -> None:
    """Write the agent's module ``clerk`` into a folder."""
    (folder / "clerk.py").write_text(CLERK)


def clerk_recording(*questions: str, tools: Sequence[RecordedToolCall] = ()) -> Recording:
    """Return the recording of a session: each turn refunds order 17."""
    recording = shop_recording(*questions)
    calls = [
        tool_call
        for call in recording.model_calls
        if call.answer
        for tool_call in call.answer.tool_calls
    ]
    executed = [
        RecordedToolCall(call.name, call.arguments, "refunded", call_id=call.id) for call in calls
    ]
    return replace(recording, tool_calls=(*executed, *tools))


def clerk_file(folder: Path, *questions: str, **options: Any) -> Path:
    """Save the recording of a session, and return its file."""
    recording = clerk_recording(*questions, **options)
    path = folder / f"{recording.session}.jsonl"
    save(recording, path)
    return path


def clerk(body: Body, _number: int) -> Reply:
    """Script: the model asks for the refund of order 17, then answers like the recorded one."""
    questions = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if body["messages"][-1]["role"] == "tool":
        return completion(f"{questions[-1]}: done")
    return tool_request(("refund", json.dumps({"order": 17})))
