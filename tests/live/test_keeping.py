"""Retention, and the maintenance commands, while a server runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from benchmarks.served import ROOT, Served, Sink, until
from oteval.config import Retention
from oteval.live.keeping import Keeper
from oteval.store import Store

from ..store.test_archive import fill, whole
from .test_serve import RULES, run_agent


def test_the_keeper_archives_by_itself_and_ends(tmp_path: Path) -> None:
    """What is old moves without anyone asking; a new configuration counts from the next look."""
    retention: list[Retention | None] = [None]
    with Store(tmp_path / "x.duckdb") as store:
        fill(store, range(10, 12))
        before = whole(store)
        keeper = Keeper(store, lambda: retention[0], tmp_path, every=0.05)
        time.sleep(0.3)
        untouched = store.spans.archived()
        retention[0] = Retention(hot=86400.0, archive="cold")
        until(lambda: store.spans.archived() == 2 * 20 * 5)
        keeper.close()

        assert untouched == 0
        assert whole(store) == before


def oteval(served: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command beside the server."""
    return subprocess.run(
        [sys.executable, "-m", "oteval", *arguments, "--db", str(served.db)],
        capture_output=True,
        text=True,
        check=False,
        cwd=served.db.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_maintenance_beside_a_running_server(tmp_path: Path) -> None:
    """Archive, backup and export work while it runs; compact says to stop it; late spans join."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    served, sink = Served(tmp_path), Sink()
    try:
        url = f"http://127.0.0.1:{served.http}/v1/traces"
        trace, _ = run_agent(OTLPSpanExporter(url))
        until(lambda: trace in oteval(served, "scores", "--json").stdout)
        before = oteval(served, "trajectories", "--json").stdout

        archived = until(
            lambda: json.loads(oteval(served, "archive", "--older-than", "0s", "--json").stdout)
            ["spans"]
        )  # fmt: skip
        backed = oteval(served, "backup", str(tmp_path / "copy.duckdb"))
        sent = oteval(served, "export", "--otlp", sink.url)
        refused = oteval(served, "compact")
        later, _ = run_agent(OTLPSpanExporter(url))
        until(lambda: later in oteval(served, "scores", "--json").stdout)

        assert archived == 2
        assert backed.returncode == sent.returncode == 0
        assert sum(sink.spans.values()) == 2
        assert len(sink.scored) == 1
        assert refused.returncode == 2
        assert "stop" in refused.stderr
        assert before in oteval(served, "trajectories", "--json").stdout
    finally:
        sink.close()
        assert served.stop() == 0
