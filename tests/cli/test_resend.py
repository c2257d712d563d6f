"""`oteval resend`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oteval.base.clients.otlp_client import HttpClient
from oteval.serve.publish.forwarder import Forwarder

from ..make import score
from ..otlp_endpoint import Downstream, listening
from ..serve.publish.test_forwarder import request, trace
from .conftest import Run

CONFIG = "evaluators: [{{name: tools, type: tool_errors}}]\nforward: {url}\n"


@pytest.fixture
def downstream() -> Iterator[Downstream]:
    """Return an endpoint to send to."""
    with listening() as state:
        yield state


@pytest.fixture
def refused(tmp_path: Path, downstream: Downstream) -> list[Path]:
    """Return the files of two requests that the endpoint refused."""
    folder = tmp_path / "t.duckdb.forward" / "traces"
    forwarder = Forwarder(folder, HttpClient(downstream.url), threaded=False)
    downstream.answers = [(400, {})] * 3
    for number in (1, 2):
        forwarder.take("traces", "protobuf", request((number, 1)), (1, number), 1)
    forwarder.release({trace(number): [score(1)] for number in (1, 2)})
    while forwarder.pump():
        pass
    forwarder.close()
    return sorted((folder / "refused").iterdir())


def test_it_sends_what_was_refused(
    oteval: Run, refused: list[Path], downstream: Downstream
) -> None:
    """Once the endpoint takes it, all of it arrives in order, and nothing is left to send."""
    Path("oteval.yaml").write_text(CONFIG.format(url=downstream.url))

    done = oteval("resend", "--db", "t.duckdb")
    again = oteval("resend", "--db", "t.duckdb")

    assert (done.status, done.out) == (0, f"{downstream.url}: 2 sent, 0 refused again\n")
    assert [span.trace_id[-1] for span in downstream.spans()] == [1, 2]
    assert len(refused) == 2
    assert not any(path.exists() for path in refused)
    assert (again.status, again.out) == (0, "nothing was refused\n")


def test_what_is_refused_again_stays(
    oteval: Run, refused: list[Path], downstream: Downstream
) -> None:
    """It is named with the reason, the others go, and the status says so."""
    downstream.answers = [(400, {}), (200, {})]

    done = oteval("resend", "--db", "t.duckdb", "--forward", downstream.url)

    assert (done.status, done.out) == (2, f"{downstream.url}: 1 sent, 1 refused again\n")
    assert "refused again: 400 Bad Request" in done.err
    assert [path.exists() for path in refused] == [True, False]


def test_an_endpoint_that_is_away_is_tried_once(oteval: Run, refused: list[Path]) -> None:
    """Nothing is lost, and not every request is tried in vain."""
    done = oteval("resend", "--db", "t.duckdb", "--forward", "http://127.0.0.1:9")

    assert done.status == 2
    assert done.err.count("not accepted; stopping here: no answer") == 1
    assert all(path.exists() for path in refused)


def test_it_needs_an_endpoint(oteval: Run) -> None:
    """Without one, the error names the options."""
    done = oteval("resend", "--db", "t.duckdb")

    assert done.status == 2
    assert "give --forward URL" in done.err
