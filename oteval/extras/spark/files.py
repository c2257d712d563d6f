"""The files below paths, listed and opened by Hadoop's file systems on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.errors import InputError
from .failures import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Footer", "SourceFile", "head_of", "list_files", "read_footers", "to_address"]

# Footers are read so many at a time, because each waits for its file system.
_READERS = 16
_HEAD = 64


class SourceFile(NamedTuple):
    """A file to read.

    Attributes:
        path: Its address.
        size: Its bytes.
    """

    path: str
    size: int

    @property
    def is_parquet(self) -> bool:
        """Whether it is a Parquet file, by its name."""
        return self.path.endswith(".parquet")


class Footer(NamedTuple):
    """The columns and rows of a Parquet file, from its footer.

    Attributes:
        columns: Its columns with their types, as text.
        rows: The number of its rows.
        fault: Why it cannot be read; "" if it can.
    """

    columns: str = ""
    rows: int = 0
    fault: str = ""


def to_address(path: Path) -> str:
    """The address of a path of this machine, even if Spark's default is another file system.

    Special characters are not quoted, because Spark takes them as they are.
    """
    return f"file://{path.absolute()}"


def list_files(session: SparkSession, paths: Sequence[str | Path]) -> list[SourceFile]:
    """All files, each once. In folders, files that begin with ``.`` or ``_`` are left out.

    Raises:
        InputError: A path has no file, or cannot be listed.
    """
    hadoop, settings = _hadoop(session)
    listed: dict[str, SourceFile] = {}
    for path in paths:
        is_here = Path(path).exists()
        address = hadoop.fs.Path(to_address(Path(path)) if is_here else str(path))
        try:
            system = address.getFileSystem(settings)
            # An existing path is not a pattern, even with a pattern's characters.
            roots = [system.getFileStatus(address)] if is_here else system.globStatus(address)
            files = sorted(file for root in roots or () for file in _below(system, root))
        except Exception as error:
            raise InputError(f"{path}: cannot be listed by Spark ({cause_of(error)})") from error
        if not files:
            raise InputError(f"{path}: no such file, or a folder without files")
        listed.update((file.path, file) for file in files)
    return list(listed.values())


def _below(system: Any, root: Any) -> Iterator[SourceFile]:
    if root.isFile():
        yield SourceFile(root.getPath().toString(), root.getLen())
        return
    base = root.getPath().toString()
    listing = system.listFiles(root.getPath(), True)
    while listing.hasNext():
        status = listing.next()
        path = status.getPath().toString()
        names = path.removeprefix(base).split("/")
        if not any(name.startswith((".", "_")) for name in names):
            yield SourceFile(path, status.getLen())


def read_footers(session: SparkSession, files: Sequence[SourceFile]) -> list[Footer]:
    """The footer of each Parquet file."""
    from py4j.protocol import Py4JJavaError

    hadoop, settings = _hadoop(session)
    assert session.sparkContext._jvm is not None
    parquet: Any = session.sparkContext._jvm.org.apache.parquet.hadoop

    def footer(file: SourceFile) -> Footer:
        if not file.size:
            return Footer(fault="the file is empty")
        try:
            input_file = parquet.util.HadoopInputFile.fromPath(hadoop.fs.Path(file.path), settings)
            reader = parquet.ParquetFileReader.open(input_file)
            try:
                columns = reader.getFileMetaData().getSchema().toString()
                return Footer(columns, reader.getRecordCount())
            finally:
                reader.close()
        except Py4JJavaError as error:
            reason = cause_of(error).removeprefix("RuntimeException: ")
            reason = reason.removeprefix(f"{file.path} ")
            return Footer(fault=f"it cannot be read as Parquet ({reason})")

    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(footer, files))


def head_of(session: SparkSession, file: SourceFile) -> bytes:
    """The first bytes of a file; none if it cannot be opened."""
    hadoop, settings = _hadoop(session)
    address = hadoop.fs.Path(file.path)
    with suppress(Exception):
        stream = address.getFileSystem(settings).open(address)
        try:
            return bytes(stream.readNBytes(_HEAD))
        finally:
            stream.close()
    return b""


def _hadoop(session: SparkSession) -> tuple[Any, Any]:
    context: Any = session.sparkContext
    assert context._jvm is not None
    return context._jvm.org.apache.hadoop, context._jsc.hadoopConfiguration()
