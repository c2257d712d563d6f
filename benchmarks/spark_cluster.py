"""A standalone Spark for measurements and tests: a master and workers, each a process (a JVM).

All listen on the loopback interface, on ports that they choose and that their output names. Each
worker has another address there, because Spark starts a second attempt of a task on another host
only. Linux has these addresses without any setting.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from .clock import family
from .served import ROOT

__all__ = ["FamilyCpu", "SparkCluster"]

_TICK = os.sysconf("SC_CLK_TCK")
# A JVM takes a second to start, and a minute where others keep all cores busy.
_START = 180


class SparkCluster:
    """A master and workers with a core each.

    Attributes:
        url: The address of the master.
        workers: The processes of the workers.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the cluster.

        Args:
            folder: Where the workers and executors write.
            workers: How many workers.
            memory: The memory of each executor's JVM.
            environment: Variables of the executors.
        """
        import pyspark

        home = Path(pyspark.__file__).parent
        self._folder, self._memory = folder, memory
        self._executors = {"PYTHONPATH": str(ROOT), **(environment or {})}
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            # The port of REST would be a fixed one; the daemons do too little to be optimized.
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false "
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        self._class = [str(home / "bin" / "spark-class")]
        self.workers: list[subprocess.Popen[str]] = []
        name = "org.apache.spark.deploy.master.Master"
        listens = r"at (spark://\S+)"
        self._master, self.url = self._started(name, "127.0.0.1", listens, "--port", "0")
        try:
            for number in range(1, workers + 1):
                options = ("--cores", "1", "--memory", "4g", "--work-dir")
                name = "org.apache.spark.deploy.worker.Worker"
                work, host = str(folder / f"worker-{number}"), f"127.0.0.{number}"
                process, _ = self._started(
                    name, host, "(registered) with master", *options, work, self.url
                )
                self.workers.append(process)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        """Return the cluster itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def _started(
        self, name: str, host: str, pattern: str, *options: str
    ) -> tuple[subprocess.Popen[str], str]:
        """Start a process, and return it with the part of its output that a pattern finds."""
        command = [*self._class, name, "--host", host, "--webui-port", "0", *options]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**self._environment, "SPARK_LOCAL_IP": host},
        )  # fmt: skip
        lines: list[str] = []
        matches: list[str] = []
        heard = threading.Event()

        def read() -> None:
            assert process.stderr is not None
            with process.stderr as output:
                for line in output:
                    if not heard.is_set():
                        lines.append(line)
                        if match := re.search(pattern, line):
                            matches.append(match[1])
                            heard.set()
            heard.set()

        threading.Thread(target=read, daemon=True).start()
        if not heard.wait(_START) or not matches:
            _ended(process)
            raise RuntimeError(f"{name} did not start: {''.join(lines)}")
        return process, matches[0]

    def session(self, **settings: Any) -> Any:
        """Return a new session on the cluster.

        Args:
            **settings: Settings of Spark, with ``__`` for each dot.
        """
        from pyspark.sql import SparkSession

        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        chosen = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": self._memory,
            "spark.executor.cores": "1",
            "spark.local.dir": str(self._folder / "driver"),
            "spark.sql.shuffle.partitions": str(2 * len(self.workers)),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.ui.enabled": "false",
            **{f"spark.executorEnv.{name}": value for name, value in self._executors.items()},
            **{name.replace("__", "."): str(value) for name, value in settings.items()},
        }
        builder = SparkSession.builder.master(self.url).appName("oteval")
        for name, value in chosen.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def executors(self) -> list[int]:
        """Return the processes of the executors."""
        pids = (pid for worker in self.workers for pid in family(worker.pid))
        return [pid for pid in pids if b"CoarseGrainedExecutorBackend" in _command(pid)]

    def stop(self) -> None:
        """Stop all processes."""
        for process in (*self.workers, self._master):
            _ended(process)


class FamilyCpu:
    """The CPU seconds of this process and of all that descend from it, in a block.

    All are looked at twice a second, because Linux counts a process nowhere whose parent does not
    wait for its end. Spark lets Python workers end so that have been idle for a minute.

    Attributes:
        seconds: The CPU seconds, after the block.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.seconds = 0.0

    def __enter__(self) -> Self:
        """Begin."""
        self._look()
        self.seconds = -sum(self._known.values())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._is_over.set()
        self._thread.join()
        self._look()
        self.seconds += sum(self._known.values())

    def _watch(self) -> None:
        while not self._is_over.wait(0.5):
            self._look()

    def _look(self) -> None:
        for pid in family(os.getpid()):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # User and system time; a number is given to another process later.
            self._known[pid, fields[19]] = (int(fields[11]) + int(fields[12])) / _TICK


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _ended(process: subprocess.Popen[str]) -> None:
    """Ask a process to end, and wait; end it where it does not."""
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
