"""An agent that calls a model and a tool many times, instrumented in one of several ways.

    python -m benchmarks.instrumented_agent KIND MODE URL FOLDER CALLS

KIND is ``tool`` (a function), ``model`` (a model call without HTTP), or a real request of the
openai library: ``openai_5k`` and ``openai_50k`` with a history of so many bytes, ``stream`` with
5 KB and 200 events in the answer. MODE is ``nothing``, ``bare`` (opentelemetry-util-genai, which
all OpenTelemetry instrumentations of models use; for openai the instrumentation itself),
``by_hand`` (OpenTelemetry's API alone), ``oteval``, or ``oteval_http`` (which also records HTTP
exchanges). ``_file`` and ``_database`` after the last two choose a destination in the folder. The
modes without oteval use OpenTelemetry's batch processor and OTLP exporter. For each line of its
standard input it
makes the calls, and prints their CPU seconds with their export, and those of the agent's thread
alone, per call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

DESTINATIONS = ("_file", "_database")
WARM_UP = 25  # calls before the first turn
_BLOCK = 100  # calls between exports: the queues of no mode overflow
_MESSAGES = [
    {"role": "system", "content": "You are a clerk of a shop. Answer briefly."},
    {"role": "user", "content": "Please refund order 17, which arrived broken. " * 5},
]
_MESSAGE = {"role": "assistant", "content": "I have refunded order 17 for you. " * 5}
_ANSWER = {
    "choices": [{"message": _MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 90, "completion_tokens": 40},
}


def refund(order: int, amount: float, reason: str) -> dict[str, Any]:
    """Refund an order."""
    return {"order": order, "amount": amount, "reason": reason, "state": "refunded"}


def _tool_by_hand(tracer: Any) -> Callable[..., Any]:
    def call(order: int, amount: float, reason: str) -> dict[str, Any]:
        start = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "refund",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.description": "Refund an order.",
        }
        with tracer.start_as_current_span("execute_tool refund", attributes=start) as span:
            arguments = {"order": order, "amount": amount, "reason": reason}
            span.set_attribute("gen_ai.tool.call.arguments", json.dumps(arguments))
            result = refund(order, amount, reason)
            span.set_attribute("gen_ai.tool.call.result", json.dumps(result))
            return result

    return call


def _bare_tool() -> Callable[..., Any]:
    from opentelemetry.util.genai.handler import get_telemetry_handler

    handler = get_telemetry_handler()

    def call(order: int, amount: float, reason: str) -> dict[str, Any]:
        with handler.tool("refund", tool_type="function") as tool:
            tool.tool_description = "Refund an order."
            tool.arguments = {"order": order, "amount": amount, "reason": reason}
            result = refund(order, amount, reason)
            tool.tool_result = result
            return result

    return call


def _bare_model() -> Callable[..., Any]:
    from opentelemetry.util.genai.handler import get_telemetry_handler
    from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart

    handler = get_telemetry_handler()

    def call() -> None:
        with handler.inference("openai", request_model="m") as inference:
            inference.input_messages = [
                InputMessage(each["role"], [TextPart(each["content"])]) for each in _MESSAGES
            ]
            inference.output_messages = [
                OutputMessage("assistant", [TextPart(_MESSAGE["content"])], "stop")
            ]
            inference.finish_reasons = ["stop"]
            inference.input_tokens, inference.output_tokens = 90, 40

    return call


def _model_by_hand(tracer: Any) -> Callable[..., Any]:
    def message(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "parts": [{"type": "text", "content": text}]}

    def call() -> None:
        start = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        with tracer.start_as_current_span("chat m", attributes=start) as span:
            sent = [message(each["role"], each["content"]) for each in _MESSAGES]
            span.set_attribute("gen_ai.input.messages", json.dumps(sent))
            answered = message("assistant", _MESSAGE["content"])
            span.set_attribute("gen_ai.output.messages", json.dumps([answered]))
            span.set_attribute("gen_ai.response.finish_reasons", ["stop"])
            span.set_attribute("gen_ai.usage.input_tokens", 90)
            span.set_attribute("gen_ai.usage.output_tokens", 40)

    return call


def _oteval_model() -> Callable[..., Any]:
    import oteval

    def call() -> None:
        with oteval.model_call(model="m", messages=_MESSAGES) as model_call:
            model_call.answer(_ANSWER)

    return call


def _history(size: int) -> list[dict[str, Any]]:
    """Return a conversation with tool calls, of about so many bytes."""
    history, number = list(_MESSAGES), 0
    while len(json.dumps(history)) < size:
        number += 1
        arguments = json.dumps({"order": number, "amount": 12.5, "reason": "it arrived broken"})
        call = {"name": "refund", "arguments": arguments}
        history += [
            {
                "role": "assistant",
                "tool_calls": [{"id": f"call_{number}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"call_{number}",
                "content": json.dumps({"state": "refunded", "items": [{"sku": "a", "n": 1}] * 5}),
            },
            {"role": "user", "content": f"Please refund order {number} as well. " * 8},
        ]
    return history


def _openai(url: str, kind: str) -> Callable[..., Any]:
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="sk-0123456789abcdef0123")
    history: Any = _history(50_000 if kind == "openai_50k" else 5_000)
    create = client.chat.completions.create

    def call() -> None:
        create(model="scripted", messages=history)

    def stream() -> None:
        for _ in create(model="scripted", messages=history, stream=True):
            pass

    return stream if kind == "stream" else call


def _set_up(mode: str, url: str, folder: str) -> Callable[[], Any]:
    """Turn instrumentation on, and return the function that exports what is queued."""
    if mode == "nothing":
        return bool
    if mode.startswith("oteval"):
        import oteval

        to = url.removesuffix("/v1")
        if mode.endswith(DESTINATIONS):
            to = f"{folder}/{mode}.{'jsonl' if mode.endswith('_file') else 'duckdb'}"
        return oteval.instrument(to=to, record_http=mode.startswith("oteval_http")).flush
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/traces")))
    trace.set_tracer_provider(provider)
    OpenAIInstrumentor().instrument()
    return provider.force_flush


def work(kind: str, mode: str, url: str) -> Callable[[int], Any]:
    """Return the call that is measured; it takes its number."""
    from opentelemetry import trace

    if kind in ("openai_5k", "openai_50k", "stream"):
        request = _openai(url, kind)
        return lambda _: request()
    if kind == "model":
        if mode == "nothing":
            return lambda _: None
        if mode == "by_hand":
            model_call = _model_by_hand(trace.get_tracer("agent"))
        else:
            model_call = _bare_model() if mode == "bare" else _oteval_model()
        return lambda _: model_call()
    function: Callable[..., Any] = refund
    if mode == "by_hand":
        function = _tool_by_hand(trace.get_tracer("agent"))
    elif mode == "bare":
        function = _bare_tool()
    elif mode != "nothing":
        import oteval

        function = oteval.tool(refund)
    return lambda number: function(number, amount=12.5, reason="it arrived broken")


def main(kind: str, mode: str, url: str, folder: str, calls: int) -> None:
    """Make the calls for each line of the input, and print their CPU seconds."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    export = _set_up(mode, url, folder)
    call = work(kind, mode, url)
    for number in range(WARM_UP):  # imports, connections, caches
        call(number)
    export()
    print("ready", flush=True)
    for _ in sys.stdin:
        own, began = 0.0, time.process_time()
        for start in range(0, calls, _BLOCK):
            at = time.thread_time()
            for number in range(start, min(start + _BLOCK, calls)):
                call(number)
            own += time.thread_time() - at
            export()
        print((time.process_time() - began) / calls, own / calls, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:5], calls=int(sys.argv[5]))
