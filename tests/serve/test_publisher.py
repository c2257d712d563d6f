"""Live scoring publishes to spans, events and metrics of real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from benchmarks.served import until
from oteval.base.errors import ConfigError
from oteval.ingest.otlp import decode_protobuf
from oteval.scoring.config import load_config, parse_config
from oteval.serve.destinations import ScoreDestinations, open_destinations
from oteval.store import Store

from ..otlp_endpoint import Downstream
from .conftest import Clock, Driver

CODE = """
import threading
gate = threading.Event()
def ok(outputs): return {"score": True, "comment": "good"}
def slow(outputs):
    gate.wait(30)
    return True
"""


def spans_of_an_agent() -> bytes:
    """Return the request that the OpenTelemetry SDK would send for an agent's run."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agent")
    with tracer.start_as_current_span("invoke_agent a") as root:
        root.set_attribute("gen_ai.operation.name", "invoke_agent")
        root.set_attribute("gen_ai.agent.name", "a")
        with tracer.start_as_current_span("chat") as chat:
            chat.set_attribute("gen_ai.operation.name", "chat")
            chat.set_attribute(
                "gen_ai.input.messages",
                '[{"role":"user","parts":[{"type":"text","content":"hi"}]}]',
            )
            chat.set_attribute(
                "gen_ai.output.messages",
                '[{"role":"assistant","parts":[{"type":"text","content":"yo"}]}]',
            )
    payload = encode_spans(exporter.get_finished_spans()).SerializeToString()
    provider.shutdown()
    return payload


class Line:
    """The way of a request through the server: forwarder, store, live scoring."""

    def __init__(self, driver: Driver, attach: ScoreDestinations) -> None:
        self.driver, self.attach, self.position = driver, attach, 0

    def receive(self, payload: bytes) -> None:
        """Accept a request."""
        self.position += 1
        if self.attach.forward is not None:
            self.attach.forward.take(
                "traces", "protobuf", payload, (1, self.position), self.driver.clock.now
            )
            self.attach.forward.sync()
        self.driver.came(*decode_protobuf(payload).spans)


@pytest.fixture
def line(
    driver: Driver,
    module: Callable[[str], str],
    downstream: Downstream,
    tmp_path: Path,
) -> Iterator[Line]:
    name = module(CODE)
    driver.rules(
        f"evaluators:\n  - {{name: ok, type: python, call: '{name}:ok'}}\n"
        f"  - {{name: slow, type: python, call: '{name}:slow', where: {{agent: slowly}}}}\n"
        f"forward: {{url: '{downstream.url}', deadline: 30s}}\n"
        f"events: {downstream.url}\n"
        f"metrics: {{url: '{downstream.url}', interval: 1h}}\n"
    )
    attach = open_destinations(load_config(driver.path), tmp_path / "queue", clock=driver.clock)
    driver.start(attach)
    yield Line(driver, attach)
    attach.close()


def test_scores_ride_back_on_the_spans(line: Line, downstream: Downstream) -> None:
    """The downstream has the spans with scores, an event in their context, the metrics count."""
    payload = spans_of_an_agent()
    line.receive(payload)
    line.driver.run(2)
    assert downstream.spans() == []

    line.driver.run(4)
    until(lambda: len(downstream.spans()) == 2 and downstream.bodies("/v1/logs") != [])

    def are_counted() -> bool:
        line.driver.run(2)
        return b"oteval_forward_sent_spans_total 2.0" in line.attach.metrics.text()

    # The sending thread counts them when it has read the answer.
    until(are_counted)
    (score,) = line.driver.scores()
    judged = [span for span in downstream.spans() if span.span_id.hex() == score.span_id]
    attributes = {a.key: a.value for a in judged[0].attributes}
    assert attributes["oteval.score.ok"].double_value == 1.0
    assert attributes["oteval.score.ok.explanation"].string_value == "good"
    event = ExportLogsServiceRequest.FromString(downstream.bodies("/v1/logs")[0])
    assert event.resource_logs[0].scope_logs[0].log_records[0].span_id.hex() == score.span_id
    assert b'oteval_scores_total{agent="a",evaluator="ok",status="ok"} 1.0' in (
        line.attach.metrics.text()
    )


