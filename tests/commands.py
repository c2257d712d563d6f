"""Runs oteval's commands inside the test process, which takes milliseconds instead of seconds."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oteval.cli import main

__all__ = ["Done", "Prepare", "Run", "oteval", "prepare", "prepared_folders"]


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
Prepare = Callable[[Callable[[Run], object]], Run]


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


@pytest.fixture(scope="session")
def prepared_folders() -> dict[Callable[[Run], object], Path]:
    """Return the folders that `prepare` copies, by the functions that filled them."""
    return {}


@pytest.fixture
def prepare(
    oteval: Run,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    prepared_folders: dict[Callable[[Run], object], Path],
) -> Prepare:
    """Return a function that fills the empty folder of `oteval` as another function does.

    That function gets the command, and is called once: later tests get copies of its files.
    """

    def fill(write: Callable[[Run], object]) -> Run:
        if write in prepared_folders:
            shutil.copytree(prepared_folders[write], tmp_path, dirs_exist_ok=True)
            return oteval
        write(oteval)
        copy = tmp_path_factory.mktemp("prepared")
        prepared_folders[write] = shutil.copytree(tmp_path, copy, dirs_exist_ok=True)
        return oteval

    return fill
