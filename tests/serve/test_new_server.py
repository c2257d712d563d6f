"""A server that was just started, and one whose tokens the client does not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.served import Served, until

from .clients import INGEST, READ, TOKENS, agent_run, call

RULES = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 200ms}
redact:
  - {keys: [secret]}
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """Return a server without a configuration, with tokens, and its folder."""
    folder = tmp_path_factory.mktemp("bare")
    server = Served(folder, environment=TOKENS)
    yield server, folder
    assert server.stop() == 0


def test_the_front_page_says_where_to_send_traces(bare: tuple[Served, Path]):
    """The output names both addresses and the variable to set, without secrets."""
    server, _ = bare

    status, body = server.get("/")
    text = body.decode()

    assert status == 200
    assert f"http://127.0.0.1:{server.http}/v1/traces" in text
    assert f"127.0.0.1:{server.grpc}\n" in text
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{server.http}\n" in text
    assert "OTEL_EXPORTER_OTLP_HEADERS" in text
    assert "Bearer%20in\n" not in text


def test_metrics_leave_out_unconfigured_features(bare: tuple[Served, Path]):
    """Without a forward and without events, neither has figures."""
    server, _ = bare

    text = until(lambda: (metrics := server.get("/metrics", READ)[1].decode()) and metrics)

    assert "oteval_config_ok" in text
    assert "oteval_forward" not in text
    assert "oteval_events" not in text


@pytest.mark.slow
def test_refused_peers_are_named_once(bare: tuple[Served, Path]):
    """A peer that retries without a token is logged once for each reason."""
    server, _ = bare
    body = agent_run()[1].SerializeToString()

    statuses = {server.post("/v1/traces", body, authorization="Bearer x")[0] for _ in range(20)}
    code = call(server.grpc, body, headers=())
    read = server.get("/metrics")[0]

    assert (statuses, code, read) == ({401}, grpc.StatusCode.UNAUTHENTICATED, 401)
    lines = until(lambda: [line for line in server.log if "refused a request from" in line])
    assert 1 <= len(lines) <= 2
    assert all("127.0.0.1: token" in line for line in lines)
    assert "Bearer" not in "".join(lines)


@pytest.mark.slow
def test_a_configuration_that_comes_later_is_taken(bare: tuple[Served, Path]):
    """Traces are stored from the start, and scored and redacted once oteval.yaml is there."""
    server, folder = bare
    trace_id, request = agent_run()
    assert server.post("/v1/traces", request.SerializeToString(), **INGEST)[0] == 200
    until(lambda: server.get(f"/api/trajectories/{trace_id}", READ)[0] == 200)
    assert server.get("/api/scores", READ)[1] == b"[]"
    assert server.state()["redaction"]["rules"] == 0

    (folder / "oteval.yaml").write_text(RULES)

    until(lambda: server.state()["redaction"]["rules"] == 1)
    _, later = agent_run()
    server.post("/v1/traces", later.SerializeToString(), **INGEST)
    until(lambda: b'"tools"' in server.get("/api/scores", READ)[1])
    assert any("scored once that file exists" in line for line in server.log)
    (folder / "oteval.yaml").write_text("evaluators: [")
    until(lambda: not server.state()["is_ready"])
