from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from oteval.evaluators import create_trajectory_match_evaluator
from oteval.evaluators.functions import FunctionEvaluator, result_of
from oteval.evaluators.scorer import Scorer, is_drawn, version_of
from oteval.model import (
    CONTENT_GAPS,
    DAMAGED_CONTENT_GAPS,
    FAILURE_GAPS,
    EvaluationResult,
    Gap,
    Message,
    Reference,
    Score,
    SpanRef,
    ToolCall,
    Trajectory,
)
from oteval.model.selection import Selection
from oteval.reconstruct import CODES

from ..make import asks, call, gap, run

SEEN = "c" * 16
USER = Message("user", "hi")


def judged(
    trajectory: Trajectory,
    reference: Sequence[Message] | None,
    threshold: float = 1.0,
    **options: Any,
) -> Score:
    """Return the score of a match."""
    match = create_trajectory_match_evaluator(threshold=threshold, **options)
    wanted = None if reference is None else Reference("r", tuple(reference))
    return Scorer("e", "v", match).score(trajectory, wanted, "", 5)


def calls(function: Callable[..., Any], timeout: float | None = None) -> FunctionEvaluator:
    """Return the evaluator that calls a function."""
    return FunctionEvaluator(call="module:function", function=function, timeout=timeout)


def test_a_score_hangs_on_the_root_span():
    """It carries the trajectory's ids and revision, the rate and the time."""
    made = Trajectory("t", SpanRef("a", "b"), tail=(USER,), rev=3)
    scorer = Scorer("e", "v", calls(lambda: True), sample=0.5)

    found = scorer.score(made, None, "", 7)

    assert (found.trajectory_id, found.trace_id, found.span_id) == ("t", "a", "b")
    assert (found.evaluator, found.version, found.rev) == ("e", "v", 3)
    assert (found.sample_p, found.time_ns, found.passed) == (0.5, 7, True)


def test_no_reference_is_no_verdict():
    """A match without a reference is not evaluated, nor is one whose reference could not be had."""
    assert judged(run(1, USER), None).comment == "there is no reference"
    problem = Scorer("e", "v", calls(lambda: True)).score(run(1, USER), None, "why", 0)
    assert (problem.status, problem.comment) == ("not_evaluated", "why")


@pytest.mark.parametrize("code", sorted(CONTENT_GAPS))
def test_missing_content_without_tool_spans_is_no_verdict(code: str):
    """Calls may be unseen, so that not even a pass can be believed."""
    made = run(1, USER, gaps=(gap("turn_unknown"), gap(code)))

    found = judged(made, [USER])

    assert (found.status, found.comment) == ("not_evaluated", f"{code}: why")


def test_missing_content_with_tool_spans_is_judged():
    """Spans show which tools were called, and with names alone a verdict can be had."""
    made = run(1, asks(call("f", span_id=SEEN)), gaps=(gap(),))

    assert judged(made, [asks(call("f", {}))], tool_args_match_mode="ignore").passed is True
    assert judged(made, [asks(call("g", {}))], tool_args_match_mode="ignore").passed is False


def test_the_gaps_that_hide_content_are_gaps_that_exist():
    """Every code that keeps a run from being judged is one that reconstruction gives."""
    assert set(CODES) >= CONTENT_GAPS | DAMAGED_CONTENT_GAPS | FAILURE_GAPS


def test_other_gaps_do_not_keep_a_run_from_being_judged():
    """A gap that hides no calls leaves the verdict standing."""
    made = run(1, USER, gaps=(Gap("missing_parent", "x"), Gap("model_call_failed", "y")))

    assert judged(made, [USER]).passed is True


@pytest.mark.parametrize("mode", ["strict", "unordered", "superset", "subset", "in_order"])
def test_unknown_arguments_excuse_only_what_hangs_on_them(mode: str):
    """If some arguments would make it a pass there is no verdict; if none would it is a fail."""
    unknown = call("f", span_id=SEEN)
    wanted = [asks(call("f", {"a": 1})), asks(call("g", {"b": 1}))]

    open_ = judged(
        run(1, asks(unknown), asks(call("g", {"b": 1}))), wanted, trajectory_match_mode=mode
    )
    closed = judged(
        run(1, asks(unknown), asks(call("g", {"b": 2}))), wanted, trajectory_match_mode=mode
    )

    assert (open_.status, open_.comment) == (
        "not_evaluated",
        "the arguments of f are not in the trace",
    )
    assert (closed.status, closed.passed) == ("ok", False)


def test_unknown_arguments_that_decide_nothing_do_not_matter():
    """A pass that does not need the unknown arguments is a pass."""
    made = run(1, asks(call("f", span_id=SEEN)), asks(call("g", {})))

    found = judged(made, [asks(call("g", {}))], trajectory_match_mode="superset")

    assert found.passed is True


def test_one_unknown_call_stands_for_one():
    """A call whose arguments are unknown excuses one missing call, not two."""
    made = run(1, asks(call("f", span_id=SEEN)))
    wanted = [asks(call("f", {"a": 1})), asks(call("f", {"a": 2}))]

    assert judged(made, wanted, trajectory_match_mode="superset").passed is False


