"""All captures go through a real Phoenix and a real MLflow, and give the same runs as before.

Both keep the attributes and add some of their own. Neither keeps the scope and the kind of a span,
or log records. `make test-backends` installs them; ``OTEVAL_PHOENIX`` and ``OTEVAL_MLFLOW`` name
their commands.
"""

from __future__ import annotations

import hashlib
import json
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import until
from oteval.base.jsontext import canonical
from oteval.messages.values import parse
from oteval.model import Span, Trajectory
from oteval.reconstruct import reconstruct
from oteval.scoring.otlp_requests import span_request
from oteval.store import Store

from ...commands import Run
from ...reconstruct.builders import DATA, capture, names
from .real_server import free_port, running

pytestmark = pytest.mark.backends

FOLDERS = {"frameworks": "truth", "traces": "gold", "shapes": "expected"}
# What a backend loses, by capture. A gap that was not there before names it.
LOSES = {
    "frameworks/anthropic_thinking_image_openinference": "the form of a result's blocks",
    "frameworks/google_adk_transfer_native": "the scope of agents' spans without attributes",
    "frameworks/llamaindex_functionagent_traceloop": "the scope, by which the two dialects differ",
    "frameworks/smolagents_toolcalling_openinference": "the scope of model calls and tools",
    "frameworks/google_genai_sdk_auto_openinference": "white space in a result",
    "shapes/logfire_events": "the scope, without anything else that tells of Logfire",
    "shapes/phantom_call": "the scope of an agent's span",
    "shapes/structured_messages": "structured attributes",
    "traces/fastmcp_native": "the kind of a span, by which a client's differ from a server's",
    "traces/openinference_attrcount_28": "the count of attributes that were dropped",
}
# Of these, nothing shows that anything is missing.
SILENT = {
    "frameworks/anthropic_thinking_image_openinference",  # the text is the same
    "frameworks/google_genai_sdk_auto_openinference",
    "shapes/phantom_call",
    "traces/fastmcp_native",
}


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """Run Phoenix, and yield its URL."""
    port = free_port()
    variables = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    url = f"http://127.0.0.1:{port}"
    with running("OTEVAL_PHOENIX", ["serve"], variables, folder, f"{url}/v1/projects"):
        yield url


@contextmanager
def mlflow(folder: Path) -> Iterator[str]:
    """Run MLflow, and yield its URL."""
    port = free_port()
    arguments = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    variables = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    url = f"http://127.0.0.1:{port}"
    with running("OTEVAL_MLFLOW", arguments, variables, folder, f"{url}/health"):
        yield url


BACKENDS = {"phoenix": phoenix, "mlflow": mlflow}


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_runs_of_all_captures_survive_a_backend(backend: str, oteval: Run, tmp_path: Path):
    """Messages, calls, errors and turns are the same, or the capture is one of those that lose."""
    captures = {name: spans for name, spans in _captures() if spans}
    expected = sum(map(len, captures.values()))
    with BACKENDS[backend](tmp_path) as url:
        for spans in captures.values():
            _send(url, spans)
        until(lambda: _pulled(oteval, backend, url) == expected, 120)
    with Store("pulled.duckdb") as store:
        stored, _ = store.spans.of_traces(
            sorted({s.trace_id for c in captures.values() for s in c})
        )

    differing = {}
    for name, spans in captures.items():
        traces = {span.trace_id for span in spans}
        before = reconstruct(spans)
        after = reconstruct([span for span in stored if span.trace_id in traces])
        if _content(after) != _content(before):
            differing[name] = _gaps(after) - _gaps(before)
    unnamed = {name for name, gaps in differing.items() if not gaps}

    assert differing.keys() <= LOSES.keys()
    assert unnamed <= SILENT


def _captures() -> Iterator[tuple[str, list[Span]]]:
    """Yield the spans of each capture, with ids that no other capture has."""
    for folder, without in FOLDERS.items():
        for name in names(DATA / folder, without):
            spans, _ = capture(name, DATA / folder)
            yield f"{folder}/{name}", [_with_own_ids(span, f"{folder}/{name}") for span in spans]


def _with_own_ids(span: Span, name: str) -> Span:
    def own(identifier: str) -> str:
        digest = hashlib.sha256(f"{name}{span.trace_id}{identifier}".encode()).hexdigest()
        return digest[: len(span.trace_id if not identifier else span.span_id)]

    parent_id = own(span.parent_id) if span.parent_id else ""
    return replace(span, trace_id=own(""), span_id=own(span.span_id), parent_id=parent_id)


def _send(url: str, spans: Sequence[Span]) -> None:
    headers = {"Content-Type": "application/x-protobuf", "x-mlflow-experiment-id": "0"}
    body = span_request(spans).SerializeToString()
    request = urllib.request.Request(f"{url}/v1/traces", body, headers)
    urllib.request.urlopen(request, timeout=60).close()


def _pulled(oteval: Run, backend: str, url: str) -> int:
    """Pull all spans again, and return how many there are."""
    Path("pulled.duckdb").unlink(missing_ok=True)
    options = ["--since", "2020-01-01", "--json", "--db", "pulled.duckdb"]
    [report] = oteval("pull", backend, url, *options).rows
    return int(report["stored"])


def _content(runs: Sequence[Trajectory]) -> str:
    """Return what counts of some runs: a backend may write JSON with other white space."""
    told: list[Any] = [
        [
            [run.agent, run.turn, run.conversation_id],
            [
                [m.role, _plain(m.content), [[c.name, c.arguments, c.id] for c in m.tool_calls]]
                for m in run.messages
            ],
            [m.is_error for m in run.messages],
        ]
        for run in runs
    ]
    return json.dumps(told, sort_keys=True)


def _plain(content: str | None) -> str | None:
    return None if content is None else canonical(parse(content).value)


def _gaps(runs: Sequence[Trajectory]) -> set[str]:
    return {gap.code for run in runs for gap in run.gaps}
