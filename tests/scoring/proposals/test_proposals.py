"""The parts of proposals: effects of tools, limits, orders, references and rules."""

from __future__ import annotations

from typing import Any

import pytest

from oteval.model import Message, Trajectory
from oteval.scoring import parse_config, propose_config, read_evidence
from oteval.scoring.proposals.config_text import with_learned
from oteval.scoring.proposals.proposal import Proposal
from oteval.scoring.proposals.tool_effects import ToolEffect, effect_of

from ...make import asks, call, run

READS, WRITES, DESTROYS, UNKNOWN = ToolEffect


@pytest.mark.parametrize(
    ("name", "definition", "effect"),
    [
        ("get_order", None, READS),
        ("find_user_id_by_email", None, READS),
        ("lookupOrder", None, READS),
        ("transfer_to_human_agents", None, READS),
        ("transfer_money", None, WRITES),
        ("book_reservation", None, WRITES),
        ("return_delivered_order_items", None, WRITES),
        ("sendEmail", None, WRITES),
        ("refund_order", None, DESTROYS),
        ("orders.cancel", None, DESTROYS),
        ("HTTPDelete", None, DESTROYS),
        ("banana", None, UNKNOWN),
        ("", None, UNKNOWN),
        ("frob", {"description": "Deletes the user's account."}, DESTROYS),
        ("frob", {"description": "Publishes a post."}, WRITES),
        ("delete_draft", {"annotations": {"readOnlyHint": True}}, READS),
        ("get_order", {"annotations": {"destructiveHint": True}}, DESTROYS),
        ("get_order", {"annotations": {"readOnlyHint": False}}, WRITES),
    ],
)
def test_the_effect_of_a_tool_is_read_from_hints_name_and_description(
    name: str, definition: Any, effect: ToolEffect
):
    """Hints decide, then the verb of the name, then the first word of the description."""
    assert effect_of(name, definition) is effect


def session(number: int, question: str, *calls: tuple[str, Any], **fields: Any) -> Trajectory:
    """Return a run that asks a question, makes calls that succeed, and answers."""
    messages = [Message("user", question)]
    for at, (tool, arguments) in enumerate(calls):
        messages += [
            asks(call(tool, arguments, f"c{at}")),
            Message("tool", "ok", tool_call_id=f"c{at}"),
        ]
    return run(number, *messages, Message("assistant", "Done."), **fields)


def proposed(runs: list[Trajectory], **labels: bool) -> dict[str, Proposal]:
    """Return the proposed evaluators by name."""
    config = propose_config(lambda: iter(runs), labels, source="Runs of a test.")
    return {entry.name: entry for entry in config.proposals if not entry.is_gate}


def test_free_text_that_varies_is_ignored_and_an_odd_value_is_not():
    """Runs agree on the id; each writes its own reason; one wrong id fails."""
    runs = [
        session(
            n, "Cancel it", ("cancel_order", {"id": 7, "reason": f"The user asks, case {n} of"})
        )
        for n in range(1, 6)
    ]
    runs.append(session(6, "Cancel it", ("cancel_order", {"id": 8, "reason": "The user asks so"})))
    match = proposed(runs)["reference-calls"]

    assert match.entry["overrides"] == {"cancel_order": {"reason": "ignore"}}
    assert match.counts is not None
    assert (match.counts.tally.passed, match.counts.tally.failed) == (5, 1)
    assert match.counts.failing_run == runs[-1].id


def test_lists_whose_order_varies_are_compared_as_sets():
    """Two orders of the same items are the same call."""
    orders = [[1, 2], [2, 1], [1, 2], [2, 1]]
    runs = [
        session(n, "Return them", ("return_items", {"ids": ids})) for n, ids in enumerate(orders, 1)
    ]
    match = proposed(runs)["reference-calls"]

    assert match.entry["tool_args"] == {"tolerant": {"sets": ["ids"]}}
    assert match.counts is not None
    assert match.counts.tally.passed == 4


def test_the_strictest_form_that_runs_agree_by_is_proposed():
    """Equal runs give strict; another order gives unordered; other reads give a view of effects."""
    look, check, cancel = ("get_a", {}), ("get_b", {}), ("cancel_order", {"id": 1})
    equal = [session(n, "q", look, cancel) for n in range(1, 5)]
    swapped = [
        session(n, "q", *((look, check) if n % 2 else (check, look)), cancel) for n in range(1, 5)
    ]
    reading = [session(n, "q", *[("get_a", {"n": n})] * n, cancel) for n in range(1, 5)]

    def form(runs: list[Trajectory]) -> tuple[Any, Any]:
        entry = proposed(runs)["reference-calls"].entry
        return entry["mode"], entry.get("view")

    assert form(equal) == ("strict", None)
    assert form(swapped) == ("unordered", None)
    assert form(reading) == ("unordered", "effects")


