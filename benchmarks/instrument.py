"""CPU time of tool calls and model calls with instrumentation, and with the export of their spans.

Each figure is that of a separate process which makes the same calls: without instrumentation, with
OpenTelemetry's library for such spans (bare: opentelemetry-util-genai, and for openai the
instrumentation that uses it), with OpenTelemetry's API by hand, and with oteval. All record the
same content, and export it over OTLP to the same server, which answers at once. The calls of openai
are real requests to it; a real model would take a thousand times as long. The figures are medians
of several processes in turns.
"""

from __future__ import annotations

import statistics
import subprocess
from typing import Any

from . import clock, parts
from .report import Row, below

FULL = {"calls": 4_000, "repeats": 5}
QUICK = {"calls": 400, "repeats": 1}

AT_MOST = 1.2
KINDS = {"tool": 1.0, "model": 1.0, "openai": 0.25}
"""The kinds of calls, and the part of the calls that is made of each."""
MODES = ("nothing", "bare", "by_hand", "oteval")


def measure(*, calls: int, repeats: int) -> dict[str, Any]:
    """Measure the calls.

    Args:
        calls: How many are made in each process.
        repeats: How many processes of each sort.

    Returns:
        CPU seconds per call, by kind and mode.
    """
    server = subprocess.Popen(
        clock.module("benchmarks.judge_server", 0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=clock.ROOT,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        costs = {kind: {mode: [] for mode in _modes(kind)} for kind in KINDS}
        for _ in range(repeats):
            for kind, share in KINDS.items():
                count = max(1, int(calls * share))
                for mode in _modes(kind):
                    command = clock.module("benchmarks.instrumented_agent", kind, mode, url, count)
                    costs[kind][mode].append(float(clock.run(command).output) / count)
    finally:
        server.communicate()
    return {
        kind: {mode: statistics.median(found) for mode, found in modes.items()}
        for kind, modes in costs.items()
    }


def _modes(kind: str) -> tuple[str, ...]:
    return ("nothing", "bare", "oteval", "oteval_http") if kind == "openai" else MODES


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for kind, modes in found.items():
        name = "request with openai" if kind == "openai" else f"{kind} call"
        nothing, bare = modes["nothing"] * 1e6, modes["bare"] * 1e6
        out.append(Row(f"{name}, not instrumented, CPU us", f"{nothing:,.1f}"))
        if "by_hand" in modes:
            out.append(
                Row(f"{name}, OpenTelemetry by hand, CPU us", f"{modes['by_hand'] * 1e6:,.1f}")
            )
        ours = modes["oteval"] * 1e6
        out.append(Row(f"{name}, CPU us", f"{ours:,.1f}", f"{bare:,.1f} (bare)", bare / ours))
        out.append(below(f"{name}, times the bare one", ours / bare, "{:.2f}", AT_MOST))
        if "oteval_http" in modes:
            ours = modes["oteval_http"] * 1e6
            label = f"{name}, HTTP exchanges recorded, CPU us"
            out.append(Row(label, f"{ours:,.1f}", f"{bare:,.1f} (bare)", bare / ours))
    return out


if __name__ == "__main__":
    parts.main("instrument")
