"""``oteval reference``: what trajectories are held against."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..errors import OtevalError
from ..evaluators import to_messages
from ..pipeline import read_messages
from ..show import references_table
from ..text import counted
from . import common
from .common import db_option, json_option, open_store, out, print_json, say, warn

__all__ = ["reference"]


@click.group()
def reference() -> None:
    """Keep trajectories as references, list them, check them."""


@reference.command()
@click.argument("source", metavar="TRAJECTORY|FILE")
@click.option("--name", help="The reference's name; by default the trajectory's id or file's name.")
@db_option
def add(source: str, name: str | None, db: str) -> int:
    """Keep a trajectory's own messages, or a JSON file's, as a reference.

    In oteval.yaml it is `reference: {name: NAME}`.
    """
    with open_store(db) as store:
        if Path(source).is_file():
            found = read_messages(Path(source))
            messages, label, origin = to_messages(list(found.messages)), found.name, source
        else:
            trajectory = store.trajectories.get(source)
            messages, label, origin = trajectory.own_messages, trajectory.id, trajectory.id
        store.references.add(name or label, messages, origin, time.time_ns())
    say(f"reference {name or label}: {counted(len(messages), 'message')} of {origin}")
    return 0


@reference.command("list")
@db_option
@json_option
def list_(db: str, as_json: bool) -> int:
    """List the references."""
    with open_store(db) as store:
        rows = store.references.list()
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        out().print(references_table(rows, common.now_ns()))
    warn(counted(len(rows), "reference"))
    return 0


@reference.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@db_option
def check(files: tuple[str, ...], db: str) -> int:
    """Check that references can be read: those of the database, or JSON files.

    Exit status 1 when one cannot.
    """
    bad = 0
    if files:
        for name in files:
            bad += not _is_readable(name, lambda name=name: read_messages(Path(name)).messages)
    else:
        with open_store(db) as store:
            for row in store.references.list():
                name = row["name"]
                bad += not _is_readable(name, lambda name=name: store.references.get(name).messages)
    return 1 if bad else 0


def _is_readable(name: str, read) -> bool:  # type: ignore[no-untyped-def]
    try:
        messages = to_messages(list(read()), "messages")
    except OtevalError as error:
        warn(f"{name}: {error}")
        return False
    calls = sum(len(message.tool_calls) for message in messages)
    say(f"{name}: {counted(len(messages), 'message')}, {counted(calls, 'call')}")
    return True
