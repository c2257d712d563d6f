"""Evaluators that run on the executors, and wait there until something happened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.served import until

MARKS = "OTEVAL_TEST_MARKS"
"""The environment variable with the folder of the marks."""
SLOW = "the slow question"
_BEFORE = 40
_calls = 0


def waits_for_a_kill(inputs: Any) -> bool:
    """Wait, after some runs, until the mark ``go`` is there; each call is counted in a mark."""
    global _calls
    _calls += 1
    marks = Path(os.environ[MARKS])
    with (marks / f"calls-{os.getpid()}").open("a") as file:
        file.write(".")
    if _calls > _BEFORE and not (marks / "go").exists():
        (marks / f"waits-{os.getpid()}").touch()
        until((marks / "go").exists, 600)
    return bool(inputs)


def waits_for_a_copy(inputs: Any) -> bool:
    """Wait with one run until a second process has the same one."""
    if inputs == SLOW:
        marks = Path(os.environ[MARKS])
        (marks / f"slow-{os.getpid()}").touch()
        until(lambda: len(list(marks.glob("slow-*"))) > 1, 600)
    return bool(inputs)
