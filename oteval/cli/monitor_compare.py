"""``oteval monitor compare``: the measures of monitors before and after a time."""

from __future__ import annotations

import click

from ..errors import ConfigError
from ..monitor import require_packages
from ..store import Store
from ..text import counted, seconds
from . import common
from .common import json_option, open_store, out, print_json, source_option, time_of, warn
from .monitor import config_option, configured

__all__ = ["compare"]


@click.command()
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
@config_option
@source_option
@json_option
def compare(
    before: str,
    after: str | None,
    window: str,
    by: tuple[str, ...],
    config_path: str,
    db: str,
    as_json: bool,
) -> int:
    """Compare each measure of each group before and after a time, such as a deployment.

    It prints the figures with 95% intervals, the slices that got worse most, and runs that show it.
    Exit status 0; 1 if a figure got significantly worse; 3 if none has enough observations.
    """
    config = configured(config_path)
    require_packages(config)
    from ..monitor.changes import adjusted, measured_changes
    from ..show.monitors import changes_table

    try:
        length = round(seconds(window) * 1e9)
    except ValueError as error:
        raise ConfigError(f"--window: {error}") from None
    with open_store(db) as store:
        end = _time(store, before, "--before")
        start = _time(store, after, "--after") if after else end
        if start < end:
            raise ConfigError("--after: must not be earlier than --before")
        found = adjusted(
            [
                one
                for settings in config.monitors
                for one in measured_changes(
                    store,
                    settings,
                    before_ns=end,
                    after_ns=start,
                    window_ns=length,
                    now_ns=common.now_ns(),
                    by=by,
                )
            ]
        )
    if as_json:
        for one in found:
            print_json(one.as_dict())
    elif found:
        out().print(changes_table(found))
    worse = sum(one.verdict == "worse" for one in found)
    warn(f"{counted(len(found), 'figure')}, {worse} worse")
    if worse:
        return 1
    return 0 if any(one.p is not None for one in found) else 3


def _time(store: Store, text: str, option: str) -> int:
    """Return the time of the latest mark with a name, or else the time that a text gives."""
    marks = [mark.time_ns for mark in store.monitors.marks() if mark.name == text]
    if marks:
        return max(marks)
    try:
        found = time_of(text, option)
    except ConfigError as error:
        raise ConfigError(f"{error}; no mark has this name either") from None
    if found is None:
        raise ConfigError(f"{option}: is empty; write a time or the name of a mark")
    return found
