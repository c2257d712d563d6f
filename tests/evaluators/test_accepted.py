"""Several accepted references: the best match counts, and is named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oteval import (
    AnyOf,
    InputError,
    create_async_trajectory_match_evaluator,
    create_graph_trajectory_match_evaluator,
    create_llm_as_judge,
    create_trajectory_match_evaluator,
    exact_match,
    levenshtein_distance,
    trajectory_unordered_match,
)
from oteval.base.jsontext import to_jsonable
from oteval.evaluators.checks.final_answer import create_final_answer_evaluator

from .helpers import flat, user

SEARCHED = flat(("search", {"q": "x"}), "refund")
REFUNDED = flat("refund")
ASKED = flat("ask")
match = create_trajectory_match_evaluator()


@pytest.mark.parametrize(
    "references",
    [AnyOf([ASKED, REFUNDED]), {"any": [ASKED, REFUNDED]}],
    ids=["AnyOf", "JSON"],
)
def test_one_match_of_several_is_enough(references: Any) -> None:
    """The output passes with the reference that it matches, which the metadata names."""
    result = match(outputs=REFUNDED, reference_outputs=references)

    assert (result["score"], result["comment"]) == (True, None)
    assert result["metadata"]["reference"] == "any[1]"
    assert result["metadata"]["alignment"] == [(0, 0)]


@pytest.mark.parametrize("is_async", [False, True])
def test_comparing_ends_with_a_perfect_match(is_async: bool) -> None:
    """The references after the one that a run matches are not looked at."""
    compared = []

    def same(outputs: Any, reference: Any) -> bool:
        compared.append(reference["q"])
        return bool(outputs == reference)

    create = (
        create_async_trajectory_match_evaluator if is_async else (create_trajectory_match_evaluator)
    )
    evaluate = create(tool_args_match_overrides={"search": same})
    references = AnyOf([flat(("search", {"q": word})) for word in "abc"])
    case = {"outputs": flat(("search", {"q": "b"})), "reference_outputs": references}

    result = asyncio.run(evaluate(**case)) if is_async else evaluate(**case)

    assert (result["score"], result["metadata"]["reference"]) == (True, "any[1]")
    assert "c" not in compared


def test_a_function_compares_until_a_perfect_match() -> None:
    """A figure of 1 is perfect, so that a reference after it cannot be wrong."""
    result = levenshtein_distance(outputs="a", reference_outputs=AnyOf(["b", "a", object()]))

    assert (result["score"], result["metadata"]["reference"]) == (1.0, "any[1]")


def test_a_figure_of_1_passes_where_another_comparison_lacks_data() -> None:
    """A judge that fails with another reference changes nothing about a perfect figure."""

    def broken(messages: Any, schema: Any) -> dict[str, Any]:
        raise RuntimeError("no connection")

    evaluate = create_trajectory_match_evaluator(
        score_type="f1",
        tool_args_match_overrides={"search": {"q": "judged"}},
        judge=create_llm_as_judge(prompt="{outputs} {reference_outputs}", judge=broken),
    )
    references = AnyOf([flat(("search", {"q": word})) for word in "ab"])

    result = evaluate(outputs=flat(("search", {"q": "b"})), reference_outputs=references)

    assert (result["score"], result["metadata"]["reference"]) == (1.0, "any[1]")


def test_names_are_those_of_the_user() -> None:
    """A dict names the references, and the comment of a failure names the closest."""
    references = AnyOf({"short": ASKED, "long": SEARCHED})

    result = match(outputs=flat(("search", {"q": "y"}), "refund"), reference_outputs=references)

    assert result["score"] is False
    assert result["comment"].startswith("closest of 2 references, long: position 0")
    assert result["metadata"]["reference"] == "long"


def test_the_best_figure_counts() -> None:
    """A score that is a figure is the largest of the references."""
    evaluate = create_trajectory_match_evaluator(
        trajectory_match_mode="unordered", score_type="recall"
    )
    references = AnyOf([flat("refund", "a", "b", "c"), flat("refund", "a"), ASKED])

    result = evaluate(outputs=REFUNDED, reference_outputs=references)

    assert (result["score"], result["metadata"]["reference"]) == (0.5, "any[1]")


def test_the_fixed_functions_and_async_evaluators_take_them_too() -> None:
    """Every trajectory match gives the same verdict, also where it awaits functions."""

    async def same(outputs: Any, reference: Any) -> bool:
        return bool(outputs == reference)

    evaluate = create_async_trajectory_match_evaluator(tool_args_match_overrides={"search": same})
    references = AnyOf([ASKED, SEARCHED])

    fixed = trajectory_unordered_match(outputs=SEARCHED, reference_outputs=references)
    awaited = asyncio.run(evaluate(outputs=SEARCHED, reference_outputs=references))

    assert fixed["metadata"]["reference"] == awaited["metadata"]["reference"] == "any[1]"
    assert fixed["score"] is awaited["score"] is True


def test_nodes_and_answers_are_compared_with_several() -> None:
    """Graphs, final answers and texts have several accepted references as well."""
    graph = create_graph_trajectory_match_evaluator()
    answer = create_final_answer_evaluator(mode="normalised")
    messages = [user(), {"role": "assistant", "content": "In Lima."}]

    turns = AnyOf([{"steps": [["b"]]}, {"steps": [["a"]]}])
    nodes = graph(outputs={"steps": [["a"]]}, reference_outputs=turns)
    answered = answer(
        outputs=messages, reference_outputs=AnyOf({"city": "in lima", "country": "Peru"})
    )
    equal = exact_match(outputs={"a": 1}, reference_outputs=AnyOf([{"a": 2}, {"a": 1}]))
    near = levenshtein_distance(outputs="abc", reference_outputs=AnyOf(["xyz", "abd"]))

    assert (nodes["score"], nodes["metadata"]["reference"]) == (True, "any[1]")
    assert (answered["score"], answered["metadata"]["reference"]) == (True, "city")
    assert (equal["score"], equal["metadata"]) == (True, {"reference": "any[1]"})
    assert near["comment"] == "closest of 2 references, any[1]: 1 of 3 characters differ"


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ([REFUNDED, None], "any[1] is None"),
        ([], "any is empty"),
        (REFUNDED, "any[0] is a message; pass a list of trajectories"),
        ("refund", "any is a str"),
    ],
)
def test_a_wrong_list_of_references_is_an_error(references: Any, message: str) -> None:
    """No reference may be missing, and one trajectory is not taken for several."""
    with pytest.raises(InputError) as error:
        match(outputs=REFUNDED, reference_outputs={"any": references})

    assert message in str(error.value)


def test_an_unreadable_reference_is_named_though_another_matches() -> None:
    """None of several is skipped before one matches."""
    references = AnyOf({"bad": [{"role": "nobody"}], "good": REFUNDED})

    with pytest.raises(InputError, match=r"^bad: reference_outputs"):
        match(outputs=REFUNDED, reference_outputs=references)


def test_a_judge_takes_one_reference() -> None:
    """A judge refuses several references before it asks a model."""
    judge = create_llm_as_judge(prompt="{outputs} {reference_outputs}", judge=lambda *_: {})

    with pytest.raises(InputError, match="one reference"):
        judge(outputs="a", reference_outputs=AnyOf(["a", "b"]))


def test_the_form_in_json_is_the_one_that_is_read() -> None:
    """Examples of experiments keep several references when they are stored."""
    assert to_jsonable(AnyOf([ASKED])) == {"any": [ASKED]}
