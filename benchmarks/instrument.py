"""CPU time of tool calls and model calls with instrumentation, and with the export of their spans.

Each figure is that of a separate process which makes the same calls: without instrumentation, with
OpenTelemetry's library for such spans (bare: opentelemetry-util-genai, and for openai the
instrumentation that uses it), with OpenTelemetry's API by hand, and with oteval. All record the
same content, and export it over OTLP to the same server, which answers at once; oteval also into a
file and into a database. The calls of openai are real requests to it, with a history of 5 KB or
50 KB, or with an answer of 200 events; a real model would take a thousand times as long. Times are
CPU time of the calls with their export, and of the agent's thread alone, which waits for it. The
figures are medians of several processes in turns, so that other load of the machine counts little.
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
KINDS = {"tool": 1.0, "model": 1.0, "openai_5k": 0.1, "openai_50k": 0.03, "stream": 0.05}
"""The kinds of calls, and the part of the calls that is made of each."""
NAMES = {
    "tool": "tool call",
    "model": "model call",
    "openai_5k": "request with openai, 5 KB",
    "openai_50k": "request with openai, 50 KB",
    "stream": "request with openai, 200 events",
}
_BASE = ("nothing", "bare")
_HTTP = ("oteval_http", "oteval_http_file", "oteval_http_database")
_OURS = {
    "oteval": "OTLP",
    "oteval_file": "file",
    "oteval_database": "DuckDB",
    "oteval_http": "OTLP, HTTP recorded",
    "oteval_http_file": "file, HTTP recorded",
    "oteval_http_database": "DuckDB, HTTP recorded",
}


def measure(*, calls: int, repeats: int) -> dict[str, Any]:
    """Measure the calls.

    Args:
        calls: How many are made in each process.
        repeats: How many processes of each sort.

    Returns:
        CPU seconds per call, by kind and mode: of all threads, and of the agent's.
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
        costs: dict[str, dict[str, list[list[float]]]] = {
            kind: {mode: [] for mode in _modes(kind)} for kind in KINDS
        }
        for _ in range(repeats):
            for kind, share in KINDS.items():
                count = max(1, int(calls * share))
                for mode in _modes(kind):
                    command = clock.module("benchmarks.instrumented_agent", kind, mode, url, count)
                    spent = clock.run(command).output.split()
                    costs[kind][mode].append([float(each) / count for each in spent])
    finally:
        server.communicate()
    return {
        kind: {
            mode: [statistics.median(each) for each in zip(*found, strict=True)]
            for mode, found in modes.items()
        }
        for kind, modes in costs.items()
    }


def _modes(kind: str) -> tuple[str, ...]:
    if kind in ("tool", "model"):
        return (*_BASE, "by_hand", "oteval", "oteval_file", "oteval_database")
    return (*_BASE, "oteval", *_HTTP)


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for kind, modes in found.items():
        name = NAMES[kind]
        bare, bare_own = modes["bare"]
        for mode, label in (("nothing", "not instrumented"), ("by_hand", "OpenTelemetry by hand")):
            if mode in modes:
                out.append(Row(f"{name}, {label}, CPU us", _us(modes[mode][0])))
        for mode, label in _OURS.items():
            if mode not in modes:
                continue
            ours, own = modes[mode]
            label = f"{name}, {label}"
            out.append(Row(f"{label}, CPU us", _us(ours), f"{_us(bare)} (bare)", bare / ours))
            out.append(
                Row(
                    f"{label}, agent's thread, CPU us",
                    _us(own),
                    f"{_us(bare_own)} (bare)",
                    bare_own / own,
                )
            )
            out.append(below(f"{label}, times the bare one", ours / bare, "{:.2f}", AT_MOST))
    return out


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f}"


if __name__ == "__main__":
    parts.main("instrument")
