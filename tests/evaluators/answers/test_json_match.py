"""Structured outputs compared field by field."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

import oteval
from oteval.evaluators.answers.json_match import pair_records

WANTED = {"name": "Ann", "age": 30, "tags": ["a", "b"]}
RECORDS = st.lists(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2)), max_size=4)


def scores(outputs: Any, reference: Any, **options: Any) -> dict[str, Any]:
    """Return an evaluator's scores by key."""
    evaluate = oteval.create_json_match_evaluator(**options)
    found: Any = evaluate(outputs=outputs, reference_outputs=reference)
    return {one["key"]: one["score"] for one in found}


def test_each_field_has_a_result():
    """Equal, different, missing and additional fields; excluded ones are not compared."""
    got = {"name": "Ann", "age": 31, "more": 1, "noise": 2}

    found = scores(got, {**WANTED, "noise": 3}, exclude_keys=["noise"])

    assert found == {
        "json_match:name": True,
        "json_match:age": False,
        "json_match:tags": False,
        "json_match:more": False,
    }


@pytest.mark.parametrize(("aggregator", "score"), [("average", 2 / 3), ("all", False)])
def test_fields_are_combined(aggregator: str, score: float):
    """One result for all fields, its key named after the way they are combined."""
    found = scores({**WANTED, "age": 31}, WANTED, aggregator=aggregator)

    assert found == {f"json_match:{aggregator}": pytest.approx(score)}


@pytest.mark.parametrize(
    ("mode", "passed"),
    [("same_elements", False), ("superset", True), ("subset", False), ("ordered", False)],
)
def test_lists_are_compared_by_mode(mode: str, passed: bool):
    """An additional record of the output, and another order, count as the mode says."""
    ours = [{"id": 2}, {"id": 1}, {"id": 3}]
    theirs = [{"id": 1}, {"id": 2}]

    found = scores(ours, theirs, aggregator="all", list_match_mode=mode)

    assert found == {"json_match:all": passed}
    swapped = scores(theirs, ours, aggregator="all", list_match_mode=mode)
    assert swapped == {"json_match:all": mode == "subset"}


def test_a_field_that_neither_record_has_is_not_compared():
    """Records of several kinds in one list do not fail each other's fields."""
    records = [{"a": 1}, {"a": 2}, {"b": 1}]

    assert scores(records, records[::-1]) == {"json_match:a": True, "json_match:b": True}


def test_records_are_paired_by_a_true_assignment():
    """A greedy choice for the first record would leave the second without its counterpart."""
    ours = [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    theirs = [{"a": 1, "b": 3}, {"a": 2, "b": 1}]

    found = scores(ours, theirs, list_aggregator="average")

    assert found == {"json_match:a": 0.5, "json_match:b": 0.5}


@given(RECORDS, RECORDS)
def test_no_other_pairing_has_more_equal_fields(
    ours: list[dict[str, int]], theirs: list[dict[str, int]]
):
    """The pairing is the best of all permutations."""

    def equal(one: dict[str, int] | None, two: dict[str, int] | None) -> int:
        return sum((two or {}).get(key) == value for key, value in (one or {}).items())

    pairs = pair_records(ours, theirs, mode="same_elements", ignored=frozenset())
    found = sum(equal(pair.output, pair.reference) for pair in pairs)  # type: ignore[arg-type]

    short, long = sorted((ours, theirs), key=len)
    best = max(
        sum(equal(one, two) for one, two in zip(short, chosen, strict=True))
        for chosen in itertools.permutations(long, len(short))
    )
    assert found == best


def test_a_rubric_asks_a_judge_about_its_fields():
    """The judge sees the field, its criterion and both values; other fields are compared."""
    asked: list[str] = []

    def judge(messages: list[dict[str, Any]], schema: Any) -> dict[str, Any]:
        asked.append(str(messages))
        return {"reasoning": "close enough", "score": True}

    evaluate = oteval.create_json_match_evaluator(rubric={"name": "same person"}, judge=judge)
    found: Any = evaluate(outputs={**WANTED, "name": "Anne"}, reference_outputs=WANTED)

    assert {one["key"]: one["score"] for one in found} == {
        "json_match:name": True,
        "json_match:age": True,
        "json_match:tags": True,
    }
    assert next(one["comment"] for one in found if one["key"].endswith("name")) == "close enough"
    assert len(asked) == 1
    assert all(text in asked[0] for text in ("same person", "Anne", "Ann"))


def test_a_judge_that_fails_is_never_a_verdict():
    """Neither its field nor a combination of fields has a score then."""

    def judge(messages: Any, schema: Any) -> dict[str, Any]:
        raise RuntimeError("down")

    options: dict[str, Any] = {"rubric": {"name": "same person"}, "judge": judge}
    by_field = scores(WANTED, WANTED, **options)
    combined = scores(WANTED, WANTED, aggregator="all", **options)

    assert by_field["json_match:name"] is None
    assert by_field["json_match:age"] is True
    assert combined == {"json_match:all": None}


def test_the_awaitable_form_asks_at_once():
    """Its judge may be asynchronous; the results are the same."""
    ready = asyncio.Event()
    waiting = 0

    async def judge(messages: Any, schema: Any) -> dict[str, Any]:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            ready.set()
        await ready.wait()
        return {"reasoning": "yes", "score": True}

    evaluate = oteval.create_async_json_match_evaluator(
        rubric={"name": "same", "age": "same"}, judge=judge, aggregator="average"
    )
    found: Any = asyncio.run(_call(evaluate, {**WANTED, "age": 99}, WANTED))

    assert [(one["key"], one["score"]) for one in found] == [("json_match:average", 1.0)]


async def _call(evaluate: Any, outputs: Any, reference: Any) -> Any:
    return await asyncio.wait_for(evaluate(outputs=outputs, reference_outputs=reference), 60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aggregator": "sum"}, "aggregator is 'sum'"),
        ({"list_aggregator": None}, "list_aggregator is None"),
        ({"list_match_mode": "any"}, "list_match_mode is 'any'"),
        ({"rubric": {"a": "b"}}, "rubric needs a judge"),
        ({"model": "openai:m"}, "only used with rubric"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str):
    """They are named when the evaluator is made."""
    with pytest.raises(ValueError, match=message):
        oteval.create_json_match_evaluator(**options)


def test_what_is_no_record_is_refused():
    """A list against a dict, and a list of texts, are errors that name the place."""
    with pytest.raises(ValueError, match="must both be lists"):
        scores([{}], {})
    with pytest.raises(ValueError, match=r"outputs\[1\] is a str; expected a dict"):
        scores([{}, "x"], [])
