"""`oteval.instrument`: the destinations, what reaches them, and which arguments are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

import oteval
from oteval import ConfigError, Instrumentation
from oteval.base.redaction import RedactionRule
from tests.agent import answer
from tests.commands import Run
from tests.otlp_endpoint import Downstream, listening
from tests.record.programs import run_program

AGENT = """
import sys
import oteval
oteval.instrument(sys.argv[1], service="shop")
from opentelemetry import _logs, trace
from opentelemetry._logs import LogRecord
from tests.agent import answer
answer("Refund order 17", "search", "refund")
with trace.get_tracer("agent").start_as_current_span("call"):
    _logs.get_logger("wire").emit(LogRecord(event_name="exchange", body={"text": "x" * 100_000}))
"""


@pytest.fixture
def endpoint() -> Iterator[Downstream]:
    with listening() as state:
        yield state


class Agent:
    """Providers of an agent in this process, and what `instrument` made of them.

    Libraries and HTTP clients stay as they are: other tests of this process use them.
    """

    def __init__(self, to: str | Path | None, **options: Any) -> None:
        self.tracer = TracerProvider(shutdown_on_exit=False)
        self.logger = LoggerProvider(shutdown_on_exit=False)
        self.own: dict[str, Any] = {
            "tracer_provider": self.tracer,
            "logger_provider": self.logger,
            "libraries": (),
            "record_http": False,
        }
        self.handle: Instrumentation = oteval.instrument(to, **self.own, **options)

    def span(self, name: str, **attributes: Any) -> None:
        """Record a span."""
        self.tracer.get_tracer("agent").start_span(name, attributes=attributes).end()


def test_a_program_exports_spans_and_logs_to_an_endpoint(endpoint: Downstream) -> None:
    """Two lines export the spans and log records of a program that simply ends."""
    done = run_program(AGENT, endpoint.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(endpoint.spans()) == 7
    [record] = endpoint.log_records()
    assert len(record.body.kvlist_value.values[0].value.string_value) == 100_000


def test_a_database_holds_the_trajectory(tmp_path: Path, oteval: Run) -> None:
    """A database can be read once the handle is shut down."""
    agent = Agent(tmp_path / "runs.duckdb")
    answer("Refund order 17", "search", provider=agent.tracer)
    agent.handle.shutdown()

    shown = oteval("trajectories", "--db", tmp_path / "runs.duckdb")

    assert "Refund order 17" in shown.out
    assert agent.handle.stats.exported == 4


@pytest.mark.slow
def test_a_program_writes_a_database(tmp_path: Path, oteval: Run) -> None:
    """A database can be read as soon as the program has ended."""
    database = tmp_path / "runs.duckdb"

    done = run_program(AGENT, str(database))
    shown = oteval("trajectories", "--db", database)

    assert (done.returncode, done.stderr) == (0, "")
    assert "Refund order 17" in shown.out


@pytest.mark.parametrize("name", ["runs/traces.jsonl", "traces.jsonl.gz"])
def test_a_file_can_be_ingested(tmp_path: Path, oteval: Run, name: str) -> None:
    """A file, in a folder that is created, gives the trajectory after `oteval ingest`."""
    agent = Agent(tmp_path / name)
    answer("Refund order 17", "search", provider=agent.tracer)
    agent.logger.get_logger("wire").emit(LogRecord(event_name="exchange", body={"a": [1, None]}))
    agent.handle.shutdown()

    ingested = oteval("ingest", tmp_path / name, "--db", tmp_path / "db")
    shown = oteval("trajectories", "--db", tmp_path / "db")

    assert "read 5  stored 5" in ingested.out + ingested.err
    assert "Refund order 17" in shown.out
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_secrets_are_redacted_before_the_export(endpoint: Downstream) -> None:
    """Rules apply to values of keys, and to text everywhere: names, events, logs, statuses."""
    rules = [{"keys": ["*.password"]}, RedactionRule(pattern="sk-[a-z]+", replace="[key]")]
    agent = Agent(endpoint.url, redact=rules)
    with agent.tracer.get_tracer("sk-scope").start_as_current_span("get sk-name") as span:
        span.set_attributes({"user.password": "hunter2", "messages": '"key \\u0073k-escaped"'})
        span.add_event("event", {"list": ["sk-event", "b"]})
        span.set_status(StatusCode.ERROR, "bad sk-status")
        body = {"outer": {"db.password": 7, "text": "sk-body"}}
        agent.logger.get_logger("wire").emit(LogRecord(body=body))
    agent.handle.shutdown()

    sent = b"".join(body for _, _, body in endpoint.requests)
    assert b"sk-" not in sent
    assert b"hunter2" not in sent
    assert b"escaped" not in sent
    [exported] = endpoint.spans()
    assert exported.name == "get [key]"
    assert exported.events[0].attributes[0].value.array_value.values[0].string_value == "[key]"


def test_personal_data_is_redacted_by_the_names_of_rules(endpoint: Downstream) -> None:
    """A text that names a kind of data is no glob for keys."""
    agent = Agent(endpoint.url, redact=["cards", "emails", "phones"])
    with agent.tracer.get_tracer("t").start_as_current_span("pay") as span:
        span.set_attributes({"cards": "two", "note": "4111 1111 1111 1111 of ann@example.com"})
    agent.handle.shutdown()

    [exported] = endpoint.spans()
    values = {each.key: each.value.string_value for each in exported.attributes}
    assert values == {"cards": "two", "note": "[redacted card] of [redacted email]"}


def test_a_second_call_only_adds_rules(endpoint: Downstream) -> None:
    """The same destination gives the same handle, never redacted less than any caller asked."""
    agent = Agent(endpoint.url)
    rules = [{"pattern": "secret"}]
    again = oteval.instrument(endpoint.url + "/v1/traces", redact=rules, **agent.own)
    whatever = oteval.instrument(libraries=(), record_http=False)
    agent.span("a secret span")
    agent.handle.shutdown()

    assert again is whatever is agent.handle
    assert [span.name for span in endpoint.spans()] == ["a [redacted] span"]


def test_further_destinations_get_the_same_spans(tmp_path: Path, endpoint: Downstream) -> None:
    """An agent that instruments itself under `oteval run` exports to both destinations."""
    code = """
