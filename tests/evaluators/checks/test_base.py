"""What all checks have in common."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

import oteval
from oteval.evaluators.scorer import version_of
from oteval.model import Message, ToolCall

from ...make import gap, run
from .helpers import asks, runs, says, score

MADE: dict[str, list[Any]] = {
    "create_tool_error_evaluator": [{}, {"max_errors": 1}, {"missing_ok": True}],
    "create_loop_evaluator": [{}, {"max_repeats": 3}, {"ignore_tools": ["x"]}],
    "create_budget_evaluator": [
        {"max_steps": 1},
        {"max_cost": 1.0},
        {"max_cost": 1.0, "prices": {"m": {"input": 1, "output": 2}}},
    ],
    "create_latency_evaluator": [{"max_seconds": 1}, {"max_tool_seconds": 1}],
    "create_required_text_evaluator": [{"texts": "a"}, {"texts": "a", "match": "none"}],
    "create_final_answer_evaluator": [{"expected": "a"}, {"expected": "a", "mode": "normalised"}],
    "create_finish_reason_evaluator": [{}, {"allowed": ["stop"]}],
    "create_tool_schema_evaluator": [{}, {"tools": [{"name": "t", "parameters": {}}]}],
    "create_forbidden_tools_evaluator": [{"forbidden": ["a"]}, {"allowed": ["a"]}],
    "create_tool_order_evaluator": [{"rules": "a before b"}, {"rules": "b before a"}],
}
CHECKS = [getattr(oteval, name)(**made[0]) for name, made in MADE.items()]
OUTPUTS = [Message("user", "q"), asks("a", q=[1]), Message("tool", "Error"), says("b")]


@pytest.mark.parametrize("name", MADE)
def test_another_configuration_is_another_version(name: str) -> None:
    """All that a verdict depends on is in the description, which has a version."""
    versions = [version_of(getattr(oteval, name)(**options).describe()) for options in MADE[name]]
    again = [version_of(getattr(oteval, name)(**options).describe()) for options in MADE[name]]

    assert versions == again
    assert len({*versions}) == len(versions)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
def test_results_have_one_form_and_nothing_is_changed(check: Any) -> None:
    """Exactly four keys; the comment is None exactly for a pass; the caller's list is untouched."""
    plain = [message.as_dict() for message in OUTPUTS]
    before = copy.deepcopy(plain)

    for outputs in (OUTPUTS, plain, run(1, *OUTPUTS, models=("gpt-4o",))):
        found = check(outputs=outputs, inputs="q", more=1)

        assert set(found) == {"key", "score", "comment", "metadata"}
        assert found["key"] == check.key == check.__name__
        assert found["score"] in (True, False, None)
        assert (found["comment"] is None) == (found["score"] is True)
    assert plain == before


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
@pytest.mark.parametrize("outputs", [None, 7, {"x": 1}, [{"role": "nobody"}]])
def test_what_is_no_trajectory_is_refused(check: Any, outputs: Any) -> None:
    """The error names the place, as for matches."""
    with pytest.raises(oteval.InputError, match="outputs"):
        check(outputs=outputs)


@pytest.mark.parametrize(
    "check",
    [check for check in CHECKS if check.key not in ("latency", "budget")],
    ids=lambda check: check.key,
)
def test_a_trace_without_model_spans_passes_nothing(check: Any) -> None:
    """A run of which nothing is known is not evaluated."""
    found = score(check, runs("pydantic_evals_online")[0])

    assert (found.status, found.passed) == ("not_evaluated", None)


@pytest.mark.parametrize("limit", ["max_steps", "max_tool_calls", "max_model_calls"])
def test_nor_does_it_keep_a_budget(limit: str) -> None:
    """No message and no model call are not few of them."""
    check = oteval.create_budget_evaluator(**{limit: 9})

    assert score(check, runs("pydantic_evals_online")[0]).status == "not_evaluated"


def test_a_conversation_has_the_tools_and_gaps_of_all_its_runs() -> None:
    """Calls of an earlier run are held against that run's definitions."""
    tool = {"name": "a", "parameters": {"type": "object", "required": ["q"]}}
    first = run(1, asks("a", q=1), tools=(tool,))
    second = replace(run(2, asks("b"), tools=({"name": "b", "parameters": {}},)), history=first)
    second = replace(second, new_from=1)
    check = oteval.create_tool_schema_evaluator()

    assert score(check, second, scope="conversation").passed is True
    assert check(outputs=second)["score"] is True
    lossy = replace(second, history=replace(first, gaps=(gap(),)))
    forbidden = oteval.create_forbidden_tools_evaluator(forbidden=["x"])
    assert score(forbidden, lossy, scope="conversation").status == "not_evaluated"
    assert score(forbidden, lossy).passed is True


def test_a_call_that_a_span_shows_is_seen() -> None:
    """Where tools have spans, a run without content is judged by them."""
    call = ToolCall("pay", None, span_id="1" * 16)
    made = run(1, Message("assistant", tool_calls=(call,)), gaps=(gap(),))

    assert score(oteval.create_forbidden_tools_evaluator(forbidden=["pay"]), made).passed is False
    assert score(oteval.create_forbidden_tools_evaluator(forbidden=["x"]), made).passed is True
