"""A benchmark whose subject does not do its work shows the reason, and no figure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

import oteval
from benchmarks import (
    checks,
    cli,
    coverage,
    histories,
    ingest,
    judge_drift,
    large_store,
    live_scoring,
    match,
    page_kinds,
    pages,
    parts,
    reconstruct,
    replay_verify,
    report,
    run,
    serve,
    served,
    stored_scoring,
    traces,
    variants,
)
from benchmarks.otlp_load import Load, Sent
from oteval.store import Store

Break = Callable[[pytest.MonkeyPatch], object]


def _nothing_is_loaded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ingest, "load", lambda *_: SimpleNamespace(bad=0, stored=64))


def _nothing_is_reconstructed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconstruct, "reconstruct", lambda *_: [])


def _nothing_is_counted(patch: pytest.MonkeyPatch) -> None:
    counted = SimpleNamespace(runs=2000, variants=0, rows=[])
    patch.setattr(variants, "variants", lambda *_, **__: counted)


def _no_interval_is_made(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coverage, "clopper_pearson", lambda *_: None)


def _no_judge_is_asked(patch: pytest.MonkeyPatch) -> None:
    def create(**_: Any) -> Callable[..., Mapping[str, Any]]:
        return lambda **_: {"score": True}

    patch.setattr(oteval, "create_trajectory_llm_as_judge", create)


def _no_trace_is_scored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cli, "run", lambda *_, **__: cli.Spent(1.0, 1.0, 1))


@pytest.mark.parametrize(
    ("part", "sizes", "damage"),
    [
        (ingest, {"spans": 64, "repeats": 1}, _nothing_is_loaded),
        (reconstruct, {"copies": 1, "spans": 64, "repeats": 1}, _nothing_is_reconstructed),
        (variants, {"runs": 2000, "repeats": 1, "old_runs": 20}, _nothing_is_counted),
        (coverage, {"samples": 20, "sizes": [5]}, _no_interval_is_made),
        (judge_drift, {"runs": 20}, _no_judge_is_asked),
        (cli, {"count": 8}, _no_trace_is_scored),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_part_that_did_no_work_has_no_figure(
    part: ModuleType, sizes: dict[str, Any], damage: Break, monkeypatch: pytest.MonkeyPatch
):
    """The table has one row, with the claim that is not true."""
    damage(monkeypatch)

    figures = checks.figures_or_failure(lambda: part.measure(**sizes))

    (reason,) = checks.failures(figures)
    *_, row = parts.text(part, figures).splitlines()
    assert reason.startswith("not true: ")
    assert row.split("|")[2].strip() == f"not measured: {reason}".replace("|", "\\|")
    assert "**no**" in row


def test_a_matcher_that_always_passes_has_figures_for_passes_only():
    """Cases with a wrong verdict have no figure, the others do."""

    def create(**_: Any) -> Callable[..., Mapping[str, Any]]:
        return lambda **_: {"score": True}

    ours = match.measure_package(create, match.MODES, [10], 1, 1)

    for row in match.rows({"oteval": ours, "agentevals": None}):
        is_failure = "differs" in row.figure or re.match("(strict|in_order).*reversed", row.figure)
        assert ("not measured" in row.ours) == bool(is_failure), row.figure


def test_a_peer_that_does_other_work_has_no_ratio(monkeypatch: pytest.MonkeyPatch):
    """The peer's verdicts differ from the true ones, so that its figures are not shown."""
    cost = cli.Spent(1.0, 1.0, 1)
    monkeypatch.setattr(cli, "score", lambda file, _: (cost, 40, traces.count_of_reference(file)))
    monkeypatch.setattr(cli, "score_peer", lambda *_: (cost, 40, 40))

    figures = cli.measure(count=40, peer_cli="peer")

    assert len(list(checks.failures(figures))) == 1
    assert all(row.ratio is None for row in cli.rows(figures))
    assert "agentevals-cli: not measured: not true" in parts.text(cli, figures)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("runs", httpx.Response(200, html="<p>No run matches.</p>")),
        ("runs", httpx.Response(200, json={"href": "/runs/0123456789abcdef?"})),
        ("runs", httpx.Response(500, html='<a href="/runs/0123456789abcdef">')),
        ("runs, nothing", httpx.Response(200, html='<a href="/runs/0123456789abcdef">')),
        ("runs, an id", httpx.Response(303, headers={"location": "/runs?q=1"})),
        ("run", httpx.Response(200, html="<h1>Run</h1>")),
    ],
)
def test_a_wrong_page_has_no_figure(name: str, answer: httpx.Response):
    """An empty list, JSON, an error and a redirect elsewhere are not the page of the kind."""
    kind = page_kinds.kinds([(1, "0123456789abcdef")], ["/conversations/1"])[name]
    transport = httpx.MockTransport(lambda _: answer)
    with httpx.Client(transport=transport, base_url="http://here") as client:
        costs = pages._measured_kinds(client, {name: kind}, 1)

    (row,) = pages._page_rows(costs, "")
    assert row.figure == name
    assert row.ours.startswith("not measured: ")


