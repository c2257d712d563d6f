"""Databases, opened with trajectories that are up to date: one, or several read as one.

The command line, `oteval.open` and the MCP server open databases in this way. A database that a
server has open is used through the server. Several databases are only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.errors import InputError, StoreLocked
from ..base.text import counted
from ..store import (
    PATIENCE,
    ServerNotice,
    ShardedStore,
    Store,
    is_result_folder,
    is_up_to_date,
)
from .reconstruction import refresh

__all__ = ["database_paths", "open_databases", "store_in_turn"]

# The number of traces with spans in several databases that a warning names.
_NAMED_SPLITS = 5
_RETRY_INTERVAL = 0.05  # seconds
_TURN_PATIENCE = 5.0  # seconds

Warn = Callable[[str], object]
"""Tells the user something about a database."""
Refresh = Callable[[Store], object]
"""Reconstructs the trajectories of new traces."""


def database_paths(names: Sequence[str], warn: Warn) -> tuple[str, ...]:
    """The named databases, and the databases in named folders, each once.

    Raises:
        InputError: A folder has no database.
    """
    path_by_file: dict[tuple[int, int] | str, str] = {}
    for name in names:
        for path in _in_folder(name) if Path(name).is_dir() else [name]:
            try:
                status = Path(path).stat()
            except OSError:
                path_by_file[path] = path  # opening it raises the error
                continue
            key = status.st_dev, status.st_ino
            if key in path_by_file:
                warn(f"{path}: the same database as {path_by_file[key]}; it is read once")
                continue
            # A server writes the name of its socket next to the file, not next to a link.
            path_by_file[key] = str(Path(path).resolve()) if Path(path).is_symlink() else path
    return tuple(path_by_file.values())


def _in_folder(folder: str) -> list[str]:
    if is_result_folder(folder):
        return [folder]
    paths = sorted(str(path) for path in Path(folder).glob("*.duckdb") if path.is_file())
    if not paths:
        raise InputError(f"{folder}: no database (*.duckdb) in this folder; give another --db")
    return paths


@contextmanager
def open_databases(
    paths: Sequence[str],
    warn: Warn,
    *,
    create: bool = False,
    refresh: Refresh = refresh,
) -> Iterator[Store]:
    """Open the database, or several to read them, and bring their trajectories up to date.

    Args:
        paths: The files, and folders of results.
        warn: Called with each warning.
        create: Whether to create a missing file.
        refresh: Reconstructs the trajectories of new traces.

    Raises:
        StoreError: One of them cannot be opened; the subclass says why.
    """
    results = [name for name in paths if is_result_folder(name)]
    if len(paths) == 1 and not results:
        with _refreshed(paths[0], warn, refresh, create=create) as store:
            yield store
        return
    for name in paths:
        if name not in results:
            _bring_up_to_date(name, warn, refresh)
    with ShardedStore(paths) as shards:
        for split in shards.split_traces[:_NAMED_SPLITS]:
            places = " and ".join(split.databases)
            warn(f"trace {split.trace_id} has spans in {places}; its runs are incomplete")
        more = len(shards.split_traces) - _NAMED_SPLITS
        if more > 0:
            warn(f"{counted(more, 'more trace')} with spans in several databases")
        yield shards


def _bring_up_to_date(path: str, warn: Warn, refresh: Refresh) -> None:
    """Reconstruct the new traces of one of several databases that are read together.

    Only this step needs exclusive access. It waits for other readers, which continue meanwhile.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            if ServerNotice.beside(path) is None and is_up_to_date(path):
                return
            with _refreshed(path, warn, refresh, create=False):
                return
        except StoreLocked:
            if time.monotonic() > until:
                raise
        time.sleep(_RETRY_INTERVAL)


def store_in_turn(path: str, **options: Any) -> Store:
    """Open a database; wait if another command has it open at the moment.

    Args:
        path: The file.
        **options: Further arguments of `Store`.

    Raises:
        StoreLocked: Another process has had it open for seconds.
        StoreError: It cannot be opened for another reason.
    """
    until = time.monotonic() + _TURN_PATIENCE
    while True:
        try:
            return Store(path, **options)
        except StoreLocked:
            if time.monotonic() >= until:
                raise
        time.sleep(_RETRY_INTERVAL)


@contextmanager
def _refreshed(path: str, warn: Warn, refresh: Refresh, *, create: bool) -> Iterator[Store]:
    """Open a database and bring its trajectories up to date."""
    with store_in_turn(path, create=create) as store:
        # A running server reconstructs trajectories itself.
        if not store.is_filled and store.pending.count():
            if store.is_read_only:
                warn(f"{path}: cannot be written, so that its newest runs are not reconstructed")
            else:
                with store.loading():
                    refresh(store)
        yield store
