"""An agent with OpenTelemetry's SDK whose runs carry the times of the last weeks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.served import Served, until

from .monitor.histories import HOUR, SECOND

__all__ = ["BROKEN", "GOOD", "PastAgent"]

GOOD, BROKEN = ("look_up", "refund"), ("refund", "look_up")
_PATIENCE = 300.0  # seconds


class PastAgent:
    """An agent with OpenTelemetry's SDK, which runs once an hour of the past.

    Attributes:
        now: The time of its next run (ns).
    """

    def __init__(self, server: Served, hours: int) -> None:
        self.now = time.time_ns() // HOUR * HOUR - hours * HOUR
        self._server = server
        self._spans = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource({"service.name": "shop"}))
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._tracer = provider.get_tracer("agent")

    def work(self, count: int, tools: Sequence[str], *, batch: int = 20) -> None:
        """Run some times; a batch of runs is sent again until it is acknowledged."""
        exporter = OTLPSpanExporter(f"http://127.0.0.1:{self._server.http}/v1/traces")
        for done in range(0, count, batch):
            for number in range(done, min(done + batch, count)):
                # One run in twenty goes wrong at the best of times.
                self._run(BROKEN if number % 20 == 13 else tools)
                self.now += HOUR
            spans = self._spans.get_finished_spans()
            self._spans.clear()
            until(lambda spans=spans: exporter.export(spans) is SpanExportResult.SUCCESS, _PATIENCE)
        exporter.shutdown()

    def _run(self, tools: Sequence[str]) -> None:
        at = self.now
        root = self._tracer.start_span("invoke_agent clerk", start_time=at)
        root.set_attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"})
        inside = trace.set_span_in_context(root)
        said: list[Any] = [_message("user", {"type": "text", "content": f"refund {at}"})]
        for number, tool in enumerate(tools):
            call = {"type": "tool_call", "id": f"c{number}", "name": tool, "arguments": {}}
            asks = _message("assistant", call)
            at = self._span(inside, at, "chat", said, asks)
            at = self._span(inside, at, "execute_tool", tool, f"c{number}")
            result = {"type": "tool_call_response", "id": f"c{number}", "response": "done"}
            said = [*said, asks, _message("tool", result)]
        done = _message("assistant", {"type": "text", "content": "Done."})
        at = self._span(inside, at, "chat", said, done)
        root.end(at)

    def _span(self, inside: Any, at: int, operation: str, *about: Any) -> int:
        """Record an operation of a second, and return its end."""
        span = self._tracer.start_span(operation, inside, start_time=at)
        span.set_attribute("gen_ai.operation.name", operation)
        names = ("gen_ai.tool.name", "gen_ai.tool.call.id")
        if operation == "chat":
            names = ("gen_ai.input.messages", "gen_ai.output.messages")
            about = (json.dumps(about[0]), json.dumps([about[1]]))
        span.set_attributes(dict(zip(names, about, strict=True)))
        span.end(at + SECOND)
        return at + SECOND


def _message(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}
