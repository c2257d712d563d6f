"""The work of the processes that score large files: stretches of files of about the same size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import machine
from ..ingest import FilePart, file_size, split_file
from ..selection import Selection

if TYPE_CHECKING:
    from .prepared import PreparedEvaluator

__all__ = ["ScoringJob", "Unit", "units_of"]

# Bytes of a part of a file.
PART_SIZE = 2 << 20
_MAX_WORKERS = 8


class Unit(NamedTuple):
    """A part of the work of a worker.

    Attributes:
        path: The file.
        parts: The parts to read; None for all of a file that has no parts.
    """

    path: str
    parts: Sequence[FilePart] | None


class ScoringJob(NamedTuple):
    """Traces to score.

    Attributes:
        folder: The folder for results.
        units: The units of each worker.
        prepared: The evaluators.
        salt: The text that changes samples.
        selection: The runs to score.
    """

    folder: str
    units: Sequence[Sequence[Unit]]
    prepared: Sequence[PreparedEvaluator]
    salt: str
    selection: Selection


def units_of(paths: Sequence[str]) -> list[list[Unit]]:
    """Return the work of each worker: stretches of files that have about the same size."""
    whole: list[tuple[int, Unit]] = []
    parts: list[tuple[str, FilePart]] = []
    for path in paths:
        found = split_file(path, PART_SIZE)
        parts += ((path, part) for part in found)
        if not found:
            whole.append((file_size(path) or 0, Unit(path, None)))
    count = min(machine.processors(), _MAX_WORKERS)
    loads = [0] * count
    units: list[list[Unit]] = [[] for _ in range(count)]
    for worker in range(count):
        own = parts[len(parts) * worker // count : len(parts) * (worker + 1) // count]
        for path in dict.fromkeys(path for path, _ in own):
            units[worker].append(Unit(path, [part for at, part in own if at == path]))
        loads[worker] = sum(part.end - part.start for _, part in own)
    for size, unit in sorted(whole, key=lambda one: -one[0]):
        worker = loads.index(min(loads))
        units[worker].append(unit)
        loads[worker] += size
    return [found for found in units if found]
