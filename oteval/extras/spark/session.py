"""The Spark of a command: the session that exists, or a session for the time of the command.

``--master`` decides where Spark runs, or else ``spark-submit``, a notebook's session or
``spark-defaults.conf``. If a command runs on this machine because nothing else is configured, it
reports that.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...base.errors import InputError
from .failures import SparkFailed, cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["parse_settings", "spark_session"]

_LOOPBACK = "127.0.0.1"
# If a master does not answer in these seconds, it is given up; Spark itself takes minutes.
_CONNECT = 5.0
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_STANDALONE = "spark://"
_CONNECT_REFUSED = (
    "--engine spark does not run over Spark Connect, which cannot list files: use spark-submit or "
    "a session with a JVM, and unset SPARK_REMOTE"
)


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """The settings of ``--conf KEY=VALUE``.

    Raises:
        InputError: A setting has no key or no value, or another prefix than ``spark.``.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise InputError(f"--conf {text!r}: write it as spark.KEY=VALUE")
        settings[key] = value
    return settings


@contextmanager
def spark_session(
    master: str | None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Return the session that exists, or start Spark and stop it at the end of the block.

    Args:
        master: The address of the cluster's master, or ``local[N]``. None means the master that
            Spark is configured with, or else this machine.
        settings: Settings of Spark by key.

    Raises:
        InputError: PySpark or Java is missing, or an option does not go with the session.
        SparkFailed: Spark does not start, or a job in the block failed.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        raise InputError(
            "--engine spark needs PySpark: pip install 'oteval[spark]', and Java 17 or later"
        ) from None
    # oteval passes only Arrow batches to PySpark, never pandas objects.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = settings or {}
    address = master or "Spark"
    try:
        running = _running_session()
        if running is not None:
            address = running.sparkContext.master
            with _used(running, master, settings):
                yield running
            return
        address = _chosen_master(master, settings)
        session = _started(address, settings)
        try:
            yield session
        finally:
            session.stop()
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(f"{address}: {cause_of(error)}") from error
    except TypeError as error:
        # So Py4J reports that a class is missing.
        if "JavaPackage" not in str(error):
            raise
        home = os.environ.get("SPARK_HOME", "")
        raise SparkFailed(
            f"{address}: the Spark of SPARK_HOME ({home}) is not PySpark's"
        ) from error
    except ConnectionError as error:
        raise SparkFailed(f"{address}: the JVM of Spark's driver has ended ({error})") from error


def _running_session() -> SparkSession | None:
    """The session that exists, even if another thread began it.

    Raises:
        InputError: It is a session of Spark Connect.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ:
        raise InputError(_CONNECT_REFUSED)
    context: Any = SparkContext
    if context._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return None


@contextmanager
def _used(session: SparkSession, master: str | None, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to an existing session, for the time of the block.

    Raises:
        InputError: An option cannot be changed any more.
    """
    running = session.sparkContext.master
    if master and master != running:
        raise InputError(f"--master {master}: a Spark session runs already, on {running}")
    changed = {key: value for key, value in settings.items() if session.conf.isModifiable(key)}
    for key, value in settings.items():
        if key not in changed and session.sparkContext.getConf().get(key) != value:
            raise InputError(
                f"--conf {key}: cannot be changed in a session that runs; set it where it is begun"
            )
    before = {key: session.conf.get(key, None) for key in changed}
    for key, value in changed.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        with suppress(Exception):
            for key, old in before.items():
                session.conf.unset(key) if old is None else session.conf.set(key, old)


def _chosen_master(master: str | None, settings: Mapping[str, str]) -> str:
    """The master that Spark will run on.

    Raises:
        InputError: Java is missing, or two masters were named.
        SparkFailed: No master answers at the address.
    """
    submitted = _SUBMITTED in os.environ
    if not submitted:
        _require_java()
    given_master = master or settings.get("spark.master")
    if given_master and settings.get("spark.master", given_master) != given_master:
        raise InputError(
            f"--master is {given_master}, but --conf spark.master another; give one of them"
        )
    is_configured = submitted or (not given_master and _is_configured())
    configured = _configured_master() if is_configured else None
    if submitted and given_master and configured and given_master != configured:
        raise InputError(
            f"--master is {given_master}, but spark-submit chose {configured}; leave it out"
        )
    chosen = given_master or configured or "local[*]"
    _require_answer(chosen)
    if not given_master and not submitted and chosen.startswith("local"):
        print(
            f"Spark runs on this machine ({chosen}); --master, spark-submit or spark.master names "
            "a cluster",
            file=sys.stderr,
        )
    return chosen


def _is_configured() -> bool:
    """Whether a file or variable of Spark's may name a master."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    variables = ("MASTER", "PYSPARK_SUBMIT_ARGS")
    return (folder / "spark-defaults.conf").exists() or any(v in os.environ for v in variables)


def _configured_master() -> str | None:
    """The master of spark-submit or spark-defaults.conf; it starts the JVM."""
    from pyspark import SparkConf, SparkContext

    context: Any = SparkContext
    context._ensure_initialized()
    configured: str | None = SparkConf().get("spark.master", None)
    return configured


def _require_java() -> None:
    java = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (java and Path(java, "bin", "java").exists())):
        raise InputError("--engine spark needs Java 17 or later; install it or set JAVA_HOME")


def _require_answer(master: str) -> None:
    """Try the addresses of a standalone master; one address must accept a connection.

    Raises:
        InputError: An address has no port.
        SparkFailed: No address accepts.
    """
    if not master.startswith(_STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(_STANDALONE).split(","):
        try:
            host, port = urlsplit(f"//{address}").hostname, urlsplit(f"//{address}").port
        except ValueError:
            host = port = None
        if not host or not port:
            raise InputError(f"--master {master}: write it as {_STANDALONE}HOST:7077")
        try:
            socket.create_connection((host, port), _CONNECT).close()
        except OSError as error:
            reasons.append(f"{address} ({error.strerror or error})")
        else:
            return
    raise SparkFailed(f"{master}: no master of Spark answers at {', '.join(reasons)}")


def _started(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start Spark; the settings of the caller override the settings for one machine."""
    from pyspark.sql import SparkSession

    chosen = {
        "spark.ui.showConsoleProgress": "false",
        # The cause is in the command's own line.
        "spark.log.level": "FATAL",
        # Times of ClickHouse, which are in ns; and timestamps that all readers of Parquet know.
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # It is read when the JVM starts. That is too late if the JVM reported the configured
        # master.
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
        chosen |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.ui.enabled": "false",
            # By default there are 200, as for a cluster.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    if master.startswith("yarn"):
        # By default, a resource manager that does not answer keeps Spark waiting for 15 minutes.
        chosen["spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"] = "60000"
    builder = SparkSession.builder.master(master)
    if _SUBMITTED not in os.environ:
        builder = builder.appName("oteval score")
    else:
        chosen = {}
    for key, value in {**chosen, **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