import sys, oteval
oteval.instrument(sys.argv[1])
oteval.instrument(sys.argv[2])
from opentelemetry import trace
trace.get_tracer("agent").start_span("once").end()
"""
    done = run_program(code, str(tmp_path / "traces.jsonl"), endpoint.url)

    assert (done.returncode, done.stderr) == (0, "")
    assert [span.name for span in endpoint.spans()] == ["once"]
    assert (tmp_path / "traces.jsonl").read_text().count('"once"') == 1


def test_a_body_is_exported_as_it_was_emitted(endpoint: Downstream) -> None:
    """An instrumentation that goes on changing its list of messages changes no log record."""
    agent = Agent(endpoint.url)
    messages = [{"content": "first"}]
    agent.logger.get_logger("wire").emit(LogRecord(body={"messages": messages}))
    messages.append({"content": "second"})
    messages[0]["content"] = "changed"
    agent.handle.shutdown()

    assert b"first" in endpoint.bodies("/v1/logs")[0]
    assert b"second" not in endpoint.bodies("/v1/logs")[0]


def test_handles_restart_after_a_shutdown(endpoint: Downstream) -> None:
    """A provider that the agent shuts down closes its export; a later call opens it again."""
    agent = Agent(endpoint.url)
    agent.span("first")
    agent.tracer.shutdown()
    agent.span("lost")
    agent.handle = oteval.instrument(endpoint.url, **agent.own)
    agent.span("second")
    agent.handle.shutdown()

    assert [span.name for span in endpoint.spans()] == ["first", "second"]


@pytest.mark.parametrize(
    ("to", "options", "message"),
    [
        ("traces.csv", {}, "a file (traces.jsonl or traces.jsonl.gz)"),
        ("ftp://host", {}, "http://127.0.0.1:4318"),
        ("http://me:hidden@host", {}, "OTEL_EXPORTER_OTLP_HEADERS"),
        (None, {"redact": [{"pattern": "(?=x)"}]}, "redact[0].pattern"),
        (None, {"redact": [{"key": ["a"]}]}, "unknown key 'key'"),
        (None, {"redact": {"keys": ["a"]}}, "give a list of rules"),
        (None, {"redact": [{"keys": "a"}]}, "redact[0].keys"),
        (None, {"max_queue_bytes": 0}, "max_queue_bytes"),
    ],
)
def test_wrong_arguments_are_errors(to: Any, options: dict[str, Any], message: str) -> None:
    """A wrong argument is named at once, without a password that it may hold."""
    with pytest.raises(ConfigError) as caught:
        oteval.instrument(to, **options)

    assert message in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_without_the_sdk_the_agent_runs_unrecorded() -> None:
    """One line on stderr names what to install; the agent does not fail."""
    code = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
import oteval
handle = oteval.instrument("traces.jsonl")
assert handle.flush() and handle.stats.exported == 0
handle.shutdown()
print("ran")
"""
    done = run_program(code)

    assert done.stdout == "ran\n"
    assert done.stderr.count("\n") == 1
    assert "pip install oteval" in done.stderr


def test_importing_it_is_cheap() -> None:
    """What an agent imports does not bring along what only commands and exports need."""
    code = """
import sys, oteval
handle = oteval.instrument("traces.jsonl")
heavy = {"duckdb", "pyarrow", "grpc", "pydantic", "openai", "requests"} & set(sys.modules)
print(sorted(heavy), handle.problem)
"""
    assert run_program(code).stdout == "[] \n"


def test_a_shutdown_watches_imports_no_longer(tmp_path: Path) -> None:
    """Many destinations, one after the other, leave no import hooks behind."""
    done = run_program(
        """
import sys, oteval
before = len(sys.meta_path)
for number in range(3):
    handle = oteval.instrument(f"{sys.argv[1]}{number}.jsonl")
    assert len(sys.meta_path) > before
    handle.shutdown()
    print(len(sys.meta_path) - before)
handle = oteval.instrument(f"{sys.argv[1]}.jsonl")
import httpx
from oteval.record.discovery import library_states
print(*(one.status for one in library_states() if one.library == "httpx"))
""",
        str(tmp_path / "traces"),
    )

    assert (done.returncode, done.stdout) == (0, "0\n0\n0\non\n"), done.stderr
