"""A table of a database: lazy, filtered, and read row by row or as a data frame."""

from __future__ import annotations

import importlib
from collections import namedtuple
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from ...base.errors import ConfigError
from ...model import EVERYTHING, TABLES, Selection, TableName, Trajectory, select
from ...store import Relation, Store, table_of
from ..notebook import Plot, frame_html, plot_runs
from .csv_files import write_csv
from .rows import count_rows, read_rows, schema_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["ColumnInfo", "Frame", "FrameSource"]

_BATCH = 1000  # rows
_SHOWN = 20  # rows in a notebook


class FrameSource(Protocol):
    """Opens the database of frames."""

    def reading(self) -> AbstractContextManager[Store]:
        """Open the database for a block."""

    def relation(self, frame: Frame) -> Relation:
        """Copy a frame to a table of DuckDB."""


class ColumnInfo(NamedTuple):
    """A column of a frame.

    Attributes:
        name: Its name.
        type: Its type in Arrow.
        unit: The unit of its numbers, or "".
        meaning: Its meaning.
    """

    name: str
    type: str
    unit: str
    meaning: str


@cache
def _row_class(table: TableName) -> Any:
    name = f"{table.removesuffix('s').capitalize()}Row"
    return namedtuple(name, [column.name for column in TABLES[table]])


@dataclass(frozen=True, repr=False)
class Frame:
    """A table of a database. Nothing is read before its rows are needed.

    Iteration yields its rows as named tuples, page by page, so that memory does not grow with their
    texts. Times are datetimes in UTC, durations are seconds, and an unknown value is None.

    Attributes:
        table: The table's name.
        selection: The runs whose rows it has.
        names: The evaluators of its scores, or the experiments of its results; all when empty.
    """

    table: TableName
    _source: FrameSource
    selection: Selection = EVERYTHING
    names: tuple[str, ...] = ()

    def where(
        self,
        *conditions: str,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        service: str | Sequence[str] = (),
        agent: str | Sequence[str] = (),
        conversation: str | Sequence[str] = (),
        model: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> Frame:
        """The rows of the runs that also match further filters, as on the command line.

        Filters select runs: ``db.calls().where("tool=refund")`` has all calls of each run that
        called the tool.

        Args:
            *conditions: Conditions as of ``--where``, such as ``errors>0``.
            since: Runs since this time: a date, a time (UTC by default) or an age (``2h``).
            until: Runs before this time.
            service: Runs of this service, or of one of several.
            agent: Runs of this agent.
            conversation: Runs of this conversation.
            model: Runs answered by this model.
            limit: Only the latest runs that match all filters.

        Raises:
            ConfigError: A filter cannot be parsed, or the same one is given twice.
        """
        if limit is not None and limit < 1:
            raise ConfigError(f"limit: must be at least 1, not {limit}")
        more = select(
            where=conditions,
            since=_time_text(since),
            until=_time_text(until),
            service=_texts(service),
            agent=_texts(agent),
            conversation=_texts(conversation),
            model=_texts(model),
            limit=limit,
        )
        return replace(self, selection=self.selection.narrowed(more))

    @property
    def columns(self) -> tuple[ColumnInfo, ...]:
        """The columns with their types, units and meanings."""
        return tuple(
            ColumnInfo(column.name, str(field.type), column.unit, column.meaning)
            for column, field in zip(TABLES[self.table], schema_of(self.table), strict=True)
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows, in the order of time."""
        yield from map(_row_class(self.table)._make, self._rows())

    def __len__(self) -> int:
        """The number of rows."""
        with self._source.reading() as store:
            return count_rows(store, self.table, self.selection, self.names)

    def __bool__(self) -> bool:
        """Whether there are rows."""
        return any(True for _ in self._rows())

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        with self._source.reading() as store:
            yield from read_rows(store, self.table, self.selection, self.names)

    def trajectories(self) -> Iterator[Trajectory]:
        """Yield the selected runs with their messages, by start."""
        with self._source.reading() as store:
            yield from store.trajectories.read(self.selection)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as batches of Arrow, 1,000 at a time."""
        schema = schema_of(self.table)
        rows = self._rows()
        while batch := list(islice(rows, _BATCH)):
            yield from table_of(batch, schema).to_batches()

    def to_arrow(self) -> pa.Table:
        """All rows as a table of Arrow."""
        return pa.Table.from_batches(self.to_batches(), schema_of(self.table))

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a data frame of pandas.

        Integers and flags have pandas' types that can be missing, ``Int64`` and ``boolean``.

        Raises:
            ConfigError: pandas is not installed.
        """
        pandas = _package("pandas")
        kinds = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
        return self.to_arrow().to_pandas(types_mapper=kinds.get)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a data frame of polars.

        Raises:
            ConfigError: polars is not installed.
        """
        frame: pl.DataFrame = _package("polars").from_arrow(self.to_arrow())
        return frame

    def relation(self) -> Relation:
        """The rows as a relation of DuckDB, whose filters and aggregations run in SQL.

        The rows are copied to a temporary table on disk. Relations of one `oteval.open` can be
        joined. Times are in UTC, without a zone.
        """
        return self._source.relation(self)

    def to_csv(self, path: str | Path) -> int:
        """Write the rows to a CSV file, one at a time; texts never are formulas.

        Returns:
            The number of rows.

        Raises:
            InputError: The file cannot be written.
        """
        return write_csv(Path(path), self.table, self._rows())

    def plot(self, column: str = "seconds", by: str = "") -> Plot:
        """A histogram of a column of runs.

        Args:
            column: A column of numbers.
            by: A column whose values are compared, such as ``version``; all runs are one group
                without it.

        Raises:
            ConfigError: The frame has no such column of numbers.
        """
        names = [info.name for info in self.columns]
        numbers = [c.name for c in TABLES[self.table] if c.kind == "number"]
        if column not in numbers:
            raise ConfigError(f"plot: {column!r} is not a column of numbers: {', '.join(numbers)}")
        if by and by not in names:
            raise ConfigError(f"plot: unknown column {by!r}: {', '.join(names)}")
        at, by_at = names.index(column), names.index(by) if by else None
        values: dict[str, list[float]] = {}
        for row in self._rows():
            if row[at] is not None:
                values.setdefault("" if by_at is None else str(row[by_at]), []).append(row[at])
        return plot_runs(column, self.columns[at].unit, values)

    def _repr_html_(self) -> str:
        """The first rows as a table, for notebooks."""
        rows = list(islice(self._rows(), _SHOWN))
        count = len(rows) if len(rows) < _SHOWN else len(self)
        return frame_html(self.table, [column.name for column in TABLES[self.table]], rows, count)

    def __repr__(self) -> str:
        """The table's name and its columns; nothing is read."""
        names = ", ".join(column.name for column in TABLES[self.table])
        return f"<{self.table}: {names}>"


def _time_text(time: str | datetime | None) -> str | None:
    return time.isoformat() if isinstance(time, datetime) else time


def _texts(values: str | Sequence[str]) -> Sequence[str]:
    return [values] if isinstance(values, str) else values


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"to_{name}() needs a package: pip install {name}") from error
