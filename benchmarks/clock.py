"""The cost of a piece of work: wall time, CPU time of all threads, and peak memory.

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass
class Spent:
    """The cost of some work.

    Attributes:
        wall: Seconds on the wall.
        cpu: CPU seconds of all threads, and of children that have ended.
        peak: Bytes of the highest resident set; 0 where it was not measured.
        output: The command's standard output.
    """

    wall: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    output: str = ""


class CommandError(Exception):
    """A measured command failed; the message has the end of its output."""


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
    return {name: median(found) for name, found in costs.items()}


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
) -> Spent:
    """Run a command and return the cost of its process, from start to end.

    Args:
        command: The command; this project's packages are on its Python path.
        environment: Variables to add.
        statuses: The exit statuses that mean it did its work.

    Raises:
        CommandError: It exited with another status.
    """
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": search, **(environment or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        wall = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=variables)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - wall
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in statuses:
            err.seek(0)
            said = err.read().decode(errors="replace").strip()
            raise CommandError(f"{command[0]} exited with {process.returncode}: {said[-500:]}")
        out.seek(0)
        output = out.read().decode(errors="replace")
    cpu = usage.ru_utime + usage.ru_stime
    return Spent(wall, cpu, usage.ru_maxrss * _RSS_UNIT, output)


def module(name: str, *arguments: Any) -> list[str]:
    """Return the command that runs a module of ours with this interpreter."""
    return [sys.executable, "-m", name, *map(str, arguments)]
