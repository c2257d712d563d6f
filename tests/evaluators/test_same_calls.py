"""The calls of a repeated session, compared with the recorded run: each change is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.evaluators import SameCalls

Message = dict[str, Any]

ORDER = {"order_id": "11"}


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def answer(text: str) -> Message:
    """Return an answer."""
    return {"role": "assistant", "content": text}


def calls(*named: tuple[str, Any], results: bool = True) -> list[Message]:
    """Return a message that calls tools, with their results."""
    ids = [f"{name}-{number}" for number, (name, _) in enumerate(named)]
    requests = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for call_id, (name, arguments) in zip(ids, named, strict=True)
    ]
    results_of = [{"role": "tool", "tool_call_id": call_id, "content": "ok"} for call_id in ids]
    request = {"role": "assistant", "content": None, "tool_calls": requests}
    return [request, *(results_of if results else [])]


LOOK_UP, CHECK = calls(("get_order", ORDER)), calls(("check_policy", ORDER))
REFUND = calls(("refund", {**ORDER, "amount": 42.0}))
RECORDED = [user("Refund 11"), *LOOK_UP, *CHECK, *REFUND, answer("It is refunded.")]
CONFIRMED = [user("Refund 11"), answer("Shall I?"), user("yes"), *REFUND, answer("Done.")]


def compared(run: list[Message], recorded: list[Message]) -> tuple[Any, str | None]:
    """Return the score and the comment of a run."""
    result = SameCalls()(outputs=run, reference_outputs={"messages": recorded})
    return result["score"], result["comment"]


@pytest.mark.parametrize(
    ("run", "comment"),
    [
        (
            [user("Refund 11"), *LOOK_UP, *REFUND, answer("Done.")],
            'did not call check_policy({"order_id":"11"})',
        ),
        (
            [user("Refund 11"), *LOOK_UP, *CHECK, answer("Done.")],
            'answered without calling refund({"order_id":"11","amount":42.0})',
        ),
        (
            [*RECORDED[:5], *calls(("refund", {**ORDER, "amount": 420})), answer("Done.")],
            "refund: amount is 420, recorded 42.0",
        ),
        (
            [*RECORDED[:5], *calls(("refund", {**ORDER, "sum": 42})), answer("Done.")],
            "refund: sum is 42, which is not recorded, amount is missing, recorded 42.0",
        ),
        (
            [user("Refund 11"), *CHECK, *LOOK_UP, *REFUND, answer("Done.")],
            "called check_policy before get_order, recorded in the other order",
        ),
        (
            [user("Refund 11"), *LOOK_UP, *LOOK_UP, *LOOK_UP, *RECORDED[3:]],
            'called get_order({"order_id":"11"}) 3 times, recorded once',
        ),
        (
            [*RECORDED[:-1], *calls(("close", {})), answer("Done.")],
            "called close({}), which is not recorded",
        ),
        (RECORDED[:-1], "ended without an answer"),
        (
            [*RECORDED[:3], *calls(("check_policy", ORDER), results=False), *RECORDED[5:]],
            'gave the model no result of check_policy({"order_id":"11"})',
        ),
    ],
)
def test_each_change_is_named(run: list[Message], comment: str) -> None:
    """A call that is missing, other, moved or repeated fails the run, and the comment names it."""
    assert compared(run, RECORDED) == (False, comment)


def test_the_order_in_which_the_program_runs_calls_is_named() -> None:
    """The model requests calls together; their results are in the order of the executions."""
    request, *results = calls(("get_order", ORDER), ("check_policy", ORDER))
    recorded = [user("Refund 11"), request, *results, answer("Done.")]
    swapped = [user("Refund 11"), request, *reversed(results), answer("Done.")]

    assert compared(swapped, recorded) == (
        False,
        "ran check_policy before get_order, recorded in the other order",
    )


def test_a_run_that_stops_after_its_calls_has_no_answer() -> None:
    """The results of the last calls are in no request, so they are not missing."""
    stopped = [user("Refund 11"), *LOOK_UP[:1]]

    assert compared(stopped, [user("Refund 11"), *LOOK_UP, answer("Done.")]) == (
        False,
        "ended without an answer",
    )


def test_a_call_before_the_users_confirmation_is_named() -> None:
    """The same calls in another turn are another behaviour."""
    hasty = [user("Refund 11"), *REFUND, answer("Done."), user("yes"), answer("It is.")]

    assert compared(hasty, CONFIRMED) == (
        False,
        'called refund({"order_id":"11","amount":42.0}) before the user wrote "yes"',
    )
    assert compared(CONFIRMED, hasty) == (
        False,
        'called refund({"order_id":"11","amount":42.0}) only after the user wrote "yes"',
    )


@pytest.mark.parametrize(
    "run",
    [
        [*RECORDED[:-1], answer("I HAVE REFUNDED IT!")],
        [
            *RECORDED[:5],
            *calls(("refund", {"amount": "42", "order_id": 11})),
            answer("Done."),
        ],
        [
            user("Refund 11"),
            *calls(("get_order", ORDER), ("check_policy", ORDER)),
            *REFUND,
            answer("."),
        ],
    ],
)
def test_wording_notation_and_calls_at_once_do_not_count(run: list[Message]) -> None:
    """Other words, other notation, and calls in one message in the recorded order are the same."""
    assert compared(run, RECORDED) == (True, None)


def test_prose_in_other_words_is_not_evaluated() -> None:
    """Nobody knows without a judge whether two letters say the same; other figures are a change."""

    def letter(body: str) -> list[Message]:
        return [user("Write"), *calls(("send", {"body": body})), answer("Sent.")]

    recorded = letter("Dear Ms Smith, we have sent your order 12 this morning. Kind regards")
    result = SameCalls()(
        outputs=letter("Hello Ms Smith, your order 12 left our house today, with kind regards"),
        reference_outputs={"messages": recorded},
    )
    other = letter("Hello Ms Smith, your order 13 left our house today, with kind regards")

    assert (result["score"], result["comment"]) == (None, "send: body is worded differently")
    assert compared(other, recorded)[0] is False


def test_without_a_recorded_run_nothing_is_evaluated() -> None:
    """A missing reference is a reason, and no pass."""
    result = SameCalls()(outputs=RECORDED)

    assert result["score"] is None
    assert "recorded run is missing" in result["comment"]


def test_many_calls_take_linear_time() -> None:
    """Five thousand calls in another order are compared without comparing all pairs."""
    looked_up = [message for n in range(5000) for message in calls(("get", {"n": n}))]
    run = [user("All"), *looked_up[-2:], *looked_up[:-2], answer("Done.")]

    assert compared(run, [user("All"), *looked_up, answer("Done.")]) == (
        False,
        'called get({"n":4999}) before get({"n":0}), recorded in the other order',
    )
