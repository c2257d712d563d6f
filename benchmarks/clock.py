"""The cost of a piece of work: wall time, CPU time of all threads, and peak memory.

`run` can also watch the memory of a command with all of its child processes: the sum of their
proportional set sizes, in which memory that processes share is counted once (Linux only).

The cyclic garbage collector keeps its usual settings; existing objects are collected before the
clock starts. Peak memory is a process' highest resident set, so that it needs a process
that did nothing else: `run` starts one and waits for it. Linux counts the parent's
memory at that moment as the child's, which is why the benchmark that measures memory imports
nothing big itself.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .checks import CommandError

ROOT = Path(__file__).resolve().parents[1]
# Seconds between two looks at the memory of processes.
_INTERVAL = 0.1
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass
class Spent:
    """The cost of some work.

    Attributes:
        wall: Seconds on the wall.
        cpu: CPU seconds of all threads, and of children that have ended.
        peak: Bytes of the highest resident set; 0 where it was not measured.
        peak_of_all: Bytes of the highest sum of the proportional set sizes of the process and its
            children; 0 where it was not measured.
        output: The command's standard output.
    """

    wall: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    output: str = ""
    peak_of_all: int = 0


@contextmanager
def spent() -> Iterator[Spent]:
    """Measure the cost of a ``with`` block."""
    cost = Spent()
    gc.collect()
    cpu, wall = _cpu_time(), time.perf_counter()
    yield cost
    cost.cpu, cost.wall = _cpu_time() - cpu, time.perf_counter() - wall


def _cpu_time() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def median(costs: Sequence[Spent]) -> Spent:
    """Return the median of wall and of CPU time, each by itself."""
    return Spent(
        statistics.median(cost.wall for cost in costs), statistics.median(c.cpu for c in costs)
    )


def alternate(repeats: int, **works: Callable[[], Spent]) -> dict[str, Spent]:
    """Do each work in turn, several times over, so that a slow minute hits all of them.

    Args:
        repeats: How often.
        **works: Each sets itself up, measures its core and cleans up.

    Returns:
        The median cost of each.
    """
    costs: dict[str, list[Spent]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            costs[name].append(work())
    return {name: median(costs_of_work) for name, costs_of_work in costs.items()}


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
    with_children: bool = False,
) -> Spent:
    """Run a command and return the cost of its process, from start to end.

    Args:
        command: The command; this project's packages are on its Python path.
        environment: Variables to add.
        statuses: The exit statuses that mean it did its work.
        with_children: Whether to watch the memory of the command with its children.

    Raises:
        CommandError: It exited with another status.
    """
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": search, **(environment or {})}
    # Else every child compiles its imports anew, which is not part of the work.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        wall = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=variables)
        watch = _Watch(process.pid)
        if with_children:
            watch.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - wall
        watch.ended.set()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in statuses:
            err.seek(0)
            errors = err.read().decode(errors="replace").strip()
            raise CommandError(f"{command[0]} exited with {process.returncode}: {errors[-500:]}")
        out.seek(0)
        output = out.read().decode(errors="replace")
    cpu = usage.ru_utime + usage.ru_stime
    return Spent(wall, cpu, usage.ru_maxrss * _RSS_UNIT, output, watch.peak)


class _Watch(threading.Thread):
    """Watches the memory of a process and its children.

    Attributes:
        peak: The highest sum (bytes) so far.
        ended: Set when the process has ended.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.peak = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(_INTERVAL):
            self.peak = max(self.peak, sum(map(_proportional_size, family(self._pid))))


def family(pid: int) -> list[int]:
    """Return a process, its children, and theirs."""
    members = [pid]
    for member in members:
        for task in Path(f"/proc/{member}/task").glob("*/children"):
            with suppress(OSError):
                members += map(int, task.read_text().split())
    return members


def _proportional_size(pid: int) -> int:
    """Return the bytes of a process, shared ones divided by the number of processes."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def module(name: str, *arguments: Any) -> list[str]:
    """Return the command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", name, *map(str, arguments)]
