"""``oteval reference``: the reference trajectories for comparisons."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from ..base.errors import ConfigError, OtevalError
from ..base.text import counted
from ..evaluators import to_messages
from ..model import Reference
from ..scoring import read_messages
from ..views import references_table
from . import common
from .commands import CommandGroup
from .common import databases_option, db_option, json_option, open_store, print_rows, say, warn

__all__ = ["reference"]


@click.group(cls=CommandGroup)
def reference() -> None:
    """Add, list and check reference trajectories."""


@reference.command()
@click.argument("source", metavar="TRAJECTORY|FILE")
@click.option("--name", help="The name; by default the trajectory's id or the file's name.")
@db_option
def add(source: str, name: str | None, db: str) -> int:
    """Add a trajectory, or the messages in a JSON file.

    oteval.yaml refers to it as `reference: {name: NAME}`.
    """
    with open_store(db) as store:
        if Path(source).is_file():
            file_reference = read_messages(Path(source))
            if file_reference.alternatives:
                raise ConfigError(f"{source} holds several references; add a file for each")
            messages, label, origin = (
                to_messages(list(file_reference.messages)),
                file_reference.name,
                source,
            )
        else:
            trajectory = store.trajectories.get(source)
            messages, label, origin = trajectory.own_messages, trajectory.id, trajectory.id
        store.references.add(name or label, messages, origin, time.time_ns())
    say(f"reference {name or label}: {counted(len(messages), 'message')} of {origin}")
    return 0


@reference.command("list")
@databases_option
@json_option
def list_(db: tuple[str, ...], as_json: bool) -> int:
    """List the references."""
    with open_store(db) as store:
        rows = store.references.list()
    table = partial(references_table, rows, common.now_ns())
    print_rows(rows, "reference", table, as_json=as_json)
    return 0


@reference.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@databases_option
def check(files: tuple[str, ...], db: tuple[str, ...]) -> int:
    """Check that references can be read.

    It reads those in the database, or in JSON files. The exit status is 1 if one cannot.
    """
    bad = 0
    if files:
        for name in files:
            bad += not _is_readable(name, partial(read_messages, Path(name)))
    else:
        with open_store(db) as store:
            for row in store.references.list():
                name = row["name"]
                bad += not _is_readable(name, partial(store.references.get, name))
    return 1 if bad else 0


def _is_readable(name: str, read: Callable[[], Reference]) -> bool:
    try:
        reference = read()
        accepted = {
            f"{name} {alternative.name}": alternative for alternative in reference.alternatives
        }
        sizes = []
        for label, accepted_reference in (accepted or {name: reference}).items():
            messages = to_messages(list(accepted_reference.messages), "messages")
            calls = sum(len(message.tool_calls) for message in messages)
            sizes.append(f"{label}: {counted(len(messages), 'message')}, {counted(calls, 'call')}")
    except OtevalError as error:
        warn(f"{name}: {error}")
        return False
    for line in sizes:
        say(line)
    return True
