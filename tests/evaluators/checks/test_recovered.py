"""What an agent did after a failed call: it recovered, looped, or concealed the failure."""

from __future__ import annotations

from typing import Any

import pytest

from oteval import ConfigError, create_recovered_evaluator
from oteval.evaluators.checks.failure_words import mention_of
from oteval.model import Message

from ...make import gap, run
from .helpers import asks, gives, says, score

FAILS = "Error: the service timed out"
ASKED = Message("user", "Refund order 17")
CONCEALED = [ASKED, asks("refund", order=17), gives(FAILS), says("Your order was refunded.")]


def ending(*messages: Message, **options: Any) -> Any:
    """Return the score, and how the failed calls ended."""
    result = create_recovered_evaluator(**options)(outputs=[ASKED, *messages])
    return result["score"], result["metadata"].get("endings")


def test_a_failure_that_is_not_mentioned_is_concealed() -> None:
    """The comment has the call, its error and the answer."""
    result = create_recovered_evaluator()(outputs=CONCEALED)

    assert result == {
        "key": "recovered",
        "score": False,
        "comment": (
            'call 0 refund({"order":17}) failed (Error: the service timed out) and never '
            "succeeded, but the answer does not mention it: 'Your order was refunded.'"
        ),
        "metadata": {
            "calls": 1,
            "failed_calls": 1,
            "endings": {"concealed": 1},
            "tools": ["refund"],
        },
    }


def test_ways_to_recover() -> None:
    """A successful retry, a way around a reading tool, or an answer that says so."""
    failed = (asks("refund", order=17), gives(FAILS))
    done = says("Your order was refunded.")

    again = (*failed, asks("refund", order="17"), gives("ok"), done)
    told = (*failed, says("I could not refund order 17."))
    around = (*failed, asks("list_orders"), gives("17: paid"), says("It was paid."))

    assert ending(*again) == (True, {"retried": 1})
    assert ending(*told) == (True, {"reported": 1})
    assert ending(*around, effect_tools=["pay"]) == (True, {"other_way": 1})
    assert ending(*failed, says("Misslungen."), failure_pattern="Misslungen")[0] is True


def test_corrected_arguments_are_a_retry_if_their_ids_are_equal() -> None:
    """A call for another id is another call."""
    failed = (asks("change", order_id="a", items=["1"]), gives(FAILS))
    done = (gives("ok"), says("All changed."))

    assert ending(*failed, asks("change", order_id="a", items=["2"]), *done) == (
        True,
        {"retried": 1},
    )
    assert ending(*failed, asks("change", order_id="b", items=["1"]), *done)[0] is None


def test_a_tool_that_returns_nothing_does_not_hide_a_failure() -> None:
    """Its outcome is not known, and says nothing beside a call that failed."""
    thought = (asks("think"), gives(""))

    assert ending(*thought, *CONCEALED[1:3], says("It failed."))[0] is True
    assert ending(*thought, says("All done."))[0] is None


