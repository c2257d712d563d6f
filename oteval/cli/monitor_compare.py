"""``oteval monitor compare``: the measures of monitors before and after a time."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ..base.errors import ConfigError
from ..base.text import counted
from ..monitor import require_packages
from ..store import StoredMark
from . import common
from .common import (
    databases_option,
    each_database,
    json_option,
    open_store,
    out,
    print_json,
    time_of,
    warn,
)
from .monitor import configured, monitor
from .options import config_option, duration

__all__ = ["compare"]


@monitor.command()
@click.option(
    "--before", required=True, help="The end of the time before: a time, or the name of a mark."
)
@click.option("--after", help="The start of the time after; by default that of --before.")
@click.option(
    "--window",
    default="7d",
    show_default=True,
    metavar="TIME",
    help="The length of the times before and after.",
)
@click.option(
    "--by", multiple=True, metavar="KEY", help="Also slice by this attribute; may be repeated."
)
@config_option()
@databases_option
@json_option
def compare(
    before: str,
    after: str | None,
    window: str,
    by: tuple[str, ...],
    config_path: str,
    db: tuple[str, ...],
    as_json: bool,
) -> int:
    """Compare the measures before and after a time.

    The time is that of a deployment or the like. For each measure of each group, it prints the
    figures and their difference with 95% intervals, the slices that got worse most, and runs that
    show it. An hour is compared with the same hour of the week. Several databases are compared one
    by one, because each has its own order of runs. Exit status 0; 1 if a figure got significantly
    worse; 3 if none has enough observations.
    """
    config = configured(config_path)
    require_packages(config)
    from ..monitor import MeasuredChange, adjusted, measured_changes
    from ..views import changes_table

    length, marks = round(duration("--window", window) * 1e9), _marks(db)
    end = _time(marks, before, "--before")
    start = _time(marks, after, "--after") if after else end
    if start < end:
        raise ConfigError("--after: must not be earlier than --before")
    paths: list[str] = []
    changes: list[MeasuredChange] = []
    for path in db:
        with open_store(path) as store:
            for settings in config.monitors:
                changes += measured_changes(
                    store,
                    settings,
                    before_ns=end,
                    after_ns=start,
                    window_ns=length,
                    now_ns=common.now_ns(),
                    by=by,
                )
        paths += [path] * (len(changes) - len(paths))
    # The more figures, the smaller a p-value must be: the figures of all databases count together.
    changes = adjusted(changes)
    for path, database in each_database(db):
        database_changes = [
            change
            for change, change_path in zip(changes, paths, strict=True)
            if change_path == path
        ]
        if as_json:
            for change in database_changes:
                print_json({**database, **change.as_dict()})
        elif database_changes:
            out().print(changes_table(database_changes))
    for note in dict.fromkeys(change.note for change in changes if change.note):
        warn(f"{counted(sum(change.note == note for change in changes), 'figure')}: {note}")
    worse = sum(change.verdict == "worse" for change in changes)
    warn(f"{counted(len(changes), 'figure')}, {worse} worse")
    if worse:
        return 1
    return 0 if any(change.p is not None for change in changes) else 3


def _marks(db: Sequence[str]) -> list[StoredMark]:
    """Return the marks of all databases."""
    marks: list[StoredMark] = []
    for path in db:
        with open_store(path) as store:
            marks += store.monitors.marks()
    return marks


def _time(marks: Sequence[StoredMark], text: str, option: str) -> int:
    """Return the time of the latest mark with a name, or else the time in a text."""
    times = [mark.time_ns for mark in marks if mark.name == text]
    if times:
        return max(times)
    try:
        time_ns = time_of(text, option)
    except ConfigError as error:
        raise ConfigError(f"{error}; no mark has this name either") from None
    if time_ns is None:
        raise ConfigError(f"{option}: is empty; write a time or the name of a mark")
    return time_ns
