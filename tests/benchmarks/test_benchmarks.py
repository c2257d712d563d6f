from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    checks,
    cli,
    conversations,
    coverage,
    histories,
    imports,
    ingest,
    instrument,
    judge_drift,
    judge_rate,
    large_store,
    match,
    memory,
    pages,
    pairwise_bias,
    parts,
    reconstruct,
    redaction,
    replay_verify,
    report,
    run,
    stored_scoring,
    traces,
    variants,
)
from oteval.scoring import load, refresh
from oteval.store import Store

NO_PEER = "no such peer"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "spans.jsonl"
    traces.write(path, 200)
    return path


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all installed peers."""
    monkeypatch.setattr(parts, "find_peer", lambda peer: peer)


def test_generated_spans_load_without_a_problem(file: Path):
    """Every generated span is stored exactly once."""
    with Store() as store:
        report = load(store, [file])
        assert (report.read, report.stored, report.bad) == (200, 200, 0)


def test_generated_traces_give_the_expected_trajectories(file: Path):
    """A trace is one run: prompt, question, call, result and answer, with nothing missing."""
    with Store() as store:
        load(store, [file])
        assert refresh(store) == 50
        trajectories = list(store.trajectories.read())

    for run_ in trajectories:
        assert run_.agent == traces.AGENT
        assert [m.role for m in run_.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        (call,) = run_.messages[2].tool_calls
        assert call.name == traces.TOOL
        assert re.fullmatch(r"W000000\d", call.arguments["order_id"])
        assert call.id == run_.messages[3].tool_call_id
        assert run_.conversation_id
        assert run_.gaps == ()
    assert len({run_.conversation_id for run_ in trajectories}) == 50
    assert len({run_.messages[1].content for run_ in trajectories}) == 50


def test_generated_lines_hold_64_spans_and_the_last_what_is_left():
    """Each line is a request of 64 spans, of the size that the benchmarks report."""
    lines = list(traces.lines(200))
    sizes = [len(json.loads(x)["resourceSpans"][0]["scopeSpans"][0]["spans"]) for x in lines]

    assert sizes == [64, 64, 64, 8]
    assert 2600 < sum(map(len, lines)) / 200 < 2900


def test_the_same_seed_generates_the_same_traces():
    """The same seed gives the same bytes; another seed gives different bytes."""
    assert list(traces.lines(8)) == list(traces.lines(8))
    assert list(traces.lines(8)) != list(traces.lines(8, seed=2))


@pytest.mark.slow
def test_match_measures_every_mode_size_and_case(alone: None):
    """Without a peer, oteval's rates are measured and the missing package is named."""
    figures = match.measure(sizes=[1], repeats=1, scale=1, peer_scale=1)

    names = {f"{mode}/1/{case}" for mode in match.MODES for case in match.CASES}
    assert set(figures["oteval"]["rates"]) == names
    assert not list(checks.failures(figures))
    assert figures["oteval"]["big"]["seconds"] > 0
    assert figures["agentevals"] is None
    assert figures["missing"] == [parts.MISSING_PEER]
    assert "agentevals: not measured" in parts.text(match, figures)


@pytest.mark.slow
def test_match_shows_ratios_of_a_peer(monkeypatch: pytest.MonkeyPatch):
    """A peer's rates become ratios, case by case."""
    names = [f"{mode}/10/{case}" for mode in match.PEER_MODES for case in match.CASES]
    theirs = {"rates": {name: {"rate": 1e-3} for name in names}, "big": {"seconds": 1e6}}
    monkeypatch.setattr(match, "measure_peer", lambda *_, **__: theirs)

    figures = match.measure(sizes=[10], repeats=1, scale=1, peer_scale=1, peer=NO_PEER)

    table = match.rows(figures)
    assert sum(row.ratio is not None for row in table) == len(names) + 1
    assert all(row.held for row in table if row.target)


def test_a_peer_that_cannot_be_measured_is_an_error():
    """The error names the interpreter without agentevals and has its output."""
    with pytest.raises(checks.CommandError, match="agentevals"):
        match.measure_peer(sys.executable, sizes=[1], repeats=1, scale=1)


def test_ingest_measures_every_side():
    """Loading and each of its lower bounds have wall and CPU seconds."""
    figures = ingest.measure(spans=64, repeats=1)

    assert figures["spans"] == 64
    for side in ("oteval", "read_json", "read_json_64", "insert", "parse"):
        assert set(figures[side]) == {"wall_s", "cpu_s"}
    assert [row.target for row in ingest.rows(figures)][:2] == ["at least 1x"] * 2


