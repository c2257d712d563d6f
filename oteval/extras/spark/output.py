"""Write results to a folder that oteval's commands read; see `oteval.store.result_folder`.

`result_places` documents where the folder may be.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from ...base.errors import InputError
from ...store import FORMAT, RESULTS, UNFINISHED
from .columns import with_timestamps
from .failures import cause_of
from .parquet_files import read_exactly
from .result_places import LocalFolder, ResultPlace, SparkFolder, is_address, local_path

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from .scores import Scored

__all__ = [
    "CALLS",
    "Output",
    "local_results",
    "require_free",
    "write_judge_scores",
    "write_results",
]

CALLS: Final = "judge_calls"
_DATA = "results-"
# The rows of a task that writes, and the bytes of a row group. Readers skip most row groups.
_TASK_ROWS, _GROUP_BYTES = 100_000, 8 << 20
# The numbers (`seq`) of two tasks are so far apart.
_TASK_STEP = 1 << 24
_SCORE_ORDER = ("start_ns", "trajectory_id", "evaluator")
_DAY = "date_format(timestamp_seconds(CAST(start_ns DIV 1000000000 AS BIGINT)), 'yyyy-MM-dd')"


@dataclass(frozen=True)
class Output:
    """The place that a job writes its results to.

    Attributes:
        place: The place.
        folder: The subfolder of this job.
        resumes: Whether an earlier job on the place failed.
    """

    place: ResultPlace
    folder: str
    resumes: bool = False

    @property
    def path(self) -> Path:
        """The folder of this machine."""
        assert isinstance(self.place, LocalFolder)
        return self.place.path

    @property
    def data(self) -> Path:
        """The subfolder of this job, on this machine."""
        return self.path / self.folder

    @property
    def calls(self) -> Path:
        """The folder of the judges' calls, on this machine."""
        return self.path / CALLS

    @classmethod
    def begin(
        cls, path: str | Path, *, overwrite: bool = False, session: SparkSession | None = None
    ) -> Output:
        """Mark a place as unfinished, and remove the files of jobs that failed.

        Args:
            path: The folder or address; it is created if missing.
            overwrite: Replace the results that it has. They can be read until the new results are
                complete.
            session: The Spark session, which an address needs.

        Raises:
            InputError: The place has results, or other files; or it cannot be written.
        """
        folder = result_place(path, session)
        with _writing(path):
            names = _require_free(path, folder, overwrite=overwrite)
            folder.create()
            current = _named(folder)
            for name in names:
                if name.startswith(_DATA) and name != current:
                    folder.remove(name)
            folder.write(UNFINISHED, {"format": FORMAT, "begun": time.time_ns()})
        return cls(folder, f"{_DATA}{uuid.uuid4().hex[:12]}", resumes=UNFINISHED in names)

    def finish(self) -> None:
        """Replace the results of the place by the results of this job, in one step.

        Raises:
            InputError: The place cannot be written.
        """
        before = _named(self.place)
        with _writing(self.place.address()):
            self.place.write(RESULTS, self._contents(self.folder))
            self.place.remove(UNFINISHED)
        if before:
            # A command that reads them now keeps them open.
            with suppress(OSError):
                self.place.remove(before)

    def preview(self) -> Path:
        """Make the subfolder of this job readable by itself, before all is written; return it."""
        LocalFolder(self.data).write(RESULTS, self._contents("."))
        return self.data

    def address(self, table: str) -> str:
        """The address of a table of this job, for Spark."""
        return self.place.address(self.folder, table)

    def _contents(self, folder: str) -> dict[str, Any]:
        tables = {
            name: {
                "files": [file for part in parts for file in self.place.files(self.folder, part)]
            }
            for name, parts in (
                ("trajectories", ["trajectories"]),
                ("scores", ["scores", "judge_scores"]),
            )
        }
        return {"format": FORMAT, "folder": folder, "tables": tables}


def result_place(path: str | Path, session: SparkSession | None) -> ResultPlace:
    """The place of results.

    Args:
        path: A folder of this machine, or an address.
        session: The Spark session, which an address needs.

    Raises:
        InputError: Spark has no file system for the address.
    """
    if not is_address(path):
        return LocalFolder(local_path(path))
    if session is None:
        raise InputError(f"{path}: an address needs a Spark session")
    return SparkFolder(session, str(path))


def require_free(path: str | Path, *, overwrite: bool, session: SparkSession | None = None) -> None:
    """Check that results can be written, and write nothing.

    Args:
        path: The folder or address.
        overwrite: Whether results that are there may be replaced.
        session: The Spark session. Without one, an address is not checked.

    Raises:
        InputError: The place has results, or other files, or cannot be read.
    """
    if session is not None or not is_address(path):
        folder = result_place(path, session)
        with _writing(path):
            _require_free(path, folder, overwrite=overwrite)


