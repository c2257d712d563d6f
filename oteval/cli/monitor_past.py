"""``oteval monitor backtest``: the rules of monitors over the stored past."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from ..text import counted
from . import common
from .common import db_option, json_option, open_store, out, print_json, progress, time_of, warn
from .monitor import config_option, configured, require_packages

if TYPE_CHECKING:
    from ..monitor.past import PastPeriod

__all__ = ["backtest"]

_since = click.option(
    "--since", help="Runs since this time: 2026-11-20, 2026-11-20T08:00, or 30d ago."
)
_until = click.option("--until", help="Runs before this time.")


@click.command()
@_since
@_until
@config_option
@db_option
@json_option
def backtest(since: str | None, until: str | None, config_path: str, db: str, as_json: bool) -> int:
    """Run the monitors over the stored past, and list the alerts they would have raised.

    Baselines are learned from the first runs of the past. Nothing is written, and nobody is
    notified.
    """
    config = configured(config_path)
    require_packages()
    from ..monitor.backtest import backtest as tested
    from ..show.monitors import episodes_table

    period, now = _period(since, until), common.now_ns()
    found = []
    with open_store(db) as store, progress("reading", " rows") as update:
        for settings in config.monitors:

            def report(done: int, total: int, title: str = settings.title) -> None:
                update(done, total, title)

            found.append(tested(store, settings, now_ns=now, period=period, report=report))
    episodes = [episode for one in found for episode in one.episodes]
    if as_json:
        for episode in episodes:
            print_json(episode.as_dict())
    elif episodes:
        out().print(episodes_table(episodes))
    seen = sum(one.observations for one in found)
    learning = [reason for one in found for _, reason in one.learning]
    groups = counted(sum(one.groups for one in found), "group")
    warn(f"{counted(len(episodes), 'alert')} in {groups}, {counted(seen, 'observation')}")
    if learning:
        reason = f"; for instance: {learning[0]}"
        warn(f"{counted(len(learning), 'group')} without a baseline{reason}")
    return 0


def _period(since: str | None, until: str | None) -> PastPeriod:
    from ..monitor.past import PastPeriod

    found = PastPeriod(time_of(since, "--since"), time_of(until, "--until"))
    if found.since_ns and found.until_ns and found.until_ns <= found.since_ns:
        raise ConfigError("--until: must be after --since")
    return found
