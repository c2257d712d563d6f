"""End to end: an agent, an OTLP relay, `oteval serve`, its downstream endpoint and Prometheus.

`make test-live` runs it, with rotel from PyPI as the relay. OTEVAL_ROTEL and OTEVAL_PROMETHEUS name
programs that are not on the PATH.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from benchmarks.served import Served, Sink, until

from ..make import ROOT
from ..serve.clients import run_agent

pytestmark = pytest.mark.live

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 300ms}
"""
TOKENS = {"OTEVAL_INGEST_TOKEN": "in", "OTEVAL_READ_TOKEN": "out"}
READ = {"authorization": "Bearer out"}


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def program(variable: str, module: str, name: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    executable = os.environ.get(variable) or shutil.which(name)
    spec = importlib.util.find_spec(module) if module else None
    if not executable and spec is not None and spec.origin:
        executable = str(Path(spec.origin).with_name(name))
    if not executable:
        pytest.skip(f"no {name}; make test-live installs what it can")
    return executable


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    """Return the downstream endpoint of oteval."""
    there = Sink()
    yield there
    there.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sink: Sink) -> Iterator[Served]:
    """Return a server with tokens that forwards."""
    folder = tmp_path_factory.mktemp("flow")
    (folder / "oteval.yaml").write_text(RULES)
    server = Served(folder, "--forward", sink.url, environment=TOKENS)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def relay(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Return the HTTP and gRPC ports of a relay in front of the server."""
    path = program("OTEVAL_ROTEL", "rotel", "rotel-agent")
    http, grpc = free_port(), free_port()
    log = tmp_path_factory.mktemp("relay") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [
                *(path, "start", "--exporter", "otlp", "--otlp-exporter-protocol", "http"),
                *("--otlp-http-endpoint", f"127.0.0.1:{http}"),
                *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc}"),
                *("--otlp-exporter-endpoint", f"http://127.0.0.1:{served.http}"),
                *("--otlp-exporter-custom-headers", "authorization=Bearer in"),
                *("--batch-timeout", "100ms"),
            ],
            stdout=out,
            stderr=out,
            env={"PATH": os.environ["PATH"], "ROTEL_TELEMETRY_DISABLED": "true"},
        )
        until(lambda: _listens(http) and _listens(grpc))
        yield http, grpc
        process.terminate()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def trajectory(served: Served, name: str) -> dict[str, Any] | None:
    """Return a trajectory with its scores, once both are there."""
    status, body = served.get(f"/api/trajectories/{name}", READ)
    stored_run = json.loads(body) if status == 200 else None
    return stored_run if stored_run and stored_run["scores"] else None


@pytest.mark.parametrize("way", ["http", "grpc"])
def test_through_a_relay_to_oteval_and_on(
    relay: tuple[int, int], served: Served, sink: Sink, way: str
):
    """An agent's spans pass a relay, are scored, and arrive downstream, the root with its score."""
    http, grpc = relay
    exporter = (
        HttpExporter(f"http://127.0.0.1:{http}/v1/traces")
        if way == "http"
        else GrpcExporter(f"127.0.0.1:{grpc}", insecure=True)
    )

    trace, _ = run_agent(exporter)

    scored_run = until(lambda: trajectory(served, trace))
    assert [score["evaluator"] for score in scored_run["scores"]] == ["tools"]
    root = (trace, scored_run["root_span"]["span_id"])
    until(lambda: root in sink.scored)
    assert sum(count for (name, _), count in sink.spans.items() if name == trace) == 2
    assert {key for key in sink.scored if key[0] == trace} == {root}


@pytest.mark.slow
def test_prometheus_scrapes_and_takes_the_rules(served: Served, tmp_path: Path):
    """Prometheus loads both files, scrapes with the token, and evaluates every rule."""
    path = program("OTEVAL_PROMETHEUS", "", "prometheus")
    config = yaml.safe_load((ROOT / "collector" / "prometheus.yml").read_text("utf-8"))
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{served.http}"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "read_token").write_text("out")
    shutil.copy(ROOT / "collector" / "alerts.yml", tmp_path)
    port = free_port()
    process = subprocess.Popen(
        [
            *(path, f"--config.file={tmp_path}/prometheus.yml"),
            *(f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _value(port, 'up{job="oteval"}') == 1.0, 30)
        until(lambda: _value(port, "oteval_ready") == 1.0)
        rules = _asked(port, "/api/v1/rules")["groups"][0]["rules"]
        until(lambda: all(r["health"] == "ok" for r in
                          _asked(port, "/api/v1/rules")["groups"][0]["rules"]))  # fmt: skip
        for rule in rules:
            assert _asked(port, f"/api/v1/query?query={_quoted(rule['query'])}") is not None
    finally:
        process.terminate()
        process.wait(20)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def _asked(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())["data"]
    finally:
        connection.close()


def _value(port: int, query: str) -> float | None:
    try:
        rows = _asked(port, f"/api/v1/query?query={_quoted(query)}")["result"]
    except (OSError, ValueError, KeyError):
        return None
    return float(rows[0]["value"][1]) if rows else None
