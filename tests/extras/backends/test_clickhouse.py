"""Pull `otel_traces` from ClickHouse's engine, which chdb runs behind a small HTTP server.

`make test-backends` installs chdb; ``OTEVAL_CHDB`` names the Python that has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import BackendError
from oteval.extras.backends.clickhouse import ClickHouse
from oteval.extras.backends.json_api import JsonApi
from oteval.extras.backends.transfer import pull
from oteval.store import Store

from ...commands import Run
from ...ingest.containers import trace_row
from ...make import capture
from .json_server import answering
from .real_server import free_port, running

CAPTURE = "genai_openai_chat"
SECRET = "very-secret"
SERVER = Path(__file__).with_name("chdb_server.py")
TEXT, MAP = "LowCardinality(String)", "Map(LowCardinality(String), String)"
TABLE = (
    "CREATE TABLE otel.otel_traces (Timestamp DateTime64(9, 'Asia/Tokyo'), TraceId String,"
    " SpanId String, ParentSpanId String, TraceState String,"
    f" SpanName {TEXT}, SpanKind {TEXT}, ServiceName {TEXT}, ResourceAttributes {MAP},"
    f" ScopeName String, ScopeVersion String, SpanAttributes {MAP}, Duration UInt64,"
    f" StatusCode {TEXT}, StatusMessage String,"
    f" Events Nested (Timestamp DateTime64(9, 'Asia/Tokyo'), Name {TEXT}, Attributes {MAP}),"
    f" Links Nested (TraceId String, SpanId String, TraceState String, Attributes {MAP}))"
    " ENGINE = MergeTree ORDER BY (ServiceName, SpanName, toDateTime(Timestamp))"
)


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of ClickHouse's engine with the spans of a capture, one of them twice."""
    folder = tmp_path_factory.mktemp("clickhouse")
    spans, _ = capture(CAPTURE)
    rows = [zoned(trace_row(span)) for span in (*spans, spans[0])]
    setup = folder / "setup.sql"
    inserted = "".join(map(json.dumps, rows))
    setup.write_text(
        "CREATE DATABASE otel\n"
        + TABLE
        + "\nSET date_time_input_format = 'best_effort'\n"
        + f"INSERT INTO otel.otel_traces FORMAT JSONEachRow {inserted}\n"
        + "CREATE VIEW otel.other AS SELECT 1 AS x\n"
    )
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running("OTEVAL_CHDB", [str(SERVER), str(port), str(setup)], {}, folder, url):
        yield url


def zoned(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose times say that they are in UTC, because the columns have a zone."""
    times = [f"{one}Z" for one in row["Events.Timestamp"]]
    return {**row, "Timestamp": f"{row['Timestamp']}Z", "Events.Timestamp": times}


def connected(url: str, page: int = 3) -> ClickHouse:
    api = JsonApi(url, "ClickHouse", {"X-ClickHouse-Key": SECRET}, sleep=lambda _seconds: None)
    return ClickHouse(api, page=page)


@pytest.mark.backends
def test_the_spans_are_those_of_the_table(clickhouse: str, tmp_path: Path):
    """Times, ids, events and runs are those of the spans; a second pull stores nothing."""
    spans, _ = capture(CAPTURE)
    source = connected(clickhouse)
    with Store(tmp_path / "pulled.duckdb") as store:
        [first] = pull(store, source, 0, ["otel.otel_traces"])
        [again] = pull(store, source, 0, ["otel.otel_traces"])
        found = {
            span.span_id: span
            for trace in store.spans.of_traces(sorted({one.trace_id for one in spans}))
            for span in (trace if isinstance(trace, list) else [trace])
        }
    source.close()

    assert (first.written.stored, first.problems) == (len(spans), [])
    assert (again.written.stored, again.written.conflicts) == (0, first.written.conflicts)
    for span in spans:
        other = found[span.span_id]
        assert (other.start_ns, other.end_ns) == (span.start_ns, span.end_ns)
        assert (other.parent_id, other.kind, other.name) == (span.parent_id, span.kind, span.name)
        assert [one.time_ns for one in other.events] == [one.time_ns for one in span.events]
        assert other.resource == span.resource


@pytest.mark.backends
def test_an_interrupted_pull_continues(clickhouse: str):
    """The rest begins exactly after the last page that was stored."""
    spans, _ = capture(CAPTURE)
    source = connected(clickhouse)
    first = next(source.pages("otel.otel_traces", {"since_ns": 0}))
    rest = [one for page in source.pages("otel.otel_traces", first.position) for one in page.spans]
    source.close()

    assert {one.span_id for one in (*first.spans, *rest)} == {one.span_id for one in spans}
    assert not {one.span_id for one in first.spans} & {one.span_id for one in rest}


@pytest.mark.backends
def test_since(clickhouse: str):
    """Spans that began earlier are not read."""
    spans, _ = capture(CAPTURE)
    middle = sorted(one.start_ns for one in spans)[len(spans) // 2]
    source = connected(clickhouse)
    pages = list(source.pages("otel.otel_traces", {"since_ns": middle}))
    source.close()

    found = {one.span_id for page in pages for one in page.spans}
    assert found == {one.span_id for one in spans if one.start_ns >= middle}


@pytest.mark.backends
@pytest.mark.parametrize(("table", "said"), [("otel.other", "no columns"), ("nothing", "nothing")])
def test_another_table_is_refused(clickhouse: str, table: str, said: str):
    """The message names the table."""
    source = connected(clickhouse)

    with pytest.raises(BackendError, match=said):
        next(source.pages(table, {"since_ns": 0}))
    source.close()


@pytest.mark.backends
def test_the_command(oteval: Run, clickhouse: str, monkeypatch: pytest.MonkeyPatch):
    """User and password come from the environment; without them, the message names the variable."""
    refused = oteval("pull", "clickhouse", clickhouse, "--project", "otel.otel_traces")
    monkeypatch.setenv("CLICKHOUSE_USER", "reader")
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", SECRET)
    done = oteval(
        *("pull", "clickhouse", clickhouse, "--project", "otel.otel_traces"),
        *("--since", "2020-01-01"),
    )

    assert refused.status == 2
    assert "CLICKHOUSE_PASSWORD" in refused.err
    assert done.status == 0
    assert SECRET not in refused.err + done.out + done.err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, b"<html>"), "is this the URL of ClickHouse?"),
        ((200, {"x": 1}), "is this the right URL?"),
        ((302, {}, {"Location": "https://other.example/"}), "give that URL"),
        ((200, {"exception": "Code: 159. DB::Exception: Timeout"}), "Timeout"),
    ],
)
def test_errors_are_one_line(oteval: Run, answer: Any, said: str):
    """Another product, a redirect, and an error in the middle of an answer are named."""
    with answering(lambda *_: answer) as server:
        done = oteval("pull", "clickhouse", server.url)

    assert done.status == 2
    assert said in done.err


def test_a_name_that_is_not_a_table_is_refused(oteval: Run):
    """No statement reaches the server through the name of a table."""
    done = oteval("pull", "clickhouse", "--project", "otel_traces; DROP TABLE x")

    assert done.status == 2
    assert "DATABASE.TABLE" in done.err
