"""A standalone Spark of one master and two workers for the tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.spark_cluster import SparkCluster

from .evaluators import MARKS


@pytest.fixture(scope="session")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which evaluators on the executors leave marks."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[SparkCluster]:
    """The cluster."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    folder = tmp_path_factory.mktemp("cluster")
    with SparkCluster(folder, environment={MARKS: str(marks)}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(cluster: SparkCluster) -> Iterator[Callable[..., Any]]:
    """Returns the module's session, begun with some settings; it ends with the module."""
    begun: list[Any] = []

    def begin(**settings: Any) -> Any:
        quick = {
            f"spark__{side}__extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
            for side in ("driver", "executor")
        }
        begun.append(cluster.session(spark__ui__showConsoleProgress="false", **quick, **settings))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()


@pytest.fixture(scope="module")
def spark(session: Callable[..., Any]) -> Any:
    """A session on the cluster."""
    return session()
