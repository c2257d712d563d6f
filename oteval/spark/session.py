"""Start Spark for a command, with errors in one line."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, OtevalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkFailed", "spark_session"]

_LOOPBACK = "127.0.0.1"


class SparkFailed(OtevalError):
    """A job of Spark failed, or Spark did not start."""


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """Start Spark, and stop it at the end of the block.

    Args:
        master: The address of the cluster's master, or ``local[N]``.

    Raises:
        InputError: PySpark or Java is missing.
        SparkFailed: Spark does not start, or a job in the block failed.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError:
        raise InputError(
            "--engine spark needs PySpark: pip install 'oteval[spark]', and Java 17 or later"
        ) from None
    java = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (java and Path(java, "bin", "java").exists())):
        raise InputError("--engine spark needs Java 17 or later; install it or set JAVA_HOME")
    builder = (
        SparkSession.builder.master(master)
        .appName("oteval score")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
    )
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        builder = (
            builder.config("spark.driver.bindAddress", _LOOPBACK)
            .config("spark.driver.host", _LOOPBACK)
            .config("spark.ui.enabled", "false")
            # By default there are 200, as for a cluster.
            .config("spark.sql.shuffle.partitions", str(4 * (os.cpu_count() or 1)))
        )
    try:
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"Spark: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return the line of an error that says most: the last of a Python traceback, or the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        start = lines.index("Traceback (most recent call last):")
        ends = [n for n, line in enumerate(lines) if n > start and line.startswith("at ")]
        return lines[(ends[0] if ends else len(lines)) - 1]
    return lines[0] if lines else type(error).__name__
