"""An agent's traces go to a real backend, are pulled, scored and pushed, and read back there.

`make test-backends` installs Phoenix; ``OTEVAL_PHOENIX`` names its command.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import Served, until
from oteval.scoring.otlp_requests import span_request
from oteval.store import Store

from ...commands import Run
from ...make import capture
from .real_server import asked, free_port, running

pytestmark = pytest.mark.backends

CONFIG = "evaluators:\n  - {name: tools, type: tool_errors}\n"
CAPTURE = "genai_openai_chat"


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a real Phoenix with an empty database."""
    folder = tmp_path_factory.mktemp("phoenix")
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


def _annotations(url: str, spans: list[str]) -> list[dict[str, Any]]:
    names = "&".join(f"span_ids={one}" for one in spans)
    found = asked(f"{url}/v1/projects/default/span_annotations?{names}&limit=1000")["data"]
    return sorted(found, key=lambda one: one["id"])


def _has_annotations(url: str, spans: list[str]) -> bool:
    try:
        return bool(_annotations(url, spans))
    except urllib.error.HTTPError:
        return False


def test_phoenix(oteval: Run, phoenix: str):
    """Pull, score and push twice: the second time changes nothing, here and in Phoenix."""
    spans, _ = capture(CAPTURE)
    request = urllib.request.Request(
        f"{phoenix}/v1/traces",
        span_request(spans).SerializeToString(),
        {"Content-Type": "application/x-protobuf"},
    )
    urllib.request.urlopen(request, timeout=30).close()
    listed = f"{phoenix}/v1/projects/default/spans?limit=1000"
    until(lambda: len(asked(listed)["data"]) == len(spans), 60)
    Path("oteval.yaml").write_text(CONFIG)

    [pulled] = oteval("pull", "phoenix", phoenix, "--since", "2020-01-01", "--json").rows
    [again] = oteval("pull", "phoenix", phoenix, "--since", "2020-01-01", "--json").rows
    assert pulled["stored"] == len(spans)
    assert (again["stored"], again["duplicate"]) == (0, 0)

    assert oteval("score").status == 0
    scores = [one for one in oteval("scores", "--json").rows if one["status"] == "ok"]
    [pushed] = oteval("push", "phoenix", phoenix, "--json").rows
    found = _annotations(phoenix, [one["span_id"] for one in scores])
    [repeated] = oteval("push", "phoenix", phoenix, "--json").rows

    assert pushed["written"] == len(scores) == len(found) > 0
    assert (repeated["written"], repeated["unchanged"]) == (0, len(scores))
    assert _annotations(phoenix, [one["span_id"] for one in scores]) == found
    by_span = {one["span_id"]: one for one in scores}
    for one in found:
        score = by_span[one["span_id"]]
        assert one["name"] == "tools"
        assert one["identifier"] == f"oteval:{score['version']}"
        assert one["result"]["score"] == score["score"]
        assert one["result"]["label"] == score["label"]
        assert one["result"]["explanation"] == score["comment"]


def test_the_runs_are_those_of_the_original_traces(oteval: Run, phoenix: str, tmp_path: Path):
    """Messages and calls survive Phoenix' storage."""
    assert oteval("pull", "phoenix", phoenix, "--since", "2020-01-01").status == 0
    spans, logs = capture(CAPTURE)
    with Store(tmp_path / "direct.duckdb") as store:
        store.spans.write(spans, logs)

    pulled = oteval("trajectories", "--json").rows
    direct = oteval("trajectories", "--json", "--db", tmp_path / "direct.duckdb").rows

    assert sorted(map(_content, pulled)) == sorted(map(_content, direct))


def _content(run: dict[str, Any]) -> str:
    return json.dumps([run["root_span"], run["messages"]], sort_keys=True)


def test_scores_are_pushed_while_a_server_runs(phoenix: str, tmp_path: Path):
    """Phoenix gets the spans through `forward`, and the scores as soon as it has them."""
    (tmp_path / "oteval.yaml").write_text(
        f"{CONFIG}completion: {{quiet: 300ms}}\n"
        f"forward: {phoenix}\npush:\n  - {{backend: phoenix, url: '{phoenix}'}}\n"
    )
    recorded, _ = capture("pydantic_ai_v5")
    # Older traces than a day are not scored by a server that is new to them.
    later = time.time_ns() - max(one.end_ns for one in recorded)
    spans = [
        replace(one, start_ns=one.start_ns + later, end_ns=one.end_ns + later) for one in recorded
    ]
    served = Served(tmp_path)
    try:
        status, _, _ = served.post("/v1/traces", span_request(spans).SerializeToString())
        assert status == 200
        names = sorted({one.span_id for one in spans})
        # Phoenix answers 404 until it has one of the spans.
        until(lambda: _has_annotations(phoenix, names), 120)
        served.kill("storage")
        until(lambda: served.state()["is_storing"], 60)
        found = _annotations(phoenix, names)
        scores = [json.loads(line) for line in served.cli("scores", "--json").stdout.splitlines()]
    finally:
        assert served.stop() == 0

    expected = {(one["span_id"], one["score"]) for one in scores if one["status"] == "ok"}
    assert {(one["span_id"], one["result"]["score"]) for one in found} == expected
    assert len(found) == len(expected) > 0
