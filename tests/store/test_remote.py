"""A database that another process has open, used through its socket."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from oteval.errors import NotFound, StoreError
from oteval.pipeline import refresh
from oteval.selection import Selection
from oteval.store import Store

from ..make import asks, call, chat, keep, run, score, span, told


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Store]:
    """Return a store that is served."""
    with Store(tmp_path / "a.duckdb") as store:
        serving = store.serve(lambda question: json.dumps(question).encode(), {"http": "x"})
        yield store
        serving.close()


@pytest.fixture
def client(owner: Store) -> Iterator[Store]:
    """Return the same store through the socket."""
    with Store(owner.path) as store:
        assert store.is_served
        yield store


def test_every_part_reads_what_the_owner_wrote(owner: Store, client: Store) -> None:
    """Spans, trajectories and scores are the same through the socket."""
    owner.spans.write([chat(1, 1, [("user", "hi")], "hello"), span(2, 2)])
    refresh(owner)
    found = list(owner.trajectories.read())
    owner.scores.write([score(7)])

    assert client.spans.count() == (2, 0)
    assert [told(t) for t in client.trajectories.read()] == [told(t) for t in found]
    assert client.spans.of_traces([f"{1:032x}"]) == owner.spans.of_traces([f"{1:032x}"])
    assert next(iter(client.scores.of([score(7).trajectory_id]).values()))[0].score == 1.0
    assert client.trajectories.count() == 2


def test_the_owner_reads_what_a_client_wrote(owner: Store, client: Store) -> None:
    """Scores, references and trajectories that a client writes are stored."""
    keep(client, run(3, asks(call("f", {"a": 1}))))
    client.scores.write([score(3)])
    client.references.add("r", [asks(call("f"))], "test", 1)

    assert owner.trajectories.count() == 1
    assert [found.evaluator for found in owner.scores.read()] == ["e"]
    assert [row["name"] for row in owner.references.list()] == ["r"]


def test_a_long_result_comes_batch_by_batch(owner: Store, client: Store) -> None:
    """An export is streamed, and the client may run other queries meanwhile."""
    owner.spans.write([span(n, 1) for n in range(1, 20_001)])

    sizes = []
    for batch in client.spans.export():
        sizes.append(batch.num_rows)
        assert client.spans.count() == (20_000, 0)

    assert sum(sizes) == 20_000
    assert len(sizes) > 1


def test_a_streamed_query_sees_the_tables_of_its_client(owner: Store, client: Store) -> None:
    """Calls of selected runs are streamed; the selection is a table that the client registers."""
    keep(owner, run(1, asks(call("f"))), run(2, asks(call("g"))))

    shapes = list(client.statistics.of(Selection(limit=1)).shapes())

    assert shapes == list(owner.statistics.of(Selection(limit=1)).shapes())
    assert len(shapes) == 1


def test_errors_are_those_of_the_database(client: Store) -> None:
    """A wrong statement is DuckDB's error, an unknown id is NotFound; both are survived."""
    with pytest.raises(duckdb.Error, match="nowhere"):
        client._connection.execute("SELECT * FROM nowhere")
    with pytest.raises(NotFound):
        client.trajectories.get("f" * 16)

    assert client.spans.count() == (0, 0)


def test_the_transaction_of_a_lost_client_is_undone(owner: Store) -> None:
    """A client that disconnects in a transaction writes nothing."""
    client = Store(owner.path)
    client._connection.begin()
    client.references.add("r", [asks(call("f"))], "test", 1)
    client.close()

    assert owner.references.list() == []


def test_a_database_can_be_reached_by_its_own_connection_only(client: Store) -> None:
    """A client's statements can reach neither files nor settings."""
    with pytest.raises(duckdb.Error):
        client._connection.execute("SELECT * FROM read_text('/etc/hostname')")
    with pytest.raises(duckdb.Error):
        client._connection.execute("SET enable_external_access = true")


def test_questions_are_answered_by_the_handler(client: Store) -> None:
    """Questions that are not SQL go to the handler of the owner."""
    assert json.loads(client.ask({"path": "status"})) == {"path": "status"}


def test_only_the_owner_may_open_the_socket(owner: Store) -> None:
    """Only users who may open the file may open the socket."""
    notice = json.loads(Path(f"{owner.path}.server.json").read_text())

    assert stat.S_IMODE(Path(notice["socket"]).stat().st_mode) == 0o600


def test_a_socket_path_that_would_be_too_long(tmp_path: Path) -> None:
    """The socket is in a temporary folder instead, and is found."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with Store(folder / "a.duckdb") as store:
        serving = store.serve(lambda _: b"", {})
        with Store(store.path) as client:
            assert client.is_served
        serving.close()


def test_a_lost_server(tmp_path: Path) -> None:
    """Its leftover files are ignored, and a connection to it raises an error."""
    path = tmp_path / "a.duckdb"
    with Store(path) as store:
        serving = store.serve(lambda _: b"", {})
        client = Store(path)
        notice = Path(f"{path}.server.json").read_text()
        serving.close()
    client._connection._socket.shutdown(2)
    with pytest.raises(StoreError, match="lost the server"):
        client.spans.count()
    client._connection.close()
    Path(f"{path}.server.json").write_text(notice)

    with Store(path) as store:
        assert not store.is_served
