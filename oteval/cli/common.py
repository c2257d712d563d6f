"""Options, filters and output that several commands share."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from rich.console import Console, ConsoleRenderable, RenderHook
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ..base.errors import ConfigError, InputError
from ..base.files import publish, write_private
from ..base.jsontext import dumps
from ..base.text import counted, printable, printable_json
from ..model import select, time_of
from ..store import is_result_folder
from ..views import Trimmed, one_line

if TYPE_CHECKING:
    from ..store import Store

__all__ = [
    "TABLE_ROWS",
    "databases_option",
    "db_option",
    "each_database",
    "filters",
    "filters_except_model",
    "json_option",
    "now_ns",
    "open_store",
    "out",
    "print_json",
    "print_rows",
    "progress",
    "refresh_runs",
    "require_extra",
    "select",
    "store_in_turn",
    "time_of",
    "warn",
    "warn_of_problems",
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
# The number of problems of a file that are printed one by one.
_PROBLEMS = 10


def _databases(
    _context: click.Context, _option: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the named databases, and the databases in named folders, each once."""
    from ..scoring import database_paths

    return database_paths(names, warn)


def _one_database(context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> str:
    """Return the one database that is named."""
    if len(names) != 1:
        raise click.UsageError(
            f"{context.info_name} uses one database, and {len(names)} are given; give one --db FILE"
        )
    if is_result_folder(names[0]):
        raise click.UsageError(
            f"{context.info_name} writes to its database, and {names[0]} has results of Spark, "
            "which can only be read; give --db FILE"
        )
    if Path(names[0]).is_dir():
        raise click.UsageError(
            f"{context.info_name} uses one database, and {names[0]} is a folder; give --db FILE"
        )
    return names[0]


# The type is a path, so OTEVAL_DB is split at colons, like PATH, instead of spaces.
_DATABASE: dict[str, Any] = {
    "type": click.Path(),
    "multiple": True,
    "envvar": "OTEVAL_DB",
    "default": (DEFAULT_DB,),
    "show_default": True,
    "show_envvar": True,
    "metavar": "FILE",
}
db_option = click.option("--db", callback=_one_database, help="The database file.", **_DATABASE)
databases_option = click.option(
    "--db",
    callback=_databases,
    help="The database file, or a folder of databases (*.duckdb) or of results of Spark; may be "
    "repeated.",
    **_DATABASE,
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
    """Add the filter options to a command; it passes them to `select` as keywords."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def filters_except_model(command: Command) -> Command:
    """Add the filter options except `--model`, which has another meaning in the command."""
    for option in reversed(_FILTERS):
        command = command if option is _MODEL_FILTER else option(command)
    return command


class _TrimTrailingSpaces(RenderHook):
    """Prints lines without trailing spaces."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [Trimmed(renderable) for renderable in renderables]


def out() -> Console:
    """Return the console for results; its width is COLUMNS, the terminal's, or 200 for a pipe."""
    columns = os.environ.get("COLUMNS", "")
    columns_width = int(columns) if re.fullmatch(r"0*[1-9][0-9]{0,5}", columns, re.ASCII) else None
    width = columns_width or (None if sys.stdout.isatty() else _PIPED_WIDTH)
    console = Console(width=width)
    console.push_render_hook(_TrimTrailingSpaces())
    return console


def now_ns() -> int:
    """Return the current time, the base of all ages; tests replace it."""
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
    """Write a report if a path is given; the file is written whole or not at all.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        return
    text, target = content(), Path(path)
    is_device = target.exists() and not target.is_file()
    partial = target if is_device else target.with_name(f"{target.name}.partial")
    try:
        if is_device:
            partial.write_text(text, "utf-8", newline="\n")
        else:
            write_private(partial, text)
            # Reports are for other users and programs, such as the next step of a build.
            publish(partial)
            partial.replace(target)
    except OSError as error:
        if not is_device:
            partial.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(printable_json(dumps(value)) + "\n")


def print_rows(
    rows: Sequence[dict[str, Any]],
    noun: str,
    table: Callable[[], ConsoleRenderable],
    *,
    as_json: bool,
) -> None:
    """Print a list as JSON lines or as a table, and its length to standard error.

    Args:
        rows: The entries.
        noun: An entry's name, for the length.
        table: Makes the table; not called without entries.
        as_json: Whether to print JSON.
    """
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        out().print(table())
    warn(counted(len(rows), noun))


def warn_of_problems(problems: Sequence[object], count: int, source: str, noun: str) -> None:
    """Print the first problems of a source to standard error, and the number of the others.

    Args:
        problems: All problems, or the first problems.
        count: The number of all problems.
        source: The file or project.
        noun: The name of a part that has a problem.
    """
    for problem in problems[:_PROBLEMS]:
        warn(str(problem))
    if count > _PROBLEMS:
        warn(f"{source}: {counted(count - _PROBLEMS, f'more bad {noun}')} (--json lists them)")


def require_extra(program: str, extra: str, packages: Sequence[str]) -> None:
    """Check that the packages of an extra are installed.

    Raises:
        ConfigError: One is missing.
    """
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f'{program} needs more packages: pip install "oteval[{extra}]" ({name})'
            )


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


def refresh_runs(store: Store, on_agentless: Callable[[Sequence[str]], None] | None = None) -> int:
    """Reconstruct the trajectories of new traces, with a progress bar; return how many changed."""
    # Commands without a database import this module as well.
    from ..scoring import refresh

    with progress("reconstructing", " traces") as update:
        return refresh(store, update, on_agentless)


def each_database(paths: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield databases that are read one by one, each with the key that names it in JSON lines.

    The database's name is also printed, unless there is only one database.
    """
    for path in paths:
        if len(paths) > 1:
            warn(f"{path}:")
        yield path, {"database": path} if len(paths) > 1 else {}


@contextmanager
def open_store(path: str | Sequence[str], *, create: bool = False) -> Iterator[Store]:
    """Open the database, or several to read them, and bring their trajectories up to date.

    Args:
        path: The file, or several.
        create: Whether to create a missing file.
    """
    from ..scoring import open_databases

    paths = [path] if isinstance(path, str) else list(path)
    with open_databases(paths, warn, create=create, refresh=refresh_runs) as store:
        yield store


def store_in_turn(path: str, *, create: bool = True) -> Store:
    """Open a database; wait if another command has it open at the moment.

    Args:
        path: The file.
        create: Whether to create a missing file.

    Raises:
        StoreLocked: Another process has had it open for seconds.
        StoreError: It cannot be opened for another reason.
    """
    from .. import scoring

    return scoring.store_in_turn(path, create=create)
