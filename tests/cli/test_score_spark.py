"""``oteval score --engine spark``: its options and errors, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ..commands import Run
from ..make import TRACES

FILE = TRACES / "genai_openai_chat.json"


@pytest.fixture
def job(oteval: Run) -> Run:
    """Return the command in a folder with a configuration."""
    Path("oteval.yaml").write_text("evaluators: [{name: tools, type: tool_errors}]")
    return oteval


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--engine", "spark", "--out", "out"), "name them as PATHs"),
        (("--engine", "spark", FILE), "needs --out DIR"),
        (("--engine", "spark", FILE, "--out", "out", "--db", "x"), "uses no --db"),
        (("--engine", "spark", FILE, "--out", "out", "--limit", "3"), "--limit does not go"),
        ((FILE, "--out", "out"), "--out needs --engine spark"),
        ((FILE, "--master", "local"), "--master needs --engine spark"),
        ((FILE, "--overwrite"), "--overwrite needs --engine spark"),
        ((FILE, "--conf", "spark.a=b"), "--conf needs --engine spark"),
        ((FILE, "--max-judge-calls", "0"), "--max-judge-calls needs --engine spark"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    job: Run, options: tuple[str | Path, ...], reason: str
):
    """Status 2, with the option to change; nothing is written."""
    found = job("score", *options)

    assert found.status == 2
    assert reason in found.err
    assert not Path("out").exists()


def test_a_missing_package_is_named_in_one_line(job: Run, monkeypatch: pytest.MonkeyPatch):
    """The error says what to install, and no folder is begun."""
    given = ("score", "--engine", "spark", FILE, "--out", "out")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        patch.setitem(sys.modules, "pyspark.errors", None)
        patch.setitem(sys.modules, "py4j", None)
        patch.setitem(sys.modules, "py4j.protocol", None)
        package = job(*given)
    assert package.status == 2
    assert package.err.count("\n") == 1
    assert "pip install 'oteval[spark]'" in package.err