def _require_free(path: str | Path, folder: ResultPlace, *, overwrite: bool) -> set[str]:
    """The names in a place that may be written.

    Raises:
        InputError: It has results, or other files.
    """
    names = folder.names()
    if RESULTS in names and not overwrite:
        raise InputError(f"{path}: has results already; give --overwrite to replace them")
    own = {RESULTS, UNFINISHED, CALLS}
    foreign = [name for name in names if name not in own and not name.startswith((_DATA, "."))]
    if foreign:
        raise InputError(
            f"{path}: has other files, such as {min(foreign)}; give a new folder as --out"
        )
    return names


@contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """Turn errors of a file system into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    except Exception as error:
        if isinstance(error, InputError) or not is_address(path):
            raise
        raise InputError(f"{path}: cannot be written: {cause_of(error)}") from error


@contextmanager
def local_results(path: str | Path, session: SparkSession) -> Iterator[Path]:
    """A folder of this machine with the results of a job, for commands that read them.

    Results at an address are copied to a temporary folder.

    Args:
        path: The folder or address.
        session: The Spark session.
    """
    result_folder = result_place(path, session)
    if isinstance(result_folder, LocalFolder):
        yield result_folder.path
        return
    assert isinstance(result_folder, SparkFolder)
    results = result_folder.read(RESULTS)
    files = [file for table in results["tables"].values() for file in table["files"]]
    with TemporaryDirectory(prefix="oteval-results-") as folder:
        result_folder.copy_to(
            Path(folder), [RESULTS, *(f"{results['folder']}/{file_name}" for file_name in files)]
        )
        yield Path(folder)


def write_results(scored: Scored, output: Output) -> None:
    """Write trajectories and scores as Parquet files, by the day (UTC) when runs started.

    `Output.finish` makes them the results of the folder.

    Args:
        scored: The trajectories and scores.
        output: The folder.
    """
    from pyspark.sql import functions as sql

    runs, scores = (frame.withColumn("date", sql.expr(_DAY)) for frame in scored)
    _write_table(runs, ("start_ns", "trajectory_id"), output.address("trajectories"))
    _write_table(scores, _SCORE_ORDER, output.address("scores"), dropped=("start_ns",))


def write_judge_scores(scores: DataFrame, output: Output) -> None:
    """Write the scores by judges, which come after all others.

    Args:
        scores: Rows of scores.
        output: The folder, which has the trajectories already.
    """
    runs = read_exactly(scores.sparkSession, "parquet", [output.address("trajectories")], {})
    days = runs.select("trajectory_id", "start_ns", "date")
    joined = scores.join(days.withColumn("date", days["date"].cast("string")), "trajectory_id")
    # The columns of the other scores, because all are read together.
    joined = with_timestamps(joined)
    _write_table(
        joined,
        _SCORE_ORDER,
        output.address("judge_scores"),
        dropped=("start_ns",),
        first_task=1 << 15,
    )


def _write_table(
    table: DataFrame,
    order: tuple[str, ...],
    address: str,
    *,
    dropped: tuple[str, ...] = (),
    first_task: int = 0,
) -> None:
    """Write rows in an order, with numbers that have the same order."""
    from pyspark.sql.types import LongType, StructField, StructType

    count = max(1, -(-table.count() // _TASK_ROWS))
    rows = table.repartitionByRange(count, *order).sortWithinPartitions(*order)
    fields = [field for field in rows.schema if field.name not in dropped]
    schema = StructType([*fields, StructField("seq", LongType())])
    # The writer wants rows by day, and sorts them anew unless they are.
    (
        rows.select(*(field.name for field in rows.schema if field.name not in dropped))
        .mapInArrow(lambda batches: _numbered(batches, first_task), schema)
        .sortWithinPartitions("date", "seq")
        .write.partitionBy("date")
        .option("compression", "zstd")
        .option("parquet.block.size", _GROUP_BYTES)
        .parquet(address)
    )


def _numbered(batches: Iterable[pa.RecordBatch], first_task: int) -> Iterator[pa.RecordBatch]:
    """Add the column ``seq``: numbers that are unique among all tasks."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    first = (first_task + context.partitionId()) * _TASK_STEP + 1
    for batch in batches:
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        first += batch.num_rows
        yield batch.append_column("seq", numbers)


def _named(folder: ResultPlace) -> str:
    """The subfolder with the results that a place has, or ""."""
    results = folder.read(RESULTS)
    return str(results.get("folder", "")) if isinstance(results, dict) else ""
