"""Failures of Spark in one line: the cause, and the file or address.

The first line of such an error names a call of Py4J; the cause is the last of a chain, or the last
line of an executor's Python traceback.
"""

from __future__ import annotations

import re

from ...base.errors import OtevalError

__all__ = ["SparkFailed", "cause_of", "unreadable_file"]

_TRACEBACK = "Traceback (most recent call last):"
_UNREADABLE = re.compile(r"Encountered error while reading file (\S.*?)\.\s+(?:SQLSTATE|$)", re.M)
_CAUSED_BY = re.compile(r"^\s*Caused by: (.+)$", re.MULTILINE)
# The call of Py4J, and the stage of a task, which do not show the cause.
_CALL = re.compile(r"^(?:An error occurred while calling \S+\n: |Job aborted due to .*?: )")
_PACKAGE = re.compile(r"^(?:[a-z][\w]*\.)+(?=[A-Z])")
_FRAME = re.compile(r"^(?:at |\.\.\. \d+ more|JVM stacktrace:|Driver stacktrace:)")
_LONGEST = 400


class SparkFailed(OtevalError):
    """A job of Spark failed, or Spark did not start."""


def unreadable_file(error: Exception) -> str | None:
    """The file that a job failed to read, as Spark writes it; None for another failure."""
    match = _UNREADABLE.search(_text(error))
    return match[1] if match else None


def cause_of(error: Exception) -> str:
    """The cause of a failure of Spark in one line.

    Args:
        error: An exception of PySpark or Py4J.
    """
    text = _text(error)
    path = unreadable_file(error)
    reason = _of_python(text) or _of_java(text) or type(error).__name__
    reason = reason if len(reason) <= _LONGEST else f"{reason[:_LONGEST]}..."
    return reason if path is None or path in reason else f"{path}: {reason}"


def _text(error: Exception) -> str:
    """The whole text of an error, with the stack of the JVM, which a session may hide."""
    text, stack = str(error), getattr(error, "_stackTrace", None)
    return f"{text}\n{stack}" if stack and stack not in text else text


def _of_python(text: str) -> str:
    """The last line of the first Python traceback."""
    _, marker, traceback = text.partition(_TRACEBACK)
    lines: list[str] = []
    for line in traceback.splitlines() if marker else ():
        if _FRAME.match(line.strip()) or _CAUSED_BY.match(line):
            break
        lines.append(line.strip())
    return next((line for line in reversed(lines) if line), "")


def _of_java(text: str) -> str:
    """The deepest cause of a Java exception, or a cause above that repeats it with more details."""
    lines = _CALL.sub("", text.strip()).splitlines()
    first = next((line.strip() for line in lines if line.strip()), "")
    *above, cause = [first, *_CAUSED_BY.findall(text)]
    for message_above in reversed(above):
        message = cause.partition(": ")[2]
        if message and message in message_above:
            cause = message_above
    return _plain(cause.partition("; For more details see")[0])


def _plain(line: str) -> str:
    return _PACKAGE.sub("", line.strip())
