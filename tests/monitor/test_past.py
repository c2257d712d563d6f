"""The past of monitors: backtests and simulations of the rules over what is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from oteval.cli import common
from oteval.monitor.monitor_checks import check
from oteval.monitor.past import PastPeriod, backtest
from oteval.store import Store

from ..commands import Run
from .histories import HOUR, History, config

CONFIG = """
evaluators:
  - {name: e, type: tool_errors}
monitors:
  - {evaluator: e, group_by: agent}
"""


def test_a_backtest_gives_the_episodes_of_the_live_checks():
    """Checks as time went by, and a backtest at the end, agree; and the backtest writes nothing."""
    with Store() as store:
        history, watched = History(store), config("{evaluator: e, group_by: agent}")
        for size, rate in ((400, 0.95), (25, 0.3), (35, 0.3), (60, 1.0), (60, 1.0), (40, 0.2)):
            history.scored(size, rate)
            check(store, watched, history.now)
        live = store.monitors.episodes()
        groups = store.monitors.groups("e")

        found = backtest(store, watched.monitors[0], now_ns=history.now)

        def facts(episodes):
            return [
                (one.episode_id, one.alarm_ns, one.change_ns, one.before, one.after, one.ended_ns)
                for one in episodes
            ]

        assert len(live) == 2
        assert facts(one.episode for one in found.episodes) == facts(live)
        assert (found.groups, found.observations) == (1, history.count)
        assert store.monitors.episodes() == live
        assert store.monitors.groups("e") == groups


def test_a_backtest_and_a_check_do_not_meet():
    """A check during a backtest goes through, and its writes stay."""
    with Store() as store:
        history, watched = History(store), config("{evaluator: e, group_by: agent}")
        history.scored(400, 0.95)
        check(store, watched, history.now)
        history.scored(60, 0.3)
        other = store.sibling()
        seen = []

        def report(done: int, total: int) -> None:
            seen.append(check(other, watched, history.now)[0].state)

        found = backtest(store, watched.monitors[0], now_ns=history.now, report=report)

        assert seen == ["alert"]
        assert len(found.episodes) == len(store.monitors.episodes()) == 1
        other.close()


def test_a_backtest_of_a_period_knows_nothing_else():
    """Runs after the period raise no alert, and a short one leaves groups without a baseline."""
    with Store() as store:
        history, watched = History(store), config("{evaluator: e, group_by: agent}")
        history.scored(400, 0.95)
        good = history.now
        history.scored(60, 0.3)
        (rule,) = watched.monitors

        until = backtest(store, rule, now_ns=history.now, period=PastPeriod(until_ns=good))
        since = backtest(store, rule, now_ns=history.now, period=PastPeriod(since_ns=good))

        assert (until.episodes, until.observations, until.learning) == ([], 400, [])
        assert (since.episodes, since.observations) == ([], 60)
        assert since.learning[0][0] == {"agent": "a"}


@pytest.mark.slow
def test_a_backtest_of_several_groups_gives_the_episodes_of_live_checks():
    """Groups that come, change and recover at different times have the same episodes."""
    with Store() as store:
        watched = config("{evaluator: e, group_by: agent}")
        ends: dict[str, list[tuple[int, float]]] = {
            "a": [(400, 0.95), (60, 0.3), (120, 0.98)],
            "b": [(500, 0.9), (80, 0.9)],
            "c": [(450, 0.97), (130, 0.5)],
        }
        agents = [History(store, name, first=1 + 1000 * i) for i, name in enumerate(ends)]
        for number in range(58):
            for history in agents:
                left = 10 * number
                for size, rate in ends[history.agent]:
                    if left < size:
                        history.scored(10, rate)
                        break
                    left -= size
            if number % 9 == 3:
                check(store, watched, agents[0].now)
        check(store, watched, agents[0].now)
        live = {(one.episode_id, one.change_ns, one.ended_ns) for one in store.monitors.episodes()}

        found = backtest(store, watched.monitors[0], now_ns=agents[0].now)

        assert len(live) >= 2
        assert {
            (one.episode.episode_id, one.episode.change_ns, one.episode.ended_ns)
            for one in found.episodes
        } == live


@pytest.fixture
def dropped(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Run, History, int]:
    """Return commands in a folder with a history whose quality dropped, and when."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    with Store(tmp_path / "oteval.duckdb") as store:
        made = History(store)
        made.scored(400, 0.95)
        at = made.now
        made.scored(60, 0.3)
    monkeypatch.setattr(common, "now_ns", lambda: made.now)
    return oteval, made, at


def test_backtest_lists_alerts_in_a_table_and_as_json(dropped: tuple[Run, History, int]):
    """The change time lies in its interval, the figures tell the drop, and the status is 0."""
    oteval, _, at = dropped

    table = oteval("monitor", "backtest")
    assert table.status == 0
    assert "agent=a" in table.out
    assert "1 alert in 1 group, 460 observations" in table.err

    (row,) = oteval("monitor", "backtest", "--json").rows
    assert row["change_from_ns"] - HOUR <= at <= row["change_to_ns"] + HOUR
    assert row["before"] > 0.9 > 0.6 > row["after"]
    assert (row["group"], row["side"], row["ended_ns"]) == ({"agent": "a"}, "worse", None)
    assert oteval("monitor", "status", "--json").rows[0]["state"] == "learning"


def test_a_simulation_compares_the_rule_with_a_threshold(dropped: tuple[Run, History, int]):
    """On a good history the rule is quieter than the threshold, and equal seeds agree."""
    oteval, _, at = dropped
    until = datetime.fromtimestamp(at / 1e9, UTC).isoformat()
    command = ("monitor", "simulate", "--until", until, "--drop", ".4", "--streams", "3")

    table = oteval(*command)
    assert table.status == 0
    assert "threshold of 60 minutes" in table.out

    (row,) = oteval(*command, "--json").rows
    own, plain = row["rules"]
    assert (row["group"], row["observations"], own["streams"]) == ({"agent": "a"}, 400, 3)
    assert own["per_30_days"] < 2 < plain["per_30_days"]
    assert own["drops"][0]["found"] > 0.5
    assert own["drops"][0]["time_ns"] == pytest.approx(own["drops"][0]["observations"] * HOUR)
    assert oteval(*command, "--json").rows == [row]


def test_a_short_history_is_not_simulated(dropped: tuple[Run, History, int]):
    """The reason is told, and the exit status is 3."""
    oteval, _, at = dropped
    since = datetime.fromtimestamp(at / 1e9, UTC).isoformat()

    done = oteval("monitor", "simulate", "--since", since)

    assert (done.status, done.out) == (3, "")
    assert "1 history too short to simulate: 60 observations" in done.err
