"""Measure how much of unknown dialects is read by shape: each dialect is switched off in turn.

    python -m benchmarks.by_shape [--data FOLDER] [--faults]

A dialect's captures are those with a trajectory that it read. With the dialect switched off, no
dialect knows their spans, or only another one. A capture holds if the strict comparison of
`benchmarks.fidelity` finds no fault; it is silently wrong if there is a fault and no gap.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from oteval.ingest import read as read_file
from oteval.model import Span
from oteval.reconstruct import DIALECTS, reconstruct, span_reader
from oteval.reconstruct.dialect import Logs
from oteval.reconstruct.dialects.by_shape import BY_SHAPE
from oteval.reconstruct.operations import Operation, Wrapper

from .fidelity.__main__ import DATA, captures
from .fidelity.adapters.oteval_runs import runs_and_notes
from .fidelity.compare import Verdict, compare


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Switch dialects off."""
    left = tuple(dialect for dialect in DIALECTS if dialect.name not in names)
    shapes = _NOTHING if BY_SHAPE in names else span_reader.SHAPES
    marks = span_reader._Marks(left)
    with (
        patch.object(span_reader, "DIALECTS", left),
        patch.object(span_reader, "_MARKS", marks),
        patch.object(span_reader, "SHAPES", shapes),
    ):
        yield


class _NOTHING:
    name, switch = BY_SHAPE, ""

    @staticmethod
    def read(span: Span, logs: Logs) -> Operation:  # noqa: ARG004
        """Return a wrapper: nothing is read."""
        return Wrapper(span)


def main() -> None:
    """Print a row for each dialect, and one for all."""
    parser = argparse.ArgumentParser(prog="benchmarks.by_shape", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="captures and truth.json")
    parser.add_argument("--faults", action="store_true", help="print what is wrong in each capture")
    options = parser.parse_args()
    truth = json.loads((options.data / "truth.json").read_text())
    loaded = {name: _load(paths) for name, paths in captures(options.data).items()}
    rows: dict[str, list[tuple[str, Verdict, Verdict]]] = {}
    for name, signals in loaded.items():
        runs = reconstruct(*signals)
        for dialect in sorted({dialect for run in runs for dialect in run.dialects}):
            verdicts = []
            for off in ((dialect, BY_SHAPE), (dialect,)):
                with without(*off):
                    verdicts.append(compare(runs_and_notes(*signals), truth[name]))
            rows.setdefault(dialect, []).append((name, verdicts[0], verdicts[1]))
    print("| dialect switched off | captures | hold before | hold by shape | silently wrong |")
    print("|---|---|---|---|---|")
    for dialect, row in sorted(rows.items()):
        print(_row(dialect, row))
        if options.faults:
            for name, _, verdict in row:
                print(f"    {name}: {verdict.fault or 'holds'}{' SILENT' * verdict.is_silent}")
    print(_row("all", [each for row in rows.values() for each in row]))


def _load(paths: list[str]) -> Any:
    batches = [batch for path in paths for batch in read_file(path)]
    spans = [span for batch in batches for span in batch.spans]
    return spans, [log for batch in batches for log in batch.logs]


def _row(dialect: str, row: list[tuple[str, Verdict, Verdict]]) -> str:
    before = sum(verdict.strict for _, verdict, _ in row)
    after = sum(verdict.strict for _, _, verdict in row)
    silent = sum(verdict.is_silent for _, verdict, _ in row), sum(v.is_silent for _, _, v in row)
    return (
        f"| `{dialect}` | {len(row)} | {before} | {after} | {silent[0]} before, {silent[1]} after |"
    )


if __name__ == "__main__":
    main()
