"""`oteval monitor` in the terminal: exit statuses, output and errors."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from oteval.cli import common
from oteval.store import Store

from ..commands import Run
from .histories import HOUR, History

CONFIG = """
evaluators:
  - {name: e, type: tool_errors}
monitors:
  - {evaluator: e, group_by: agent}
"""


@pytest.fixture
def history(oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, History]:
    """Return commands in a folder with a configuration and a good history."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    with Store(tmp_path / "oteval.duckdb") as store:
        made = History(store)
        made.scored(400, 0.95)
        made.scored(40, 0.3)
    monkeypatch.setattr(common, "now_ns", lambda: made.now)
    return oteval, made


def test_a_check_exits_with_its_result(history: tuple[Run, History]):
    """An alert is exit status 1, in a table and as JSON, and status shows it again."""
    oteval, _ = history

    done = oteval("monitor", "run", "--once")
    assert done.status == 1
    assert "agent=a" in done.out
    assert "alert" in done.out
    shown = oteval("monitor", "status")
    for part in ("Alert: e [agent=a] got worse", "pass rate fell from 9", "Runs since: "):
        assert part in shown.out

    (row,) = oteval("monitor", "run", "--once", "--json").rows
    assert (row["monitor"], row["group"], row["state"]) == ("e", {"agent": "a"}, "alert")
    assert row["baselines"]["worse"]["mean"] > 0.9
    shown = oteval("monitor", "status", "--json")
    assert (shown.status, shown.rows) == (0, [row])


def test_people_note_what_they_know(history: tuple[Run, History], tmp_path: Path):
    """Episodes are acknowledged, monitors snoozed, and deployments marked."""
    oteval, made = history
    (row,) = oteval("monitor", "run", "--once", "--json").rows
    episode = row["episodes"][0]["episode"]

    assert oteval("monitor", "acknowledge", episode[:6], "--by", "ann").status == 0
    assert oteval("monitor", "snooze", "e", "--for", "2h", "--group", "agent=a").status == 0
    mark = ("monitor", "mark", "prompt 12", "--service", "s", "--at", "2026-09-20T08:00")
    assert oteval(*mark).status == 0

    (row,) = oteval("monitor", "status", "--json").rows
    assert row["episodes"][0]["acknowledged_by"] == "ann"
    assert row["snoozed_until_ns"] == made.now + 2 * HOUR
    with Store(tmp_path / "oteval.duckdb") as store:
        (found,) = store.monitors.marks()
    assert (found.name, found.service, found.kind) == ("prompt 12", "s", "mark")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("acknowledge", "zzz"), "zzz: no such episode; oteval monitor status lists them"),
        (("snooze", "zzz"), "no monitor is called 'zzz'; there are e"),
        (("snooze", "e", "--group", "x=1"), "--group: give agent=..."),
        (("snooze", "e", "--for", "long"), "--for: 'long' is not a duration"),
        (("snooze", "e", "--for", "99999999d"), "--for: must be from 0s to 3650d"),
        (("snooze", "e", "--for", "nan"), "--for: must be from 0s to 3650d"),
        (("run", "--interval", "99999999d"), "--interval: must be from 0s to 3650d"),
        (("mark", "x", "--at", "9999-12-31"), "--at '9999-12-31': write a time between 1970"),
        (("run", "-c", "missing.yaml"), "missing.yaml: no such file"),
    ],
)
def test_errors_are_one_line(oteval: Run, tmp_path: Path, arguments: list[str], expected: str):
    """A wrong argument names the remedy and exits with 2."""
    (tmp_path / "oteval.yaml").write_text(CONFIG)
    Store(tmp_path / "oteval.duckdb").close()

    done = oteval("monitor", *arguments)

    assert done.status == 2
    assert expected in done.err


