"""``oteval monitor``: check monitors, and show, mark, acknowledge and snooze."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import click

from .. import __version__
from ..base.errors import ConfigError, InputError, NotFound
from ..base.jsontext import dumps, loads
from ..base.text import counted
from ..monitor import require_packages, unset_variables
from ..scoring import Config, load_config
from ..store import Store, StoredMark, is_result_folder, is_short_of_memory
from . import common
from .commands import CommandGroup
from .common import (
    databases_option,
    db_option,
    each_database,
    json_option,
    open_store,
    out,
    print_json,
    say,
    store_in_turn,
    time_of,
    warn,
)
from .options import config_option, duration

if TYPE_CHECKING:
    from ..monitor import MonitorStatus, Outbox

__all__ = ["configured", "monitor"]

T = TypeVar("T")


@click.group(cls=CommandGroup)
def monitor() -> None:
    """Watch scores and runs; alert when behaviour changes."""


@monitor.command("run")
@config_option()
@db_option
@click.option("--once", is_flag=True, help="Check once, and exit with the result.")
@click.option(
    "--interval", default="60s", show_default=True, metavar="TIME", help="The time between checks."
)
@json_option
def run_(config_path: str, db: str, once: bool, interval: str, as_json: bool) -> int:
    """Check the monitors of oteval.yaml, again and again or once.

    A check reads the scores and runs that are new since the last one, queues notifications in the
    database, and delivers those that are due. It prints the state of each group whose state
    changed; with --once, all.

    Between checks, other commands may use the database. A check that fails is named once, and the
    next one is tried.

    With --once, the exit status is 0 if at least one group was judged and none alerts, 1 if one
    alerts, 2 on an error, and 3 if all groups are learning or have no data.
    """
    config = configured(config_path)
    pause = duration("--interval", interval)
    require_packages(config)
    for text in unset_variables(config, os.environ):
        warn(text)
    from ..monitor import Outbox, exit_status, little_memory

    _check_backlog(db, config)
    with open_store(db) as store, little_memory(store):
        outbox = Outbox(store.outbox, config.notify, version=__version__)
        states = _check(store, config)
        _deliver(outbox)
    if once:
        _print(states, as_json)
        return exit_status(states)
    printed_states: dict[str, str] = {}
    problem = ""
    while True:
        _print_changes(states, printed_states, as_json)
        time.sleep(pause)
        try:
            _check_backlog(db, config)
            with open_store(db) as store, little_memory(store):
                states = _check(store, config)
                outbox.reopen(store.outbox)
                _deliver(outbox)
            problem = ""
        except Exception as error:
            problem = _named(error, problem)


def _named(error: Exception, last_problem: str) -> str:
    """Warn about the error of a check, unless it equals the last problem; return its text."""
    text = str(error) or type(error).__name__
    if text != last_problem:
        warn(f"monitors are not checked: {text}")
    return text


@monitor.command()
@config_option()
@databases_option
@json_option
def status(config_path: str, db: tuple[str, ...], as_json: bool) -> int:
    """Show the state of each group as of the last check.

    It also names notifications that failed. Several databases are shown one by one, because each
    server checks its own runs.
    """
    config = configured(config_path)
    require_packages(config)
    for path, database in each_database(db):
        if is_result_folder(path):
            raise InputError(
                f"{path}: results of Spark, which no monitor checks; run oteval monitor backtest"
            )
        _show_status(path, config, database, as_json=as_json)
    return 0


def _show_status(path: str, config: Config, database: dict[str, str], *, as_json: bool) -> None:
    from ..monitor import statuses

    with store_in_turn(path, create=False) as store:
        now = common.now_ns()
        states = [state for entry in config.monitors for state in statuses(store, entry, now)]
        failed = [notification for notification in store.outbox.waiting() if notification.error]
        refused = store.outbox.refused()
        problem = _server_problem(store)
    _print(states, as_json, database)
    if problem:
        warn(f"the server does not check monitors: {problem}")
    for notification in failed:
        wait = counted(max(0, notification.next_ns - now) // 10**9, "second")
        name = f"{notification.destination}: {notification.notification_id}"
        warn(f"{name} waits for {wait} ({notification.error})")
    for notification in refused:
        name = f"{notification.destination}: {notification.notification_id}"
        warn(f"{name} was refused ({notification.error})")


@monitor.command()
@config_option()
@db_option
def resend(config_path: str, db: str) -> int:
    """Send the notifications again that a destination refused.

    Correct the destination first. A server may run at the same time. The exit status is 2 if one is
    not delivered; those that are not refused again are retried after the next checks.
    """
    config = configured(config_path)
    require_packages(config)
    from ..monitor import Outbox

    with store_in_turn(db, create=False) as store:
        count = store.outbox.send_again(common.now_ns())
        outbox = Outbox(store.outbox, config.notify, version=__version__)
        is_delivered = _deliver(outbox)
    say(f"{counted(count, 'refused notification')} sent again")
    return 0 if is_delivered else 2


@monitor.command()
@click.argument("name")
@click.option("--service", default="", help="The service that was deployed.")
@click.option("--version", default="", help="Its new version.")
@click.option("--at", help="When: 2026-11-20T08:00, or 2h ago; by default now.")
@db_option
def mark(name: str, service: str, version: str, at: str | None, db: str) -> int:
    """Put a mark, such as a deployment, on the timeline.

    Notifications name the marks near a change. A change of service.version in runs is a mark
    without this command.
    """
    now = common.now_ns()
    when = time_of(at, "--at") if at else now
    if when is not None and not 0 <= when < 2**63:
        raise ConfigError(f"--at {at!r}: write a time between 1970 and 2262")
    with store_in_turn(db, create=False) as store:
        store.monitors.add_mark(StoredMark(when or now, "mark", name, service, version, now))
    say(f"marked {name}")
    return 0


@monitor.command()
@click.argument("episode")
@click.option("--by", help="Who acknowledges; by default the user of this machine.")
@db_option
def acknowledge(episode: str, by: str | None, db: str) -> int:
    """Note that somebody looks at an episode.

    `oteval monitor status` lists the episodes. If its alert was not sent yet, for instance because
    it is snoozed, it is not sent.
    """
    with store_in_turn(db, create=False) as store:
        name = store.monitors.acknowledge(episode, by or _user(), common.now_ns())
        if name is None:
            raise NotFound(f"{episode}: no such episode; oteval monitor status lists them")
    say(f"acknowledged {name}")
    return 0


@monitor.command()
@click.argument("name", metavar="MONITOR")
@click.option("--for", "length", default="1h", show_default=True, metavar="TIME", help="How long.")
@click.option(
    "--group", multiple=True, metavar="NAME=VALUE", help="Only this group; repeat for each value."
)
@config_option()
@db_option
def snooze(name: str, length: str, group: tuple[str, ...], config_path: str, db: str) -> int:
    """Send no alert of a monitor for some time.

    `--for 0s` ends a snooze. Checks go on. An episode that still lasts afterwards is notified
    then; the end of one that was notified before is notified at once.
    """
    config = configured(config_path)
    entries = {entry.title: entry for entry in config.monitors}
    if name not in entries:
        raise ConfigError(f"no monitor is called {name!r}; there are {', '.join(entries)}")
    chosen = None
    if group:
        group_values = dict(part.partition("=")[::2] for part in group)
        group_by = entries[name].group_by
        if set(group_values) != set(group_by):
            raise ConfigError(
                f"--group: give {', '.join(f'{key}=...' for key in group_by) or 'none'}"
            )
        chosen = dumps([group_values[key] for key in group_by])
    now = common.now_ns()
    until = now + round(duration("--for", length) * 1e9)
    with store_in_turn(db, create=False) as store:
        store.monitors.snooze(name, chosen, until, _user(), now)
    say(f"{name}: no alerts for {length}")
    return 0


def configured(path: str) -> Config:
    """Return a configuration that has monitors."""
    config = load_config(path)
    if not config.monitors:
        raise ConfigError(f"{path}: no monitors; add for instance monitors: [{{measure: latency}}]")
    return config


def _check_backlog(db: str, config: Config) -> None:
    """Check a long backlog in parts; close the database after each part to free DuckDB's memory."""
    from ..monitor import check_backlog, little_memory

    is_long = True
    while is_long:
        with open_store(db) as store, little_memory(store):
            is_long = _with_memory(store, partial(check_backlog, store, config, common.now_ns()))


