"""Commands on a large store: the time to the first screen, the whole time, and the peak memory.

The store holds runs of two to ten calls in some 280 sequences, of five agents, by three models,
with two scores each: 2,000 runs written by the store, and copies of their rows with other ids and
later times. The runs of one agent are turns of conversations, four in each on average. One run in
ten fails the first evaluator, with a comment; the second reports a cost. As many rows of
experiments stand beside them: a hundred experiments on one dataset, each with a verdict and a score
of each run. `compare` compares the last two. Filling the store is not measured.

Each command is one process, measured from its start to its end; the first screen is the
first byte on its standard output, or the whole time where it writes a file. A command that prints
every run is stopped as a pager would stop it: by a pipe that closes after some megabytes, because
its whole time depends on the number of runs. Its memory up to there is flat.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from oteval.model import (
    Experiment,
    Message,
    Score,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
    trajectory_id,
)
from oteval.store import Store
from oteval.store.query import number

from . import parts
from .clock import ROOT, run
from .report import Row, below

FULL = {"runs": 1_000_000}
QUICK = {"runs": 20_000}

MOST_SECONDS = 10.0
MOST_MB = 500.0
_WRITTEN = 2000
_COPIES = 25
_TOOLS = [f"tool_{at}" for at in range(20)]
_AGENTS = ("shop", "travel", "support", "billing", "search")
_TALKS, _TALK = "support", 20
"""The agent with conversations, and how many runs of all agents begin during each."""
_MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5")
_SECOND = 10**9
_STEP = 10 * _SECOND
_READ = 64 << 20  # bytes
_EXPERIMENTS = 100
_FILL = "import sys; from benchmarks.large_store import fill_file; fill_file(*sys.argv[1:])"
_COMMANDS = {
    "status": ["status"],
    "trajectories": ["trajectories"],
    "trajectories --json": ["trajectories", "--json"],
    "trajectories --where asked~": ["trajectories", "--where", "asked~order 123"],
    "scores": ["scores"],
    "scores --json": ["scores", "--json"],
    "scores --status fail --json": ["scores", "--status", "fail", "--json"],
    "variants": ["variants"],
    "report --md": ["report", "--md", "{folder}/report.md"],
    "report --html": ["report", "--html", "{folder}/report.html"],
    "report --html --by agent": ["report", "--by", "agent", "--html", "{folder}/by.html"],
    "report --html --split": ["report", "--split", "2023-12-15", "--html", "{folder}/split.html"],
    "report --html --baseline": [
        *("report", "--baseline", "agent=shop", "--html", "{folder}/baseline.html"),
    ],
    "compare": ["compare", "experiment-1", "experiment-2"],
    "export --jsonl": ["export", "--jsonl", "-"],
    "export --parquet": ["export", "--parquet", "{folder}/parquet"],
}


@dataclass(frozen=True)
class Measured:
    """The cost of one command.

    Attributes:
        first: Seconds to the first screen.
        wall: Seconds to its end, or until its pipe was closed.
        cpu: CPU seconds.
        peak: Bytes of the highest resident set.
    """

    first: float
    wall: float
    cpu: float
    peak: int


def written() -> list[Trajectory]:
    """Return the runs that the store writes itself."""
    chance = random.Random(1)
    return [_run(at, chance) for at in range(_WRITTEN)]


def _run(at: int, chance: random.Random) -> Trajectory:
    sequence = random.Random(int(chance.paretovariate(1)))
    messages = [Message("user", f"Where is order {at}? " * 5)]
    for step in range(chance.choice([2, 3, 5, 10])):
        name, call_id = sequence.choice(_TOOLS), f"c{step}"
        messages.append(Message("assistant", None, (ToolCall(name, {"step": step}, call_id),)))
        failed = chance.random() < 0.03
        messages.append(Message("tool", "found " * 30, (), call_id, name, is_error=failed))
    messages.append(Message("assistant", "It arrives on Friday. " * 5))
    root = SpanRef(f"{at:032x}", f"{at:016x}")
    start = 1_700_000_000 * _SECOND + at * _STEP
    agent = chance.choice(_AGENTS)
    return Trajectory(
        id=trajectory_id(root.trace_id, root.span_id),
        root_span=root,
        trace_ids=(root.trace_id,),
        tail=tuple(messages),
        agent=agent,
        service="desk",
        conversation_id=f"talk-{at // _TALK}" if agent == _TALKS else "",
        models=(chance.choice(_MODELS),),
        usage=Usage(1000 + at, 200, 10, 4),
        start_ns=start,
        end_ns=start + chance.randrange(_SECOND, 10 * _SECOND),
    )


def _scores(runs: list[Trajectory]) -> list[Score]:
    found = []
    for at, one in enumerate(runs):
        failed = at % 10 == 0
        about = (one.id, one.root_span.trace_id, one.root_span.span_id)
        comment = f"missing call: refund(order={at})" if failed else ""
        share = (at * 7919 % 1000) / 1000
        found += [
            Score(*about, "match", "1", status="ok", score=float(not failed), passed=not failed,
                  comment=comment, time_ns=one.end_ns),
            Score(*about, "quality", "1", status="ok", score=share, passed=share > 0.05,
                  metadata={"cost_usd": 0.0001}, time_ns=one.end_ns),
        ]  # fmt: skip
    return found


def fill(store: Store, count: int) -> None:
    """Write runs and their scores, and copy the rows until there are so many."""
    runs = written()
    store.trajectories.write(runs, [one.root_span.trace_id for one in runs])
    store.scores.write(_scores(runs))
    ids = "left(md5(trajectory_id || i), 16) AS trajectory_id, md5(trace_id || i) AS trace_id"
    shift = f"i * {_WRITTEN * _STEP}"
    for first in range(1, count // _WRITTEN, _COPIES):
        copies = f"range({first}, {min(first + _COPIES, count // _WRITTEN)}) AS copies(i)"
        store._connection.execute(
            f"INSERT INTO trajectories BY NAME SELECT t.* REPLACE ({ids}, "
            "if(conversation_id = '', '', conversation_id || '-' || i) AS conversation_id, "
            f"[md5(trace_id || i)] AS trace_ids, start_ns + {shift} AS start_ns, "
            f"end_ns + {shift} AS end_ns, seq + i * {_WRITTEN} AS seq) "
            f"FROM trajectories t, {copies} WHERE t.seq <= {_WRITTEN} ORDER BY i, t.seq"
        )
        store._connection.execute(
            f"INSERT INTO scores BY NAME SELECT s.* REPLACE ({ids}, "
            f"time_ns + {shift} AS time_ns, seq + i * {2 * _WRITTEN} AS seq) "
            f"FROM scores s, {copies} WHERE s.seq <= {2 * _WRITTEN} ORDER BY i, s.seq"
        )
    assert number(store._connection, "SELECT count(*) FROM trajectories") == count
    fill_experiments(store, count)


def fill_experiments(store: Store, count: int) -> None:
    """Write so many runs of experiments on one dataset, each with a verdict and a score."""
    each = count // _EXPERIMENTS
    for at in range(_EXPERIMENTS):
        name = f"experiment-{at}"
        store.experiments.add(
            Experiment(name, name, name, dataset="d", dataset_version="1", created_ns=at)
        )
    execute = store._connection.execute
    execute(
        "INSERT INTO examples SELECT '1', i, 'e' || i, to_json('Where is order ' || i || '?'), "
        f"'\"It arrives on Friday.\"', '{{}}' FROM range({each}) AS numbers(i)"
    )
    runs = (
        "SELECT 'experiment-' || x AS experiment_id, 'r' || x || '-' || i AS run_id, "
        f"'e' || i AS example_id, x * {each} + i + 1 AS seq, x, i "
        f"FROM range({_EXPERIMENTS}) AS experiments(x), range({each}) AS numbers(i)"
    )
    execute(
        "INSERT INTO runs BY NAME SELECT * EXCLUDE (x, i), 0 AS repetition, "
        "'\"It arrives on Friday.\"' AS outputs, '' AS error, '' AS trajectory_id, "
        f"1 AS start_ns, {_SECOND} AS end_ns FROM ({runs})"
    )
    scores = (
        ("correct", "(hash(i, x) % 10 > 0)::INTEGER", "hash(i, x) % 10 > 0"),
        ("quality", "(hash(x, i) % 1000) / 1000", "NULL"),
    )
    for first, (key, score, passed) in enumerate(scores):
        execute(
            "INSERT INTO feedback BY NAME SELECT * EXCLUDE (x, i, example_id, seq), "
            f"seq + {first * count} AS seq, '{key}' AS evaluator, '1' AS version, '{key}' AS key, "
            f"'ok' AS status, {score} AS score, {passed} AS passed, '' AS label, '' AS comment, "
            f"'{{}}' AS metadata, 1 AS latency_ns, 1 AS time_ns FROM ({runs})"
        )


def fill_file(path: str, count: str) -> None:
    """Fill a new database."""
    with Store(path) as store:
        fill(store, int(count))


def measure_command(command: list[str], most: int = _READ) -> Measured:
    """Run a command of oteval, read some of its output, and return the cost.

    Args:
        command: The command and its options.
        most: The most bytes to read before its pipe is closed.
    """
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "oteval", *command],
            stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        assert process.stdout is not None
        first = _drained(process.stdout, most, start)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode(errors="replace")
    assert "Traceback" not in said, said[-2000:]
    # A pipe that closes ends a command quietly, with the status that shells give to SIGPIPE. The
    # status 1 is that of a comparison that found a regression.
    assert process.returncode in (0, 1, 141), (command, process.returncode, said[-2000:])
    unit = 1 if sys.platform == "darwin" else 1024
    cpu = usage.ru_utime + usage.ru_stime
    return Measured(wall if first is None else first, wall, cpu, usage.ru_maxrss * unit)


def _drained(pipe: IO[bytes], most: int, start: float) -> float | None:
    """Read a pipe and close it; return the seconds to its first byte, or None without one."""
    first, size = None, 0
    with pipe:
        while size < most and (part := os.read(pipe.fileno(), 1 << 16)):
            first = time.perf_counter() - start if first is None else first
            size += len(part)
    return first


def measure(*, runs: int) -> dict[str, Any]:
    """Measure every command on one store.

    Args:
        runs: How many runs the store holds; a multiple of 2,000.

    Returns:
        ``runs``, and ``commands``: by command the seconds to the ``first`` screen, the ``wall`` and
        ``cpu`` seconds, and the peak in ``mb``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "large.duckdb"
        # In a process of its own, whose memory would be counted as that of the commands.
        run([sys.executable, "-c", _FILL, str(path), str(runs)])
        return {"runs": runs, "commands": measure_commands(folder, path)}


def measure_commands(folder: Path, path: Path) -> dict[str, dict[str, float]]:
    """Measure every command on a database, with a folder for the files they write."""
    found = {}
    for label, command in _COMMANDS.items():
        told = [part.format(folder=folder) for part in command]
        cost = measure_command([*told, "--db", str(path)])
        found[label] = {
            "first": cost.first,
            "wall": cost.wall,
            "cpu": cost.cpu,
            "mb": cost.peak / 1e6,
        }
    return found


def rows(found: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for label, cost in found["commands"].items():
        out += [
            below(f"{label}: first screen, seconds", cost["first"], "{:.1f}", MOST_SECONDS),
            Row(f"{label}: seconds, CPU seconds", f"{cost['wall']:.1f}, {cost['cpu']:.1f}"),
            below(f"{label}: peak MB", cost["mb"], "{:.0f}", MOST_MB),
        ]
    return out


if __name__ == "__main__":
    parts.main("large_store")
