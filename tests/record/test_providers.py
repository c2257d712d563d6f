"""The providers of OpenTelemetry that `instrument` sets up, joins, or leaves to the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.record.programs import exported, run_program

SETUP = """
import sys, oteval
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

def own_provider(**options):
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "mine"}), **options)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return provider, memory

def span(name):
    with trace.get_tracer(name).start_as_current_span(name):
        pass
"""


def test_an_existing_provider_is_joined(tmp_path: Path) -> None:
    """The agent's own exporter goes on as before, with its resource; oteval gets the spans too."""
    code = """
provider, memory = own_provider()
trace.set_tracer_provider(provider)
oteval.instrument(sys.argv[1])
span("a")
print([one.name for one in memory.get_finished_spans()])
"""
    done = run_program(SETUP + code, str(tmp_path / "t.jsonl"))

    assert (done.stdout, done.stderr) == ("['a']\n", "")
    assert [(span["service"], span["name"]) for span in exported(tmp_path / "t.jsonl")] == [
        ("mine", "a")
    ]


def test_a_provider_that_is_set_later_takes_over(tmp_path: Path) -> None:
    """Under `oteval run` an agent still sets its provider, and gets the spans of older tracers."""
    code = """
oteval.instrument(sys.argv[1])
span("early")
provider, memory = own_provider()
trace.set_tracer_provider(provider)
span("early")
span("late")
print([one.name for one in memory.get_finished_spans()], trace.get_tracer_provider() is provider)
"""
    done = run_program(SETUP + code, str(tmp_path / "t.jsonl"), OTEL_SERVICE_NAME="ours")

    assert (done.stdout, done.stderr) == ("['early', 'late'] True\n", "")
    assert [span["name"] for span in exported(tmp_path / "t.jsonl")] == ["early", "early", "late"]


@pytest.mark.slow
def test_another_kind_of_provider_is_named(tmp_path: Path) -> None:
    """A provider that accepts no processors stays, and a warning says so."""
    code = """
class Foreign(trace.NoOpTracerProvider):
    pass
trace.set_tracer_provider(Foreign())
oteval.instrument(sys.argv[1])
span("a")
"""
    done = run_program(SETUP + code, str(tmp_path / "t.jsonl"))

    assert "the tracer provider of the process (Foreign) is not" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_no_limit_cuts_silently(tmp_path: Path) -> None:
    """Our providers keep every attribute; limits of the environment apply, with a warning."""
    code = """
oteval.instrument(sys.argv[1])
with trace.get_tracer("a").start_as_current_span("a") as one:
    for number in range(1000):
        one.set_attribute(f"llm.input_messages.{number}", "x" * 1000)
"""
    free = run_program(SETUP + code, str(tmp_path / "t.jsonl"))
    [span] = exported(tmp_path / "t.jsonl")
    limits = {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "500"}
    limited = run_program(SETUP + code, str(tmp_path / "u.jsonl"), **limits)

    assert free.stderr == ""
    assert len(span["attributes"]) == 1000
    assert "cut after 500 characters (OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT)" in limited.stderr


def test_a_limit_of_the_agents_provider_is_named_once(tmp_path: Path) -> None:
    """A provider that drops attributes is named when the first span loses some."""
    code = """
provider, memory = own_provider()
trace.set_tracer_provider(provider)
oteval.instrument(sys.argv[1])
for name in ("a", "b"):
    with trace.get_tracer(name).start_as_current_span(name) as one:
        one.set_attributes({str(number): number for number in range(200)})
"""
    done = run_program(SETUP + code, str(tmp_path / "t.jsonl"))

    assert "the span a lost 72 attributes" in done.stderr
    assert done.stderr.count("lost 72") == 1


@pytest.mark.slow
def test_the_service_is_named_for_the_program(tmp_path: Path) -> None:
    """Without a name in the environment or the call, the service has the program's name."""
    program = tmp_path / "shop_agent.py"
    program.write_text(SETUP + "oteval.instrument(sys.argv[1]); span('a')")

    run_program(
        "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])",
        str(program),
        str(tmp_path / "t.jsonl"),
    )

    assert [span["service"] for span in exported(tmp_path / "t.jsonl")] == ["shop_agent"]
