"""A tiny agent for `benchmarks.capture`: chat completions, two tools and OpenTelemetry's SDK.

It imports nothing of oteval, as an agent of any framework.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
tracer = provider.get_tracer("tiny.agent")
history: list[dict[str, Any]] = [{"role": "system", "content": "You are a support agent."}]


def run_tool(name: str, arguments: dict[str, Any]) -> str:
    """Return a tool's result, or raise."""
    if name == "lookup_order":
        raise ValueError(f"order {arguments['order_id']} not found")
    return f"{arguments['city']}: fine"


def parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the form of the GenAI conventions."""
    if message["role"] == "tool":
        call_id, response = message["tool_call_id"], message["content"]
        part = {"type": "tool_call_response", "id": call_id, "response": response}
        return {"role": "tool", "parts": [part]}
    texts = [{"type": "text", "content": message["content"]}] if message["content"] else []
    calls = [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls") or ()
    ]
    return {"role": message["role"], "parts": [*texts, *calls]}


def ask_model() -> dict[str, Any]:
    """Return the model's next message, in a span."""
    with tracer.start_as_current_span("chat scripted") as span:
        body = json.dumps({"model": "scripted", "messages": history}).encode()
        request = urllib.request.Request(
            f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
            body,
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request) as response:
            message: dict[str, Any] = json.load(response)["choices"][0]["message"]
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.provider.name", "openai")
        span.set_attribute("gen_ai.input.messages", json.dumps(list(map(parts, history))))
        span.set_attribute("gen_ai.output.messages", json.dumps([parts(message)]))
    return message


def call_tool(call: dict[str, Any]) -> str:
    """Run a tool in a span, and return the text for the model."""
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    with tracer.start_as_current_span(f"execute_tool {name}") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", name)
        span.set_attribute("gen_ai.tool.call.id", call["id"])
        try:
            return run_tool(name, arguments)
        except ValueError as error:
            span.set_status(StatusCode.ERROR, str(error))
            span.set_attribute("error.type", "ValueError")
            return f"Error: {error}"


for question in sys.argv[1:]:
    with tracer.start_as_current_span("invoke_agent tiny") as agent:
        agent.set_attribute("gen_ai.operation.name", "invoke_agent")
        agent.set_attribute("gen_ai.agent.name", "tiny")
        history.append({"role": "user", "content": question})
        while (message := ask_model()).get("tool_calls"):
            history.append(message)
            for call in message["tool_calls"]:
                result = call_tool(call)
                tool = {"role": "tool", "tool_call_id": call["id"], "content": result}
                history.append(tool)
        history.append(message)
