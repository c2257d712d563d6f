"""Groups by version: versions that live shortly get a baseline from those before them."""

from __future__ import annotations

from oteval.monitor.monitor_checks import check
from oteval.monitor.status import MonitorStatus
from oteval.store import Store

from .histories import DAY, HOUR, History, config

WATCHED = "{evaluator: e, group_by: [agent, version], notify: [ops]}"


def deployed(history: History, version: int, size: int, rate: float) -> None:
    """Write runs of a version, with their scores."""
    history.scored(size, rate, attributes={"service.version": str(version)})


def by_version(statuses: list[MonitorStatus]) -> dict[str, MonitorStatus]:
    return {status.group["version"]: status for status in statuses}


def test_daily_deployments_have_a_baseline_of_all_versions_so_far():
    """With a deployment a day, a bad one alerts as soon as two weeks have a baseline."""
    with Store() as store:
        history = History(store)
        watched = config(WATCHED)
        for version in range(1, 18):
            deployed(history, version, 24, 0.95)
            if version % 6 == 0:
                check(store, watched, history.now)
        statuses = by_version(check(store, watched, history.now))
        learned = statuses["17"].baselines["worse"].baseline
        assert statuses["17"].state == "ok"
        assert learned is not None
        assert learned.size > 300
        deployed(history, 18, 24, 0.2)

        statuses = by_version(check(store, watched, history.now))

        assert statuses["18"].state == "alert"


def test_a_version_that_is_learning_says_how_many_observations_are_missing():
    """They count with those of the versions before it."""
    with Store() as store:
        history = History(store)
        watched = config(WATCHED)
        for version in range(1, 4):
            deployed(history, version, 24, 0.95)
            statuses = by_version(check(store, watched, history.now))

        latest = statuses["3"]

        assert latest.state == "learning"
        assert latest.progress == "72 of 300 observations, with those of 2 earlier versions"


def test_versions_get_the_same_baseline_from_one_check_of_all_of_them():
    """A first check of a long past learns as checks of each day would have."""
    with Store() as store:
        history = History(store)
        for version in range(1, 17):
            deployed(history, version, 24, 0.95)

        statuses = by_version(check(store, config(WATCHED), history.now))

        assert statuses["16"].state == "ok"


def test_versions_are_gone_when_a_later_one_has_a_baseline():
    """Until then they are kept for their observations; silence of theirs is not an alert."""
    with Store() as store:
        history = History(store)
        watched = config(WATCHED.replace("notify", "no_data: {after: 6h, notify: true}, notify"))
        for version in range(1, 4):
            deployed(history, version, 24, 0.95)
        assert set(by_version(check(store, watched, history.now))) == {"1", "2", "3"}
        assert store.outbox.notifications() == []
        deployed(history, 4, 400, 0.95)

        check(store, watched, history.now)
        statuses = by_version(check(store, watched, history.now + 2 * HOUR))

        assert set(statuses) == {"4"}
        assert statuses["4"].state == "ok"
        assert history.now - statuses["4"].since_ns > 10 * DAY
