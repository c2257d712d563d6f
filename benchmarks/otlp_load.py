"""OTLP requests of agent runs, and sending them as fast as they are taken or at a rate."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

__all__ = ["Load", "Sent", "requests", "send"]

_WORDS = [
    "refund",
    "order",
    "ticket",
    "customer",
    "flight",
    "invoice",
    "status",
    "retry",
    "index",
    "plan",
    "tool",
    "search",
]


@dataclass
class Load:
    """One request: its bytes, and the ids of its spans."""

    body: bytes
    spans: list[tuple[str, str]]


@dataclass
class Sent:
    """The outcome of requests: their durations in seconds, and the acknowledged spans."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    acknowledged: list[tuple[str, str]] = field(default_factory=list)

    def latency(self, share: float) -> float:
        """Return the latency (s) that a share of the requests stayed under."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def _text(chance: random.Random, length: int) -> str:
    return " ".join(chance.choices(_WORDS, k=length // 7 + 1))[:length]


def _attributes(chance: random.Random, place: int) -> dict[str, str | int]:
    said = json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": _text(chance, 900)}]}]
    )
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": _text(chance, 900)}]}]
    if place == 0:
        return {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "support",
            "gen_ai.input.messages": said,
            "gen_ai.output.messages": json.dumps(answer),
        }
    if place % 2:
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.usage.input_tokens": chance.randrange(4000),
            "gen_ai.input.messages": said,
            "gen_ai.output.messages": json.dumps(answer),
        }
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_order",
        "gen_ai.tool.call.arguments": json.dumps({"order": _text(chance, 300)}),
        "gen_ai.tool.call.result": _text(chance, 1500),
    }


def _span(chance: random.Random, trace_id: bytes, root: bytes, place: int, begin: int) -> Span:
    attributes = []
    for key, value in _attributes(chance, place).items():
        item = KeyValue(key=key)
        if isinstance(value, int):
            item.value.int_value = value
        else:
            item.value.string_value = value
        attributes.append(item)
    return Span(
        trace_id=trace_id,
        span_id=root if place == 0 else chance.randbytes(8),
        parent_span_id=b"" if place == 0 else root,
        name=f"step {place}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=begin + place * 1_000_000,
        end_time_unix_nano=begin + 20_000_000,
        attributes=attributes,
    )


def requests(
    traces: int, spans: int = 8, batch: int = 512, seed: int | None = None
) -> Iterator[Load]:
    """Yield the requests of some agent runs.

    Args:
        traces: How many runs.
        spans: How many spans each has; some 2.2 KB a span.
        batch: How many spans a request has.
        seed: Of the random ids and words.
    """
    chance = random.Random(seed)
    now = time.time_ns()
    waiting: list[Span] = []
    for number in range(traces):
        trace_id, root = chance.randbytes(16), chance.randbytes(8)
        begin = now + number * 1_000_000
        waiting += [_span(chance, trace_id, root, place, begin) for place in range(spans)]
        while len(waiting) >= batch:
            yield _request(waiting[:batch])
            del waiting[:batch]
    if waiting:
        yield _request(waiting)


def _request(spans: list[Span]) -> Load:
    group = ResourceSpans()
    service = group.resource.attributes.add(key="service.name")
    service.value.string_value = "shop"
    scoped = group.scope_spans.add()
    scoped.scope.name = "loader"
    scoped.spans.extend(spans)
    body = ExportTraceServiceRequest(resource_spans=[group]).SerializeToString()
    return Load(body, [(span.trace_id.hex(), span.span_id.hex()) for span in spans])


def send(
    port: int,
    loads: list[Load],
    *,
    senders: int = 4,
    rate: float = 0.0,
    retry: float = 0.0,
    path: str = "/v1/traces",
    stop: threading.Event | None = None,
) -> Sent:
    """Send requests over HTTP, one connection per sender.

    Args:
        port: Of the server on this machine.
        loads: The requests.
        senders: How many are sent at once.
        rate: Spans a second; 0 for as many as are taken.
        retry: For how many seconds refused requests are sent again; 0 for never.
        path: Where to.
        stop: Ends sending early.
    """
    waiting, sent, lock = deque(loads), Sent(), threading.Lock()
    begin = time.perf_counter()
    given = [0]

    def sender() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not (stop is not None and stop.is_set()):
            with lock:
                if not waiting:
                    break
                load = waiting.popleft()
                given[0] += len(load.spans)
                due = begin + (given[0] - len(load.spans)) / rate if rate else 0.0
            time.sleep(max(0.0, due - time.perf_counter()) if rate else 0.0)
            started = time.perf_counter()
            try:
                headers = {"content-type": "application/x-protobuf"}
                connection.request("POST", path, load.body, headers)
                answer = connection.getresponse()
                answer.read()
                outcome = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                outcome = type(error).__name__
                connection.close()
            took = time.perf_counter() - started
            with lock:
                sent.answers[outcome] += 1
                if outcome == "200":
                    sent.latencies.append(took)
                    sent.acknowledged += load.spans
                elif time.perf_counter() - begin < retry:
                    waiting.append(load)
            if outcome != "200" and retry:
                time.sleep(0.05)
        connection.close()

    threads = [threading.Thread(target=sender) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent.seconds = time.perf_counter() - begin
    return sent
