"""Alerting rules and dashboard: their metrics are those of a server, and promtool takes them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from benchmarks.served import Served, Sink, until

from ..make import ROOT
from ..serve.clients import run_agent

FOLDER = ROOT / "collector"
CONFIG = """
evaluators:
  - {name: tools, type: tool_errors}
completion: {quiet: 300ms}
"""


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    found = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def queries() -> list[str]:
    """Return every expression of the rules, of their tests and of the dashboard."""
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    tests = yaml.safe_load((FOLDER / "alerts.test.yml").read_text("utf-8"))["tests"]
    board = dashboard()
    return [
        *(rule["expr"] for group in groups for rule in group["rules"]),
        *(series["series"] for test in tests for series in test["input_series"]),
        *(target["expr"] for panel in board["panels"] for target in panel.get("targets", ())),
        *(variable["definition"] for variable in board["templating"]["list"][1:]),
    ]


@pytest.mark.slow
def test_every_metric_is_one_of_a_server(tmp_path: Path):
    """A server that scored a run, and forwards, answers with each metric, with these labels."""
    sink = Sink()
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    server = Served(tmp_path, "--forward", sink.url)
    try:
        run_agent(OTLPSpanExporter(f"http://127.0.0.1:{server.http}/v1/traces"))
        text = until(lambda: _scored(server), 60)
    finally:
        server.stop()
        sink.close()

    names = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    names |= set(re.findall(r"^(\w+)[{ ]", text, re.MULTILINE))
    used = {name for query in queries() for name in re.findall(r"\boteval_\w+", query)}
    assert len(used) > 20
    assert used <= names
    labels = {"evaluator", "agent", "passed", "status", "signal", "outcome", "le"}
    assert labels <= set(re.findall(r"[{,](\w+)=", text))
    for query in queries():
        for found in re.findall(r"by \(([^)]*)\)", query):
            assert set(found.split(", ")) <= labels


def _scored(server: Served) -> str | None:
    status, body = server.get("/metrics", {})
    text = body.decode()
    return text if status == 200 and "oteval_verdicts_total{" in text else None


def test_the_dashboard_is_one_that_grafana_imports():
    """Ids and places are unique, and each query uses the data source that the user picks."""
    board = dashboard()

    assert board["schemaVersion"] >= 36
    assert board["uid"]
    assert board["title"]
    assert "id" not in board
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {panel["type"] for panel in panels} == {"stat", "row", "timeseries"}
    names = {variable["name"] for variable in board["templating"]["list"]}
    assert names == {"datasource", "evaluator", "agent"}
    for panel in panels:
        assert panel["title"]
        if panel["type"] == "row":
            continue
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= names
            assert target["expr"].count("(") == target["expr"].count(")")
        assert panel["fieldConfig"]["defaults"]["noValue"] == "no data"
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not any(_overlap(one, other) for one, other in combinations(places, 2))


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


@pytest.mark.live
@pytest.mark.parametrize("command", [("check", "alerts.yml"), ("test", "alerts.test.yml")])
def test_promtool_takes_the_rules(command: tuple[str, str]):
    """The rules are valid, and call when their tests say so and not before."""
    path = os.environ.get("OTEVAL_PROMTOOL") or shutil.which("promtool")
    if not path:
        pytest.skip("no promtool; apt-get install prometheus has it")

    done = subprocess.run(
        [path, command[0], "rules", command[1]], cwd=FOLDER, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


@pytest.mark.live
def test_promtool_takes_the_queries_of_the_dashboard(tmp_path: Path):
    """Each query is valid once Grafana has filled in its variables."""
    path = os.environ.get("OTEVAL_PROMTOOL") or shutil.which("promtool")
    if not path:
        pytest.skip("no promtool; apt-get install prometheus has it")
    filled = [
        target["expr"].replace("$__rate_interval", "5m").replace("$evaluator", ".*")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"panel:{at}", "expr": query} for at, query in enumerate(filled)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    done = subprocess.run([path, "check", "rules", file], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