@pytest.mark.slow
def test_memory_measures_each_stage_at_each_size():
    """Each stage runs in a separate process and reports its peak memory."""
    figures = memory.measure(sizes=[64])

    assert figures["baseline"] > 10_000_000
    for stage in memory.STAGES:
        (figure,) = figures[stage]
        assert figure["spans"] == 64
        assert figure["peak"] > 10_000_000
        assert figure["wall_s"] > 0
    assert memory.rows(figures)


def test_reconstruct_measures_the_function_and_the_pipeline():
    """Captured and generated traces, and refresh, have spans and trajectories."""
    figures = reconstruct.measure(copies=1, spans=64, repeats=1)

    assert figures["captured"]["spans"] > 500
    assert figures["captured"]["trajectories"] > 100
    for key in ("generated", "refresh"):
        assert (figures[key]["spans"], figures[key]["trajectories"]) == (64, 16)
    assert reconstruct.rows(figures)


def test_copies_of_captured_traces_have_distinct_trace_ids():
    """No two copies share a trace id."""
    work = next(iter(reconstruct.captured()))
    copies = [{span.trace_id for span in reconstruct.renamed(work, n)[0]} for n in range(3)]

    assert len(set.union(*copies)) == sum(map(len, copies))


def test_imports_measures_oteval_and_says_that_the_peer_is_missing(alone: None):
    """The bare interpreter, the import and a first match are measured."""
    figures = imports.measure(repeats=1)

    assert set(figures) == {"bare", "import", "match", "peer", "missing"}
    assert figures["missing"] == [parts.MISSING_PEER]
    assert imports.rows(figures)


@pytest.mark.slow
def test_instrument_measures_every_way():
    """Calls are made without instrumentation, with OpenTelemetry's and with oteval."""
    figures = instrument.measure(calls=8, repeats=1, kinds=("tool", "stream"))

    costs = [cost for modes in figures.values() for mode in modes.values() for cost in mode]
    assert len(costs) == 2 * (6 + 6)
    assert min(costs) > 0
    assert instrument.rows(figures)


def test_cli_scores_each_trace_once():
    """The verdicts of the process are counted; reference figures of the peer are marked as such."""
    figures = cli.measure(count=30)

    assert figures["oteval"]["verdicts"] == 30
    assert 0 < figures["oteval"]["passed"] < 30
    assert figures["missing"] == [parts.MISSING_CLI]
    assert "not measured in this run" in parts.text(cli, figures)


def test_cli_reads_the_verdicts_of_the_peer(tmp_path: Path):
    """Verdicts without a number are not counted."""
    scores = [1.0, 0.0, None]
    output = {"traces": [{"metrics": [{"score": score}]} for score in scores]}
    peer = tmp_path / "peer"
    peer.write_text(f"#!{sys.executable}\nprint({json.dumps(output)!r})\n")
    peer.chmod(0o755)

    _, verdicts, passed = cli.score_peer(tmp_path / "traces.jsonl", tmp_path, str(peer))

    assert (verdicts, passed) == (2, 1)


@pytest.mark.slow
def test_judge_rate_measures_two_sizes_and_a_second_scoring():
    """Each run is judged once over real sockets; the second scoring sends no request."""
    figures = judge_rate.measure(calls=20, more=30, concurrency=10, delay=0.01)

    assert figures["ideal_s"] == pytest.approx(0.02)
    assert (figures["first"]["passed"], figures["big"]["passed"]) == (20, 30)
    assert figures["again"]["reused"] == 20
    assert figures["first"]["peak"] > 10_000_000
    assert judge_rate.rows(figures)


@pytest.mark.slow
def test_replay_verify_measures_the_whole_command():
    """Every session passes, or the measurement fails."""
    figures = replay_verify.measure(sessions=4, workers=2)

    assert figures["alone_s"] > 0
    for source in ("files", "database"):
        assert figures[source]["wall_s"] > 0
        assert figures[source]["cpu_s"] > figures["alone_s"]
    assert len(replay_verify.rows(figures)) == 7


def test_judge_drift_compares_verdicts_with_and_without_hardening():
    """The scripted judge is right on harmless runs, and hardening changes none of its verdicts."""
    figures = judge_drift.measure(runs=100)

    assert figures["differ"] == 0
    assert figures["right_plain"] == figures["right_hardened"] == 100
    assert judge_drift.rows(figures)


