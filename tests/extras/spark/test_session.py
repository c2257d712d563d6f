"""Which Spark a command uses: the session that is there, spark-submit's, or one of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import InputError
from oteval.extras.spark.failures import SparkFailed
from oteval.extras.spark.session import spark_session

from ...make import TRACES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("default"),
]
FILE = TRACES / "genai_openai_chat.json"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Return a port that is taken, and refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a session of somebody else, as in a notebook."""
    sql = pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.master("local[1]").appName("a notebook")
    for key in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(key, "127.0.0.1")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


def test_a_master_that_does_not_answer_is_named_at_once(closed_port: int):
    """The address and the reason, before Spark starts: no Java, and seconds in place of minutes."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    master = f"spark://127.0.0.1:{closed_port}"
    begun = time.monotonic()

    with (
        pytest.raises(SparkFailed, match=rf"{master}: no master of Spark answers .*refused"),
        spark_session(master),
    ):
        pass
    with (
        pytest.raises(InputError, match="write it as spark://HOST:7077"),
        spark_session("spark://127.0.0.1"),
    ):
        pass

    assert time.monotonic() - begun < 60
    from pyspark import SparkContext

    assert SparkContext._active_spark_context is None


def test_a_session_that_is_there_is_used_and_stays(spark: Any):
    """Settings apply to it; what it cannot do any more is refused; it runs on afterwards."""
    with spark_session(None, {"spark.sql.shuffle.partitions": "3"}) as session:
        assert session is spark
        assert session.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.sql.shuffle.partitions") != "3"
    with spark_session("local[1]") as session:
        assert session is spark
    with (
        pytest.raises(InputError, match=r"--conf spark\.executor\.memory: cannot be changed"),
        spark_session(None, {"spark.executor.memory": "9g"}),
    ):
        pass
    with (
        pytest.raises(InputError, match=r"a Spark session runs already, on local\[1\]"),
        spark_session("local[7]"),
    ):
        pass

    assert spark.range(3).count() == 3


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch):
    """A remote session cannot list files: the error says what to do."""
    pytest.importorskip("pyspark.sql", reason="PySpark is not installed")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:15002")

    with pytest.raises(InputError, match="SPARK_REMOTE"), spark_session(None):
        pass


def test_spark_submit_decides_where_the_command_runs(tmp_path: Path):
    """Its master and settings hold, and nothing says that Spark runs on this machine."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    home = Path(pyspark.__file__).parent
    (tmp_path / "oteval.yaml").write_text("evaluators: [{name: errors, type: tool_errors}]")
    script = tmp_path / "score.py"
    script.write_text(
        "import sys\n"
        "from pyspark import SparkContext\n"
        "from pyspark.sql import SparkSession\n"
        "start = SparkSession.Builder.getOrCreate\n"
        "def started(self):\n"
        "    session = start(self)\n"
        "    context = session.sparkContext\n"
        "    print('MASTER', context.master, context.getConf().get('spark.app.name'))\n"
        "    return session\n"
        "SparkSession.Builder.getOrCreate = started\n"
        "from oteval.cli import main\n"
        "main()\n"
    )
    command = [
        *(str(home / "bin" / "spark-submit"), "--master", "local[1]", "--name", "my job"),
        *("--driver-java-options", _QUICK, "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.ui.enabled=false"),
        *(str(script), "score", "--engine", "spark", str(FILE), "--out", "out", "--json"),
    ]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )

    assert "MASTER local[1] my job" in done.stdout, done.stderr
    assert "Spark runs on this machine" not in done.stderr
    assert json.loads((tmp_path / "out" / "results.json").read_text())["format"] == 1
