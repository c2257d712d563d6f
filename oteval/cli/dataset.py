"""``oteval dataset``: the examples of experiments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ..base.text import counted
from ..scoring import dataset_from_references, dataset_from_trajectories, read_dataset
from ..views import datasets_table
from . import common
from .commands import CommandGroup
from .common import (
    databases_option,
    db_option,
    filters,
    json_option,
    open_store,
    print_json,
    print_rows,
    say,
    select,
    warn,
)

__all__ = ["dataset"]


@click.group(cls=CommandGroup)
def dataset() -> None:
    """Add, list and show datasets."""


@dataset.command()
@click.argument("name")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--references", is_flag=True, help="Use the references of the database instead of FILE."
)
@click.option("--reference", multiple=True, help="Use this reference; may be repeated.")
@db_option
@filters
def add(
    name: str,
    file: Path | None,
    references: bool,
    reference: tuple[str, ...],
    db: str,
    **filter_options: Any,
) -> int:
    """Add a dataset from a file, references or trajectories.

    A line of FILE has `inputs` and optionally `reference_outputs`, `id` and `metadata`; or
    `messages`, a whole conversation. Without FILE, the examples come from the stored trajectories
    that the filters select. Equal content has the same version.
    """
    if file is not None and (references or reference):
        raise click.UsageError("give FILE or references, not both")
    # Read before the database is opened: a file that cannot be read leaves no empty database.
    from_file = None if file is None else read_dataset(file, name)
    with open_store(db, create=from_file is not None) as store:
        if from_file is not None:
            new_dataset = from_file
        elif references or reference:
            new_dataset = dataset_from_references(store, name, reference)
        else:
            new_dataset = dataset_from_trajectories(
                store.trajectories.read(select(**filter_options)), name
            )
        is_new = store.datasets.add(new_dataset)
    state = "added" if is_new else "exists already"
    examples = counted(len(new_dataset.examples), "example")
    say(f"dataset {name}@{new_dataset.version}: {examples}, {state}")
    return 0


@dataset.command("list")
@databases_option
@json_option
def list_(db: tuple[str, ...], as_json: bool) -> int:
    """List all versions of all datasets."""
    with open_store(db) as store:
        rows = store.datasets.list()
    table = partial(datasets_table, rows, common.now_ns())
    print_rows(rows, "dataset", table, as_json=as_json)
    return 0


@dataset.command()
@click.argument("name", metavar="NAME[@VERSION]")
@databases_option
def show(name: str, db: tuple[str, ...]) -> int:
    """Print a dataset as JSON lines, which `oteval dataset add` reads."""
    with open_store(db) as store:
        title, _, version = name.partition("@")
        stored = store.datasets.get(title, version or None)
    for example in stored.examples:
        print_json(example.as_dict())
    warn(f"{stored.name}@{stored.version}: {counted(len(stored.examples), 'example')}")
    return 0
