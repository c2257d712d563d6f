"""Options, filters and output that several commands share."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from rich.console import Console, ConsoleRenderable, RenderHook
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import InputError
from ..jsontext import dumps
from ..selection import select, time_of
from ..show import Trimmed, one_line
from ..text import printable, printable_json

if TYPE_CHECKING:
    from ..store import Store

__all__ = [
    "TABLE_ROWS",
    "db_option",
    "filters",
    "filters_except_model",
    "json_option",
    "now_ns",
    "open_store",
    "out",
    "print_json",
    "progress",
    "select",
    "time_of",
    "warn",
    "write_report",
]

Command = TypeVar("Command", bound=Callable[..., Any])


class ProgressCallback(Protocol):
    """Updates a progress bar."""

    def __call__(self, done: int, total: int | None, note: str = "") -> None:
        """Show the work done, the total if known, and a note."""
        ...


# Tables are limited to this many rows; --json is not.
TABLE_ROWS = 1000
# The width of output to a pipe, enough for most tables.
_PIPED_WIDTH = 200
DEFAULT_DB = "oteval.duckdb"

db_option = click.option(
    "--db",
    envvar="OTEVAL_DB",
    default=DEFAULT_DB,
    show_default=True,
    show_envvar=True,
    help="The database file.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line."
)

_MODEL_FILTER = click.option(
    "--model", multiple=True, help="Runs answered by this model; may be repeated."
)
_FILTERS = (
    click.option("--since", help="Runs since this time: 2026-11-20, 2026-11-20T08:00, or 2h ago."),
    click.option("--until", help="Runs before this time."),
    click.option("--service", multiple=True, help="Runs of this service; may be repeated."),
    click.option("--agent", multiple=True, help="Runs of this agent; may be repeated."),
    click.option(
        "--conversation", multiple=True, help="Runs of this conversation; may be repeated."
    ),
    _MODEL_FILTER,
    click.option(
        "--where",
        multiple=True,
        metavar="FIELD OP VALUE",
        help="Runs that meet this condition: errors>0, tool=refund, gap=redacted, "
        "attributes.user.id=u1. OP is = != ~ > < >= <=. May be repeated.",
    ),
    click.option("--limit", type=click.IntRange(min=1), help="Only the latest N runs."),
)


def filters(command: Command) -> Command:
    """Add the filter options to a command, which passes them to `select` as keywords."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def filters_except_model(command: Command) -> Command:
    """Add the filter options but `--model`, which means something else there."""
    for option in reversed(_FILTERS):
        command = command if option is _MODEL_FILTER else option(command)
    return command


class _TrimTrailingSpaces(RenderHook):
    """Prints lines without trailing spaces."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [Trimmed(one) for one in renderables]


def out() -> Console:
    """Return the console for results, as wide as COLUMNS, the terminal, or 200 for a pipe."""
    columns = os.environ.get("COLUMNS", "")
    given = int(columns) if re.fullmatch(r"0*[1-9][0-9]{0,5}", columns, re.ASCII) else None
    width = given or (None if sys.stdout.isatty() else _PIPED_WIDTH)
    console = Console(width=width)
    console.push_render_hook(_TrimTrailingSpaces())
    return console


def now_ns() -> int:
    """Return the current time, from which ages are computed; tests replace it."""
    return time.time_ns()


def _err() -> Console:
    return Console(stderr=True)


def warn(message: str) -> None:
    """Print a line to standard error."""
    click.echo(f"oteval: {one_line(message)}", err=True)


def say(message: str) -> None:
    """Print a line to standard output."""
    click.echo(printable(message))


def write_report(path: str | None, content: Callable[[], str]) -> None:
    """Write a report if a path is given; the file appears whole or not at all.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        return
    text, target = content(), Path(path)
    is_device = target.exists() and not target.is_file()
    partial = target if is_device else target.with_name(f"{target.name}.partial")
    try:
        partial.write_text(text, "utf-8", newline="\n")
        if not is_device:
            partial.replace(target)
    except OSError as error:
        if not is_device:
            partial.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(printable_json(dumps(value)) + "\n")


@contextmanager
def progress(text: str, unit: str = "") -> Iterator[ProgressCallback]:
    """Show a progress bar on standard error if it is a terminal.

    Args:
        text: The description.
        unit: The unit of the counts.

    Yields:
        The function that updates the bar.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}}{unit}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    console = _err()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(text, total=None, note="")

        def update(done: int, total: int | None, note: str = "") -> None:
            bar.update(task, completed=done, total=total, note=note)

        yield update


@contextmanager
def open_store(path: str, *, create: bool = False) -> Iterator[Store]:
    """Open the database and bring its trajectories up to date.

    Args:
        path: The file.
        create: Whether to create a missing file.
    """
    # Commands without a database import this module as well.
    from ..pipeline import refresh
    from ..store import Store

    with Store(path, create=create) as store:
        # A running server reconstructs trajectories itself.
        if not store.is_served and store.pending.count():
            with progress("reconstructing", " traces") as update:
                refresh(store, update)
        yield store
