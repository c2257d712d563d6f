from __future__ import annotations

from pathlib import Path

import pytest

from ..make import TRACES
from .conftest import Run

NO_CONTENT = TRACES / "genai_openai_chat_nocontent.json"


def explained(oteval: Run, path: Path, *options: str) -> str:
    """Return the output of `oteval explain` for a capture's first trace."""
    oteval("ingest", path)
    trace = oteval("trajectories", "--json").rows[0]["trace_ids"][0]
    done = oteval("explain", trace, *options)
    assert (done.status, done.err) == (0, "")
    return " ".join(done.out.split())


def test_missing_content_names_the_variable_that_brings_it(oteval: Run):
    """Spans without content name the switch of their instrumentation, and how many lack it."""
    text = explained(oteval, NO_CONTENT)

    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY" in text
    assert "content_not_captured" in text
    assert "4 spans" in text
    assert "get_weather: call id" in text


def test_http_spans_alone_say_what_to_install(oteval: Run):
    """The summary names a trace with requests only; explain suggests an instrumentation."""
    loaded = oteval("ingest", TRACES / "httpx_only.json")
    summary = " ".join(loaded.out.split())
    assert "5 traces without a run: hold neither an agent's span nor a model call" in summary
    assert oteval("trajectories", "--json").rows == []

    trace = summary.partition("(oteval explain ")[2].partition(")")[0]
    text = " ".join(oteval("explain", trace).out.split())

    assert "ignored: an HTTP request" in text
    assert "no span of a model call was found" in text
    assert "opentelemetry-instrumentation-genai-openai" in text


def test_a_whole_trace_is_missing_nothing(oteval: Run):
    """Where all was captured, each span names its messages and nothing is missing."""
    text = explained(oteval, TRACES / "langgraph_openinference.json")

    assert "Nothing is missing." in text
    assert "a node of the graph" in text
    assert "messages 0-2 of" in text


def test_json_has_an_object_a_trace(oteval: Run):
    """With --json each trace is a line with its spans, trajectories and gaps."""
    oteval("ingest", NO_CONTENT)
    trace = oteval("trajectories", "--json").rows[0]["trace_ids"][0]

    (row,) = oteval("explain", trace, "--json").rows

    assert row["trace_id"] == trace
    assert [found["dialect"] for found in row["spans"]] == ["genai"] * 5
    assert row["spans"][1]["messages"] == [0]
    assert row["gaps"][0]["code"] == "content_not_captured"
    assert len(row["gaps"][0]["span_ids"]) == 4


def test_a_second_recording_is_explained_from_its_own_trace(oteval: Run):
    """A trace that only repeats another's call has no gap, and explain says what it is."""
    oteval("ingest", TRACES / "dup_openinference_langchain_and_openai.json")
    first = oteval("trajectories", "--json").rows[0]

    done = oteval("explain", first["trace_ids"][1])

    text = " ".join(done.out.split())
    assert "another span records the same call; it is counted once" in text
    assert "Nothing is missing." in text


@pytest.mark.parametrize("kind", ["trace", "span", "trajectory", "beginning"])
def test_any_id_finds_the_trace(oteval: Run, kind: str):
    """A trace's id or beginning, a span's id, and a trajectory's id or beginning all do."""
    oteval("ingest", NO_CONTENT)
    row = oteval("trajectories", "--json").rows[0]
    trace = row["trace_ids"][0]
    names = {
        "trace": trace,
        "span": row["root_span"]["span_id"],
        "trajectory": row["trajectory_id"],
        "beginning": trace[:8],
    }

    done = oteval("explain", names[kind], "--json")

    assert done.rows[0]["trace_id"] == trace


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "no trace, span or trajectory 'nothing'"), ("", "'' means several traces")],
)
def test_an_id_that_means_no_trace_is_an_error_of_one_line(oteval: Run, name: str, words: str):
    """An id that nothing has, or that several traces begin with, has exit status 2."""
    oteval("ingest", NO_CONTENT)

    done = oteval("explain", name)

    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert words in done.err
