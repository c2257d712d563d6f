"""The environment variables that turn the content of messages on and off."""

from __future__ import annotations

from pathlib import Path

import pytest

from oteval.ingest import read
from oteval.record.content_variables import content_variables, set_content_variables
from oteval.record.libraries import LIBRARIES
from tests.model_server import serving
from tests.record.programs import run_program
from tests.record.travel_agents import QUESTION, converse

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def test_content_is_turned_on_where_nothing_is_set() -> None:
    """The variables of each family are set, and those of libraries that are installed."""
    environ: dict[str, str] = {}

    set_content_variables(LIBRARIES, capture_content=True, environ=environ)

    assert environ[CAPTURE] == "SPAN_ONLY"
    assert environ["HAYSTACK_CONTENT_TRACING_ENABLED"] == environ["ENABLE_SENSITIVE_DATA"] == "true"
    assert not any(name.startswith("OPENINFERENCE_HIDE") for name in environ)


def test_values_of_the_user_stay() -> None:
    """A variable that is set wins, and is reported as hiding content."""
    environ = {CAPTURE: "NO_CONTENT", "OPENINFERENCE_HIDE_INPUTS": "true"}
    given = dict(environ)

    set_content_variables((), capture_content=True, environ=environ)

    assert {name: environ[name] for name in given} == given
    found = content_variables((), environ)
    assert {one.name for one in found if one.hides_content} == set(given)


def test_content_is_turned_off() -> None:
    """Each family is told to leave content out, and that is not reported as a limit."""
    environ: dict[str, str] = {}

    set_content_variables(LIBRARIES, capture_content=False, environ=environ)

    assert environ[CAPTURE] == "NO_CONTENT"
    assert environ["OPENINFERENCE_HIDE_INPUTS"] == "true"
    assert environ["TRACELOOP_TRACE_CONTENT"] == environ["ENABLE_SENSITIVE_DATA"] == "false"
    assert environ["ENABLE_INSTRUMENTATION"] == "true"
    found = content_variables(LIBRARIES, environ, capture_content=False)
    assert not any(one.hides_content for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["plain", "pydantic_ai"])
def test_no_content_is_exported(agent: str, tmp_path: Path) -> None:
    """Without content, spans of clients and frameworks hold no word of the messages."""
    path = tmp_path / "traces.jsonl"
    program = f"""
import sys, oteval
oteval.instrument(sys.argv[1], capture_content=False, record_http=False)
from tests.record.travel_agents import {agent}
{agent}(sys.argv[2])
"""
    with serving(converse) as server:
        done = run_program(program, str(path), server.url)

    assert (done.returncode, done.stderr) == (0, "")
    spans = [span for batch in read(path) for span in batch.spans]
    assert len(spans) >= 6
    assert QUESTION not in path.read_text()
    assert "Paris" not in path.read_text()
