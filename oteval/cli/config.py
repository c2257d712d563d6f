"""``oteval config``: check oteval.yaml, and print its JSON schema."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ..base.text import counted, printable
from ..evaluators import load_all
from ..monitor import check_destinations
from ..scoring import DEFAULT_PATH, Config, load_config, prepare
from ..store import MEMORY, Store
from .commands import CommandGroup
from .common import db_option, say, warn

__all__ = ["config"]


@click.group(cls=CommandGroup)
def config() -> None:
    """Check oteval.yaml, or print its JSON schema."""


@config.command()
@click.argument("path", default=DEFAULT_PATH)
@db_option
def check(path: str, db: str) -> int:
    """Check a configuration with its references and functions."""
    configuration = load_config(path)
    check_destinations(configuration)
    with Store(db if Path(db).exists() else MEMORY) as store:
        prepared = prepare(configuration, store, Path(path).parent)
    for evaluator in prepared:
        say(f"{evaluator.scorer.name}  version {evaluator.scorer.version}")
    parts = [counted(len(prepared), "evaluator"), counted(len(configuration.gates), "gate")]
    if configuration.monitors:
        parts.append(counted(len(configuration.monitors), "monitor"))
    click.echo(printable(f"{path}: {', '.join(parts)}"), err=True)
    return 0


@config.command()
def schema() -> int:
    """Print the JSON schema of oteval.yaml, for editors.

    It has the evaluators of installed packages; one that cannot be loaded is named on stderr.
    """
    for problem in load_all()[1]:
        warn(problem)
    click.echo(json.dumps(Config.model_json_schema(), indent=2))
    return 0
