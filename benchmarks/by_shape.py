"""Measure how much of unknown dialects is read by shape: each dialect is switched off in turn.

    python -m benchmarks.by_shape [--data FOLDER] [--faults]

A dialect's captures are those with a trajectory that it read. With the dialect switched off, no
dialect knows their spans, or only another one. A capture holds if the strict comparison of
`benchmarks.fidelity` finds no fault; without ``truth.json`` in the folder, if the messages are
those that the dialect reads. It is silently wrong if there is a fault and no gap.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from oteval.base.jsontext import canonical
from oteval.ingest import read as read_file
from oteval.model import Trajectory
from oteval.reconstruct import DIALECTS, reconstruct, span_reader
from oteval.reconstruct.dialect import Wrapper
from oteval.reconstruct.dialects.by_shape import BY_SHAPE

from .checks import check
from .fidelity.__main__ import DATA
from .fidelity.adapters.oteval_runs import shown
from .fidelity.compare import compare


class Reading(NamedTuple):
    """How a capture was read with a dialect switched off.

    Attributes:
        holds: Whether everything is right.
        is_silent: Whether something is wrong, and no gap says so.
        is_by_shape: Whether any span was read by its shape.
        fault: What is wrong, or "".
    """

    holds: bool
    is_silent: bool
    is_by_shape: bool
    fault: str = ""


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch dialects off."""
    left = tuple(dialect for dialect in DIALECTS if dialect.name not in names)
    with (
        patch.object(span_reader, "DIALECTS", left),
        patch.object(span_reader, "_MARKS", span_reader._Marks(left)),
        patch.object(span_reader, "SHAPES", _Nothing if BY_SHAPE in names else span_reader.SHAPES),
    ):
        yield


class _Nothing:
    """Stands for the reading by shape, and reads nothing."""

    name, switch = BY_SHAPE, ""

    @staticmethod
    def read(span: Any, logs: Any) -> Wrapper:  # noqa: ARG004
        """Return a wrapper."""
        return Wrapper(span)


def main() -> None:
    """Print a row for each dialect, and one for all."""
    parser = argparse.ArgumentParser(prog="benchmarks.by_shape", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="captures and truth.json")
    parser.add_argument("--faults", action="store_true", help="print what is wrong in each capture")
    options = parser.parse_args()
    truth = options.data / "truth.json"
    truths = json.loads(truth.read_text()) if truth.exists() else {}
    rows: dict[str, dict[str, tuple[Reading, Reading]]] = {}
    of_none: list[tuple[Reading, Reading]] = []
    every = [dialect.name for dialect in DIALECTS if dialect.name != BY_SHAPE]
    for path in sorted(options.data.glob("*.json")):
        if path.stem in ("truth", "gold", "expected") or path.stem.endswith(".logs"):
            continue
        signals = _load(path)
        runs = reconstruct(*signals)
        truth_of = truths.get(path.stem)
        for dialect in sorted({dialect for run in runs for dialect in run.dialects}):
            readings = _readings([dialect], signals, runs, truth_of)
            rows.setdefault(dialect, {})[path.stem] = readings
        of_none.append(_readings(every, signals, runs, truth_of))
    check(len(rows) > 1, f"{options.data} has captures of several dialects", list(rows))
    print("| dialect switched off | captures | hold without | hold by shape | read by shape |")
    print("|---|---|---|---|---|")
    for dialect, row in sorted(rows.items()):
        print(_row(f"`{dialect}`", list(row.values())))
        if options.faults:
            for name, (_, reading) in row.items():
                print(f"    {name}: {reading.fault or 'holds'}{' SILENT' * reading.is_silent}")
    print(_row("each in turn", [readings for row in rows.values() for readings in row.values()]))
    print(_row("all at once", of_none))


def _load(path: Path) -> Any:
    paths = [path, path.with_suffix(".logs.json")]
    batches = [batch for each in paths if each.exists() for batch in read_file(str(each))]
    spans = [span for batch in batches for span in batch.spans]
    return spans, [log for batch in batches for log in batch.logs]


def _readings(
    off: list[str], signals: Any, runs: list[Trajectory], truth: Mapping[str, Any] | None
) -> tuple[Reading, Reading]:
    """Return how a capture is read with dialects switched off, without and with its shape."""
    with without(*off, BY_SHAPE):
        before = _reading(reconstruct(*signals), runs, truth)
    with without(*off):
        return before, _reading(reconstruct(*signals), runs, truth)


def _reading(
    runs: list[Trajectory], reference: list[Trajectory], truth: Mapping[str, Any] | None
) -> Reading:
    is_by_shape = any(BY_SHAPE in run.dialects for run in runs)
    if truth is not None:
        verdict = compare({"readings": [shown(runs)], "crash": ""}, truth)
        is_silent = not verdict.strict and not verdict.notes
        return Reading(verdict.strict, is_silent, is_by_shape, verdict.fault)
    holds = sorted(map(_text_of, runs)) == sorted(map(_text_of, reference))
    has_gaps = any(run.gaps for run in runs)
    return Reading(holds, not (holds or has_gaps), is_by_shape, "" if holds else "it differs")


def _text_of(run: Trajectory) -> str:
    """Return what was said in a run, without ids and names that only some spans have."""
    return canonical(
        [
            (m.role, m.content, m.is_error, [(c.name, c.arguments) for c in m.tool_calls])
            for m in run.messages
        ]
    )


def _row(title: str, readings: list[tuple[Reading, Reading]]) -> str:
    before = sum(without.holds for without, _ in readings)
    after = sum(with_shape.holds for _, with_shape in readings)
    by_shape = [with_shape for _, with_shape in readings if with_shape.is_by_shape]
    silent = sum(reading.is_silent for reading in by_shape)
    read = f"{len(by_shape)}, {silent} silently wrong"
    return f"| {title} | {len(readings)} | {before} | {after} | {read} |"


if __name__ == "__main__":
    main()
