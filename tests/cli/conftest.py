"""How the commands are run: in this process, in a folder of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oteval.cli import main

from ..make import TRACES


class Done(NamedTuple):
    """What a command came to."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """The JSON objects that it printed, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Done]


@pytest.fixture
def oteval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Return a function that runs a command and says what came of it."""
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


@pytest.fixture
def chat() -> Path:
    """Return a capture of three runs: two turns, and a model call that failed."""
    return TRACES / "genai_openai_chat.json"


@pytest.fixture
def filled(oteval: Run, chat: Path) -> Run:
    """Return the command in a folder whose database holds the capture."""
    assert oteval("ingest", chat).status == 0
    return oteval