def test_the_scripted_judge_can_fail_a_run():
    """Its runs have faults, so that drift could be seen."""
    chance = judge_drift.random.Random(7)
    truths = [judge_drift.make(chance)[1] for _ in range(100)]

    assert 30 < sum(truths) < 70


def test_ratios_above_one_are_better_in_rates_and_in_times():
    """Twice the rate and half the time are both 2x."""
    rate = report.compared("rate", 200.0, 100.0, "peer", "{:.0f}", at_least=3)
    time = report.compared("time", 1.0, 2.0, "peer", "{:.0f}", smaller_is_better=True)

    assert (rate.ratio, rate.held) == (2.0, False)
    assert (time.ratio, time.held) == (2.0, None)
    assert "**no**" in report.table([rate])


def test_the_runner_writes_a_section_for_each_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The results have the machine, the figures, and the part that could not be measured."""
    figures: dict[str, Any] = {"bare": 0.01, "import": 0.01, "match": 0.02, "peer": None}

    def measured(name: str, _options: argparse.Namespace) -> dict[str, Any]:
        if name == "cli":
            raise checks.CommandError("it broke")
        return {**figures, "missing": [parts.MISSING_PEER]}

    monkeypatch.setattr(run, "measured", measured)
    out = tmp_path / "RESULTS.md"

    status = run.main(["--quick", "imports", "cli", "--out", str(out)])

    text = out.read_text()
    assert status == 1
    assert "it broke" in capsys.readouterr().err
    for piece in ("duckdb: ", "(--quick)", "## imports", "oteval[peers]", "it broke"):
        assert piece in text


def test_one_section_is_renewed_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Other sections keep their text, date and commit; the renewed one says when and where."""
    out = tmp_path / "RESULTS.md"
    facts = {**run.machine.describe(), "Python": "3.99"}
    old = {"imports": "old figures", "cli": "- measured before\n\n| a |", "fidelity": "| tool |"}
    out.write_text(str(run.Results(facts, old)))
    monkeypatch.setattr(run, "measured", lambda *_: {"bare": 1, "import": 1, "match": 2, "peer": 3})

    assert run.main(["imports", "--out", str(out)]) == 0

    results = run.Results.parse(out.read_text())
    assert list(results.sections) == ["imports", "cli", "fidelity"]
    assert {name: results.sections[name] for name in ("cli", "fidelity")} == {
        name: old[name] for name in ("cli", "fidelity")
    }
    first = results.sections["imports"].splitlines()[0]
    assert re.fullmatch(
        r"- measured on 20\S+ at \S+ UTC on commit \S+ in 1 s; Python: 3.11.\d+", first
    )
    assert "old figures" not in results.sections["imports"]
    assert results.facts == facts


def test_small_sizes_are_only_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A first look with small sizes leaves the results alone."""
    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(run, "measured", lambda *_: {"bare": 1, "import": 1, "match": 2, "peer": 3})

    assert run.main(["--quick", "imports"]) == 0

    assert not list(tmp_path.iterdir())


def test_the_runner_measures_in_a_separate_process():
    """The command line of a part prints its figures as JSON."""
    options = argparse.Namespace(quick=True, peer=None, peer_cli=None)

    assert run.measured("imports", options)["bare"] > 0


@pytest.mark.slow
def test_conversations_hold_time_against_bytes():
    """Each shape has bytes, seconds and memory by size, and the slope of the line through them."""
    figures = conversations.measure(turns=[40, 80], calls=[10, 20], repeats=1)

    for shape in ("turns", "run"):
        small, big = figures[shape]["points"]
        assert big["bytes"] > small["bytes"] > 0
        assert small["peak"] > small["spans_peak"] * 0.5 > 0
    assert len(conversations.rows(figures)) == 10
    assert [row.target for row in conversations.rows(figures)][4] == "at most 1.15"


@pytest.mark.slow
def test_histories_are_measured_beside_parsing_and_beside_new_messages():
    """A file of runs becomes trajectories; a run is read in each encoding."""
    figures = histories.measure(runs=2, calls=4, repeating=10, repeats=1)

    assert 0 < figures["parse_s"] < figures["cpu_s"]
    assert figures["peak"] > 10_000_000
    assert all(figures[encoding]["new"] > 0 for encoding in histories.ENCODINGS)
    targets = [row.target for row in histories.rows(figures)]
    assert targets[2:] == ["at most 10.0", "at most 400", "at least 30", *["at most 3.0"] * 3]


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_slope_tells_linear_from_quadratic(power: float):
    """Seconds that grow with a power of the bytes have that power as their slope."""
    points = [{"bytes": size, "cpu_s": 3e-9 * size**power} for size in (10, 100, 5_000)]

    assert conversations.slope(points) == pytest.approx(power)


def test_the_simulated_judge_is_caught_in_both_orders():
    """A judge that always prefers the first answer decides fixed-order comparisons only."""
    figures = pairwise_bias.measure(comparisons=3, examples=20, bias=0.5)

    assert (figures["fixed"], figures["both"], figures["flips"]) == (1, 0, 1)
    assert [row.held for row in pairwise_bias.rows(figures) if row.target] == [True]


def test_the_simulation_fails_when_both_orders_are_biased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The command exits with status 1 when the bias exceeds the limit."""
    figures = {"fixed": 0.4, "flips": 0.5, "comparisons": 1, "examples": 1, "bias": 0.1}
    monkeypatch.setattr(sys, "argv", ["pairwise_bias"])
    for bias_in_both_orders, status in ((0.061, 1), (0.06, 0)):
        measured = {**figures, "both": bias_in_both_orders}
        monkeypatch.setattr(pairwise_bias, "measure", lambda measured=measured, **_: measured)

        assert pairwise_bias.main() == status
    assert "**no**" in capsys.readouterr().out


