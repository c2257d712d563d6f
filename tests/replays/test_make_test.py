"""`oteval replay make-test`: the written test passes, and fails when the agent changes."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from oteval.model import Recording
from oteval.replays.recording_files import save

from ..commands import Run, oteval
from .desk import DESK, EDITS, desk_recording

__all__ = ["oteval"]

NAME = "refund_order_17_please"


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """A recording of the agent `desk`, which is forgotten after the test."""
    yield desk_recording(monkeypatch)
    sys.modules.pop("desk", None)


@pytest.fixture
def written(desk: Recording, oteval: Run) -> Path:
    """The folder of the agent ``desk.py`` with the test that was written for it."""
    folder = Path.cwd()
    (folder / "desk.py").write_text(DESK)
    save(desk, folder / "session.jsonl")
    done = oteval("replay", "make-test", "session.jsonl", "--target", "desk:ask", "--no-run")
    assert done.status == 0, done.err
    return folder


def written_test(folder: Path, name: str = NAME) -> Callable[[Any], None]:
    """Return the function of a written test."""
    sys.modules.pop("desk", None)
    found: Callable[[Any], None] = runpy.run_path(str(folder / "tests" / f"test_{name}.py"))[
        f"test_{name}"
    ]
    return found


def test_the_written_test_reads_like_a_persons(written: Path) -> None:
    """The question, the tools with their arguments and the answer are literals in the test."""
    assert (written / "tests" / f"test_{NAME}.py").read_text().splitlines()[16:] == [
        f"def test_{NAME}(oteval_replay):",
        '    """The agent calls find_customer, recent_orders, lookup, refund, then answers."""',
        f'    with oteval_replay(HERE / "recordings" / "{NAME}.jsonl") as replay:',
        '        ask("Refund order 17, please")',
        "",
        "    assert replay.tool_calls == [",
        '        ("find_customer", {"email": "ada@example.com"}),',
        '        ("recent_orders", {"email": "ada@example.com"}),',
        '        ("lookup", {"order": 17}),',
        '        ("refund", {"order": 17}),',
        "    ]",
        '    assert replay.answer == "Refunded."',
        "",
        f'    path = HERE / "references" / "{NAME}.json"',
        '    reference = json.loads(path.read_text("utf-8"))',
        "    match = trajectory_strict_match(outputs=replay.messages, reference_outputs=reference)",
        '    assert match["score"], match["comment"]',
    ]


def test_the_written_test_passes(written: Path, oteval_replay: Any) -> None:
    """It needs neither a server nor a key, and gets each tool's own result, not the model's."""
    written_test(written)(oteval_replay)


@pytest.mark.parametrize("edit", EDITS)
def test_the_written_test_fails_when_the_agent_changes(
    written: Path, oteval_replay: Any, edit: str
) -> None:
    """The failure is that of a test, and shows the difference."""
    old, new, shown = EDITS[edit]
    assert old in DESK
    (written / "desk.py").write_text(DESK.replace(old, new))

    with pytest.raises((pytest.fail.Exception, AssertionError)) as failed:
        written_test(written)(oteval_replay)

    # The message of a plain assertion is pytest's, which rewrites the test; see the test below.
    assert isinstance(failed.value, AssertionError) or shown in str(failed.value)
