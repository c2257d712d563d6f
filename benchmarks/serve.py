"""`oteval serve`: rates of acknowledging and storing, latency and memory.

Inside the clock of *acknowledged*: sending prepared requests of 512 spans (some 2 KB each) over
HTTP from this process until the last answer, each answer after its fdatasync. *Stored while it
drains*: from the end of sending until the spool is empty, reconstruction running. *Raw insert*:
the same spans as Arrow tables of 16,384 rows inserted into a table of the same shape by DuckDB
alone, prepared tables, no search for duplicates. *Phoenix*: `phoenix serve` with SQLite and its
defaults, fed by the same sender with requests of the same size, counted in its database.
*At 3,000 spans/s* is the same server after the burst, so that DuckDB's buffers are full.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks import parts
from benchmarks.checks import FAILED, check, figures_or_failure
from benchmarks.otlp_load import Load, Sent, requests, send
from benchmarks.report import Row, compared
from benchmarks.served import Served, memory, until
from oteval.ingest import decode_protobuf_traces
from oteval.store import Store
from oteval.store.query import number
from oteval.store.telemetry_rows import span_table

FULL = {"traces": 12_000, "steady": 300.0, "peer_traces": 250}
QUICK = {"traces": 2_000, "steady": 5.0, "peer_traces": 64}
MISSING = (
    "Phoenix is not here to compare with: python -m venv ENV && ENV/bin/pip install arize-phoenix, "
    "then --phoenix ENV/bin/phoenix"
)
_RATE = 3000.0
_SPANS = 8
_ROWS = 16_384
_PART = 2.0


def measure(
    traces: int, steady: float, peer_traces: int, phoenix: str | None = None
) -> dict[str, Any]:
    """Measure, and return the figures.

    Args:
        traces: How many runs of 8 spans are sent at full speed.
        steady: For how many seconds spans are sent at 3,000 a second.
        peer_traces: How many runs are sent to Phoenix.
        phoenix: Phoenix' command.
    """
    loads = list(requests(traces, _SPANS))
    figures: dict[str, Any] = {"missing": [] if phoenix else [MISSING]}
    with tempfile.TemporaryDirectory() as name:
        figures["raw_insert"] = _raw_insert(Path(name), loads)
        figures |= _served(Path(name), loads, steady)
        if phoenix:
            figures["phoenix"] = figures_or_failure(
                lambda: _phoenix(Path(name) / "phoenix", phoenix, peer_traces)
            )
    return figures


def _raw_insert(folder: Path, loads: list[Load]) -> float:
    """Return how many spans a second DuckDB inserts by itself."""
    spans = [span for load in loads for span in decode_protobuf_traces(load.body).spans]
    tables = [span_table(spans[i : i + _ROWS], i) for i in range(0, len(spans), _ROWS)]
    count = len(spans)
    del spans
    with closing(duckdb.connect(config={"checkpoint_threshold": "32MB"})) as connection:
        options = "ROW_GROUP_SIZE 16384, STORAGE_VERSION 'v1.5.0'"
        connection.execute(f"ATTACH '{folder}/raw.duckdb' AS raw ({options})")
        _insert(connection, tables[0].slice(0, 0), "CREATE TABLE raw.spans AS")
        begin = time.perf_counter()
        for table in tables:
            _insert(connection, table, "INSERT INTO raw.spans")
        seconds = time.perf_counter() - begin
        row = connection.execute("SELECT count(*) FROM raw.spans").fetchone()
    check(row == (count,), f"{count:,} spans are inserted", row)
    return count / seconds


def _insert(connection: duckdb.DuckDBPyConnection, table: pa.Table, into: str) -> None:
    connection.register("incoming", table)
    connection.execute(f"{into} SELECT * FROM incoming")
    connection.unregister("incoming")


def _served(folder: Path, loads: list[Load], seconds: float) -> dict[str, Any]:
    """Measure a burst, and then the same server at a steady rate."""
    server = Served(folder, "--quota", "8GB")
    try:
        figures = _full_speed(server, loads)
        figures |= _steady(server, seconds, figures["acknowledged_spans"])
        acknowledged = figures["acknowledged_spans"]
        until(lambda: server.state()["stored"]["spans"] >= acknowledged, 120)
        until(lambda: not server.state()["scoring"]["open_traces"], 120)
    finally:
        server.stop()
    server.check_log()
    with Store(server.db, create=False) as store:
        counts = tuple(
            number(store._connection, f"SELECT {count} FROM {table}")
            for count, table in (
                ("count(*)", "spans"),
                ("count(DISTINCT trace_id || span_id)", "spans"),
                ("count(*)", "trajectories"),
            )
        )
    expected = (acknowledged, acknowledged, acknowledged // _SPANS)
    check(counts == expected, f"spans, different ones and runs are {expected}", counts)
    return figures


def _full_speed(server: Served, loads: list[Load]) -> dict[str, Any]:
    sent = send(server.http, loads, retry=60)
    begin, before = time.perf_counter(), server.state()["stored"]["spans"]
    total = len(sent.acknowledged)
    check_answers(sent, loads)
    stored = before
    while stored < total:
        time.sleep(0.05)
        stored = server.state().get("stored", {}).get("spans", 0)
    drained = time.perf_counter() - begin
    return {
        "acknowledged": total / sent.seconds,
        "acknowledged_spans": total,
        "full_p50": sent.latency(0.5),
        "full_p99": sent.latency(0.99),
        "left_after_sending": total - before,
        "stored_draining": (total - before) / drained if total > before else None,
        "stored_overall": total / (sent.seconds + drained),
    }


def check_answers(sent: Sent, loads: list[Load]) -> None:
    """Check that all spans of some requests were acknowledged.

    Raises:
        CheckError: Some were not.
    """
    spans = sum(len(load.spans) for load in loads)
    is_all = len(sent.acknowledged) == spans
    check(is_all, f"{spans:,} spans are acknowledged", dict(sent.answers))


def _steady(server: Served, seconds: float, full: int) -> dict[str, Any]:
    total, sizes = Sent(), []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        loads = list(requests(int(_RATE * _PART) // _SPANS, _SPANS, batch=64))
        sent = send(server.http, loads, rate=_RATE)
        check_answers(sent, loads)
        total.latencies += sent.latencies
        total.answers.update(sent.answers)
        total.acknowledged += sent.acknowledged
        sizes.append([memory(pids) for pids in server.pids()])
    third = max(1, len(sizes) // 3)
    return {
        "acknowledged_spans": full + len(total.acknowledged),
        "steady_p99": total.latency(0.99),
        "steady_answers": dict(total.answers),
        "slowest_commit": server.drained()["stored"]["slowest_commit"],
        "memory_first_third": max(sum(size) for size in sizes[:third]),
        "memory_last_third": max(sum(size) for size in sizes[-third:]),
        "memory_parts": sizes[-1],
    }


def _phoenix(folder: Path, command: str, traces: int) -> dict[str, Any]:
    """Return Phoenix' acknowledged and stored spans a second."""
    folder.mkdir()
    port, grpc_port = _free_port(), _free_port()
    environment = {
        **os.environ,
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    process = subprocess.Popen(
        [command, "serve"],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _listens(port), 180)
        database = folder / "phoenix.db"
        until(database.exists, 60)
        time.sleep(2)
        loads = list(requests(traces, _SPANS))
        begin = time.perf_counter()
        sent = send(port, loads, retry=120)
        check_answers(sent, loads)
        total = len(sent.acknowledged)
        until(lambda: _stored_by_phoenix(database) >= total, 600)
        return {
            "spans": total,
            "acknowledged": total / sent.seconds,
            "stored": total / (time.perf_counter() - begin),
        }
    finally:
        process.terminate()
        process.wait(30)


def _stored_by_phoenix(database: Path) -> int:
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM spans").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def rows(figures: dict[str, Any]) -> list[Row]:
    """Return the figures as a table."""
    draining = figures["stored_draining"] or figures["stored_overall"]
    rate = "{:,.0f} spans/s".format
    table = [
        Row("acknowledged at full speed", rate(figures["acknowledged"])),
        Row("answer at full speed, p50 and p99", _ms(figures["full_p50"], figures["full_p99"])),
        Row(
            "stored while it drains",
            rate(draining),
            f"raw insert {rate(figures['raw_insert'])}",
            draining / figures["raw_insert"],
            "at least 0.5x",
            draining / figures["raw_insert"] >= 0.5,
        ),
        Row(
            "answer at 3,000 spans/s, p99",
            _ms(figures["steady_p99"]),
            target="at most 15 ms",
            held=figures["steady_p99"] <= 0.015,
        ),
        Row(
            "longest commit",
            _ms(figures["slowest_commit"]),
            target="at most 300 ms",
            held=figures["slowest_commit"] < 0.3,
        ),
        Row(
            "memory at 3,000 spans/s, last third",
            f"{figures['memory_last_third'] / 2**20:,.0f} MB",
            f"first third {figures['memory_first_third'] / 2**20:,.0f} MB",
            figures["memory_first_third"] / figures["memory_last_third"],
        ),
    ]
    if phoenix := figures.get("phoenix"):
        row = compared(
            *("stored while it drains", draining, phoenix.get("stored"), "Phoenix"),
            "{:,.0f} spans/s",
            at_least=300,
            reason=phoenix.get(FAILED, ""),
        )
        table.insert(3, row)
    return table


def _ms(*seconds: float) -> str:
    return ", ".join(f"{1000 * latency:,.1f} ms" for latency in seconds)


if __name__ == "__main__":
    parts.main("serve")
