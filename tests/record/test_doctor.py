"""`oteval doctor`: installed libraries, content, HTTP clients, and the test span."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run
from tests.otlp_endpoint import listening
from tests.record import fake_packages


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def test_the_test_span_arrives(oteval: Run) -> None:
    """A test span reaches the endpoint, and the status is 0."""
    with listening() as endpoint:
        done = oteval("doctor", "--to", endpoint.url)

    assert done.status == 0
    assert f"test span: arrived at {endpoint.url}" in done.out
    assert [span.name for span in endpoint.spans()] == ["oteval doctor"]


def test_a_refusal_is_one_line(oteval: Run) -> None:
    """An endpoint that refuses gives the status 1 and its answer."""
    with listening() as endpoint:
        endpoint.answers.append((401, {}))
        done = oteval("doctor", "--to", endpoint.url, "--json")

    assert done.status == 1
    assert done.rows[-1]["status"] == "failed"
    assert "401" in done.rows[-1]["error"]


def test_nothing_listens(oteval: Run, unused_tcp_port: int) -> None:
    """Where nothing listens, the message says what to start."""
    done = oteval("doctor", "--to", f"http://127.0.0.1:{unused_tcp_port}", "--json")

    assert (done.status, done.rows[-1]["error"]) == (
        1,
        "connection refused: start `oteval serve`, or give --to",
    )


def test_libraries_and_clients(oteval: Run) -> None:
    """Each installed library has its instrumentation, each HTTP client says if it is recorded."""
    rows = oteval("doctor", "--no-send", "--json").rows

    libraries = {row["library"]: row for row in rows if row["kind"] == "library"}
    assert libraries["openai"]["by"].startswith("opentelemetry-instrumentation-genai-openai ")
    assert libraries["langchain"]["by"].startswith("opentelemetry-instrumentation-genai-langchain")
    assert libraries["pydantic-ai"]["by"] == "pydantic-ai itself"
    assert {row["content"] for row in libraries.values()} == {"on"}
    clients = {row["client"]: row for row in rows if row["kind"] == "http_client"}
    assert clients["httpx2"]["is_recorded"]
    assert clients["httpx2"]["spans"]
    assert clients["requests"]["is_recorded"]
    assert clients["requests"]["spans"]
    assert clients["grpcio"]["note"] == "requests cannot be recorded or replayed (Vertex AI)"
    assert rows[-1]["status"] == "not sent"


def test_hidden_content_names_its_variable(oteval: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that the user set wins, and the report names it; secrets are not shown."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer secret")

    done = oteval("doctor", "--no-send")

    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=false" in done.out
    assert "content is left out" in done.out
    assert "secret" not in done.out


def test_a_missing_instrumentation_has_a_command(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library without an instrumentation comes with the command that installs one."""
    fake_packages.library(tmp_path, "cohere", "5.0")
    monkeypatch.syspath_prepend(str(tmp_path))

    rows = oteval("doctor", "--no-send", "--json").rows

    [row] = [row for row in rows if row.get("library") == "cohere"]
    assert (row["status"], row["reason"]) == ("off", "no instrumentation is installed")
    assert row["remedy"] == "pip install openinference-instrumentation-cohere"


def test_a_version_out_of_range_has_another_command(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the installed instrumentation does not fit, the command installs the next one."""
    fake_packages.library(tmp_path, "cohere", "9.1")
    fake_packages.instrumentation(tmp_path, "openinference-instrumentation-cohere", "cohere<6")
    monkeypatch.syspath_prepend(str(tmp_path))

    rows = oteval("doctor", "--no-send", "--json").rows

    [row] = [row for row in rows if row.get("library") == "cohere"]
    assert "needs cohere<6, 9.1 is installed" in row["reason"]
    assert row["remedy"] == "pip install opentelemetry-instrumentation-cohere"


def test_an_old_httpx_instrumentation_lacks_httpx2(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of the httpx instrumentation that does not know httpx2 is named."""
    fake_packages.instrumentation(tmp_path, "opentelemetry-instrumentation-httpx", "httpx")
    points = tmp_path / "opentelemetry_instrumentation_httpx-1.0.dist-info" / "entry_points.txt"
    points.write_text("[opentelemetry_instrumentor]\nhttpx = httpx_old:Instrumentor\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    rows = oteval("doctor", "--no-send", "--json").rows

    notes = {row["client"]: row["note"] for row in rows if row["kind"] == "http_client"}
    assert "does not know httpx2: pip install -U" in notes["httpx2"]
    assert notes["httpx"] == ""


def test_a_wrong_destination_is_a_usage_error(oteval: Run) -> None:
    """A destination that is none gives the status 2."""
    done = oteval("doctor", "--to", "nowhere")

    assert done.status == 2
    assert "give the URL of an OTLP endpoint" in done.err


def test_aiohttp_gets_its_spans_from_oteval(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are recorded, and need no instrumentation."""
    fake_packages.library(tmp_path, "aiohttp", "3.14")
    monkeypatch.syspath_prepend(str(tmp_path))

    rows = oteval("doctor", "--no-send", "--json").rows

    [row] = [row for row in rows if row.get("client") == "aiohttp"]
    assert (row["spans"], row["is_recorded"], row["note"]) == ("oteval", True, "")
