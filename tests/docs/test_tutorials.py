"""The tutorials, followed to the letter: their commands print what the pages say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..commands import Run
from ..make import ROOT
from .walkthrough import Walkthrough, environment

TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.fixture
def walkthrough(
    tmp_path: Path, oteval: Run, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Walkthrough]:
    """Return a walkthrough in an empty folder, whose servers end with the test."""
    following = Walkthrough(tmp_path, oteval, environment())
    for name in set(os.environ) - set(following.environment):
        monkeypatch.delenv(name)
    for name, value in following.environment.items():
        monkeypatch.setenv(name, value)
    yield following
    following.stop()


def test_the_first_failing_run(walkthrough: Walkthrough) -> None:
    """The demo and an agent of one's own fail for the reasons that the page shows."""
    walkthrough.follow((TUTORIALS / "first-failing-run.md").read_text("utf-8"))


@pytest.mark.slow
def test_production_in_an_hour(walkthrough: Walkthrough) -> None:
    """Two servers receive, score, forward and alert as the page shows."""
    walkthrough.follow((TUTORIALS / "production.md").read_text("utf-8"))


@pytest.mark.slow
def test_a_changed_prompt(walkthrough: Walkthrough) -> None:
    """Recorded sessions, an experiment and a replay find the changed prompt."""
    walkthrough.follow((TUTORIALS / "changed-prompt.md").read_text("utf-8"))


@pytest.mark.slow
def test_trust_in_a_judge(walkthrough: Walkthrough) -> None:
    """A judge is measured, mended and compared as the page shows."""
    walkthrough.follow((TUTORIALS / "trust-my-judge.md").read_text("utf-8"))


def test_the_messages_to_troubleshoot_are_real() -> None:
    """Each quoted message is one that the code writes; braces stand for values."""
    code = "".join(path.read_text("utf-8") for path in sorted((ROOT / "oteval").rglob("*.py")))
    code = re.sub(r'"\s*f?"', "", code)
    page = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text("utf-8")
    messages = "".join(re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)).splitlines()

    pieces = {piece for line in messages for piece in re.split(r"\{\w+\}", line) if len(piece) > 4}

    assert len(messages) > 20
    assert {piece for piece in pieces if piece not in code} == set()
