"""Everything that one invocation records carries its id, in whatever process or provider."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.record.programs import ROOT, run_program

PROVIDERS = """
import sys, oteval
from opentelemetry import _logs, trace
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

def span(name):
    with trace.get_tracer(name).start_as_current_span(name):
        pass

oteval.instrument(sys.argv[1])
span("early")
_logs.get_logger("wire").emit(LogRecord(event_name="exchange", body={"text": "outside a trace"}))
memory = InMemorySpanExporter()
provider = TracerProvider(resource=Resource({"service.name": "mine"}))
provider.add_span_processor(SimpleSpanProcessor(memory))
trace.set_tracer_provider(provider)
_logs.set_logger_provider(LoggerProvider(resource=Resource({"service.name": "mine"})))
span("late")
_logs.get_logger("wire").emit(LogRecord(event_name="exchange", body={"text": "late"}))
print(dict(memory.get_finished_spans()[0].resource.attributes))
"""
TREE = """
import os, subprocess, sys
from opentelemetry import trace
with trace.get_tracer("t").start_as_current_span("parent"):
    pass
code = "from opentelemetry import trace; trace.get_tracer('t').start_span('child').end()"
subprocess.run([sys.executable, "-c", code], check=True)
if os.fork() == 0:
    trace.get_tracer("t").start_span("fork").end()
    sys.exit(0)
os.wait()
"""


def resources(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each resource in a file of OTLP/JSON lines."""
    for line in path.read_text().splitlines():
        request = json.loads(line)
        for item in request.get("resourceSpans", []) + request.get("resourceLogs", []):
            yield {
                attribute["key"]: attribute["value"]["stringValue"]
                for attribute in item["resource"]["attributes"]
            }


def invocations(path: Path) -> list[str | None]:
    """Return the id of each resource in a file."""
    return [attributes.get("oteval.invocation.id") for attributes in resources(path)]


def test_spans_and_records_of_every_provider_have_the_id(tmp_path: Path) -> None:
    """Also of providers that the agent sets later, whose own exporters do not see it."""
    done = run_program(PROVIDERS, str(tmp_path / "t.jsonl"))

    assert (done.stdout, done.stderr) == ("{'service.name': 'mine'}\n", "")
    ids = invocations(tmp_path / "t.jsonl")
    services = {attributes["service.name"] for attributes in resources(tmp_path / "t.jsonl")}
    assert len(ids) >= 4
    assert len(set(ids)) == 1
    assert ids[0]
    assert "mine" in services


def test_processes_of_one_command_share_the_id(tmp_path: Path) -> None:
    """A child and a fork have their parent's; another `oteval run` has another."""
    ids = []
    for name in ("a.jsonl", "b.jsonl"):
        command = [sys.executable, "-m", "oteval", "run", "--quiet", "--to", str(tmp_path / name)]
        subprocess.run([*command, "--", sys.executable, "-c", TREE], check=True, cwd=ROOT)
        ids.append(invocations(tmp_path / name))

    assert [len(set(found)) for found in ids] == [1, 1]
    assert len(ids[0]) >= 3
    assert ids[0][0] != ids[1][0]
