from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from oteval.model import Message, Rewrite, Trajectory, Usage
from oteval.model.columns import RunRow
from oteval.scoring import Tally, align
from oteval.views import (
    diff_view,
    references_table,
    scores_table,
    tallies_table,
    trajectories_table,
    trajectory_view,
    variants_table,
)

from ..make import asks, call, gap, run, score

HOSTILE = "[/bold] [red]x[/red] [link=http://x]\x1b]0;title\x07\x1b[2J\r\u202e"
CLEAN = "[/bold] [red]x[/red] [link=http://x]\\x1b]0;title\\x07\\x1b[2J\\x0d\\u202e"


def terminal_text(renderable: Any, width: int = 300, *, colour: bool = False) -> str:
    """Return the text that a terminal receives."""
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def hostile() -> Trajectory:
    """Return a trajectory in which every text contains markup and control characters."""
    return run(
        1,
        Message("user", HOSTILE, name=HOSTILE, parts=({"type": HOSTILE, "data": HOSTILE},)),
        asks(call(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE, start_ns=1, end_ns=5), text=HOSTILE),
        Message("tool", HOSTILE, (), HOSTILE, HOSTILE, is_error=True),
        Message(HOSTILE, HOSTILE),
        agent=HOSTILE,
        service=HOSTILE,
        conversation_id=HOSTILE,
        models=(HOSTILE,),
        dialects=(HOSTILE,),
        parent_id=HOSTILE,
        gaps=(gap(),),
        usage=Usage(1, 2, 3, 4),
    )


def views() -> dict[str, Any]:
    """Return everything that is shown of a hostile trajectory."""
    trajectory = hostile()
    scores = [score(1, label=HOSTILE, comment=HOSTILE, evaluator=HOSTILE, passed=None)]
    rates = {"pass_rate": 0.5, "pass_rate_interval": [0.0, 1.0], "earlier_share": 1.0}
    figures = {"cost": 1.0, "priced": 1, "input_tokens": 1.0, "output_tokens": 1.0, "seconds": 1.0}
    seen = {"recent_share": 1.0, "first_seen_ns": 1, "last_seen_ns": 1, **rates, **figures}
    row = {"tools": [HOSTILE], "count": 1, "share": 1.0, "errors": 0, **seen}
    reference = {"name": HOSTILE, "messages": 1, "source": HOSTILE, "created_ns": 1}
    return {
        "trajectory": trajectory_view(trajectory, scores, whole=True),
        "diff": diff_view(trajectory, trajectory, align(trajectory.messages, ())),
        "trajectories": trajectories_table(
            [RunRow.of(trajectory)], {trajectory.id: scores}, 10**18
        ),
        "scores": scores_table(scores),
        "tallies": tallies_table([Tally(HOSTILE)]),
        "variants": variants_table([{**row, "example": trajectory.id}], 10**18, 1),
        "references": references_table([reference], 10**18),
    }


@pytest.mark.parametrize("name", views())
def test_traces_are_shown_as_plain_text(name: str):
    """No text of a trace reaches the terminal as a control character or as markup."""
    text = terminal_text(views()[name], 2000)

    assert CLEAN[:20] in text
    for character in "\x1b\x07\r\u202e":
        assert character not in text


def test_a_trajectory_shows_what_it_holds():
    """Roles, calls, results, failures, gaps and scores are shown."""
    trajectory = run(
        1,
        Message("system", "be kind"),
        Message("user", "where is my order?"),
        asks(
            call("find", {"id": 7}, "c1", start_ns=1, end_ns=3_000_000),
            call("look", arguments=None, call_id="c2", start_ns=2, end_ns=4_000_000),
        ),
        Message("tool", "not found", (), "c1", "find", is_error=True),
        Message("tool"),
        gaps=(gap(), gap(), gap("redacted")),
        rewrites=(Rewrite(1, (Message("user", "x"),), ""),),
        conversation_id="c",
        turn=2,
    )

    text = terminal_text(trajectory_view(trajectory, [score(1, label="pass")]))

    for part in (
        "conversation  c ",
        "turn          2 ",
        "   1 user",
        "→ find(id=7)  3 ms  in parallel",
        "→ look(… not captured …)",
        "tool      failed  find c1",
        "(content not captured)",
        "history rewritten at message 1: 1 message was replaced",
        "content_not_captured  why  2 spans",
        "redacted  why  span 0000000000000000",
    ):
        assert part in text, part
    assert "pass" in text.split("Scores")[1]


def test_earlier_turns_are_shown_when_asked_for():
    """A turn shows its own messages with their places; all turns are shown on demand."""
    first = run(1, Message("user", "before"), Message("assistant", "answered"))
    second = run(2, Message("user", "after"), history=first, new_from=2, turn=2)

    alone, whole = (
        terminal_text(trajectory_view(second)),
        terminal_text(trajectory_view(second, whole=True)),
    )

    assert "2 earlier messages" in alone
    assert "before" not in alone
    assert "   2 user" in alone
    assert whole.index("before") < whole.index("turn 2") < whole.index("after")


def test_long_messages_are_cut_unless_asked_for():
    """A shortened message says how many characters are left out."""
    trajectory = run(1, Message("user", "x" * 2000))

    assert "… (1,000 more characters)" in terminal_text(trajectory_view(trajectory))
    assert "more characters" not in terminal_text(trajectory_view(trajectory, length=10**9))


def test_a_diff_marks_where_two_runs_part():
    """Equal rows, the first different row and later ones have different marks."""
    left = run(1, Message("user", "a"), asks(call("f", {"n": 1})), Message("tool", "x"))
    right = run(2, Message("user", "a"), asks(call("f", {"n": 2})))

    text = terminal_text(diff_view(left, right, align(left.messages, right.messages)))
    same = terminal_text(diff_view(left, left, align(left.messages, left.messages)))

    marks = [line[1] for line in text.splitlines()[3:] if line[1] in "=▶≠"]
    assert marks == ["=", "▶", "≠"]
    assert "First divergence at message 1; 2 of 3 rows differ." in text
    assert "No difference in 3 messages." in same


def test_scores_are_shown_in_a_word():
    """Verdicts, labels, numbers and missing verdicts each look different."""
    scores = [
        score(1, label="pass"),
        score(2, passed=False, score=0.0, label="fail"),
        score(3, passed=None, score=0.25),
        score(4, passed=None, score=0.5, label="half"),
        score(5, status="not_evaluated", comment="no content"),
        score(6, status="error"),
    ]

    lines = terminal_text(scores_table(scores)).splitlines()[1:]

    verdicts = [line.split("  e          ", 1)[1].strip() for line in lines]
    assert [text.split("  ")[0] for text in verdicts] == [
        *("pass", "fail", "0.25", "0.5 half", "not evaluated", "error")
    ]
    assert "no content" in lines[4]