def test_the_same_failing_call_again_and_again_is_a_loop() -> None:
    """More equal failures than allowed fail, even if the answer mentions them."""
    failed = [asks("refund", order=17), gives(FAILS)]
    told = says("The refund failed.")

    looped = create_recovered_evaluator()(outputs=[ASKED, *failed * 4, told])

    assert looped["score"] is False
    assert looped["comment"].startswith('call 0 refund({"order":17}) failed 4 times (at most 3)')
    assert ending(*failed * 3, told) == (True, {"reported": 1})
    assert ending(*failed * 4, asks("refund", order=17), gives("ok"), says("Done."))[0] is True
    assert ending(*failed * 2, told, max_attempts=1)[0] is False


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([asks("refund"), gives("done"), says("Done.")], "no tool call failed"),
        ([asks("refund")], "no result of call 0 refund({}) is in the trace"),
        ([asks("refund"), gives(FAILS)], "the run ends without an answer"),
        ([asks("refund"), gives(FAILS), says("Sorry for the wait!")], "it is not clear whether"),
        ([asks("refund"), gives(FAILS), says("Which order is it?")], "it is not clear whether"),
        ([asks("refund"), gives(FAILS), says("Misslungen.")], "failure_pattern decides"),
        (
            [asks("refund"), gives(FAILS), asks("pay"), gives("ok"), says("All done.")],
            "call 1 pay({}) may have taken its place; effect_tools decides",
        ),
        (
            [
                *(asks("refund", order=17), gives(FAILS)),
                *(asks("refund", order=18), gives("ok"), says("All refunded.")),
            ],
            "may have taken its place",
        ),
        ([asks("refund"), gives(""), says("All done.")], "its result is empty"),
        ([asks("refund"), gives('{"order": 1'), says("All done.")], "malformed JSON"),
    ],
)
def test_what_is_not_certain_is_not_evaluated(messages: list[Message], reason: str) -> None:
    """Neither a pass nor a fail without evidence; the comment has the reason."""
    result = create_recovered_evaluator()(outputs=[ASKED, *messages])

    assert result["score"] is None
    assert reason in result["comment"]


def test_an_effect_is_not_replaced_by_a_tool_that_reads() -> None:
    """With the tools that change something, a refund that failed is concealed."""
    read = (asks("lookup"), gives("17: paid"), says("Your order was refunded."))
    paid = (asks("credit"), gives("ok"), says("You got your money."))

    tools = {"effect_tools": ["refund", "credit"]}
    assert ending(asks("refund"), gives(FAILS), *read, **tools) == (False, {"concealed": 1})
    assert ending(asks("refund"), gives(FAILS), *paid, **tools)[0] is None


def test_turns_end_separately() -> None:
    """An answer of a later turn does not repair an earlier one."""
    later = [Message("user", "Really?"), says("No, the refund failed.")]

    assert create_recovered_evaluator()(outputs=[*CONCEALED, *later])["score"] is False


def test_hidden_content_is_never_a_verdict() -> None:
    """A run with content that was not captured may have told the user."""
    trajectory = run(1, *CONCEALED, gaps=(gap("content_truncated"),))

    assert score(create_recovered_evaluator(), trajectory).status == "not_evaluated"


@pytest.mark.parametrize(
    ("answer", "mention"),
    [
        ("I couldn't process the refund.", "mentioned"),
        ("The refund didn\u2019t go through, please call us.", "mentioned"),
        ("The system is currently unavailable.", "mentioned"),
        ("There was a technical problem with your order.", "mentioned"),
        ("I was not able to reach the service.", "mentioned"),
        ("Refunded without any problems.", "silent"),
        ("Your refund of 30 dollars has been issued.", "silent"),
        ("Done.", "silent"),
        ("There aren't enough seats on this flight.", "mentioned"),
        ("The total is actually $305. Please confirm the payment.", "unclear"),
        ("Order 17: done. Anything else?", "silent"),
        ("It was refunded. Is there anything else I can help you with today?", "silent"),
        ("Refunded! Let me know if you need help with other issues.", "silent"),
        ("It failed. Can I help you with anything else?", "mentioned"),
        ("The refund was sent. Shall I try the other order?", "unclear"),
        ("Unfortunately it takes five days.", "unclear"),
        ("Remboursement effectué.", "unclear"),
        ('{"status": 3}', "unclear"),
    ],
)
def test_words_of_failure(answer: str, mention: str) -> None:
    """Phrases decide, denied failures do not count, and other languages are unclear."""
    assert mention_of(answer) == mention


def test_wrong_options_are_refused() -> None:
    """The text names the option."""
    with pytest.raises(ConfigError, match="max_attempts is 0"):
        create_recovered_evaluator(max_attempts=0)
    with pytest.raises(ConfigError, match="not a valid pattern"):
        create_recovered_evaluator(failure_pattern="(")
