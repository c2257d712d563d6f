"""``oteval monitor backtest`` and ``simulate``: the rules of monitors on the stored past."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..base.errors import ConfigError
from ..base.text import counted
from ..monitor import require_packages
from . import common
from .common import (
    databases_option,
    each_database,
    json_option,
    open_store,
    out,
    print_json,
    progress,
    time_of,
    warn,
)
from .monitor import configured, monitor
from .options import config_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..monitor import Backtest, GroupSimulation, Observations, PastPeriod

__all__ = ["backtest", "simulate"]

_since = click.option(
    "--since", help="Runs since this time: 2026-11-20, 2026-11-20T08:00, or 30d ago."
)
_until = click.option("--until", help="Runs before this time.")


@monitor.command()
@_since
@_until
@config_option()
@databases_option
@json_option
def backtest(
    since: str | None, until: str | None, config_path: str, db: tuple[str, ...], as_json: bool
) -> int:
    """List the alerts that the monitors would have raised.

    The monitors run over the stored past. Baselines are learned from the first runs of the past.
    Nothing is written, and nobody is notified. Several databases are tested one by one, because
    each server checks its own runs.
    """
    config = configured(config_path)
    require_packages(config)
    from ..monitor import backtest as tested
    from ..views import episodes_table

    period, now = _period(since, until), common.now_ns()
    for path, database in each_database(db):
        backtests = []
        with open_store(path) as store, progress("reading", " rows") as update:
            for settings in config.monitors:

                def report(done: int, total: int, title: str = settings.title) -> None:
                    update(done, total, title)

                backtests.append(tested(store, settings, now_ns=now, period=period, report=report))
        episodes = [episode for test in backtests for episode in test.episodes]
        if as_json:
            for episode in episodes:
                print_json({**database, **episode.as_dict()})
        elif episodes:
            out().print(episodes_table(episodes))
        _summarize(backtests)
    return 0


def _summarize(backtests: Sequence[Backtest]) -> None:
    """Print how much was tested, and which groups never had a baseline."""
    episodes = sum(len(test.episodes) for test in backtests)
    seen = sum(test.observations for test in backtests)
    learning = [reason for test in backtests for _, reason in test.learning]
    groups = counted(sum(test.groups for test in backtests), "group")
    warn(f"{counted(episodes, 'alert')} in {groups}, {counted(seen, 'observation')}")
    if learning:
        reason = f"; for instance: {learning[0]}"
        warn(f"{counted(len(learning), 'group')} without a baseline{reason}")


@monitor.command()
@click.option(
    "--drop",
    "drops",
    multiple=True,
    type=click.FloatRange(0, 1, min_open=True),
    default=(0.1,),
    show_default=True,
    help="By how much the mean falls, from 0 to 1; may be repeated.",
)
@click.option(
    "--streams",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The number of simulated streams of each group.",
)
@click.option(
    "--groups",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Simulate only the N largest groups of each monitor.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The random seed.")
@_since
@_until
@config_option()
@databases_option
@json_option
def simulate(
    drops: tuple[float, ...],
    streams: int,
    groups: int,
    seed: int,
    since: str | None,
    until: str | None,
    config_path: str,
    db: tuple[str, ...],
    as_json: bool,
) -> int:
    """Simulate false alarms and delays of the monitors.

    The stored history of each group is resampled in blocks, which keeps the dependence of
    neighbours, and checked without a change and with a drop: by the monitor's rule, and by a
    threshold on the last 60 minutes. Several databases are simulated one by one. Exit status 3 if
    no history is long enough.
    """
    config = configured(config_path)
    require_packages(config)
    from ..monitor import histories, simulate_group
    from ..views import doubt_lines, simulations_table

    period, now = _period(since, until), common.now_ns()
    all_simulations: list[GroupSimulation] = []
    for path, database in each_database(db):
        simulations: list[GroupSimulation] = []
        for settings in config.monitors:
            with open_store(path) as store:
                past = histories(store, settings, period, now)
            largest = _largest(past, groups, settings.title)
            with progress("simulating", " streams") as update:
                for group, observed in largest:

                    def report(done: int, title: str = settings.title) -> None:
                        update(done, streams, title)

                    simulations += simulate_group(
                        settings,
                        group,
                        observed,
                        groups=len(past),
                        drops=drops,
                        streams=streams,
                        seed=seed,
                        report=report,
                    )
        simulated = [simulation for simulation in simulations if simulation.rules]
        if as_json:
            for simulation in simulations:
                print_json({**database, **simulation.as_dict()})
        elif simulated:
            out().print(simulations_table(simulated))
        _warn_short(simulations)
        if not as_json:
            for line in doubt_lines(simulated):
                warn(line)
        all_simulations += simulations
    return 0 if any(simulation.rules for simulation in all_simulations) else 3


def _largest(
    past: Mapping[str, Observations], most: int, title: str
) -> list[tuple[str, Observations]]:
    """Return the groups with the most observations, and warn if other groups are left out."""
    largest = sorted(past.items(), key=lambda entry: -len(entry[1]))[:most]
    if len(past) > len(largest):
        warn(f"{title}: the {len(largest)} largest of {len(past):,} groups")
    return largest


def _warn_short(simulations: Sequence[GroupSimulation]) -> None:
    """Warn about histories that are too short to simulate."""
    short = [simulation for simulation in simulations if not simulation.rules]
    if short:
        least = f"{short[0].observations:,} observations, {short[0].reason}"
        warn(f"{counted(len(short), 'history', 'histories')} too short to simulate: {least}")
    if not simulations:
        warn("no history to simulate: nothing was observed")


def _period(since: str | None, until: str | None) -> PastPeriod:
    from ..monitor import PastPeriod

    period = PastPeriod(time_of(since, "--since"), time_of(until, "--until"))
    if period.since_ns and period.until_ns and period.until_ns <= period.since_ns:
        raise ConfigError("--until: must be after --since")
    return period