@pytest.mark.slow
def test_stored_runs_are_scored_both_ways():
    """The command gives the expected verdicts; time, memory and the ratio are measured."""
    figures = stored_scoring.measure(sizes=[2000], read_runs=20)

    assert set(figures["runs"]["2000"]) == {"wall", "cpu", "mb"}
    assert len(stored_scoring.rows(figures)) == 3


@pytest.mark.slow
def test_pages_of_a_large_store_are_measured():
    """Each kind of page has a median, a p99 and a size; styles and scripts stay small."""
    figures = pages.measure(runs=2000, requests=1)
    assert not list(checks.failures(figures))
    assert all(0 < figure["median"] <= figure["p99"] for figure in figures["pages"].values())
    assert all(figure["bytes"] < 300_000 for figure in figures["pages"].values())
    assert 0 < figures["assets"] < 100_000
    assert len(pages.rows(figures)) == 3 * len(figures["pages"]) + 1


@pytest.mark.slow
def test_pages_are_measured_while_spans_come_in():
    """Each kind of page is measured a second time, on a server that acknowledges spans."""
    figures = pages.measure(runs=2000, requests=1, rate=100)
    assert not list(checks.failures(figures))
    assert figures["loaded"]["pages"].keys() == figures["pages"].keys()
    assert figures["loaded"]["received"] > 0
    assert len(pages.rows(figures)) == 6 * len(figures["pages"]) + 2


@pytest.mark.slow
def test_commands_on_a_large_store_are_measured():
    """Each command exits cleanly, even when its pipe is closed; time and memory are measured."""
    figures = large_store.measure(runs=2000)

    assert all(min(cost.values()) > 0 for cost in figures["commands"].values())
    assert len(large_store.rows(figures)) == 3 * len(figures["commands"])


def test_variants_are_counted_both_ways():
    """Copies of the written runs are counted in SQL, and some of them in Python."""
    figures = variants.measure(runs=4000, repeats=1, old_runs=100)

    assert figures["runs"] == 4000
    assert min(figures["all"], figures["top"], figures["python"]) > 0
    assert len(variants.rows(figures)) == 3


def test_coverage_counts_intervals_of_every_kind(monkeypatch: pytest.MonkeyPatch):
    """Each figure has a share at the size, and a difference of the detectable size is found."""
    monkeypatch.setattr(coverage, "_power", lambda *_: 0.8)

    figures = coverage.measure(samples=20, sizes=[5])

    assert {row["size"] for row in figures["rows"]} == {5}
    assert all(0.5 < row["ours"] <= 1 for row in figures["rows"])
    assert len({row.figure for row in coverage.rows(figures)}) == len(
        [*figures["rows"], *figures["found"], *figures["power"]]
    )


def test_redaction_removes_secrets_and_leaves_ordinary_text():
    """At least 95% of planted secrets are removed, and at most 0.1% of tokens changed."""
    figures = redaction.measure(rounds=1, megabytes=0.2, every=40)

    assert all(row.held is not False for row in redaction.rows(figures)), figures["survivors"]
