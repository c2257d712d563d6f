"""`oteval serve --forward` while the endpoint is down, busy or hanging."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from benchmarks.otlp_load import Sent, requests, send
from benchmarks.served import Served, Sink, memory, until

pytest.importorskip("uvicorn")

RULES = """
evaluators:
  - {{name: tools, type: tool_errors}}
completion: {{quiet: 300ms}}
forward: {{url: "{url}", deadline: 15s, timeout: 1s}}
"""
SCORES = 'scores_total{agent="support",evaluator="tools",status="ok"}'
RUN = 8


class Load:
    """A continuous load of agent runs."""

    def __init__(self, port: int) -> None:
        self.sent = Sent()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(port,))
        self._thread.start()

    def _run(self, port: int) -> None:
        while not self._stop.is_set():
            sent = send(port, list(requests(10, RUN, batch=40)), rate=400)
            self.sent.acknowledged += sent.acknowledged
            self.sent.answers.update(sent.answers)

    def stop(self) -> set[tuple[str, str]]:
        """End; return the spans that were acknowledged."""
        self._stop.set()
        self._thread.join()
        return set(self.sent.acknowledged)


def metric(served: Served, name: str) -> float:
    """Return a figure of /metrics."""
    match = re.search(
        rf"^oteval_{re.escape(name)} (\S+)$", served.get("/metrics")[1].decode(), re.MULTILINE
    )
    assert match, name
    return float(match[1])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "seconds"), [("away", 20), ("busy", 6), ("hanging", 6)])
def test_an_endpoint_that_takes_nothing_costs_nothing(
    tmp_path: Path, mode: str, seconds: float
) -> None:
    """Scoring continues, as /readyz and /metrics show; later all spans arrive with scores."""
    sink = Sink()
    (tmp_path / "oteval.yaml").write_text(RULES.format(url=sink.url))
    served = Served(tmp_path)
    try:
        load = Load(served.http)
        until(lambda: len(sink.scored) > 20)
        sink.become(mode)
        time.sleep(min(seconds, 5))
        pids = [served.pid(part) for part in ("listener", "storage", "decoder")]
        memory_before, arrived = memory(pids), len(sink.spans)
        time.sleep(max(0.0, seconds - 5))
        until(lambda: metric(served, "forward_failing_seconds") >= seconds / 2 - 1, 60)
        state, scores = served.state(), metric(served, SCORES)
        is_ok, bytes_ = metric(served, "forward_ok"), metric(served, "forward_bytes")
        grown = memory(pids) - memory_before
        count = len(sink.spans)
        sent_traces = load.stop()
        sink.become("takes")
        until(lambda: not sent_traces - sink.spans.keys(), 60)
        until(lambda: served.state()["warnings"] == [])
        # The figures are updated about once a second.
        until(lambda: metric(served, "forward_held_spans") == 0)
        until(lambda: metric(served, "forward_ok") == 1)
        rest = metric(served, "forward_failing_seconds")
    finally:
        load.stop()
        served.stop()
        sink.close()

    assert count == arrived
    assert set(load.sent.answers) == {"200"}
    assert state["is_ready"] is True
    (warning,) = state["warnings"]
    assert re.match(r"forward: the endpoint has accepted nothing for \d+ s \(.+\); \d+", warning)
    assert state["left_bytes"] < 1 << 20
    assert scores * RUN > 0.7 * len(sent_traces)
    assert (is_ok, rest) == (0, 0)
    assert bytes_ > 100_000
    assert grown < 250 << 20  # most of it DuckDB's, as without an outage
    assert {trace for trace, _ in sent_traces} == {trace for trace, _ in sink.scored}