def test_between_checks_the_database_is_free(
    history: tuple[Run, History], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Other commands work meanwhile, and a check that fails does not end the command."""
    oteval, made = history
    pauses = []

    def pause(_seconds: float) -> None:
        path = tmp_path / "oteval.duckdb"
        pauses.append(path)
        if len(pauses) == 1:
            with Store(path) as store:
                made.store = store
                made.scored(100, 1.0)
        elif len(pauses) == 2:
            path.rename(tmp_path / "away.duckdb")
        elif len(pauses) == 3:
            (tmp_path / "away.duckdb").rename(path)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("oteval.cli.monitor.time.sleep", pause)
    done = oteval("monitor", "run")

    assert len(pauses) == 4
    first, second = done.out.splitlines()
    assert first.startswith("e [agent=a]: alert since ")
    assert second == "e [agent=a]: recovered"
    assert done.err.count("monitors are not checked: oteval.duckdb: ") == 1


def test_monitors_of_runs_need_no_evaluators(oteval: Run, tmp_path: Path):
    """A configuration with monitors of runs alone is valid, and scoring with it is an error."""
    (tmp_path / "oteval.yaml").write_text("monitors: [{measure: latency}]\n")
    Store(tmp_path / "oteval.duckdb").close()

    checked = oteval("config", "check")
    watched = oteval("monitor", "run", "--once")

    assert (checked.status, watched.status) == (0, 3)
    assert "0 evaluators, 0 gates, 1 monitor" in checked.err
    for command in (("score",), ("rescore",), ("run", "--score", "--", "true")):
        done = oteval(*command)
        assert done.status == 2
        assert "oteval.yaml: no evaluators; add 'evaluators:' to score runs" in done.err


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Monitors do not start without the package of their channels."""
    text = f"{CONFIG[:-2]}, notify: [ops]}}\nnotify: {{ops: {{apprise: 'json://127.0.0.1:1'}}}}\n"
    (tmp_path / "oteval.yaml").write_text(text)
    Store(tmp_path / "oteval.duckdb").close()
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "apprise" else found(name)
    )

    for command in ("run", "status", "backtest"):
        done = oteval("monitor", command)
        assert done.status == 2
        assert 'pip install "oteval[monitor]"' in done.err


def test_an_apprise_url_is_checked_before_anything_is_sent(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A wrong URL is an error of the configuration, without its secrets, once it is known."""
    text = f"{CONFIG[:-2]}, notify: ops}}\nnotify: {{ops: {{apprise: ['%s']}}}}\n"
    (tmp_path / "oteval.yaml").write_text(text % "slack://too-short-secret")
    Store(tmp_path / "oteval.duckdb").close()

    for command in (("monitor", "run", "--once"), ("config", "check")):
        done = oteval(*command)
        assert done.status == 2
        assert "notify.ops: URL 1 (slack://...) is not one that Apprise accepts" in done.err
        assert "secret" not in done.err

    (tmp_path / "oteval.yaml").write_text(text % "${CHAT}")
    assert oteval("monitor", "run", "--once").status == 3
    monkeypatch.setenv("CHAT", "nosuch://secret")
    done = oteval("monitor", "run", "--once")
    assert (done.status, "secret" in done.err) == (2, False)


def test_without_monitors_there_is_nothing_to_run(oteval: Run, tmp_path: Path):
    """A configuration without monitors is an error that shows how to add one."""
    (tmp_path / "oteval.yaml").write_text(CONFIG.partition("monitors")[0])
    Store(tmp_path / "oteval.duckdb").close()

    done = oteval("monitor", "run", "--once")

    assert (done.status, "no monitors; add for instance" in done.err) == (2, True)


def test_variables_that_are_not_set_are_named_at_the_start(
    oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each destination of a monitor has a line, and the monitors are checked all the same."""
    (tmp_path / "oteval.yaml").write_text(
        f"""{CONFIG[:-2]}, notify: [ops, page, chat]}}
notify:
  ops: {{webhook: {{url: "http://127.0.0.1:1", secret: "${{OPS}}", headers: {{A: "${{KEY}}"}}}}}}
  page: {{alertmanager: {{url: "http://127.0.0.1:1", headers: {{A: "Bearer ${{TOKEN}}"}}}}}}
  chat: {{apprise: ["json://me:${{PASSWORD}}@127.0.0.1"]}}
  unused: {{log_event: {{url: "http://127.0.0.1:1", headers: {{A: "${{ELSE}}"}}}}}}
"""
    )
    Store(tmp_path / "oteval.duckdb").close()
    for name in ("OPS", "KEY", "PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TOKEN", "t")

    done = oteval("monitor", "run", "--once")
    assert done.status == 3
    assert done.err.splitlines()[:2] == [
        "oteval: notify.ops: the environment has no KEY and no OPS; set it and start again",
        "oteval: notify.chat: the environment has no PASSWORD; set it and start again",
    ]
    assert "unused" not in done.err

    for name in ("OPS", "KEY", "PASSWORD"):
        monkeypatch.setenv(name, "set")
    assert "the environment" not in oteval("monitor", "run", "--once").err