def test_a_command_without_its_output_has_no_figure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A command on an empty database ends well, and shows nothing of what it should."""
    database = tmp_path / "empty.duckdb"
    Store(database).close()
    commands = {name: large_store._COMMANDS[name] for name in ("status", "report --md")}
    monkeypatch.setattr(large_store, "_COMMANDS", commands)

    figures = {"commands": large_store.measure_commands(tmp_path, database, 2000)}

    table = large_store.rows(figures)
    assert [row.figure for row in table] == list(commands)
    assert all(row.ours.startswith("not measured: ") for row in table)


def test_scores_without_a_verdict_have_no_figure(tmp_path: Path):
    """A database without scores, or with too few passes, was not scored."""
    with pytest.raises(checks.CheckError, match="verdicts and passes"):
        stored_scoring.check_verdicts({"refund": [20, 18]}, 20)
    database = tmp_path / "live.duckdb"
    Store(database).close()
    with pytest.raises(checks.CheckError, match="runs, verdicts and passes"):
        live_scoring.check_scores(database, 16)


def test_sessions_that_fail_have_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Each session must pass."""
    output = '{"status": "passed"}\n{"status": "failed"}\n'
    monkeypatch.setattr(replay_verify, "run", lambda *_, **__: cli.Spent(1.0, 1.0, 1, output))

    with pytest.raises(checks.CheckError, match="2 sessions pass"):
        replay_verify._verified(tmp_path, [], 2, 1)


def test_long_histories_without_messages_have_no_figure(tmp_path: Path):
    """A database without the runs fails the check of their messages."""
    database = tmp_path / "empty.duckdb"
    Store(database).close()

    with pytest.raises(checks.CheckError, match="1 runs have"):
        histories.check_messages(str(database), "1", "2")


def test_refused_requests_and_errors_in_a_log_have_no_figure():
    """All spans must be acknowledged, and a server's log report nothing."""
    load = Load(b"", [("1", "2")])
    with pytest.raises(checks.CheckError, match="503"):
        serve.check_answers(Sent(answers=Counter({"503": 1})), [load])
    with pytest.raises(checks.CheckError, match="ValueError: x"):
        served.check_messages("info storing in a.duckdb\nValueError: x\nTraceback (most recent)")
    served.check_messages("info storing in a.duckdb\ninfo stopping: requests are stored first")


def test_the_runner_reports_figures_that_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A row without a figure is in the results, and the exit status is 1."""
    commands = {
        "status": {"failed": "not true: there are runs"},
        "scores": {"first": 1.0, "wall": 1.0, "cpu": 1.0, "mb": 1.0},
    }
    monkeypatch.setattr(run, "measured", lambda *_: {"commands": commands})
    out = tmp_path / "RESULTS.md"

    status = run.main(["large_store", "--out", str(out)])

    assert status == 1
    assert "large_store: not true: there are runs" in capsys.readouterr().err
    assert (
        "| status                        | not measured: not true: there are runs"
        in out.read_text()
    )
    assert "scores: peak MB" in out.read_text()


def test_cells_of_a_table_stay_in_their_row():
    """The text of an error has neither lines nor bars of its own."""
    row = report.not_measured("a", "first\nlast | line\n")

    assert report.table([row]).splitlines()[-1].count("\\|") == 1
    assert len(report.table([row]).splitlines()) == 3
