"""Budgets hold whatever servers reply, and however many requests are under way."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from oteval import (
    BudgetSpent,
    ConfigError,
    MemoryCache,
    create_async_llm_as_judge,
    create_llm_as_judge,
)
from oteval.evaluators.judge.costs import CostBudget, estimate_tokens

from ...model_server import Server, completion, error, streamed, verdict

GOOD = json.dumps({"reasoning": "It does.", "score": True})
# A cent for each verdict of the scripted server, which counts 100 tokens for any prompt.
CENT = {"m": {"input": 100.0, "output": 0.0}}


def options(server: Server, **more: Any) -> dict[str, Any]:
    """Return the arguments of a judge whose prompt is short."""
    known = {"prompt": "{outputs}", "model": "openai:m", "base_url": server.url, "harden": False}
    return {**known, "max_retries": 0, "use_reasoning": False, "prices": CENT, **more}


def yes(**more: Any) -> Any:
    """Return a verdict without reasons."""
    return completion('{"score": true}', **more)


async def test_a_failed_call_does_not_open_the_budget(server: Server):
    """After a failure, 40 concurrent questions spend no more than the budget."""
    server.script = lambda _body, number: (
        error(503, "down") if number == 1 else yes(tokens=(100, 20), delay=0.02)
    )
    evaluate = create_async_llm_as_judge(**options(server, max_cost=0.05))
    first = await evaluate(outputs="x")

    found = await asyncio.gather(*(evaluate(outputs=str(n)) for n in range(40)))

    spent = sum(one["metadata"]["cost_usd"] or 0.0 for one in found)
    statuses = [one["metadata"].get("status") for one in found]
    assert first["metadata"]["status"] == "error"
    assert 0 < spent <= 0.05 + 1e-9
    assert statuses.count(None) == round(spent / 0.01)
    assert set(statuses) == {None, "not_evaluated"}


def test_a_failed_call_gives_back_what_it_reserved(server: Server):
    """Ten failures cost nothing, and the budget is whole for the eleventh question."""
    server.script = lambda _body, number: error(503, "down") if number <= 10 else yes()
    budget = CostBudget(0.05)
    evaluate = create_llm_as_judge(**options(server, max_cost=budget))

    found = [evaluate(outputs=str(n)) for n in range(11)]

    evaluate.close()
    assert [one["score"] for one in found] == [None] * 10 + [True]
    assert (budget.spent, budget.reserved) == (pytest.approx(0.01), 0.0)


@pytest.mark.parametrize("stream", [False, True])
def test_replies_without_usage_are_paid_by_their_length(server: Server, stream: bool):
    """A server that never counts tokens is charged an estimate, and the budget ends."""
    long = json.dumps({"score": True, "reasoning": "word " * 400})
    server.script = lambda _body, _number: (
        streamed(long, 50, tokens=None) if stream else completion(long, tokens=None)
    )
    evaluate = create_llm_as_judge(
        **options(
            server, max_cost=0.5, prices={"m": (0.0, 100.0)}, use_reasoning=True, stream=stream
        )
    )

    found = [evaluate(outputs=str(n)) for n in range(40)]

    evaluate.close()
    given = [one for one in found if one["score"]]
    assert 5 <= len(given) <= 15
    assert len(server.requests) == len(given)
    assert given[0]["metadata"]["cost_is_estimate"] is True
    assert given[0]["metadata"]["cost_usd"] == pytest.approx(estimate_tokens(long) * 100 / 1e6)


@pytest.mark.parametrize("usage", [(0, 0), (-5, -5)])
def test_impossible_counts_are_ignored(server: Server, usage: tuple[int, int]):
    """Counts of zero or less are impossible, so such a reply costs its estimate."""
    server.script = lambda _body, _number: yes(tokens=usage)
    evaluate = create_llm_as_judge(**options(server, max_cost=1.0))

    found = evaluate(outputs="a text of some words")

    evaluate.close()
    assert found["metadata"]["cost_usd"] > 0


def test_each_request_of_a_question_is_reserved(server: Server):
    """A question that falls back to other modes stops when the budget is spent."""
    server.script = lambda _body, _number: completion("I cannot say.")
    evaluate = create_llm_as_judge(**options(server, max_cost=0.035))

    found = evaluate(outputs="x")

    evaluate.close()
    assert (found["score"], found["metadata"]["status"]) == (None, "not_evaluated")
    assert "max_cost of $0.035" in found["metadata"]["error"]
    assert 1 <= len(server.requests) <= 3
    assert found["metadata"]["cost_usd"] == pytest.approx(0.01 * len(server.requests))


def test_a_long_prompt_is_reserved_at_its_length(server: Server):
    """Earlier short questions do not lower the estimate for a long one."""
    server.script = lambda _body, _number: yes(tokens=(100, 20))
    budget = CostBudget(0.5)
    evaluate = create_llm_as_judge(**options(server, max_cost=budget))
    assert evaluate(outputs="short")["score"] is True

    found = evaluate(outputs="word " * 20_000)

    evaluate.close()
    assert found["metadata"]["status"] == "not_evaluated"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "text", ["word " * 100, "请退款订单" * 100, '{"a": [1, 2]}' * 50, "🙂" * 50]
)
def test_texts_of_any_script_are_counted(text: str):
    """The estimate is not below common tokenizers' averages, and not far above."""
    shortest = len(text) / 5 if text.isascii() else len(text) * 0.6

    assert shortest <= estimate_tokens(text) <= len(text)


