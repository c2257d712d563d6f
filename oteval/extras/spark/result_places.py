"""Where a job keeps its results: a folder of this machine, or an address that Spark writes to.

If it is a folder, the driver and all executors have it under the same path: a disk of one
machine, a network disk, or a mounted bucket. An address such as ``s3a://bucket/out`` is written by
Hadoop's file systems.
"""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

from ...base.errors import InputError
from ...base.files import sync, sync_folder
from .failures import cause_of
from .files import to_address

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LocalFolder", "ResultPlace", "SparkFolder", "is_address", "local_path"]

# Two letters at least, unlike a drive.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LOCAL = re.compile(r"file:/+", re.IGNORECASE)


def is_address(path: str | Path) -> bool:
    """Whether results go to an address of another file system, such as ``s3a://...``."""
    return bool(_SCHEME.match(str(path))) and not _LOCAL.match(str(path))


def local_path(path: str | Path) -> Path:
    """The absolute path of a folder of this machine, which may be written ``file:///...``."""
    text = str(path)
    if _LOCAL.match(text):
        text = "/" + unquote(_LOCAL.sub("", text))
    return Path(text).absolute()


class ResultPlace(Protocol):
    """A folder with files and subfolders."""

    def names(self) -> set[str]:
        """The names in it; none if it does not exist."""

    def create(self) -> None:
        """Create it if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all its content, if it is there."""

    def read(self, name: str) -> Any:
        """The value of a file of JSON, or None."""

    def write(self, name: str, value: Any) -> None:
        """Write a file of JSON."""

    def files(self, folder: str, table: str) -> list[str]:
        """The Parquet files of a table below a folder, relative to the folder."""

    def address(self, *names: str) -> str:
        """The address of a folder in it, for Spark."""


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine.

    Attributes:
        path: The folder.
    """

    path: Path

    def names(self) -> set[str]:
        """See `ResultPlace`."""
        return {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()

    def create(self) -> None:
        """See `ResultPlace`."""
        self.path.mkdir(parents=True, exist_ok=True)

    def remove(self, name: str) -> None:
        """See `ResultPlace`."""
        path = self.path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def read(self, name: str) -> Any:
        """See `ResultPlace`."""
        with suppress(OSError, ValueError):
            return json.loads((self.path / name).read_text("utf-8"))
        return None

    def write(self, name: str, value: Any) -> None:
        """Write a file of JSON, which appears whole or not at all."""
        path = self.path / name
        partial = path.with_name(f".{path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            sync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)

    def files(self, folder: str, table: str) -> list[str]:
        """See `ResultPlace`."""
        base = self.path / folder
        return sorted(str(file.relative_to(base)) for file in (base / table).rglob("*.parquet"))

    def address(self, *names: str) -> str:
        """See `ResultPlace`."""
        return to_address(self.path.joinpath(*names))


class SparkFolder:
    """A folder at an address that Spark reads and writes."""

    def __init__(self, session: SparkSession, address: str) -> None:
        """Find the file system of an address.

        Raises:
            InputError: Spark has none for it, or cannot reach it.
        """
        context: Any = session.sparkContext
        self._address = address.rstrip("/")
        self._path = context._jvm.org.apache.hadoop.fs.Path
        try:
            self._system = self._path(address).getFileSystem(context._jsc.hadoopConfiguration())
        except Exception as error:
            raise InputError(f"{address}: Spark cannot write there ({cause_of(error)})") from error

    def _at(self, *names: str) -> Any:
        return self._path(self.address(*names))

    def names(self) -> set[str]:
        """See `ResultPlace`."""
        folder = self._at()
        if not self._system.exists(folder):
            return set()
        return {status.getPath().getName() for status in self._system.listStatus(folder)}

    def create(self) -> None:
        """See `ResultPlace`."""
        self._system.mkdirs(self._at())

    def remove(self, name: str) -> None:
        """See `ResultPlace`."""
        self._system.delete(self._at(name), True)

    def read(self, name: str) -> Any:
        """See `ResultPlace`."""
        if not self._system.exists(self._at(name)):
            return None
        stream = self._system.open(self._at(name))
        try:
            return json.loads(bytes(stream.readAllBytes()))
        except ValueError:
            return None
        finally:
            stream.close()

    def write(self, name: str, value: Any) -> None:
        """See `ResultPlace`."""
        stream = self._system.create(self._at(name), True)
        try:
            stream.write(bytearray(json.dumps(value).encode()))
        finally:
            stream.close()

    def files(self, folder: str, table: str) -> list[str]:
        """See `ResultPlace`."""
        if not self._system.exists(self._at(folder, table)):
            return []
        base = self._system.makeQualified(self._at(folder)).toString().rstrip("/")
        listing = self._system.listFiles(self._at(folder, table), True)
        paths = []
        while listing.hasNext():
            path = listing.next().getPath().toString()
            if path.endswith(".parquet"):
                paths.append(path.removeprefix(f"{base}/"))
        return sorted(paths)

    def address(self, *names: str) -> str:
        """See `ResultPlace`."""
        return "/".join((self._address, *names))

    def copy_to(self, folder: Path, names: list[str]) -> None:
        """Copy files to a folder of this machine.

        Args:
            folder: The folder.
            names: The files, relative to this place and to the folder.
        """
        for name in names:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._system.copyToLocalFile(
                False, self._at(name), self._path(to_address(target)), True
            )
