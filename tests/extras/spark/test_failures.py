"""What is said of failures of Spark: the cause and the file, without a JVM."""

from __future__ import annotations

import pytest

from oteval.base.errors import InputError
from oteval.extras.spark.failures import cause_of, unreadable_file
from oteval.extras.spark.result_places import is_address, local_path
from oteval.extras.spark.session import parse_settings

_STACK = "\tat org.apache.spark.SparkContext.runJob(SparkContext.scala:2593)\n"
_READ = (
    "An error occurred while calling o70.getResult.\n"
    ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
    f"{_STACK}"
    "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error "
    "while reading file file:///data/a.b%201.parquet.  SQLSTATE: KD001\n"
    f"{_STACK}"
    "Caused by: java.io.IOException: can not read class PageHeader: Required field missing\n"
    f"{_STACK}\t... 45 more\n"
)
_PYTHON = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: "
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "ValueError: no such agent\n"
    "\n"
    f"{_STACK}"
    "Driver stacktrace:\n"
    f"{_STACK}"
    "Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            _READ,
            "file:///data/a.b%201.parquet: IOException: can not read class PageHeader: Required "
            "field missing",
        ),
        (_PYTHON, "ValueError: no such agent"),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            f": java.lang.IllegalStateException: Cannot call methods on a stopped context\n{_STACK}"
            "Caused by: java.net.UnknownHostException: no.such.host\n",
            "UnknownHostException: no.such.host",
        ),
        (
            "An error occurred while calling o31.getFileSystem.\n"
            ": org.apache.hadoop.fs.UnsupportedFileSystemException: "
            'No FileSystem for scheme "foo"\n'
            f"{_STACK}",
            'UnsupportedFileSystemException: No FileSystem for scheme "foo"',
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
            "[JAVA_GATEWAY_EXITED] Java gateway process exited",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": java.net.ConnectException: Call From vm/127.0.0.1 to rm:8032 failed on connection "
            "exception: java.net.ConnectException: Connection refused; For more details see:  "
            f"http://wiki.apache.org/hadoop/ConnectionRefused\n{_STACK}"
            "Caused by: java.net.ConnectException: Connection refused\n",
            "ConnectException: Call From vm/127.0.0.1 to rm:8032 failed on connection exception: "
            "java.net.ConnectException: Connection refused",
        ),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_is_named_and_no_call_of_py4j(text: str, cause: str):
    """The deepest cause, or the last line of an executor's Python traceback, in one line."""
    assert cause_of(RuntimeError(text)) == cause


def test_a_long_cause_is_cut():
    """A message with the plan of a query stays readable."""
    assert len(cause_of(RuntimeError("x" * 10_000))) < 500


def test_only_a_failure_to_read_names_a_file():
    """Other failures have none, so nothing is taken for damaged."""
    assert unreadable_file(RuntimeError(_READ)) == "file:///data/a.b%201.parquet"
    assert unreadable_file(RuntimeError(_PYTHON)) is None


@pytest.mark.parametrize("text", ["spark.a", "a=b", "=b", "", "hadoop.x=1"])
def test_settings_are_written_as_spark_key_value(text: str):
    """Everything else is refused with the form to write."""
    assert parse_settings(["spark.a=b=c", "spark.d="]) == {"spark.a": "b=c", "spark.d": ""}

    with pytest.raises(InputError, match=r"write it as spark\.KEY=VALUE"):
        parse_settings([text])


@pytest.mark.parametrize(
    ("path", "is_remote"),
    [
        ("s3a://bucket/out", True),
        ("hdfs://name:8020/out", True),
        ("dbfs:/out", True),
        ("abfss://box@account.dfs.core.windows.net/out", True),
        ("file:///tmp/out", False),
        ("file:/tmp/out", False),
        ("out", False),
        ("a:b/out", False),
        ("C:/out", False),
        ("/tmp/s3a://x", False),
    ],
)
def test_addresses_are_told_from_folders(path: str, is_remote: bool):
    """A scheme and a slash make an address; ``file:`` is a folder of this machine."""
    assert is_address(path) is is_remote
    if path.startswith("file:"):
        assert str(local_path(path)) == "/tmp/out"
