"""A newcomer with an agent: the first score, then an edited prompt and the run that it breaks.

    python -m scripts.newcomer ENVIRONMENT FOLDER

The environment has oteval, OpenAI's client and LangGraph, and nothing of this repository. In an
empty folder, a plain agent and an agent of LangGraph are recorded and scored by the commands of
README's first screen. Then their prompt is edited, and `oteval whatif` must name the one run that
breaks, in its first line, and no other. The model is a local server that reads the prompt. The CPU
time of oteval's commands is limited.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MOST_CPU = 20.0  # seconds, from the first command to the first score
TIMEOUT = 600  # seconds of a command
README = Path(__file__).resolve().parent.parent / "README.md"
QUESTIONS = [f"Refund order {number}" for number in (11, 12, 13, 14)]
BROKEN = "Refund order 13"
RULE = " Check the policy before you refund anything."
PLAIN = """
import json
import sys

from openai import OpenAI

SYSTEM = "You are a refund agent. Check the policy before you refund anything."


def check_policy(order_id):
    return f"order {order_id} may be refunded"


def refund_order(order_id):
    return f"order {order_id} is refunded"


RUN = {"check_policy": check_policy, "refund_order": refund_order}
ORDER = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": ORDER}}
    for name in RUN
]


def answer(question):
    client = OpenAI()
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    while True:
        reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = RUN[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    print(answer(sys.argv[1]))
"""
GRAPH = '''
import sys

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

SYSTEM = "You are a refund agent. Check the policy before you refund anything."


@tool
def check_policy(order_id: str) -> str:
    """Check whether an order may be refunded."""
    return f"order {order_id} may be refunded"


@tool
def refund_order(order_id: str) -> str:
    """Refund an order."""
    return f"order {order_id} is refunded"


TOOLS = [check_policy, refund_order]


def model(state):
    chat = ChatOpenAI(model="m").bind_tools(TOOLS)
    return {"messages": [chat.invoke([SystemMessage(SYSTEM), *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", ToolNode(TOOLS))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile()

if __name__ == "__main__":
    print(agent.invoke({"messages": [("user", sys.argv[1])]})["messages"][-1].content)
'''


def decide(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The model's answer: it checks the policy if the prompt says so, and often without."""
    order = re.findall(r"\d+", next(m["content"] for m in messages if m["role"] == "user"))[0]
    called = [call["function"]["name"] for m in messages for call in m.get("tool_calls") or ()]
    checks = any(RULE.strip() in str(m["content"]) for m in messages if m["role"] == "system")
    tools = ["check_policy", "refund_order"] if checks or order != "13" else ["refund_order"]
    if len(called) == len(tools):
        return {"role": "assistant", "content": f"Order {order} is refunded."}
    function = {"name": tools[len(called)], "arguments": json.dumps({"order_id": order})}
    call = {"id": f"call_{len(messages)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Model(BaseHTTPRequestHandler):
    """OpenAI's chat completions."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = decide(request["messages"])
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        answer = {
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": reason, "message": message}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
        }  # fmt: skip
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def model_server() -> Iterator[str]:
    """Serve the model on a free port, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


class Newcomer:
    """Commands of an environment, run in an empty folder."""

    def __init__(self, environment: Path, folder: Path, model_url: str) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._environ = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            "PATH": f"{environment.absolute() / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": model_url,
            "OPENAI_API_KEY": "none",
            "COLUMNS": "160",
        }

    def run(self, *command: str, status: int = 0) -> str:
        """Run a command that must have an exit status, and return its output."""
        print(f"$ {' '.join(command)}", flush=True)
        completed = subprocess.run(  # noqa: S603
            command, cwd=self.folder, env=self._environ, stdout=subprocess.PIPE, text=True,
            check=False, timeout=TIMEOUT,
        )  # fmt: skip
        if completed.returncode != status:
            raise SystemExit(f"{command}: exit status {completed.returncode}\n{completed.stdout}")
        return completed.stdout


def cpu() -> float:
    """The CPU seconds of the commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Step:
    """A command of the README.

    Attributes:
        words: The command and its arguments.
        status: The exit status that its comment names, or 0.
        lines: The lines of output below it, without those that say "...".
    """

    words: list[str]
    status: int
    lines: list[str]


def steps(text: str) -> Iterator[Step]:
    """Yield the commands of a part of the README, in order."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            status = re.search(r"# exit status (\d)", command)
            lines = [line for line in output.splitlines() if line != "..."]
            yield Step(shlex.split(command, comments=True), int(status[1]) if status else 0, lines)


def first_screen() -> list[Step]:
    """The oteval commands of README's first screen."""
    screen = README.read_text("utf-8").partition("![")[0]
    return [step for step in steps(screen) if step.words[0] == "oteval"]


def play(newcomer: Newcomer, program: str) -> dict[str, float]:
    """Record, score, edit and repeat; return the CPU seconds of both halves.

    Args:
        newcomer: The environment and its empty folder.
        program: The agent's program.
    """
    record, *first_steps, repeat = first_screen()
    agent = newcomer.folder / "agent.py"
    agent.write_text(program)
    begin = cpu()
    newcomer.run(*record.words[:-1], QUESTIONS[0])
    for step in first_steps:
        output = newcomer.run(*step.words, status=step.status)
    first_score = cpu() - begin
    if "pass rate" not in output:
        raise SystemExit(f"no score in\n{output}")
    if first_score > MOST_CPU:
        raise SystemExit(f"{first_score:.1f} s of CPU to the first score, at most {MOST_CPU}")
    for question in QUESTIONS[1:]:
        newcomer.run(*record.words[:-1], question)
    agent.write_text(program.replace(RULE, ""))
    begin = cpu()
    printed = newcomer.run(*repeat.words, status=repeat.status).splitlines()
    broken = [line for line in printed if line.startswith("✗")]
    if printed[0] != repeat.lines[0] or not all(BROKEN in line for line in broken):
        raise SystemExit("the broken run is not the only one named:\n" + "\n".join(printed))
    if missing := [line for line in repeat.lines if line not in printed]:
        raise SystemExit(f"the README shows other lines: {missing}")
    print(printed[0])
    return {"first score": round(first_score, 1), "what broke": round(cpu() - begin, 1)}


def main() -> int:
    """Play the newcomer with each agent, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with model_server() as url:
        for name, program in (("openai", PLAIN), ("langgraph", GRAPH)):
            newcomer = Newcomer(arguments.environment, arguments.folder / name, url)
            print(f"{name}, CPU seconds: {json.dumps(play(newcomer, program))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
