"""The storage process is started again, with more memory if it lacked some."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks import traces
from oteval.scoring import load
from oteval.serve.server_config import ServerConfig
from oteval.serve.supervisor import Supervisor
from oteval.store import Store


async def begun(supervisor: Supervisor) -> None:
    """Wait until the process scores, and has done so for a second."""
    calm = 0.0
    while calm < 1.0:
        await asyncio.sleep(0.05)
        calm = calm + 0.05 if supervisor.is_up and supervisor.state.get("scoring") else 0.0


@pytest.mark.slow
async def test_a_process_that_lacks_memory_gets_more(tmp_path: Path) -> None:
    """With 4 MB for a database of 12 MB it ends, and is given twice that until it goes on."""
    spans, db = tmp_path / "spans.jsonl", tmp_path / "x.duckdb"
    traces.write(spans, 20_000)
    with Store(db) as store:
        load(store, [spans])
    config = ServerConfig(db=str(db), memory=4, limit=1 << 20)
    config.spool.mkdir()
    supervisor = Supervisor(config)
    running = asyncio.create_task(supervisor.run())
    try:
        await asyncio.wait_for(begun(supervisor), 60)
        restarts, given = supervisor.restarts, supervisor.memory
    finally:
        status = await supervisor.stop()
        await running

    assert restarts > 0
    assert given in {4 << n for n in range(1, restarts + 1)}
    assert status == 0
