"""``oteval view``: look at a database or at trace files in the browser."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..base.errors import InputError
from ..scoring import load_config
from .browser import BrowserStart
from .common import databases_option, open_store, refresh_runs, say
from .loaded_files import load_files
from .options import config_option

if TYPE_CHECKING:
    from ..store import Store

__all__ = ["view"]


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@databases_option
@config_option("The configuration; the pages say why a run has no score by one of its evaluators.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port; else a free one.")
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.pass_context
def view(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    db: tuple[str, ...],
    config_path: str,
    port: int,
    no_open: bool,
) -> int:
    """Look at runs, scores and spans in the browser.

    The pages show the database, on this machine only, until Ctrl-C. Other commands can use the
    database meanwhile. The pages of several databases can only be read, and show a database that a
    server has open as it was at the start. With PATHs, these trace files are loaded into a
    temporary database instead, and scored if --config is given.
    """
    from ..views import NewLink, serve_locally

    source = context.get_parameter_source("config_path")
    is_given = source is not ParameterSource.DEFAULT
    if is_given:
        load_config(config_path)

    browser = BrowserStart()

    def on_ready(new_link: NewLink) -> None:
        def say_next() -> None:
            say(f"for another browser: {new_link(say_next)}")

        link = new_link(say_next)
        say(f"oteval shows its pages on {link} until Ctrl-C; a link works once")
        if not no_open:
            browser.open(new_link())

    opened = _loaded(paths, config_path if is_given else "") if paths else open_store(db)
    with opened as store, browser:
        serve_locally(store, Path(config_path), port=port, on_ready=on_ready)
    return 0


@contextmanager
def _loaded(paths: tuple[str, ...], config_path: str) -> Iterator[Store]:
    """Load trace files into a temporary database, and score them if there is a configuration."""
    from ..scoring import score
    from ..store import Store

    with (
        tempfile.TemporaryDirectory(prefix="oteval-view-") as folder,
        Store(Path(folder) / "traces.duckdb") as store,
    ):
        report = load_files(store, paths)
        if all(file.error for file in report.files):
            raise InputError("no file could be read")
        refresh_runs(store)
        if config_path:
            config = load_config(config_path)
            for _ in score(store, config, Path(config_path).parent, yields_passes=False):
                pass
        yield store
