"""An agent's traces go to a real MLflow, are pulled, scored and pushed, and read back there.

`make test-backends` installs MLflow; ``OTEVAL_MLFLOW`` names its command.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import until
from oteval.scoring.otlp_requests import span_request
from oteval.store import Store

from ...commands import Run
from ...make import capture
from .real_server import asked, free_port, running

pytestmark = pytest.mark.backends

CONFIG = "evaluators:\n  - {name: tools, type: tool_errors}\n"
CAPTURE = "genai_openai_chat"
SEARCH = {
    "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}],
    "max_results": 100,
}


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a real MLflow with an empty database, and the traces of a capture in it."""
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_port()
    arguments = ["server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    arguments += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    variables = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    url = f"http://127.0.0.1:{port}"
    with running("OTEVAL_MLFLOW", arguments, variables, folder, f"{url}/health"):
        spans, _ = capture(CAPTURE)
        request = urllib.request.Request(
            f"{url}/v1/traces",
            span_request(spans).SerializeToString(),
            {"Content-Type": "application/x-protobuf", "x-mlflow-experiment-id": "0"},
        )
        urllib.request.urlopen(request, timeout=60).close()
        traces = {span.trace_id for span in spans}
        until(lambda: len(_traces(url)) == len(traces), 60)
        yield url


def _traces(url: str) -> list[dict[str, Any]]:
    return list(asked(f"{url}/api/3.0/mlflow/traces/search", SEARCH).get("traces", []))


def _assessments(url: str) -> list[dict[str, Any]]:
    found = [one for trace in _traces(url) for one in trace.get("assessments", [])]
    return sorted(found, key=lambda one: str(one["assessment_id"]))


def test_mlflow(oteval: Run, mlflow: str):
    """Pull, score and push twice: the second time changes nothing, here and in MLflow."""
    spans, _ = capture(CAPTURE)
    Path("oteval.yaml").write_text(CONFIG)

    [pulled] = oteval("pull", "mlflow", mlflow, "--since", "2020-01-01", "--json").rows
    [again] = oteval("pull", "mlflow", mlflow, "--since", "2020-01-01", "--json").rows
    assert pulled["stored"] == len(spans)
    assert (again["stored"], again["conflicts"]) == (0, [])

    assert oteval("score").status == 0
    scores = [one for one in oteval("scores", "--json").rows if one["status"] == "ok"]
    [pushed] = oteval("push", "mlflow", mlflow, "--json").rows
    found = _assessments(mlflow)
    [repeated] = oteval("push", "mlflow", mlflow, "--json").rows

    assert pushed["written"] == len(scores) == len(found) > 0
    assert (repeated["written"], repeated["unchanged"]) == (0, len(scores))
    assert _assessments(mlflow) == found
    by_span = {one["span_id"]: one for one in scores}
    for one in found:
        score = by_span[one["span_id"]]
        assert one["assessment_name"] == "tools"
        assert one["source"] == {"source_type": "CODE", "source_id": "oteval"}
        assert one["feedback"]["value"] == score["score"]
        assert one.get("rationale") == score["comment"]
        assert one["metadata"]["version"] == score["version"]
        assert one["metadata"]["label"] == score["label"]


def test_a_changed_score_updates_its_assessment(oteval: Run, mlflow: str):
    """The assessment keeps its id and gets the new reason."""
    Path("oteval.yaml").write_text(CONFIG.replace("tools,", "changed,"))
    oteval("pull", "mlflow", mlflow, "--since", "2020-01-01")
    oteval("score")
    oteval("push", "mlflow", mlflow)
    [first, *_] = [one for one in _assessments(mlflow) if one["assessment_name"] == "changed"]
    path = f"{mlflow}/api/3.0/mlflow/traces/{first['trace_id']}/assessments"
    body = {
        "assessment": {
            "assessment_id": first["assessment_id"],
            "trace_id": first["trace_id"],
            "rationale": "edited",
        },
        "update_mask": "rationale",
    }
    request = urllib.request.Request(
        f"{path}/{first['assessment_id']}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method="PATCH",
    )
    urllib.request.urlopen(request, timeout=30).close()

    [pushed] = oteval("push", "mlflow", mlflow, "--json").rows

    [later] = [
        one for one in _assessments(mlflow) if one["assessment_id"] == first["assessment_id"]
    ]
    assert pushed["written"] == 1
    assert later.get("rationale", "") == first.get("rationale", "")


def test_the_runs_are_those_of_the_original_traces(oteval: Run, mlflow: str, tmp_path: Path):
    """Messages and calls survive MLflow's storage."""
    assert oteval("pull", "mlflow", mlflow, "--since", "2020-01-01").status == 0
    spans, logs = capture(CAPTURE)
    with Store(tmp_path / "direct.duckdb") as store:
        store.spans.write(spans, logs)

    pulled = oteval("trajectories", "--json").rows
    direct = oteval("trajectories", "--json", "--db", tmp_path / "direct.duckdb").rows

    assert sorted(map(_content, pulled)) == sorted(map(_content, direct))


def _content(run: dict[str, Any]) -> str:
    return json.dumps([run["root_span"], run["messages"]], sort_keys=True)