def _check(store: Store, config: Config) -> list[MonitorStatus]:
    """Check once."""
    from ..monitor import check

    return _with_memory(store, partial(check, store, config, common.now_ns()))


def _with_memory(store: Store, action: Callable[[], T]) -> T:
    """Call a function; call it again with more memory if it needs more."""
    while True:
        try:
            return action()
        except Exception as error:
            if not is_short_of_memory(error) or not store.raise_memory_limit(2):
                raise


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return ""


def _server_problem(store: Store) -> str:
    """Return why the server that has the database does not check monitors, or ""."""
    if not store.is_filled:
        return ""
    state = loads(store.ask({"path": "status"})).get("monitors", {})
    return state.get("error") or ""


def _deliver(outbox: Outbox) -> bool:
    """Deliver the notifications that are due, and name the failed notifications.

    Returns:
        Whether none failed.
    """
    done = outbox.pump(common.now_ns())
    for notification, result in done:
        if not result.is_delivered:
            verb = "was refused" if result.is_refused else "failed"
            name = notification.notification_id
            warn(f"{notification.destination}: {name} {verb} ({result.error})")
    return all(result.is_delivered for _, result in done)


def _print(
    states: list[MonitorStatus], as_json: bool, database: dict[str, str] | None = None
) -> None:
    if as_json:
        for group_state in states:
            print_json({**(database or {}), **group_state.as_dict()})
        return
    from ..views import doubt_lines, evidence_text, monitors_table

    out().print(monitors_table(states, common.now_ns()))
    for line in doubt_lines(states):
        warn(line)
    if evidence := evidence_text(states):
        say(f"\n{evidence}")
    alerting = sum(group_state.state == "alert" for group_state in states)
    warn(f"{counted(len(states), 'group')}, {counted(alerting, 'alert')}")


def _print_changes(
    states: list[MonitorStatus], printed_states: dict[str, str], as_json: bool
) -> None:
    """Print the groups whose state differs from the last printed state, and note the new state."""
    for group_state in states:
        key = dumps([group_state.monitor, list(group_state.group.values())])
        if printed_states.get(key) == group_state.state:
            continue
        printed_states[key] = group_state.state
        if as_json:
            print_json(group_state.as_dict())
        else:
            from ..views import change_line

            say(change_line(group_state))
