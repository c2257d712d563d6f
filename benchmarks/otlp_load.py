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
    """Return a text that is another one each time: it begins with 16 random hex digits."""
    words = " ".join(chance.choices(_WORDS, k=length // 7 + 1))
    return f"{chance.getrandbits(64):016x} {words}"[:length]


def _message(role: str, **part: object) -> dict[str, object]:
    return {"role": role, "parts": [part]}


def _run(chance: random.Random, spans: int) -> list[dict[str, str | int]]:
    """Return the attributes of the spans of a run: the agent, model calls, and a tool after each.

    A model call repeats the history; the last one answers.
    """
    history = [_message("user", type="text", content=_text(chance, 600))]
    steps: list[dict[str, str | int]] = []
    question = answer = history[0]
    for position in range(1, spans):
        if position % 2:
            call_id, arguments = (
                f"call_{chance.getrandbits(64):016x}",
                {"order": _text(chance, 300)},
            )
            answer = _message("assistant", type="text", content=_text(chance, 900))
            if position + 1 < spans:
                call = {"id": call_id, "name": "get_order", "arguments": arguments}
                answer = _message("assistant", type="tool_call", **call)
            steps.append(_chat(history, answer, chance.randrange(4000)))
            history.append(answer)
            continue
        result = _text(chance, 700)
        steps.append(
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "get_order",
                "gen_ai.tool.call.id": call_id,
                "gen_ai.tool.call.arguments": json.dumps(arguments),
                "gen_ai.tool.call.result": result,
            }
        )
        response = {"type": "tool_call_response", "id": call_id, "response": result}
        history.append(_message("tool", **response))
    agent: dict[str, str | int] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "support",
        "gen_ai.input.messages": json.dumps([question]),
    }
    if answer is not question:
        agent["gen_ai.output.messages"] = json.dumps([answer])
    return [agent, *steps]


def _chat(
    history: list[dict[str, object]], answer: dict[str, object], tokens: int
) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.input.messages": json.dumps(history),
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _spans(chance: random.Random, spans: int, begin: int) -> Iterator[Span]:
    """Yield the spans of a run."""
    trace_id, root = chance.randbytes(16), chance.randbytes(8)
    for position, values in enumerate(_run(chance, spans)):
        attributes = []
        for key, value in values.items():
            item = KeyValue(key=key)
            if isinstance(value, int):
                item.value.int_value = value
            else:
                item.value.string_value = value
            attributes.append(item)
        yield Span(
            trace_id=trace_id,
            span_id=root if position == 0 else chance.randbytes(8),
            parent_span_id=b"" if position == 0 else root,
            name=f"step {position}",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=begin + position * 1_000_000,
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
        waiting += _spans(chance, spans, now + number * 1_000_000)
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
    sender = _Sender(port, deque(loads), rate, retry, path, stop or threading.Event())
    threads = [threading.Thread(target=sender.run) for _ in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sender.sent.seconds = time.perf_counter() - sender.begin
    return sender.sent


@dataclass
class _Sender:
    """Sends requests from several threads."""

    port: int
    waiting: deque[Load]
    rate: float
    retry: float
    path: str
    stop: threading.Event
    sent: Sent = field(default_factory=Sent)
    begin: float = field(default_factory=time.perf_counter)
    _spans: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Send requests over one connection, until none is left."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop.is_set():
            with self._lock:
                if not self.waiting:
                    break
                load = self.waiting.popleft()
                due = self.begin + self._spans / self.rate if self.rate else 0.0
                self._spans += len(load.spans)
            time.sleep(max(0.0, due - time.perf_counter()) if self.rate else 0.0)
            started = time.perf_counter()
            outcome = self._outcome(connection, load)
            took = time.perf_counter() - started
            with self._lock:
                self.sent.answers[outcome] += 1
                if outcome == "200":
                    self.sent.latencies.append(took)
                    self.sent.acknowledged += load.spans
                elif time.perf_counter() - self.begin < self.retry:
                    self.waiting.append(load)
            if outcome != "200" and self.retry:
                time.sleep(0.05)
        connection.close()

    def _outcome(self, connection: http.client.HTTPConnection, load: Load) -> str:
        """Return the status of the answer to a request, or the name of the error."""
        try:
            headers = {"content-type": "application/x-protobuf"}
            connection.request("POST", self.path, load.body, headers)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return type(error).__name__
        return str(answer.status)
