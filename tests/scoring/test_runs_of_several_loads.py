"""Spans that are loaded one after the other, in any order, give the same runs as one load."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from oteval.model import Span
from oteval.model.selection import Selection, select
from oteval.scoring import refresh
from oteval.store import Store

from ..reconstruct.builders import agent, asks, brief, chat, gives, said, tool, user

HOUR = 3600 * 10**9
ASKED = asks(("refund", {"order": 17}, "c1"))


def loaded(parts: Sequence[Sequence[Span]]) -> list[tuple[int, list[Any]]]:
    """Return the turn and the messages of each run, after the parts were loaded one by one."""
    with Store(":memory:") as store:
        for part in parts:
            store.spans.write(part)
            refresh(store)
        runs = sorted(store.trajectories.read(), key=lambda run: run.start_ns)
        return [(run.turn, brief(run.messages)) for run in runs]


def interrupted(session: str) -> list[list[Span]]:
    """Return a run that waits for an approval, and one that goes on in another trace."""
    first, second = "1" * 32, "2" * 32
    return [
        [
            agent("a1", 1, trace=first, session=session, end=9),
            chat("m1", 2, [user("Refund")], ASKED, parent="a1", trace=first),
        ],
        [
            agent("a2", HOUR, trace=second, session=session, end=HOUR + 9),
            tool(
                *("t2", HOUR + 1),
                of="refund",
                id="c1",
                args={"order": 17},
                result="ok",
                parent="a2",
                trace=second,
            ),
            chat(
                *("m2", HOUR + 3, [user("Refund"), ASKED, gives("ok", "c1")], said("Done")),
                parent="a2",
                trace=second,
            ),
        ],
    ]


@pytest.mark.parametrize("session", ["s", ""])
def test_a_run_that_was_interrupted_is_one_turn(session: str):
    """Each call has its result, and the run is the same, whichever trace is loaded first."""
    parts = interrupted(session)
    whole = [
        (
            1,
            [
                ("user", "Refund"),
                ("assistant", [("refund", {"order": 17})]),
                ("tool", "ok"),
                ("assistant", "Done"),
            ],
        )
    ]

    assert loaded([[*parts[0], *parts[1]]]) == whole
    assert loaded(parts) == whole
    assert loaded(parts[::-1]) == whole


@pytest.mark.slow
def test_turns_that_name_the_answer_before_are_joined_in_any_order():
    """`previous_response_id` joins turns hours apart, whichever trace is loaded first."""

    def turn(number: int) -> list[Span]:
        named = {
            "llm.invocation_parameters": json.dumps({"previous_response_id": f"r{number - 1}"})
        }
        attributes = {"gen_ai.response.id": f"r{number}", **(named if number > 1 else {})}
        return [
            chat(
                *(f"c{number}", number * HOUR, [user(f"q{number}")], said(f"a{number}")),
                trace=f"{number:032x}",
                attributes=attributes,
            )
        ]

    for parts in itertools.permutations([turn(1), turn(2), turn(3)]):
        turns = loaded(parts)

        assert [number for number, _ in turns] == [1, 2, 3]
        assert turns[-1][1] == [
            *(("user", "q1"), ("assistant", "a1"), ("user", "q2")),
            *(("assistant", "a2"), ("user", "q3"), ("assistant", "a3")),
        ]


def test_a_span_that_was_exported_again_renews_the_run():
    """The span's last export replaces its earlier one."""
    early = chat("c", 1, [user("q")], trace="1" * 32, end=0)
    whole = chat("c", 1, [user("q")], said("a"), trace="1" * 32, end=9)

    for parts in ([[early], [whole]], [[whole], [early]], [[early, whole]]):
        assert loaded(parts) == [(1, [("user", "q"), ("assistant", "a")])]


@pytest.mark.parametrize("name", ["triage", "expert", "other"])
def test_each_agent_of_a_hand_off_finds_its_run(name: str):
    """`agent` filters, in SQL and in Python, find a run by each of the agents that took part."""
    hand_over, trace = asks(("transfer_to_expert", {}, "k")), "1" * 32
    spans = [
        agent("a", 1, of="triage", trace=trace, end=9),
        chat("m1", 2, [user("q")], hand_over, parent="a", trace=trace),
        agent("b", 10, of="expert", trace=trace, end=19),
        chat(
            *("m2", 11, [user("q"), hand_over, gives("ok", "k")], said("Done")),
            parent="b",
            trace=trace,
        ),
    ]
    is_one = name != "other"
    with Store(":memory:") as store:
        store.spans.write(spans)
        refresh(store)
        (run,) = store.trajectories.read()
        selections = [
            Selection(agents=(name,)),
            select(where=[f"agent={name}"]),
            select(where=[f"agent~^{name}$"]),
        ]
        for selection in selections:
            assert [trajectory.id for trajectory in store.trajectories.read(selection)] == [
                run.id
            ] * is_one
            assert selection.matches(run) is is_one
        assert [*store.trajectories.read(select(where=[f"agent!={name}"]))] == [run] * (not is_one)

    assert run.agents == ("triage", "expert")
    assert [m.name for m in run.messages if m.role == "assistant"] == ["triage", "expert"]
