"""Retention, and the maintenance commands, while a server runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from benchmarks.served import ROOT, Served, Sink, until
from oteval.scoring.config import Retention
from oteval.serve.upkeep import RetentionWorker
from oteval.store import Store

from ..store.test_archive import fill, whole
from .clients import RULES, run_agent
from .conftest import Driver
from .test_scoring_loop import COUNT, chat_span, rules


@pytest.mark.slow
def test_the_worker_archives_by_itself_and_ends(tmp_path: Path) -> None:
    """Old spans are archived automatically; changed rules apply from the next run on."""
    rules: Retention | None = None
    runs = 0

    def retention() -> Retention | None:
        nonlocal runs
        runs += 1
        return rules

    with Store(tmp_path / "x.duckdb") as store:
        fill(store, range(10, 12))
        before = whole(store)
        worker = RetentionWorker(store, retention, tmp_path, interval=0.05)
        until(lambda: runs >= 3)
        untouched = store.spans.archived()
        rules = Retention(hot=86400.0, archive="cold")
        until(lambda: store.spans.archived() == 2 * 20 * 5)
        worker.close()

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
    """Archive, backup and export work while the server runs; compact asks to stop it."""
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


def test_archived_traces_are_complete_without_a_row(
    driver: Driver, module: Callable[[str], str]
) -> None:
    """Archived traces keep only rows that evaluators still need; a late span is scored."""
    driver.rules(rules(module(COUNT), "ok"))
    scoring = driver.start()
    driver.came(*[chat_span(number) for number in range(1, 6)])
    driver.run(6)
    driver.run(11)
    store, now = driver.store, driver.clock.now

    store.archive.move(driver.path.parent / "archive", now)
    not_archived = store.live.forget(0, now, "2026-11-21"), completions(store)
    deleted = store.live.forget(scoring.progress, now, "2026-11-21"), completions(store)
    driver.start()
    late = replace(chat_span(2, "and more"), span_id=f"{7:016x}", parent_id=f"{1:016x}")
    driver.came(late)
    driver.run(6)

    assert not_archived == (0, [1, 2, 3, 4, 5])
    assert deleted == (4, [5])
    assert completions(store) == [5, 6]
    assert store.live.completed_among([f"{n:032x}" for n in range(7)]) == {
        f"{n:032x}" for n in range(1, 6)
    }
    current = {t.id: t.rev for t in store.trajectories.read()}
    assert {s.trajectory_id: s.rev for s in driver.scores()} == current
    assert max(current.values()) == 2


def completions(store: Store) -> list[int]:
    """Return the trace numbers of the stored completions."""
    return [n for (n,) in store._connection.execute(
        "SELECT number FROM completions ORDER BY number"
    ).fetchall()]  # fmt: skip


def test_what_evaluators_cost_is_summed_up_by_day(store: Store) -> None:
    """Past days become one row per evaluator with the same sums; today is unchanged."""
    days = ["2026-11-19", "2026-11-20", "2026-11-21"]
    store.live.add_costs([("e", day, 2, 0.25) for day in days for _ in range(4)])

    store.live.forget(0, 0, days[-1])

    rows = store._connection.execute("SELECT day, count(*) FROM evaluator_spend GROUP BY ALL")
    assert dict(rows.fetchall()) == {days[0]: 1, days[1]: 1, days[2]: 4}
    assert {store.live.cost_on("e", day) for day in days} == {(1.0, 0.125)}
