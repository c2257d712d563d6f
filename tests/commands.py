"""Runs oteval's commands inside the test process, which takes milliseconds instead of seconds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oteval.cli import main

__all__ = ["Done", "Run", "oteval"]


class Done(NamedTuple):
    """The outcome of a command: its exit status and its output."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """The JSON objects that the command printed, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


@pytest.fixture
def oteval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs a command in an empty folder and returns its outcome."""
    monkeypatch.chdir(tmp_path)
    for name in ("OTEVAL_DB", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["oteval", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, out, err)

    return run
