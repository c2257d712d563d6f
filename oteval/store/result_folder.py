"""The folder of results that a Spark job writes, and how it is read.

A folder has ``results.json``, which names the Parquet files of each table, and a subfolder with
these files::

    OUT/results.json
    OUT/results-1f3a/trajectories/date=2026-11-20/part-00000.parquet
    OUT/results-1f3a/scores/date=2026-11-20/part-00000.parquet
    OUT/judge_calls/*.jsonl

``results.json`` is written last, and replaced in one step. Until then the folder has
``unfinished.json`` alone, and reading it fails. Files that ``results.json`` does not name, such as
the files of a failed job, are never read.

`sharded.attach_results` makes a database of a folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..base.errors import StoreError

__all__ = [
    "RESULTS",
    "UNFINISHED",
    "ResultFolder",
    "is_result_folder",
    "read_result_folder",
]

RESULTS: Final = "results.json"
UNFINISHED: Final = "unfinished.json"
FORMAT = 1
_TABLES = ("trajectories", "scores")


@dataclass(frozen=True)
class ResultFolder:
    """A finished folder of results.

    Attributes:
        path: The folder.
        data: The subfolder with the files.
        files: The files of each table, in the order of ``seq``.
    """

    path: Path
    data: Path
    files: dict[str, list[Path]]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.stat().st_size for files in self.files.values() for file in files)


def is_result_folder(path: str | Path) -> bool:
    """Whether a path is a folder of results, finished or not."""
    return any((Path(path) / name).is_file() for name in (RESULTS, UNFINISHED))


def read_result_folder(path: str | Path) -> ResultFolder:
    """The files of a folder of results.

    Raises:
        StoreError: It is unfinished or damaged, or a file is missing.
    """
    folder = Path(path)
    try:
        manifest: Any = json.loads((folder / RESULTS).read_text("utf-8"))
        version = manifest["format"]
        data = folder / manifest["folder"]
        files = {
            name: [data / file for file in manifest["tables"][name]["files"]] for name in _TABLES
        }
    except FileNotFoundError:
        raise StoreError(
            f"{path}: its Spark job has not finished; wait for it, or run it again to resume"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{folder / RESULTS}: not a file of results ({error!r})") from error
    if version != FORMAT:
        raise StoreError(f"{folder / RESULTS}: written by another oteval; upgrade the older one")
    for file in (file for table_files in files.values() for file in table_files):
        if not file.is_file():
            raise StoreError(f"{file}: this file of results is missing; run the Spark job again")
    return ResultFolder(folder, data.absolute(), files)
