"""The files of a folder that may contain traces or conversations, by their names."""

from __future__ import annotations

import os
from pathlib import Path

from ..base.errors import InputError

__all__ = ["files_of"]

_SUFFIXES = (".json", ".jsonl", ".ndjson", ".pb", ".proto", ".bin", ".otlp", ".parquet", ".eval")
_COMPRESSED = (".gz", ".zst", ".zstd")


def files_of(path: str) -> list[str]:
    """The files of a folder and its subfolders in order; any other path is returned alone.

    Hidden files and folders below it are left out, and links to folders are not followed.

    Args:
        path: A path, or "-" for standard input.

    Raises:
        InputError: The folder cannot be read, or no name in it ends like a trace file's name.
    """
    if path == "-" or not Path(path).is_dir():
        return [path]
    files: list[str] = []
    for folder, folders, names in os.walk(path, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [str(Path(folder) / name) for name in sorted(names) if _may_hold_traces(name)]
    if not files:
        raise InputError(f"{path}: no file in it ends in {', '.join(_SUFFIXES)}, also compressed")
    return files


def _refuse(error: OSError) -> None:
    raise InputError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _may_hold_traces(name: str) -> bool:
    bare = name.lower()
    for suffix in _COMPRESSED:
        bare = bare.removesuffix(suffix)
    return bare.endswith(_SUFFIXES) and not name.startswith(".")