def test_threads_reserve_together():
    """Forty threads reserve ten times a tenth of the budget, and no more."""
    budget = CostBudget(1.0)
    start = threading.Barrier(40)

    def call(_number: int) -> bool:
        start.wait(30)
        try:
            budget.reserve(0.1)
        except BudgetSpent:
            return False
        return True

    with ThreadPoolExecutor(40) as threads:
        assert sum(threads.map(call, range(40))) == 10


@pytest.mark.parametrize(
    "judge",
    [
        lambda _messages, _schema: {"score": True},
        FakeListChatModel(responses=[GOOD]),
        RunnableLambda(lambda _messages: GOOD),
    ],
    ids=["function", "chat model", "runnable"],
)
def test_a_budget_for_any_judge_needs_a_price(judge: Any):
    """A limit without a price is refused with the model's name; with the price it holds."""
    known = {"prompt": "{outputs}", "judge": judge, "model": "mine", "max_cost": 0.02}
    with pytest.raises(ConfigError, match=r"max_cost needs the price of 'mine': give prices="):
        create_llm_as_judge(**known)

    evaluate = create_llm_as_judge(**known, prices={"mine": (10.0, 10.0)}, use_reasoning=False)
    found = [evaluate(outputs="x" * 40) for _ in range(20)]

    scores = [one["score"] for one in found]
    assert scores[0] is True
    assert scores[-1] is None
    assert found[-1]["metadata"]["status"] == "not_evaluated"


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1, True, "5"])
def test_limits_without_effect_are_refused(server: Server, limit: Any):
    """A limit of NaN would allow every request."""
    with pytest.raises(ConfigError, match="max_cost is"):
        create_llm_as_judge(**options(server, max_cost=limit))


@pytest.mark.parametrize("price", [(float("nan"), 1.0), (-1.0, 1.0), (1.0, float("inf"))])
def test_invalid_prices_are_refused(server: Server, price: tuple[float, float]):
    """Negative, infinite and NaN prices would break the budget."""
    with pytest.raises(ConfigError, match="US dollars per million tokens"):
        create_llm_as_judge(**options(server, prices={"m": price}))


def test_a_failed_vote_does_not_hide_costs(server: Server):
    """The cost includes paid votes even if another vote failed."""
    server.script = lambda body, _number: error(503, "x") if body["model"] == "m2" else yes()
    prices = dict.fromkeys(("m", "m1", "m2"), (100.0, 0.0))
    jury = ["m", "m1", "m2"]
    judge = create_llm_as_judge(**options(server, model=None, jury=jury, prices=prices))

    found = judge(outputs="x")

    judge.close()
    assert found["metadata"]["cost_usd"] == pytest.approx(0.02)


def test_cached_answers_need_no_budget(server: Server):
    """A spent budget only stops new questions."""
    cache = MemoryCache()
    evaluate = create_llm_as_judge(**options(server, max_cost=0.03, cache=cache))
    server.script = lambda _body, _number: yes()
    first = [evaluate(outputs=str(n))["score"] for n in range(6)]

    again = evaluate(outputs="0")

    evaluate.close()
    assert first[0] is True
    assert first[-1] is None
    assert (again["score"], again["metadata"]["cached"]) == (True, True)


def test_estimates_follow_the_longest_answer(server: Server):
    """Questions are asked until the next one would exceed the budget."""
    server.script = lambda _body, _number: verdict(tokens=(10, 300))
    evaluate = create_llm_as_judge(
        **options(server, prices={"m": (0.0, 1000.0)}, max_cost=1.0, use_reasoning=True)
    )

    found = [evaluate(outputs=str(n))["score"] for n in range(5)]

    evaluate.close()
    assert found == [True, True, True, None, None]