def test_led_back_nothing_goes_round(line: Line, downstream: Downstream) -> None:
    """Forwarded spans that come back to oteval are neither scored nor forwarded again."""
    line.receive(spans_of_an_agent())
    line.driver.run(6)
    until(lambda: len(downstream.spans()) == 2)
    for body in downstream.bodies():
        line.receive(body)
    line.driver.run(600)
    # Another trace is sent after all earlier ones.
    line.receive(spans_of_an_agent())
    line.driver.run(6)
    until(lambda: len({span.trace_id for span in downstream.spans()}) == 2)

    assert len(downstream.spans()) == 4
    assert len(line.driver.rows()) == 2


def test_a_trace_that_no_evaluator_wants_goes_on_once_complete(
    driver: Driver,
    module: Callable[[str], str],
    downstream: Downstream,
    tmp_path: Path,
) -> None:
    """The forwarder does not wait for scores that never come."""
    name = module(CODE)
    driver.rules(
        f"evaluators:\n  - {{name: ok, type: python, call: '{name}:ok', sample: 0}}\n"
        f"forward: {downstream.url}\n"
    )
    attach = open_destinations(load_config(driver.path), tmp_path / "queue", clock=driver.clock)
    driver.start(attach)
    Line(driver, attach).receive(spans_of_an_agent())
    driver.run(6)
    until(lambda: len(downstream.spans()) >= 2)
    attach.close()

    assert len(downstream.spans()) == 2
    assert driver.rows() == []


def test_a_slow_judge_lets_the_trace_go_at_its_deadline(
    driver: Driver,
    module: Callable[[str], str],
    downstream: Downstream,
    tmp_path: Path,
) -> None:
    """At the deadline the trace is forwarded with its current scores."""
    name = module(CODE)
    driver.rules(
        f"evaluators:\n  - {{name: ok, type: python, call: '{name}:ok'}}\n"
        f"  - {{name: slow, type: python, call: '{name}:slow'}}\n"
        f"forward: {downstream.url}\n"
    )
    attach = open_destinations(load_config(driver.path), tmp_path / "queue", clock=driver.clock)
    scoring = driver.start(attach)
    Line(driver, attach).receive(spans_of_an_agent())
    driver.clock.move(6)
    until(lambda: not scoring.tick() and len(driver.scores("ok")) == 1)
    assert downstream.spans() == []

    # Just before the deadline, which the sending thread holds in any case.
    driver.clock.move(23.6)
    scoring.tick()
    until(lambda: len(downstream.spans()) == 2)

    keys = {a.key for span in downstream.spans() for a in span.attributes}
    assert "oteval.score.ok" in keys
    assert "oteval.score.slow" not in keys
    import sys

    sys.modules[name].gate.set()
    driver.run()
    attach.close()


def test_a_header_needs_its_variable(tmp_path: Path) -> None:
    """A secret that is not in the environment is an error that names it."""
    text = (
        "evaluators: [{name: a, type: python, call: 'm:f'}]\n"
        "events: {url: 'http://127.0.0.1:1', headers: {authorization: 'Bearer ${TOKEN}'}}\n"
    )

    with pytest.raises(ConfigError, match=r"events: header 'authorization'.*TOKEN"):
        open_destinations(parse_config(text), tmp_path, environment={})


def test_the_url_of_the_command_line_comes_first(tmp_path: Path, store: Store) -> None:
    """--forward replaces the file's URL and keeps its deadline; an invalid URL is an error."""
    config = parse_config(
        "evaluators: [{name: a, type: python, call: 'm:f'}]\n"
        "forward: {url: 'http://127.0.0.1:1', deadline: 3s}\n"
    )
    clock = Clock()

    attach = open_destinations(config, tmp_path, forward_url="http://127.0.0.1:2/x", clock=clock)

    assert attach.forward is not None
    assert attach.forward._queue._client.url == "http://127.0.0.1:2/x"
    attach.close(0)
    with pytest.raises(ConfigError, match="--forward"):
        open_destinations(config, tmp_path, forward_url="nowhere")
