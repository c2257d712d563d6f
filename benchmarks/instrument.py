"""CPU time of tool calls and model calls with instrumentation, and with the export of their spans.

Each figure is that of a separate process which makes the same calls: without instrumentation, with
OpenTelemetry's library for such spans (bare: opentelemetry-util-genai, and for openai the
instrumentation that uses it), with OpenTelemetry's API by hand, and with oteval. All record the
same content, and export it over OTLP to the same server, which answers at once; oteval also into a
file and into a database. The calls of openai are real requests to it, with a history of 5 KB or
50 KB, or with an answer of 200 events; a real model would take a thousand times as long. Times are
CPU time of the calls with their export, and of the agent's thread alone, which waits for it. The
processes work in turns, for about a second each, so that other load of the machine hits all of them
alike. As such load only adds time, the figures are the lower quartiles of the turns. That each call
has a span with its content is checked at every destination.
"""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from oteval.scoring import load
from oteval.store import Store

from . import clock, parts
from .checks import FAILED, check, figures_or_failure
from .instrumented_agent import DESTINATIONS, WARM_UP
from .judge_server import CONTENT
from .report import Row, below, not_measured

FULL = {"calls": 2_000, "repeats": 11}
QUICK = {"calls": 400, "repeats": 3}

AT_MOST = 1.2
_PATIENCE = 60.0  # seconds for a process to end
KINDS = {"tool": 1.0, "model": 1.0, "openai_5k": 0.05, "openai_50k": 0.0125, "stream": 0.025}
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

Costs = dict[str, list[list[float]]]
"""By mode: the CPU seconds per call of each turn, of all threads and of the agent's."""


def measure(*, calls: int, repeats: int, kinds: Sequence[str] = tuple(KINDS)) -> dict[str, Any]:
    """Measure the calls.

    Args:
        calls: How many each process makes in a turn.
        repeats: How many turns each has.
        kinds: The kinds of calls, see `KINDS`.

    Returns:
        CPU seconds per call, by kind and mode: of all threads, and of the agent's.
    """
    figures = {}
    with _process("benchmarks.judge_server", 0) as server:
        url = _line(server)
        for kind in kinds:
            count = max(1, int(calls * KINDS[kind]))
            figures[kind] = figures_or_failure(partial(_costs, kind, url, count, repeats))
    return figures


def _costs(kind: str, url: str, calls: int, repeats: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        turns: Costs = {mode: [] for mode in _modes(kind)}
        spans: Counter[str] = Counter()
        with ExitStack() as stack:
            agents = {}
            for mode in turns:
                process = _process("benchmarks.instrumented_agent", kind, mode, url, folder, calls)
                agents[mode] = stack.enter_context(process)
                check(_line(agents[mode]) == "ready", f"the agent starts: {mode}")
            for _ in range(repeats):
                for mode, agent in agents.items():
                    before = _exported(url)
                    assert agent.stdin is not None
                    agent.stdin.write("go\n")
                    agent.stdin.flush()
                    turns[mode].append([float(each) for each in _line(agent).split()])
                    spans[mode] += _exported(url) - before
        for mode in turns:
            _check_spans(mode, Path(folder), spans[mode], calls * repeats)
    return {mode: _quartiles(seconds) for mode, seconds in turns.items()}


def _exported(url: str) -> int:
    """Return how many spans with the content of the calls the server has received."""
    with urllib.request.urlopen(f"{url}/recorded") as answer:
        return int(answer.read())


def _check_spans(mode: str, folder: Path, exported: int, calls: int) -> None:
    """Check that each call has a span with its content, where the mode sends it.

    Args:
        mode: The mode.
        folder: The folder of files and databases.
        exported: How many such spans the server has received.
        calls: How many calls there were after the warm-up.

    Raises:
        CheckError: Spans are missing.
    """
    count, expected = exported, 0 if mode == "nothing" else calls
    if mode.endswith(DESTINATIONS):
        (path,) = folder.glob(f"{mode}.*")
        check(not exported, f"{mode} sends nothing to the server", exported)
        is_database = path.suffix == ".duckdb"
        with Store(path, create=False) if is_database else Store() as store:
            if not is_database:
                load(store, [path])
            rows = (row for batch in store.spans.export() for row in batch.to_pylist())
            texts = [f"{row['input']}{row['output']}{row['attributes']}" for row in rows]
        count, expected = sum(CONTENT.decode() in text for text in texts), calls + WARM_UP
    check(count == expected, f"{mode}: {expected:,} spans have the content of their call", count)


def _quartiles(turns: list[list[float]]) -> list[float]:
    return [sorted(each)[len(each) // 4] for each in zip(*turns, strict=True)]


@contextmanager
def _process(name: str, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a module until the block ends, which closes its input."""
    process = subprocess.Popen(
        clock.module(name, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=clock.ROOT,
    )
    try:
        yield process
    finally:
        try:
            process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _modes(kind: str) -> tuple[str, ...]:
    if kind in ("tool", "model"):
        return (*_BASE, "by_hand", "oteval", "oteval_file", "oteval_database")
    return (*_BASE, "oteval", *_HTTP)


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for kind, modes in figures.items():
        name = NAMES[kind]
        if FAILED in modes:
            out.append(not_measured(name, modes[FAILED]))
            continue
        for mode, label in (("nothing", "not instrumented"), ("by_hand", "OpenTelemetry by hand")):
            if mode in modes:
                out.append(Row(f"{name}, {label}, CPU us", _us(modes[mode][0])))
        for mode, label in _OURS.items():
            if mode in modes:
                costs = zip(modes[mode], modes["bare"], strict=True)
                for whose, (ours, bare) in zip(
                    (label, f"{label}, agent's thread"), costs, strict=True
                ):
                    out += _compared(f"{name}, {whose}", ours, bare)
    return out


def _compared(name: str, ours: float, bare: float) -> list[Row]:
    return [
        Row(f"{name}, CPU us", _us(ours), f"{_us(bare)} (bare)", bare / ours),
        below(f"{name}, times the bare one", ours / bare, "{:.2f}", AT_MOST),
    ]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f}"


if __name__ == "__main__":
    parts.main("instrument")
