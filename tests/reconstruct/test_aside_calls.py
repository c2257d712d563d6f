"""Model calls of an agent's run that belong to another conversation are reported."""

from __future__ import annotations

import pytest

from .builders import agent, brief, chat, codes, only, said, span, system, user


@pytest.mark.parametrize("has_agent", [True, False])
def test_calls_that_ran_at_once_are_not_one_conversation(has_agent: bool):
    """A call that began before the last answer had arrived does not continue it."""
    root = agent("r", 1, end=50) if has_agent else span("r", 1, end=50)
    run = only(
        root,
        *(
            chat(f"c{n}", 2 + n, [user(f"q{n}")], said(f"a{n}"), parent="r", end=20 + n)
            for n in range(3)
        ),
    )

    assert codes(run) == ["history_rewritten"] * 2
    assert len(run.messages) == 6


def test_new_messages_after_the_answer_go_on_with_it():
    """If the provider keeps the history, the client sends only new messages."""
    run = only(
        agent("r", 1, end=50),
        chat("c1", 2, [user("q1")], said("a1"), parent="r", end=5),
        chat("c2", 5, [user("q2")], said("a2"), parent="r", end=9),
    )

    assert codes(run) == []
    assert len(run.messages) == 4


def test_the_prompt_of_another_call_is_not_the_agents():
    """A judge's prompt does not become the prompt of an agent without one."""
    run = only(
        agent("r", 1, end=50),
        chat("c1", 2, [user("q")], said("a"), parent="r", end=5),
        chat("c2", 6, [system("You are a judge."), user("Rate it.")], said("5"), parent="r", end=9),
    )

    assert brief(run.messages)[0] == ("user", "q")
    assert codes(run) == ["system_prompt_changed"]
