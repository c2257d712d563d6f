"""Clients of a running server: single runs and calls, and one that sends all the time."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from benchmarks.served import Served

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
INGEST, READ = {"authorization": "Bearer in"}, {"authorization": "Bearer out"}
TOKENS = {"OTEVAL_INGEST_TOKEN": "in", "OTEVAL_READ_TOKEN": "out"}
RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 200ms}
"""


def messages(role: str, text: str) -> str:
    """Return one message as an attribute has it."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def run_agent(exporter: SpanExporter) -> tuple[str, float]:
    """Emit an agent run with OpenTelemetry's SDK; return its trace id and when it ended."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=50))
    tracer = provider.get_tracer("agent")
    said = [{"role": "user", "parts": [{"type": "text", "content": "refund 7"}]}]
    done = [{"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}]
    with tracer.start_as_current_span("invoke_agent shop") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        root.set_attribute("gen_ai.agent.name", "shop")
        with tracer.start_as_current_span("chat m") as chat:
            chat.set_attribute("gen_ai.operation.name", "chat")
            chat.set_attribute("gen_ai.input.messages", json.dumps(said))
            chat.set_attribute("gen_ai.output.messages", json.dumps(done))
    ended = time.monotonic()
    trace_id = f"{root.get_span_context().trace_id:032x}"
    provider.shutdown()
    return trace_id, ended


def agent_run(
    answer: str = "Done.", trace_id: bytes | None = None, agent: str = "shop"
) -> tuple[str, ExportTraceServiceRequest]:
    """Return the trace id and the request of an agent's run: its root and one model call."""
    trace_id = trace_id or random.randbytes(16)
    root = random.randbytes(8)
    now = time.time_ns()
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "shop"
    spans = resource.scope_spans.add().spans
    for span_id, parent, attributes in (
        (root, b"", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}),
        (
            random.randbytes(8),
            root,
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": messages("user", "refund 7"),
                "gen_ai.output.messages": messages("assistant", answer),
            },
        ),
    ):
        span = spans.add(trace_id=trace_id, span_id=span_id, parent_span_id=parent, name="step")
        span.start_time_unix_nano, span.end_time_unix_nano = now, now + 1_000_000
        for key, value in attributes.items():
            span.attributes.add(key=key).value.string_value = value
    return trace_id.hex(), request


def call(
    port: int,
    body: bytes,
    method: str = TRACES,
    compression: grpc.Compression | None = None,
    headers: Sequence[tuple[str, str]] = tuple(INGEST.items()),
) -> grpc.StatusCode:
    """Send a gRPC message as it is, and return the code of its answer."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        try:
            send = channel.unary_unary(method)
            send(body, timeout=60, metadata=headers, compression=compression)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[no-any-return]
    return grpc.StatusCode.OK


class Neighbour:
    """Another client, which sends runs over HTTP and gRPC while the block lasts.

    Attributes:
        answers: How often it got which answer.
        slowest: Seconds that the slowest took.
        runs: The traces that were acknowledged.
    """

    def __init__(self, server: Served, pause: float = 0.05) -> None:
        self.answers: Counter[str] = Counter()
        self.slowest = 0.0
        self.runs: list[str] = []
        self._server, self._pause = server, pause
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(is_grpc,)) for is_grpc in (False, True)
        ]

    def __enter__(self) -> Neighbour:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        for thread in self._threads:
            thread.join()

    @property
    def was_served(self) -> bool:
        """Whether every request was acknowledged, over either protocol."""
        return set(self.answers) == {"200", "OK"}

    def _send(self, is_grpc: bool) -> None:
        # At least once, however short the block is.
        is_done = False
        while not is_done:
            trace_id, request = agent_run()
            begun = time.monotonic()
            if is_grpc:
                answer = call(self._server.grpc, request.SerializeToString()).name
            else:
                body = request.SerializeToString()
                answer = str(self._server.post("/v1/traces", body, **INGEST)[0])
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.answers[answer] += 1
            if answer in ("200", "OK"):
                self.runs.append(trace_id)
            is_done = self._done.wait(self._pause)
