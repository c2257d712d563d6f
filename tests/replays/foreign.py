"""Sessions that another library's instrumentation of the openai client records.

An agent answers questions about orders against the scripted model of `examples/`. Its spans go into
a file by the exporter of OpenTelemetry's SDK, and the file is loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from oteval.model import Recording
from oteval.replays.recordings import read_recording
from oteval.scoring import load, refresh
from oteval.store import Store

from .agents import client

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import model_server  # noqa: E402

SYSTEM = "You are the order desk of a shop. Use the tools."
QUESTION = "Where are my orders A100 and B200?"
ANSWER = (
    "Here is the status. A100: arrives on Friday. B200: lost by the carrier. "
    "B200: refunded, because the carrier lost it."
)
PARCELS = {"A100": "arrives on Friday", "B200": "lost by the carrier"}
NOWHERE = "http://models.example/v1"
APIS = ["chat", "chat stream", "responses", "responses stream"]
SCHEMAS = {
    "track_parcel": {"order_id": {"type": "string"}},
    "refund": {"order_id": {"type": "string"}, "reason": {"type": "string"}},
}

Tool = Callable[..., str]


def shop(parcels: Mapping[str, str]) -> dict[str, Tool]:
    """Return the tools of an agent."""

    def track_parcel(order_id: str) -> str:
        return f"{order_id}: {parcels[order_id]}"

    def refund(order_id: str, reason: str) -> str:
        return f"{order_id}: refunded, because {reason}"

    return {"track_parcel": track_parcel, "refund": refund}


def ask(url: str, api: str, tools: Mapping[str, Tool], system: str = SYSTEM) -> str:
    """Answer the question by one of `APIS`."""
    with client(url) as model:
        loop = _chat if api.startswith("chat") else _responses
        return loop(model, tools, system, is_stream=api.endswith("stream"))


def _chat(model: Any, tools: Mapping[str, Tool], system: str, *, is_stream: bool) -> str:
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": QUESTION},
    ]
    schemas = [{"type": "function", "function": _schema(name)} for name in tools]
    while True:
        request: Any = {"model": "scripted", "messages": messages, "tools": schemas}
        if is_stream:
            message = _streamed_message(model, request)
        else:
            done = model.chat.completions.create(**request)
            message = done.choices[0].message.model_dump(exclude_none=True)
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        for call in message["tool_calls"]:
            arguments = json.loads(call["function"]["arguments"])
            result = tools[call["function"]["name"]](**arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def _streamed_message(model: Any, request: Any) -> dict[str, Any]:
    content, calls = "", []
    for event in model.chat.completions.create(**request, stream=True):
        for choice in event.choices:
            content += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                if piece.index == len(calls):
                    function = {"name": piece.function.name, "arguments": ""}
                    calls.append({"id": piece.id, "type": "function", "function": function})
                calls[piece.index]["function"]["arguments"] += piece.function.arguments or ""
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def _responses(model: Any, tools: Mapping[str, Tool], system: str, *, is_stream: bool) -> str:
    items: list[Any] = [{"role": "user", "content": QUESTION}]
    schemas = [{"type": "function", "strict": False, **_schema(name)} for name in tools]
    while True:
        request: Any = {"instructions": system, "input": items, "tools": schemas}
        request["model"] = "scripted"
        if is_stream:
            events = list(model.responses.create(**request, stream=True))
            done = events[-1].response
        else:
            done = model.responses.create(**request)
        calls = [item for item in done.output if item.type == "function_call"]
        if not calls:
            return str(done.output_text)
        for call in calls:
            items.append(call.model_dump(include={"type", "call_id", "name", "arguments"}))
        for call in calls:
            result = tools[call.name](**json.loads(call.arguments))
            output = {"type": "function_call_output", "call_id": call.call_id, "output": result}
            items.append(output)


def _schema(name: str) -> dict[str, Any]:
    properties = SCHEMAS[name]
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"The tool {name}.", "parameters": parameters}


@contextmanager
def instrumented(instrumentor: Any, file: Path) -> Iterator[TracerProvider]:
    """Export the spans of an instrumentation to a file while the block runs.

    OpenLLMetry's does not end with ``uninstrument``: use it once in a process.
    """
    with file.open("w", encoding="utf-8") as out:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=out)))
        instrumentor.instrument(tracer_provider=provider)
        try:
            yield provider
        finally:
            instrumentor.uninstrument()
            # What stays on must not write into a closed file.
            provider.shutdown()


def record(instrumentor: Any, file: Path) -> dict[str, Recording]:
    """Run the agent on each of `APIS`, and return the recordings that its traces give.

    Args:
        instrumentor: The instrumentation of the openai client.
        file: Where its spans are written.
    """
    traces = {}
    with instrumented(instrumentor, file) as provider, model_server.running() as server:
        for api in APIS:
            with provider.get_tracer("shop").start_as_current_span("POST /ask") as span:
                assert ask(server.url, api, shop(PARCELS)) == ANSWER
            traces[api] = f"{span.get_span_context().trace_id:032x}"
    with Store() as store:
        assert load(store, [file]).bad == 0
        refresh(store)
        return {api: read_recording(store, trace) for api, trace in traces.items()}
