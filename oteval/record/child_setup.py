"""The start of instrumentation in a child of `oteval run`, called by its bootstrap.

Each process appends its traces to a file of the run's folder, or exports them directly. The current
span is carried from process to process. The TRACEPARENT of the shell that started `oteval run` is
passed on to the program, but its trace is not continued. The TRACEPARENT of a build server would
otherwise join all agents of a build in one trace.
"""

from __future__ import annotations

import atexit
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..base.errors import OtevalError
from .instrument import Instrumentation, instrument

__all__ = ["start"]

_TRACE = "TRACEPARENT"


def start(settings: Mapping[str, Any]) -> None:
    """Turn instrumentation on in this process.

    Args:
        settings: `ChildSettings` as a mapping; see `instrumented_command`. ``losses`` is the file
            to create if spans are lost.

    Raises:
        OtevalError: Nothing is recorded; the message has the reason.
    """
    _join_invocation(settings.get("invocation", ""))
    recordings: list[Instrumentation] = []
    # Functions run in reverse order: this one runs after the function that ends the export.
    atexit.register(_report_losses, recordings, Path(settings["losses"]))
    with _without_outer_trace(settings["outer_trace"]):
        recording = instrument(
            settings["to"] or _own_file(Path(settings["folder"]), settings["prefix"]),
            service=settings["service"] or None,
            capture_content=settings["capture_content"],
            record_http=settings["record_http"],
            redact=settings["redact"],
            libraries=settings["libraries"] or None,
        )
        if recording.problem:
            raise OtevalError(recording.problem)
        recordings.append(recording)


def _join_invocation(invocation: str) -> None:
    # Without the SDK nothing is recorded; `instrument` reports it.
    with suppress(ImportError):
        from .providers import join_invocation

        join_invocation(invocation)


def _report_losses(recordings: Sequence[Instrumentation], file: Path) -> None:
    """Create an empty file, which needs no space on a full disk, if spans were lost."""
    if any(recording.stats.lost or recording.stats.waiting for recording in recordings):
        with suppress(OSError):
            file.touch()


def _own_file(folder: Path, prefix: str) -> Path:
    """The trace file of this process. Its name has a random part: process ids are used again."""
    return folder / f"{prefix}{os.getpid()}-{secrets.token_hex(4)}.jsonl"


@contextmanager
def _without_outer_trace(outer: str) -> Iterator[None]:
    """While a block runs, hide the trace that the whole command was started in."""
    is_outer = outer != "" and os.environ.get(_TRACE) == outer
    if is_outer:
        del os.environ[_TRACE]
    try:
        yield
    finally:
        if is_outer:
            os.environ[_TRACE] = outer
