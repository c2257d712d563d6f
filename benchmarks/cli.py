"""The command line from a trace file to scores, the whole process, beside agentevals-cli.

Both get the same file of OTLP/JSON lines and hold each trace's one tool call, name and arguments,
against the same reference; one trace in ten should pass. Inside the clock is the process from
start to end, imports included; the output goes to a file. oteval is started as
``oteval score FILE -c oteval.yaml --json`` (nothing kept on disk), the peer as ``agentevals run
FILE -e SET -f otlp-json -m tool_trajectory_avg_score --trajectory-match-type EXACT -o json``. Its
set has one case, which the traces name in ``agentevals.eval.case.id``. That both find the traces
that pass is checked. Memory is that of all processes together: the sum of their
proportional set sizes. Larger files show whether it grows with the file.

Without the peer its figures of an earlier run, on other traces, are shown as a reference, marked
as such and without a ratio.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import parts, traces
from .checks import FAILED, check, figures_or_failure
from .clock import Spent, module, run
from .report import Row, below, compared

FULL = {"count": 10_000, "sizes": [20_000, 100_000]}
QUICK = {"count": 1000, "sizes": [2000]}
CPU_RATIO, MEMORY_RATIO, LIMIT = 4, 2, 600_000_000
"""The targets: beside agentevals-cli, and bytes of all processes together at any size."""

REFERENCE = {"cpu_s": 22.0, "peak": 363_000_000}
"""agentevals-cli 0.11 on 10,000 other traces of four spans, on two cores; not from this run."""
_REFERENCE_NAME = "agentevals-cli, 10,000 traces; a reference, not measured in this run"

_CONFIG = """\
evaluators:
  - {name: calls, type: trajectory_match, mode: unordered, reference: reference.json}
