"""Two writers of the same row: the later one tries again."""

from __future__ import annotations

from threading import Timer

import duckdb
import pytest

from oteval.base.errors import StoreError
from oteval.store import Store, repeated

from ..monitor.histories import HOUR, History, config
from ..monitor.notices import notification


def test_a_delivery_and_a_deletion_keep_each_others_changes():
    """A note of a delivery waits for a deletion of the runs it names, and both are kept."""
    with Store() as store:
        store.outbox.queue([notification()])
        (waiting,) = store.outbox.waiting()
        other = store.sibling()
        other._connection.begin()
        other._connection.execute("UPDATE notifications SET runs = []")

        assert not store.outbox.claim(waiting, 1)
        Timer(0.3, other._connection.commit).start()
        store.outbox.sent(waiting, 7)

        (found,) = store.outbox.notifications()
        assert (found.sent_ns, found.runs) == (7, [])
        other.close()


def test_a_writer_that_never_ends_is_an_error():
    """After half a minute of attempts, one line says why; other errors are raised at once."""
    with Store() as store:
        other = store.sibling()
        waits: list[float] = []
        with other.monitors.check(1), pytest.raises(StoreError, match="keeps changing the same"):
            repeated(lambda: _checked(store), waits.append)
        other.close()

        assert 20 < sum(waits) < 40
        with pytest.raises(duckdb.CatalogException):
            repeated(lambda: store._connection.execute("SELECT * FROM nothing"), waits.append)


def _checked(store: Store) -> None:
    with store.monitors.check(2):
        pass


@pytest.mark.slow
def test_an_acknowledgement_does_not_bring_an_episode_back():
    """A person who acknowledges while a check ends the episode leaves it ended."""
    from oteval.monitor.monitor_checks import check

    with Store() as store:
        history, watched = History(store), config("{evaluator: e, notify: [ops]}")
        history.scored(400, 0.95)
        history.scored(60, 0.3)
        check(store, watched, history.now)
        (episode,) = store.monitors.episodes()
        history.scored(120, 1.0)
        other = store.sibling()

        store.monitors.acknowledge(episode.episode_id[:6], "ann", history.now)
        check(other, watched, history.now + HOUR)
        store.monitors.acknowledge(episode.episode_id[:6], "bob", history.now)

        (found,) = store.monitors.episodes()
        assert (found.acknowledged_by, found.end_reason) == ("bob", "recovered")
        other.close()
