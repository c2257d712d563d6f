"""Recorded sessions verified with a function, as `oteval replay verify --target` does it.

The agent is a loop over httpx: three model calls and two tools a session, and each session has its
own messages of about 1 KB. Inside the clock is the whole command on two worker processes: starting
them, reading the recordings, comparing each request with the recorded ones, the blocked network,
and the report. The recordings come from files, or from a database with the spans and the HTTP
exchanges of the sessions. The limit is 500 sessions a minute. Beside it is the time of the agent
alone, whose requests are answered from memory.

    python -m benchmarks.replay_verify
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import parts
from .checks import check
from .clock import ROOT, module, run
from .report import Row, below

FULL = {"sessions": 500, "workers": 2}
QUICK = {"sessions": 100, "workers": 2}

AT_MOST = 60.0 / 500  # seconds for each session
URL = "http://models.example/v1/chat/completions"
TEXT = "It was paid with a card, and it is late. " * 20
TOOLS = ("look_up", "refund")

AGENT = f"""
import json

import httpx

client = httpx.Client(verify=False)


def look_up(order):
    return f"{{order}}: {TEXT}"


def refund(order):
    return f"{{order}}: {TEXT}"


def ask(question, client=client):
    messages = [
        {{"role": "system", "content": "You refund orders. " * 40}},
        {{"role": "user", "content": question}},
    ]
    while True:
        body = {{"model": "m", "messages": messages}}
        reply = client.post({URL!r}, json=body).json()["choices"][0]["message"]
        messages.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            tool = globals()[call["function"]["name"]]
            result = tool(**json.loads(call["function"]["arguments"]))
            messages.append({{"role": "tool", "tool_call_id": call["id"], "content": result}})