"""
_QUIET = {
    "AGENTEVALS_EVALUATION_EVENTS": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OTEL_SDK_DISABLED": "true",
}


def score(file: Path, folder: Path) -> tuple[Spent, int, int]:
    """Score a file with oteval; return its cost, the verdicts, and the number of passes."""
    (folder / "reference.json").write_text(json.dumps(traces.reference()))
    config = folder / "oteval.yaml"
    config.write_text(_CONFIG)
    cost = run(module("oteval", "score", file, "-c", config, "--json"), with_children=True)
    scores = [json.loads(line) for line in cost.output.splitlines()]
    verdicts = [score["passed"] for score in scores if score["status"] == "ok"]
    return cost, len(verdicts), verdicts.count(True)


def score_peer(file: Path, folder: Path, peer_cli: str) -> tuple[Spent, int, int]:
    """Score a file with agentevals-cli; return its cost, the verdicts, and the number of passes."""
    cases = folder / "cases.json"
    cases.write_text(json.dumps(_eval_set()))
    command = [peer_cli, "run", str(file), "-e", str(cases), "-f", "otlp-json"]
    command += ["-m", "tool_trajectory_avg_score", "--trajectory-match-type", "EXACT"]
    cost = run([*command, "-o", "json"], environment=_QUIET, statuses=(0, 1), with_children=True)
    verdicts = [
        metric["score"]
        for trace in json.loads(cost.output)["traces"]
        for metric in trace["metrics"]
        if metric["score"] is not None
    ]
    return cost, len(verdicts), verdicts.count(1)


def _eval_set() -> dict[str, Any]:
    """Return the reference as the peer takes it."""
    question, answer = traces.reference()
    function = answer["tool_calls"][0]["function"]
    use = {"name": function["name"], "args": json.loads(function["arguments"])}
    turn = {
        "invocation_id": "1",
        "user_content": {"role": "user", "parts": [{"text": question["content"]}]},
        "intermediate_data": {"tool_uses": [use]},
    }
    case = {"eval_id": traces.CASE, "conversation": [turn]}
    return {"eval_set_id": "benchmark", "eval_cases": [case]}


def measure(
    *, count: int, sizes: Sequence[int] = (), peer_cli: str | None = None
) -> dict[str, Any]:
    """Measure the command line.

    Args:
        count: How many traces the file has.
        sizes: How many traces further files have, which oteval alone scores.
        peer_cli: agentevals-cli's ``agentevals`` command.

    Returns:
        ``count``, and for ``oteval`` and ``agentevals`` (None without it) ``cpu_s``, ``wall_s``,
        ``peak`` bytes, ``verdicts`` and ``passed``; ``larger`` has oteval's by size.

    Raises:
        CheckError: oteval gave no verdict on a trace, or a wrong one.
    """
    figures: dict[str, Any] = {"count": count, "agentevals": None}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "traces.jsonl"
        traces.write(file, count * traces.SPANS_PER_TRACE)
        figures["oteval"] = _checked(file, count, *score(file, folder))
        figures["larger"] = {}
        for size in sizes:
            large = folder / "large.jsonl"
            traces.write(large, size * traces.SPANS_PER_TRACE)
            figures["larger"][str(size)] = _checked(large, size, *score(large, folder))
            large.unlink()
        if peer_cli is None:
            return {**figures, "missing": [parts.MISSING_CLI]}
        figures["agentevals"] = figures_or_failure(
            lambda: _checked(file, count, *score_peer(file, folder, peer_cli))
        )
    return figures


def _checked(file: Path, count: int, cost: Spent, verdicts: int, passed: int) -> dict[str, Any]:
    """Return the figures of scoring a file, after a check of the verdicts.

    Args:
        file: The file.
        count: How many traces it has.
        cost: The cost of scoring it.
        verdicts: How many verdicts it gave.
        passed: How many of them are a pass.

    Raises:
        CheckError: A trace has no verdict, or a wrong one.
    """
    check(verdicts == count, f"each of {count:,} traces has a verdict", verdicts)
    expected = traces.count_of_reference(file)
    check(passed == expected, f"{expected:,} traces pass", passed)
    return {
        "cpu_s": cost.cpu,
        "wall_s": cost.wall,
        "peak": cost.peak_of_all or cost.peak,
        "verdicts": verdicts,
        "passed": passed,
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    ours, theirs = figures["oteval"], figures["agentevals"]
    reason = "" if theirs is None else theirs.get(FAILED, "")
    out = []
    for key, what, unit, form, goal in (
        ("cpu_s", "CPU seconds", 1.0, "{:,.2f}", CPU_RATIO),
        ("wall_s", "seconds", 1.0, "{:,.2f}", None),
        ("peak", "peak MB of all processes", 1e6, "{:,.0f}", MEMORY_RATIO),
    ):
        figure, own = f"{figures['count']:,} traces to scores: {what}", ours[key] / unit
        if theirs is not None:
            other = None if reason else theirs[key] / unit
            row = compared(
                *(figure, own, other, "agentevals-cli", form),
                at_least=goal,
                smaller_is_better=True,
                reason=reason,
            )
            out.append(row)
        else:
            other = form.format(REFERENCE[key] / unit) if key in REFERENCE else ""
            out.append(Row(figure, form.format(own), other and f"{other} ({_REFERENCE_NAME})"))
    sides = [ours] if theirs is None or reason else [ours, theirs]
    verdicts = [f"{side['verdicts']:,} / {side['passed']:,}" for side in sides]
    out.append(Row("verdicts / passes", verdicts[0], "".join(verdicts[1:])))
    for size, larger in figures["larger"].items():
        figure = f"{int(size):,} traces to scores: peak MB of all processes"
        out.append(below(figure, larger["peak"] / 1e6, "{:,.0f}", LIMIT / 1e6))
        per_second = int(size) / larger["cpu_s"]
        out.append(
            Row(f"{int(size):,} traces to scores: traces per CPU second", f"{per_second:,.0f}")
        )
    return out


if __name__ == "__main__":
    parts.main("cli")