@pytest.mark.parametrize(
    ("threshold", "status"), [(0.4, "ok"), (0.6, "not_evaluated"), (1.0, "ok")]
)
def test_unknown_arguments_are_weighed_against_the_threshold(threshold: float, status: str):
    """With a figure, what could still be reached decides whether there is a verdict."""
    made = run(1, asks(call("f", span_id=SEEN)), asks(call("g", {"a": 1})))
    wanted = [asks(call("f", {"a": 1})), asks(call("g", {"a": 1})), asks(call("h", {}))]

    found = judged(made, wanted, threshold, trajectory_match_mode="unordered", score_type="f1")

    assert found.status == status
    assert found.passed is {0.4: True, 0.6: None, 1.0: False}[threshold]


def test_overrides_are_kept_where_arguments_are_unknown():
    """Known arguments are still compared by the tool's own rule."""
    made = run(1, asks(call("f", span_id=SEEN), call("g", {"a": "x", "b": 1})))
    wanted = [asks(call("f", {}), call("g", {"a": "y", "b": 1}))]

    by_field = judged(made, wanted, tool_args_match_overrides={"g": ["b"]})
    whole = judged(made, wanted)

    assert (by_field.status, whole.status) == ("not_evaluated", "ok")
    assert whole.passed is False


def test_a_view_uses_the_definitions_of_the_run():
    """Tool definitions of the trajectory say which calls change something."""
    tools = (
        {"name": "f", "annotations": {"readOnlyHint": False}},
        {"name": "g", "annotations": {"readOnlyHint": True}},
    )
    made = run(1, asks(call("f", {}), call("g", {})), tools=tools)

    assert judged(made, [asks(call("f", {}))], view="writes").passed is True


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, EvaluationResult(score=1.0, passed=True, label="pass")),
        (False, EvaluationResult(score=0.0, passed=False, label="fail")),
        (3, EvaluationResult(score=3.0)),
        (0.5, EvaluationResult(score=0.5)),
        ("good", EvaluationResult(label="good")),
        ({"score": True}, EvaluationResult(score=1.0, passed=True, label="pass")),
        ({"score": 1, "label": "one"}, EvaluationResult(score=1.0, label="one")),
        (
            {"score": False, "comment": "c", "label": "l", "metadata": {"a": (1,)}},
            EvaluationResult(score=0.0, passed=False, label="l", comment="c", metadata={"a": [1]}),
        ),
        ({"score": "word", "comment": None, "metadata": None}, EvaluationResult(label="word")),
    ],
)
def test_return_values_mean_results(value: Any, expected: EvaluationResult):
    """A bool is a verdict, a number a score, a text a label; a dict may say more."""
    assert result_of(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        object(),
        {},
        {"score": None},
        {"score": []},
        float("nan"),
        float("-inf"),
        {"score": float("nan")},
        {"score": 1, "metadata": [1]},
    ],
)
def test_other_return_values_mean_none(value: Any):
    """What is no score is an error, never a 0."""
    with pytest.raises(TypeError, match="returned"):
        result_of(value)


def test_a_long_return_value_is_cut():
    """The comment of an error stays short."""
    with pytest.raises(TypeError) as caught:
        result_of(["x" * 1000])

    assert len(str(caught.value)) < 130


def test_ctrl_c_is_not_the_evaluators_error():
    """Stopping the scoring is not recorded as a failed evaluation."""

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Scorer("e", "v", calls(stop)).score(run(1, USER), None, "", 0)


def test_a_draw_is_the_same_every_time():
    """A draw depends on salt, evaluator and trace alone, and grows with the rate."""
    traces = [f"{number:032x}" for number in range(500)]

    low = {trace for trace in traces if is_drawn("s", "e", trace, 0.1)}
    high = {trace for trace in traces if is_drawn("s", "e", trace, 0.6)}

    assert 20 < len(low) < 80
    assert low < high
    assert not any(is_drawn("s", "e", trace, 0.0) for trace in traces)
    assert all(is_drawn("s", "e", trace, 1.0) for trace in traces)


def test_a_version_is_a_hash_of_the_description():
    """Key order does not count, values do."""
    assert version_of({"a": 1, "b": [2]}) == version_of({"b": [2], "a": 1})
    assert version_of({"a": 1}) != version_of({"a": 2})


def test_a_scorer_wants_what_is_meant_and_drawn():
    """Filter and sample must both hold."""
    judge = calls(lambda: True)

    assert Scorer("e", "v", judge, Selection(agents=("a",))).wants(run(1), "s")
    assert not Scorer("e", "v", judge, Selection(agents=("b",))).wants(run(1), "s")
    assert not Scorer("e", "v", judge, sample=0.0).wants(run(1), "s")


def test_a_function_sees_the_scope():
    """In a turn it gets the run's own messages, in a conversation all of them."""
    first = run(1, USER)
    second = run(2, Message("assistant", "x", (ToolCall("f", {}),)), history=first, new_from=1)
    counts = calls(lambda outputs, inputs: f"{len(outputs)} {inputs}")

    turn = Scorer("e", "v", counts).score(second, None, "", 0)
    whole = Scorer("e", "v", counts, scope="conversation").score(second, None, "", 0)

    assert (turn.label, whole.label) == ("1 None", "2 hi")