def test_a_failed_change_is_not_expected_of_other_runs():
    """A reference of effects lacks the failed calls of its run, so that equal runs match it."""
    runs = []
    for number in range(1, 5):
        failed = asks(call("cancel_order", {"id": 1}, "f"))
        error = Message("tool", "Error: busy", tool_call_id="f", is_error=True)
        cancels = asks(call("cancel_order", {"id": 2}, "c"))
        looks = asks(call("get_a", {"n": number}, "g"))
        parts = [failed, error] if number % 2 else [looks, Message("tool", "x", tool_call_id="g")]
        done = Message("tool", "done", tool_call_id="c")
        runs.append(run(number, Message("user", "q"), *parts, cancels, done))
    match = proposed(runs)["reference-calls"]

    assert match.entry["view"] == "effects"
    assert match.counts is not None
    assert match.counts.tally.passed == 4


def test_calls_in_common_become_a_superset():
    """Runs of a case that agree on one call and differ in all others must make that call."""
    runs = [session(n, "q", ("get_a", {"id": 1}), (f"get_{n}", {})) for n in range(1, 7)]
    match = proposed(runs)["reference-calls"]

    assert match.entry["mode"] == "superset"
    assert match.counts is not None
    assert match.counts.tally.passed == 6
    assert "the calls that all runs of the case make" in match.reasons[0]


def test_runs_that_disagree_get_no_reference_but_a_reason():
    """The head of the file says why there is no match, and what to do."""
    runs = [session(n, "q", ("get_a", {"n": n}), (f"tool_{n}", {})) for n in range(1, 7)]
    config = propose_config(lambda: iter(runs), {}, source="")

    assert "reference-calls" not in {entry.name for entry in config.proposals}
    assert any("make different calls" in note for note in config.notes)


def test_bad_runs_teach_no_habits():
    """A run that is labelled bad is neither a reference nor an exception."""
    runs = [session(n, "q", ("check_policy", {}), ("refund", {"id": 1})) for n in range(1, 5)]
    runs.append(session(5, "q", ("refund", {"id": 2})))
    proposals = proposed(runs, **{runs[-1].id: False})

    assert proposals["tool-order"].entry["rules"] == ["check_policy before refund"]
    assert proposals["tool-order"].counts is not None
    assert proposals["tool-order"].counts.tally.failed == 1


def test_several_agents_have_their_own_limits_and_orders():
    """Each agent's entries look at its own runs alone."""
    runs = [session(n, f"q{n}", ("get_a", {}), agent="planner") for n in range(1, 5)]
    runs += [session(n, f"q{n}", ("send_mail", {}), agent="mailer 2") for n in range(5, 9)]
    runs += [session(n, f"q{n}", ("get_b", {}), agent="mailer/2") for n in range(9, 12)]
    proposals = proposed(runs)

    assert proposals["required-tools-planner"].entry["where"] == {"agent": "planner"}
    assert proposals["required-tools-mailer-2"].entry["where"] == {"agent": "mailer 2"}
    assert proposals["required-tools-mailer-2-3"].entry["where"] == {"agent": "mailer/2"}
    assert all(
        entry.counts is not None and entry.counts.tally.failed == 0
        for entry in proposals.values()
        if entry.is_active
    )


def test_forbidden_are_destructive_tools_that_no_run_called():
    """The tool was offered to the agent; the description tells what it does."""
    tools = [
        {"type": "function", "function": {"name": "wipe_account", "parameters": {}}},
        {"type": "function", "function": {"name": "get_a", "parameters": {}}},
    ]
    runs = [session(n, f"q{n}", ("get_a", {}), tools=tuple(tools)) for n in range(1, 4)]
    forbidden = proposed(runs)["forbidden-tools"]

    assert forbidden.entry["forbidden"] == ["wipe_account"]
    assert forbidden.is_active


def test_evidence_names_cases_by_an_attribute_like_task_id():
    """An attribute that most runs have and that names a task is the key of cases."""
    runs = [session(n, f"q{n}", attributes={"task_id": "a", "n": n}) for n in range(1, 4)]

    assert read_evidence(runs, {}).key == "task_id"
    assert read_evidence(runs, {}, "question").key == "question"


def test_hostile_text_of_traces_stays_in_comments_and_strings():
    """Names and questions with line breaks and YAML cannot add entries to the file."""
    evil = "../x\n- name: evil\n  type: loops\n# \ud83d\x1b[1m"
    calls = [(name, {"a": evil}) for name in (evil, 'cancel "a b"', "delete[*]", "delete *")]
    runs = [session(n, evil, *calls, agent=evil) for n in range(1, 5)]
    config = propose_config(lambda: iter(runs), {}, source=evil)

    names = {entry.name for entry in parse_config(config.text).evaluators}
    active = {entry.name for entry in config.proposals if entry.is_active and not entry.is_gate}
    assert names == active
    assert all(name.count("/") == 1 and ".." not in name for name in config.files)
    config.text.encode()


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 1),
        ("# only a comment\n", 2),
        ("salt: a\n", 2),
        ("evaluators:\n  - name: a\n    type: loops\n", 3),
        ("evaluators:\n- {name: a, type: loops}\n# after\ngates: []\n", 2),
    ],
)
def test_a_learned_rule_is_added_to_any_list_of_evaluators(text: str, position: int):
    """The lines before and after stay; the block is after the last evaluator."""
    rule = Proposal("learned-loops", {"name": "learned-loops", "type": "loops"})
    lines = with_learned(text, [rule], "oteval.yaml").splitlines()

    assert lines[position].strip() == "# learned: begin"
    assert [line for line in lines if line in text.splitlines()] == text.splitlines()
