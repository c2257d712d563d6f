"""Copies of a database that a server has open: one after the other, and none is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oteval.store import ShardedStore, Store
from oteval.store.database_files import locked_copy

from ..make import ROOT, chat

READER = (
    "import sys; from oteval.store import ShardedStore\n"
    "with ShardedStore(sys.argv[1:]) as store: print(store.spans.count()[0])\n"
)
# Begins a copy through the server, and waits to be killed.
COPIER = (
    "import sys; from oteval.store import Store\n"
    "with Store.of_server(sys.argv[1]) as store, store.copied() as copy:\n"
    "    print('copied', flush=True); sys.stdin.read()\n"
)


@pytest.fixture
def databases(tmp_path: Path) -> list[str]:
    """Return two databases of ten spans each."""
    paths = [tmp_path / "a.duckdb", tmp_path / "b.duckdb"]
    for number, path in enumerate(paths):
        with Store(path) as store:
            first = 100 * number + 1
            store.spans.write([chat(n, n, [("user", "x")], "y") for n in range(first, first + 10)])
    return [str(path) for path in paths]


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a program."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("is_served", [True, False])
@pytest.mark.slow
def test_readers_at_once_all_read_everything(databases: list[str], is_served: bool):
    """Of three readers of two databases none fails, whether a server has one open or not."""
    store = Store(databases[1]) if is_served else None
    server = store.serve(lambda _: b"", {}) if store else None
    try:
        readers = [started(READER, *databases) for _ in range(3)]
        outputs = [reader.communicate() for reader in readers]
    finally:
        if store and server:
            server.close()
            store.close()

    assert [out for out, _ in outputs] == ["20\n"] * 3, outputs


def test_a_reader_waits_for_another_one_that_copies(databases: list[str]):
    """It goes on as soon as the other has ended."""
    with Store(databases[1]) as store:
        server = store.serve(lambda _: b"", {})
        with locked_copy(databases[1]):
            reader = threading.Thread(target=lambda: ShardedStore(databases).close())
            reader.start()
            reader.join(0.2)
            assert reader.is_alive()
        reader.join(60)
        server.close()

    assert not reader.is_alive()


def test_a_killed_reader_blocks_nobody_and_its_copy_goes(databases: list[str]):
    """The next reader removes it; and so does whoever opens the database next."""
    path = Path(databases[1])
    for is_read_next in (True, False):
        with Store(path) as store:
            server = store.serve(lambda _: b"", {})
            copier = started(COPIER, databases[1])
            assert copier.stdout is not None
            assert copier.stdout.readline() == "copied\n"
            copier.kill()
            copier.communicate()
            assert Path(f"{path}.copy").exists()
            if is_read_next:
                with ShardedStore(databases) as shards:
                    assert shards.spans.count() == (20, 0)
            server.close()
        Store(path).close()
        assert not list(path.parent.glob("*.copy*"))


def test_the_statement_of_a_killed_client_ends(databases: list[str]):
    """A server does not go on working for a client that is gone."""
    statement = (
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range + b.range = 1"
    )
    code = (
        "import sys; from oteval.store import Store\n"
        "with Store.of_server(sys.argv[1]) as store:\n"
        f"    print('asked', flush=True); store._connection.execute('{statement}')\n"
    )
    with Store(databases[0]) as store:
        server = store.serve(lambda _: b"", {})
        before = set(threading.enumerate())
        client = started(code, databases[0])
        assert client.stdout is not None
        assert client.stdout.readline() == "asked\n"
        while not server._hangups._busy:
            threading.Event().wait(0.01)
        client.kill()
        client.communicate()
        for session in set(threading.enumerate()) - before:
            if session is not server._hangups._thread:
                session.join(60)
                assert not session.is_alive()
        server.close()
