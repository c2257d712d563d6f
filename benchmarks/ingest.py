"""Loading a file of OTLP/JSON lines into a new store, spans per second.

Inside the clock is `oteval.scoring.load` and closing the store, so that all rows are in the
database file; opening it is not. Three limits are measured in turns with it on the same file,
which the page cache holds:

- DuckDB's ``read_json`` of the same lines into a table in memory with a row per span (attributes
  stay nested, nothing is written to disk, duplicates stay). ``read_json`` is the call with its
  defaults, which looks at 20,480 lines to find the columns and so parses this file twice;
  ``read_json_64`` looks at 64 lines, the least work that still knows the columns.
- An Arrow insert: the very rows that the store holds, prepared as Arrow tables before the clock
  starts, into a DuckDB file of the same settings, without looking for duplicates. That is
  the cost of storing alone.
- orjson parsing the lines and dropping them: the cost of reading alone.
"""

from __future__ import annotations

import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa

from oteval.scoring import load
from oteval.store import Store

from . import parts, traces
from .checks import check
from .clock import Spent, alternate, spent
from .report import Row, compared

FULL = {"spans": 100_000, "repeats": 3}
QUICK = {"spans": 20_000, "repeats": 1}

SAMPLES = {"read_json": 20_480, "read_json_64": 64}

_FILE = "ROW_GROUP_SIZE 16384, STORAGE_VERSION 'v1.5.0'"
_READ_JSON = """
CREATE TABLE spans AS
SELECT resource, scope, span.* FROM (
    SELECT resource, scoped.scope, unnest(scoped.spans) AS span FROM (
        SELECT part.resource, unnest(part.scopeSpans) AS scoped FROM (
            SELECT unnest(resourceSpans) AS part
            FROM read_json(?, format = 'newline_delimited', sample_size = ?)
        )
    )
)
"""


def load_new(file: Path, database: Path, spans: int) -> Spent:
    """Load a file of so many spans into a new store and return its cost."""
    store = Store(database)
    with spent() as cost:
        report = load(store, [file])
        store.close()
    check(not report.bad, "all lines can be read", report.bad)
    check_rows(database, spans)
    return cost


def check_rows(database: Path, spans: int) -> None:
    """Check that a database file has a row for each span.

    Raises:
        CheckError: Rows are missing, or doubled.
    """
    with duckdb.connect(database, read_only=True) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT span_id) FROM spans").fetchone()
    check(row == (spans, spans), f"each of {spans:,} spans has a row", row)


def read_json(file: Path, sample: int, spans: int) -> Spent:
    """Read a file with DuckDB's ``read_json`` and return its cost.

    Args:
        file: The file.
        sample: How many lines to look at for the columns.
        spans: How many rows it must give.
    """
    with duckdb.connect(":memory:") as connection:
        with spent() as cost:
            connection.execute(_READ_JSON, [str(file), sample])
        row = connection.execute("SELECT count(*) FROM spans").fetchone()
    check(row == (spans,), f"each of {spans:,} spans has a row", row)
    return cost


def insert(tables: list[pa.Table], database: Path) -> Spent:
    """Insert Arrow tables into a new DuckDB file and return its cost."""
    connection = duckdb.connect(":memory:", config={"preserve_insertion_order": False})
    connection.execute(f"ATTACH '{database}' AS plain ({_FILE})")
    connection.execute("USE plain")
    connection.register("incoming", tables[0])
    connection.execute("CREATE TABLE spans AS SELECT * FROM incoming LIMIT 0")
    with spent() as cost:
        for table in tables:
            connection.register("incoming", table)
            connection.execute("INSERT INTO spans SELECT * FROM incoming")
            connection.unregister("incoming")
        connection.close()
    check_rows(database, sum(table.num_rows for table in tables))
    return cost


def parse(file: Path) -> Spent:
    """Parse a file's lines with orjson and return its cost."""
    count = 0
    with spent() as cost, file.open("rb") as lines:
        for line in lines:
            count += "resourceSpans" in orjson.loads(line)
    check(count, "the lines are OTLP requests")
    return cost


def stored_tables(database: Path) -> list[pa.Table]:
    """Return the spans of a store as tables of as many rows as `load` inserts at once."""
    with duckdb.connect(database, read_only=True) as connection:
        whole = connection.sql("SELECT * FROM spans").to_arrow_table().combine_chunks()
    step = 16_384
    return [whole.slice(start, step) for start in range(0, whole.num_rows, step)]


def measure(*, spans: int, repeats: int) -> dict[str, Any]:
    """Measure loading.

    Args:
        spans: How many spans the file has.
        repeats: How often each is measured.

    Returns:
        ``spans``, ``bytes``, and wall and CPU seconds of ``oteval``, ``read_json``,
        ``read_json_64``, ``insert`` and ``parse``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "spans.jsonl"
        size = traces.write(file, spans)
        numbers = count()

        def database() -> Path:
            return folder / f"{next(numbers)}.duckdb"

        first = database()
        load_new(file, first, spans)
        tables = stored_tables(first)
        costs = alternate(
            repeats,
            oteval=lambda: load_new(file, database(), spans),
            read_json=lambda: read_json(file, SAMPLES["read_json"], spans),
            read_json_64=lambda: read_json(file, SAMPLES["read_json_64"], spans),
            insert=lambda: insert(tables, database()),
            parse=lambda: parse(file),
        )
    figures: dict[str, Any] = {"spans": spans, "bytes": size}
    for side, cost in costs.items():
        figures[side] = {"wall_s": cost.wall, "cpu_s": cost.cpu}
    return figures


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    sides = {
        "read_json": "DuckDB's read_json",
        "read_json_64": "the same, columns from 64 lines",
        "insert": "Arrow insert alone",
        "parse": "orjson parse alone",
    }
    out = []
    for side, name in sides.items():
        for clock, what in (("wall_s", "second"), ("cpu_s", "CPU second")):
            ours, other = (figures["spans"] / figures[key][clock] for key in ("oteval", side))
            least = 1.0 if side == "read_json" else None
            out.append(compared(f"spans per {what}", ours, other, name, "{:,.0f}", at_least=least))
    return out


if __name__ == "__main__":
    parts.main("ingest")
