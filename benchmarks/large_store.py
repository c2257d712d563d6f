"""Commands on a large store: the time to the first screen, the whole time, and the peak memory.

The store holds runs of two to ten calls in some 280 sequences, of five agents, by three models,
with two scores each: 2,000 runs written by the store, with spans, and copies of their rows with
other ids and later times. The runs of one agent are turns of conversations, four in each on
average. One run in ten fails the first evaluator, with a comment; the second reports a cost. As
many rows of experiments stand beside them: a hundred experiments on one dataset, each with a
verdict and a score of each run. `compare` compares the last two. Filling the store is not measured.

Each command is one process, measured from its start to its end; the first screen is the
first byte on its standard output, or the whole time where it writes a file. A command that prints
every run is stopped as a pager would stop it: by a pipe that closes after some megabytes, because
its whole time depends on the number of runs. Its memory up to there is flat. Its output is checked:
the runs, verdicts and counts that it must show.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

from pyarrow.parquet import read_metadata

from oteval.model import (
    Experiment,
    Message,
    Score,
    Span,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
    trajectory_id,
)
from oteval.store import Store
from oteval.store.progress import Stage, newest_seq, note_done
from oteval.store.query import number

from . import parts
from .checks import FAILED, check, figures_or_failure
from .clock import ROOT, run
from .report import Row, below, not_measured

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
_KEPT = 1 << 20  # bytes of the output to check
_RUN_ROW = r"(?m)^\w{8}  20\d\d-\d\d-\d\d .* match [✓✗]  quality [✓✗]  Where is order "
_RUN_LINE = r'(?m)^\{"trajectory_id":"\w{16}".*"tool_calls"'
_SCORE_LINE = r'(?m)^\{"trajectory_id":"\w{16}".*"evaluator":"match".*"passed":'
_FAILURE = r"missing call: refund\(order="


class Command(NamedTuple):
    """A command, and the output that shows that it did its work.

    Attributes:
        arguments: The command and its options.
        shows: Patterns that are all in the output, or in the file; with the number of ``{runs}``.
        lines: How many lines the output has at least.
        file: The file or folder that it writes instead.
        lacks: A pattern that is not in the output.
        statuses: The exit statuses that mean that it did its work. A pipe that closes ends a
            command with 141, the status that shells give to SIGPIPE.
    """

    arguments: Sequence[str]
    shows: Sequence[str]
    lines: int = 0
    file: str = ""
    lacks: str = ""
    statuses: Sequence[int] = (0, 141)


def _report(name: str, *options: str, shows: Sequence[str] = ()) -> Command:
    about = ("oteval report", "{runs} runs", _FAILURE, *shows)
    return Command(["report", *options, "--html", f"{{folder}}/{name}"], about, file=name)


_COMMANDS = {
    "status": Command(["status"], (r"(?m)^runs +{runs} of 5 agents", r"(?m)^scores +{scores}$")),
    "trajectories": Command(["trajectories"], (_RUN_ROW,), lines=1000),
    "trajectories --json": Command(["trajectories", "--json"], (_RUN_LINE,), lines=1000),
    "trajectories --where asked~": Command(
        ["trajectories", "--where", "asked~order 123"], (f"{_RUN_ROW}123",), lines=11
    ),
    "scores": Command(["scores"], (r"(?m)^\w{8}  match +1 True$", _FAILURE), lines=1000),
    "scores --json": Command(["scores", "--json"], (_SCORE_LINE, _FAILURE), lines=1000),
    "scores --status fail --json": Command(
        ["scores", "--status", "fail", "--json"], (_FAILURE,), lines=200, lacks='"passed":true'
    ),
    "variants": Command(
        ["variants"], (r"variants in {runs} runs", r" tool_\d+ → tool_\d+"), lines=100
    ),
    "report --md": Command(
        ["report", "--md", "{folder}/report.md"],
        (r"\| match \| {passed} \| {failed} \| 0 \| 0 \| 0.900 \|", _FAILURE),
        file="report.md",
    ),
    "report --html": _report("report.html"),
    "report --html --by agent": _report("by.html", "--by", "agent", shows=("billing: ",)),
    "report --html --split": _report(
        "split.html", "--split", "2023-12-15", shows=("2023-12-15: ",)
    ),
    "report --html --baseline": _report(
        "baseline.html", "--baseline", "agent=shop", shows=("agent=shop: ",)
    ),
    "compare": Command(
        ["compare", "experiment-1", "experiment-2"],
        # The lists of runs that got worse come first; of many runs they fill the beginning.
        tuple(
            rf"(?m)^{figure}(: [\d,]+ runs? got worse| +0\.\d+ .* {{each}}  )"
            for figure in ("correct", "quality")
        ),
        statuses=(0, 1),  # 1: it found a regression
    ),
    "export --jsonl": Command(["export", "--jsonl", "-"], (_RUN_LINE,), lines=1000),
    "export --parquet": Command(
        ["export", "--parquet", "{folder}/parquet"],
        (r"trajectories.parquet: {runs} rows", r"scores.parquet: {scores} rows"),
        file="parquet",
    ),
}


class Output(NamedTuple):
    """The beginning of the output of a command.

    Attributes:
        first: Seconds to its first byte; None without one.
        text: Its beginning.
        lines: How many lines were read.
    """

    first: float | None
    text: str
    lines: int


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


def _spans(run: Trajectory) -> Iterator[Span]:
    """Yield the span of a run, and one for each of its calls."""
    root = run.root_span
    resource = {"service.name": run.service}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": run.agent}
    times = {"start_ns": run.start_ns, "end_ns": run.end_ns, "resource": resource}
    yield Span(root.trace_id, root.span_id, name="invoke_agent", attributes=agent, **times)
    calls = [call for message in run.tail for call in message.tool_calls]
    for step, call in enumerate(calls, 1):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        yield Span(
            root.trace_id, f"{step:08x}{root.span_id[8:]}", root.span_id,
            name=f"execute_tool {call.name}", attributes=tool, **times,
        )  # fmt: skip


def _scores(runs: list[Trajectory]) -> list[Score]:
    scores = []
    for at, trajectory in enumerate(runs):
        failed = at % 10 == 0
        root = trajectory.root_span
        about = (trajectory.id, root.trace_id, root.span_id)
        comment = f"missing call: refund(order={at})" if failed else ""
        share = (at * 7919 % 1000) / 1000
        scores += [
            Score(*about, "match", "1", status="ok", score=float(not failed), passed=not failed,
                  comment=comment, time_ns=trajectory.end_ns),
            Score(*about, "quality", "1", status="ok", score=share, passed=share > 0.05,
                  metadata={"cost_usd": 0.0001}, time_ns=trajectory.end_ns),
        ]  # fmt: skip
    return scores


def fill(store: Store, count: int) -> None:
    """Write runs and their scores, and copy the rows until there are so many."""
    runs = written()
    store.spans.write([span for trajectory in runs for span in _spans(trajectory)], [])
    for stage in get_args(Stage):  # the spans count as reconstructed
        note_done(store._connection, stage, newest_seq(store._connection))
    store.trajectories.write(runs, [run.root_span.trace_id for run in runs])
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
    stored = number(store._connection, "SELECT count(*) FROM trajectories")
    check(stored == count, f"the store has {count:,} runs", stored)
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


def measure_command(command: Command, folder: Path, path: Path, runs: int) -> dict[str, float]:
    """Run a command of oteval, read some of its output, check it, and return the cost.

    Args:
        command: The command.
        folder: Where it writes its file.
        path: The database.
        runs: How many runs the database holds.

    Returns:
        The seconds to the ``first`` screen, the ``wall`` and ``cpu`` seconds, and the peak in
        ``mb``.

    Raises:
        CheckError: It did not do its work.
    """
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    arguments = [argument.format(folder=folder) for argument in command.arguments]
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "oteval", *arguments, "--db", str(path)],
            stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        assert process.stdout is not None
        output = _drained(process.stdout, start)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        messages = errors.read().decode(errors="replace")
    check("Traceback" not in messages, "it reports no error", messages[-300:])
    is_done = process.returncode in command.statuses
    check(is_done, f"the exit status is one of {command.statuses}", messages[-300:])
    text = _text_of(folder / command.file) if command.file else messages + output.text
    check_output(command, text, output.lines, runs)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "first": wall if output.first is None else output.first,
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "mb": usage.ru_maxrss * unit / 1e6,
    }


def check_output(command: Command, text: str, lines: int, runs: int) -> None:
    """Check that the output of a command is about the runs of the store.

    Args:
        command: The command.
        text: The beginning of its output, or the text of its file.
        lines: How many lines of output were read.
        runs: How many runs the store holds.

    Raises:
        CheckError: Something is missing.
    """
    counts = {
        "{runs}": f"{runs:,}",
        "{scores}": f"{2 * runs:,}",
        "{each}": f"{runs // _EXPERIMENTS:,}",
        "{passed}": str(runs - runs // 10),
        "{failed}": str(runs // 10),
    }
    check(lines >= command.lines, f"there are {command.lines:,} lines at least", lines)
    for pattern in command.shows:
        for name, count in counts.items():
            pattern = pattern.replace(name, count)
        check(re.search(pattern, text), f"the output has {pattern!r}", text[:200])
    has_other = command.lacks and command.lacks in text
    check(not has_other, f"the output has nothing with {command.lacks!r}")


def _text_of(path: Path) -> str:
    """Return the text of a file, or the numbers of rows of a folder of Parquet files."""
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        return "".join(f"{file.name}: {read_metadata(file).num_rows:,} rows\n" for file in files)
    check(path.exists(), f"{path.name} is written")
    return path.read_text("utf-8")


def _drained(pipe: IO[bytes], start: float) -> Output:
    """Read some megabytes of a pipe, and close it."""
    first, size, lines, head = None, 0, 0, b""
    with pipe:
        while size < _READ and (part := os.read(pipe.fileno(), 1 << 16)):
            first = time.perf_counter() - start if first is None else first
            size += len(part)
            lines += part.count(b"\n")
            head += part if size <= _KEPT else b""
    return Output(first, head.decode(errors="replace"), lines)


def measure(*, runs: int) -> dict[str, Any]:
    """Measure every command on one store.

    Args:
        runs: How many runs the store holds; a multiple of 2,000.

    Returns:
        ``runs``, and ``commands``: the figures of `measure_command` by command.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "large.duckdb"
        # In a process of its own, whose memory would be counted as that of the commands.
        run([sys.executable, "-c", _FILL, str(path), str(runs)])
        return {"runs": runs, "commands": measure_commands(folder, path, runs)}


def measure_commands(folder: Path, path: Path, runs: int) -> dict[str, dict[str, Any]]:
    """Measure every command on a database, with a folder for the files they write."""
    return {
        label: figures_or_failure(partial(measure_command, command, folder, path, runs))
        for label, command in _COMMANDS.items()
    }


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    out = []
    for label, cost in figures["commands"].items():
        if FAILED in cost:
            out.append(not_measured(label, cost[FAILED]))
            continue
        out += [
            below(f"{label}: first screen, seconds", cost["first"], "{:.1f}", MOST_SECONDS),
            Row(f"{label}: seconds, CPU seconds", f"{cost['wall']:.1f}, {cost['cpu']:.1f}"),
            below(f"{label}: peak MB", cost["mb"], "{:.0f}", MOST_MB),
        ]
    return out


if __name__ == "__main__":
    parts.main("large_store")
