"""Write results to a folder that oteval's commands read; see `oteval.store.result_folder`.

The folder must be one that the driver and all executors have under the same path: a disk of one
machine, a network disk, or a mounted bucket.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import InputError
from ..files import sync, sync_folder
from ..store import RESULTS, UNFINISHED
from ..store.result_folder import FORMAT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from .scores import Scored

__all__ = ["CALLS", "Output", "write_judge_scores", "write_results"]

CALLS: Final = "judge_calls"
_DATA = "results-"
# The rows of a task that writes, and the bytes of a row group, of which readers skip most.
_TASK_ROWS, _GROUP_BYTES = 100_000, 8 << 20
# The numbers (`seq`) of two tasks are so far apart.
_TASK_STEP = 1 << 24
_SCORE_ORDER = ("start_ns", "trajectory_id", "evaluator")
_DAY = "date_format(timestamp_seconds(CAST(start_ns DIV 1000000000 AS BIGINT)), 'yyyy-MM-dd')"


@dataclass(frozen=True)
class Output:
    """A folder to which a job writes its results.

    Attributes:
        path: The folder.
        data: The subfolder of this job.
        resumes: Whether an earlier job on the folder failed.
    """

    path: Path
    data: Path
    resumes: bool = False

    @property
    def calls(self) -> Path:
        """The folder of the judges' calls."""
        return self.path / CALLS

    @classmethod
    def begin(cls, path: str | Path, *, overwrite: bool = False) -> Output:
        """Mark a folder as unfinished, and remove the files of jobs that failed.

        Args:
            path: The folder; it is created if missing.
            overwrite: Replace the results that it has. They can be read until the new ones are
                complete.

        Raises:
            InputError: The folder has results, or other files; or it cannot be written.
        """
        if "://" in str(path):
            raise InputError(
                f"{path}: results are written to a folder; mount the bucket, or write the data "
                "frames of oteval.spark.score to it"
            )
        folder = Path(path).absolute()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            names = {entry.name for entry in folder.iterdir()}
            if RESULTS in names and not overwrite:
                raise InputError(f"{path}: has results already; give --overwrite to replace them")
            own = {RESULTS, UNFINISHED, CALLS}
            foreign = [n for n in names if n not in own and not n.startswith((_DATA, "."))]
            if foreign:
                raise InputError(
                    f"{path}: has other files, such as {min(foreign)}; give a new folder as --out"
                )
            kept = _named(folder)
            for name in names:
                if name.startswith(_DATA) and name != kept:
                    shutil.rmtree(folder / name)
            _write(folder / UNFINISHED, {"format": FORMAT, "begun": time.time_ns()})
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
        data = folder / f"{_DATA}{uuid.uuid4().hex[:12]}"
        return cls(folder, data, resumes=UNFINISHED in names)

    def finish(self) -> None:
        """Replace the results of the folder by those of this job, in one step.

        Raises:
            InputError: The folder cannot be written.
        """
        before = _named(self.path)
        try:
            _write(self.path / RESULTS, self._contents(self.data.name))
            (self.path / UNFINISHED).unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"{self.path}: cannot be written: {reason}") from error
        if before:
            # A command that reads them now keeps them open.
            shutil.rmtree(self.path / before, ignore_errors=True)

    def preview(self) -> Path:
        """Make the subfolder of this job readable by itself, before all is written; return it."""
        _write(self.data / RESULTS, self._contents("."))
        return self.data

    def _contents(self, folder: str) -> dict[str, Any]:
        tables = {
            name: {"files": [str(f.relative_to(self.data)) for part in parts for f in part]}
            for name, parts in (
                ("trajectories", [_files(self.data / "trajectories")]),
                ("scores", [_files(self.data / "scores"), _files(self.data / "judge_scores")]),
            )
        }
        return {"format": FORMAT, "folder": folder, "tables": tables}


def write_results(scored: Scored, output: Output) -> None:
    """Write trajectories and scores as Parquet files, by the day (UTC) on which runs started.

    `Output.finish` makes them the results of the folder.

    Args:
        scored: The trajectories and scores.
        output: The folder.
    """
    from pyspark.sql import functions as sql

    runs, scores = (frame.withColumn("date", sql.expr(_DAY)) for frame in scored)
    _write_table(runs, ("start_ns", "trajectory_id"), output.data / "trajectories")
    _write_table(scores, _SCORE_ORDER, output.data / "scores", dropped=("start_ns",))


def write_judge_scores(scores: DataFrame, output: Output) -> None:
    """Write the scores that judges gave after all others.

    Args:
        scores: Rows of scores.
        output: The folder, which has the trajectories already.
    """
    runs = scores.sparkSession.read.parquet((output.data / "trajectories").as_uri())
    days = runs.select("trajectory_id", "start_ns", "date")
    joined = scores.join(days.withColumn("date", days["date"].cast("string")), "trajectory_id")
    _write_table(
        joined,
        _SCORE_ORDER,
        output.data / "judge_scores",
        dropped=("start_ns",),
        first_task=1 << 15,
    )


def _write_table(
    table: DataFrame,
    order: tuple[str, ...],
    folder: Path,
    *,
    dropped: tuple[str, ...] = (),
    first_task: int = 0,
) -> None:
    """Write rows in an order, with numbers that have the same order."""
    from pyspark.sql.types import LongType, StructField, StructType

    count = max(1, -(-table.count() // _TASK_ROWS))
    rows = table.repartitionByRange(count, *order).sortWithinPartitions(*order)
    kept = [field for field in rows.schema if field.name not in dropped]
    schema = StructType([*kept, StructField("seq", LongType())])
    # The writer wants rows by day, and sorts them anew unless they are.
    (
        rows.select(*(field.name for field in rows.schema if field.name not in dropped))
        .mapInArrow(lambda batches: _numbered(batches, first_task), schema)
        .sortWithinPartitions("date", "seq")
        .write.partitionBy("date")
        .option("compression", "zstd")
        .option("parquet.block.size", _GROUP_BYTES)
        .parquet(folder.as_uri())
    )


def _numbered(batches: Iterable[pa.RecordBatch], first_task: int) -> Iterator[pa.RecordBatch]:
    """Add the column ``seq``: numbers that no other task gives."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    first = (first_task + context.partitionId()) * _TASK_STEP + 1
    for batch in batches:
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        yield batch.append_column("seq", numbers)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def _named(folder: Path) -> str:
    """Return the subfolder with the results that a folder has, or ""."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found: Any = json.loads((folder / RESULTS).read_text("utf-8"))
        return str(found["folder"])
    return ""


def _write(path: Path, value: Any) -> None:
    """Write a file of JSON, which appears whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        sync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)