"""


def reply_to(body: dict[str, Any]) -> dict[str, Any]:
    """Return the model's answer: it calls each tool once, then says that it is done."""
    messages = body["messages"]
    order = messages[1]["content"].split()[2]
    done = sum(message["role"] == "tool" for message in messages)
    message: dict[str, Any] = {"role": "assistant", "content": f"Order {order}: done."}
    if done < len(TOOLS):
        function = {"name": TOOLS[done], "arguments": json.dumps({"order": order})}
        call = {"id": f"c{done}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def question(number: int) -> str:
    """Return the user's message of a session."""
    return f"Refund order W{number:06d}, please. {TEXT}"


def alone(folder: Path, sessions: int) -> float:
    """Return the seconds that the agent takes with answers from memory."""
    import httpx

    sys.path.insert(0, str(folder))
    import bench_agent  # type: ignore[import-not-found]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=reply_to(json.loads(request.content)))

    client = httpx.Client(transport=httpx.MockTransport(answer))
    start = time.perf_counter()
    for number in range(sessions):
        answer_text = bench_agent.ask(question(number), client)
    seconds = time.perf_counter() - start
    check(answer_text.endswith(": done."), "the agent gives its answer", answer_text)
    return seconds


def fill(folder: Path, sessions: int) -> None:
    """Write a file for each recorded session."""
    from oteval.model import Chunk, Exchange, RecordedModelCall, Recording
    from oteval.reconstruct.apis import api_of
    from oteval.replays.recording_files import save

    api = api_of("POST", URL)
    assert api is not None
    for number in range(sessions):
        calls = []
        for at, (sent, received) in enumerate(exchanges(number)):
            start = 1_700_000_000_000_000_000 + at * 1_000_000_000
            exchange = Exchange(
                "POST",
                URL,
                request_body=sent,
                status=200,
                response_headers={"content-type": "application/json"},
                chunks=(Chunk(received),),
                start_ns=start,
                end_ns=start + 500_000_000,
            )
            request, message = api.parse_request(sent), api.parse_response(received).message
            times = {"start_ns": exchange.start_ns, "end_ns": exchange.end_ns}
            calls.append(RecordedModelCall(request, message, exchange, **times))
        recording = Recording(
            f"{number:06d}", "wire", inputs=(question(number),), model_calls=tuple(calls)
        )
        save(recording, folder / f"{number:06d}.jsonl")


def fill_database(path: Path, sessions: int) -> None:
    """Write the spans and log records of recorded sessions, and reconstruct them."""
    from oteval.scoring import refresh
    from oteval.store import Store

    spans: list[Any] = []
    logs: list[Any] = []
    for number in range(sessions):
        session_spans, session_logs = recorded(number)
        spans += session_spans
        logs += session_logs
    with Store(path) as store:
        store.spans.write(spans, logs)
        refresh(store)


def recorded(number: int) -> tuple[list[Any], list[Any]]:
    """Return the spans and log records of a session."""
    from oteval.model import Chunk, Exchange, Span
    from oteval.model.recording import to_event

    trace, step = f"{number + 1:032x}", 1_000_000_000
    began = 1_700_000_000 * step + number * 60 * step
    message = {"role": "user", "parts": [{"type": "text", "content": question(number)}]}
    root = Span(
        trace,
        f"{1:016x}",
        name="invoke_agent clerk",
        start_ns=began,
        end_ns=began + 10 * step,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "clerk",
            "gen_ai.input.messages": json.dumps([message]),
        },
    )
    spans, logs = [root], []
    for at, (request, response) in enumerate(exchanges(number), 2):
        span, start = f"{at:016x}", began + at * step
        chat = Span(
            trace,
            span,
            parent_id=root.span_id,
            name="chat m",
            start_ns=start,
            end_ns=start + step // 2,
            attributes={"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
        )
        spans.append(chat)
        exchange = Exchange(
            "POST",
            URL,
            request_body=request,
            status=200,
            response_headers={"content-type": "application/json"},
            chunks=(Chunk(response),),
            start_ns=start,
            end_ns=start + step // 4,
        )
        logs.append(replace(to_event(exchange), trace_id=trace, span_id=span))
    return spans, logs


def exchanges(number: int) -> list[tuple[bytes, bytes]]:
    """Return the requests and responses of a session."""
    import httpx

    names: dict[str, Any] = {}
    exec(compile(AGENT, "bench_agent.py", "exec"), names)
    recorded_bodies: list[tuple[bytes, bytes]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.dumps(reply_to(json.loads(request.content))).encode()
        recorded_bodies.append((request.content, body))
        return httpx.Response(200, content=body)

    names["ask"](question(number), httpx.Client(transport=httpx.MockTransport(answer)))
    return recorded_bodies


def measure(*, sessions: int, workers: int) -> dict[str, Any]:
    """Measure the verification.

    Args:
        sessions: How many sessions are verified.
        workers: How many processes replay them.

    Returns:
        ``wall_s`` and ``cpu_s`` of the command with ``files`` and with ``database``, and
        ``alone_s``.
    """
    figures: dict[str, Any] = {"sessions": sessions, "workers": workers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench_agent.py").write_text(AGENT)
        fill(folder, sessions)
        fill_database(folder / "recorded.duckdb", sessions)
        sources = {
            "files": sorted(folder.glob("*.jsonl")),
            "database": ["--db", folder / "recorded.duckdb"],
        }
        for source, where in sources.items():
            figures[source] = _verified(folder, where, sessions, workers)
        figures["alone_s"] = alone(folder, sessions)
    return figures


def _verified(folder: Path, where: Sequence[Any], sessions: int, workers: int) -> dict[str, Any]:
    options = ("--target", "bench_agent:ask", "--workers", workers, "--json")
    command = module("oteval", "replay", "verify", *where, *options)
    cost = run(command, environment={"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])})
    statuses = Counter(json.loads(line)["status"] for line in cost.output.splitlines())
    check(statuses == {"passed": sessions}, f"{sessions} sessions pass", statuses)
    return {"wall_s": cost.wall, "cpu_s": cost.cpu}


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    sessions = figures["sessions"]
    name = f"{sessions:,} sessions, {figures['workers']} processes"
    out = []
    for source in ("files", "database"):
        cost, label = figures[source], f"{name}, {source}"
        out += [
            below(f"{label}: seconds", cost["wall_s"], "{:.1f}", AT_MOST * sessions),
            Row(f"{label}: sessions a second", f"{sessions / cost['wall_s']:,.0f}"),
            Row(f"{label}: CPU seconds", f"{cost['cpu_s']:.1f}"),
        ]
    return [*out, Row(f"{name}: seconds of the agent alone", f"{figures['alone_s']:.2f}")]


if __name__ == "__main__":
    parts.main("replay_verify")
