"""The output of commands at 80 and 120 columns, compared with files in tests/data/screens.

After an intended change run ``make screens``, which rewrites the files, and read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from oteval.cli import cli

from ..make import ROOT, TRACES
from .conftest import Run
from .test_experiments import EVAL, MODULE

SCREENS = ROOT / "tests" / "data" / "screens"
WIDTHS = (80, 120)
DEMO, CAPTURES = "oteval-demo/demo.duckdb", "captures.duckdb"
# Runs of the demo: one passes, one lacks a call, one refunds the wrong amount.
PASSES, LACKS_A_CALL, WRONG_AMOUNT = "28ba67f0", "e1fabb81", "fc889bcf"
COMMANDS = {
    "trajectories": ("trajectories", "--db", DEMO),
    "trajectories-captures": ("trajectories", "--db", CAPTURES),
    "scores": ("scores", "--db", DEMO),
    "show": ("show", WRONG_AMOUNT, "--db", DEMO),
    "show-turn": ("show", "a7b0dae3", "--db", CAPTURES),
    "show-conversation": ("show", "a7b0dae3", "--all", "--db", CAPTURES),
    "diff": ("diff", PASSES, LACKS_A_CALL, "--db", DEMO),
    "diff-argument": ("diff", LACKS_A_CALL, WRONG_AMOUNT, "--db", DEMO),
    "explain": ("explain", "a7b0dae3", "--db", CAPTURES),
    "variants": ("variants", "--db", DEMO),
    "compare": ("compare", "gpt-4", "gpt-5"),
}
# 2026-11-21 03:00 UTC: some days after the runs of the demo, an hour after those of the capture.
NOW_NS = 1_795_230_000 * 10**9


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the demo, a capture and two experiments."""
    made = tmp_path_factory.mktemp("screens")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.syspath_prepend(str(made))
        (made / "shop.py").write_text(MODULE)
        lines = [f'{{"id": "e{n}", "inputs": {{"n": {n % 9}}}}}' for n in range(40)]
        (made / "data.jsonl").write_text("\n".join(lines))
        ran = [("demo",), ("ingest", str(TRACES / "genai_openai_chat.json"), "--db", CAPTURES)]
        for command in ran:
            assert cli.main(list(command), standalone_mode=False) == 0
        for name, good in (("gpt-4", "100"), ("gpt-5", "5")):
            patch.setenv("GOOD", good)
            assert cli.main([*EVAL, "--name", name], standalone_mode=False) == 0
        yield made


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_screen_is_as_it_was(
    oteval: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, width: int
):
    """The output equals the file, fits the width and has no trailing spaces."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("oteval.cli.common.now_ns", lambda: NOW_NS)
    path = SCREENS / f"{name}.{width}.txt"

    done = oteval(*COMMANDS[name])

    if os.environ.get("RENEW_SCREENS"):
        path.write_text(done.out)
    assert done.out == path.read_text()
    for line in done.out.splitlines():
        assert cell_len(line) <= width
        assert line == line.rstrip()


def test_every_file_belongs_to_a_screen():
    """No stored screen belongs to a command that no longer exists."""
    expected = {f"{name}.{width}.txt" for name in COMMANDS for width in WIDTHS}

    assert {path.name for path in SCREENS.iterdir()} == expected
