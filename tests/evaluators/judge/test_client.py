"""Questions to one judge: timeouts, concurrency, caching and equal questions."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from oteval import MemoryCache, create_async_llm_as_judge, create_llm_as_judge
from oteval.evaluators.judge.client import _PENDING

from ...model_server import (
    Body,
    Reply,
    Server,
    asked_as,
    completion,
    error,
    serving,
    streamed,
    verdict,
)
from .chat_model import chat_model

GOOD = json.dumps({"reasoning": "It does.", "score": True})


def options(server: Server, **more: Any) -> dict[str, Any]:
    """Return the arguments of a judge."""
    judge_options = {
        "prompt": "{outputs}",
        "model": "openai:m",
        "base_url": server.url,
        "max_retries": 0,
    }
    return {**judge_options, **more}


@pytest.mark.parametrize("kind", ["sync", "async", "client", "async client", "client in async"])
@pytest.mark.parametrize("where", ["head", "body", "comments"])
def test_a_server_that_drips_is_given_up(server: Server, kind: str, where: str):
    """The timeout covers the whole request, however slowly bytes arrive."""
    server.script = lambda _body, _number: Reply(drips=where)
    judge_options = options(server, timeout=0.3, stream=where == "comments", max_retries=2)
    if "client" in kind:
        make = openai.AsyncOpenAI if kind == "async client" else openai.OpenAI
        judge_options["judge"] = make(base_url=server.url, api_key="k")
    start = time.monotonic()

    if "async" in kind:
        score = asyncio.run(_asked_and_closed(judge_options))
    else:
        evaluate = create_llm_as_judge(**judge_options)
        score = evaluate(outputs="x")
        evaluate.close()

    assert time.monotonic() - start < 15
    assert score["metadata"]["error"].endswith("within 0.3 s")
    assert len(server.requests) <= 1  # on a busy machine the time may pass before one arrives
    server.stop()
    if kind in ("client", "client in async"):
        judge_options["judge"].close()


async def _asked_and_closed(judge_options: dict[str, Any]) -> Any:
    score = await create_async_llm_as_judge(**judge_options)(outputs="x")
    if isinstance(judge_options.get("judge"), openai.AsyncOpenAI):
        await judge_options["judge"].close()
    return score


def test_concurrency_is_limited_over_threads_and_event_loops(server: Server):
    """Three threads with an event loop each send at most two questions at a time in total."""
    server.script = lambda _body, _number: verdict(delay=0.02)
    evaluate = create_async_llm_as_judge(**options(server, max_concurrency=2))

    async def many(thread: int) -> list[Any]:
        return await asyncio.gather(*(evaluate(outputs=f"{thread} {n}") for n in range(5)))

    with ThreadPoolExecutor(3) as threads:
        scores = list(threads.map(lambda thread: asyncio.run(many(thread)), range(3)))

    assert [score["score"] for thread_scores in scores for score in thread_scores] == [True] * 15
    assert server.busiest <= 2


def test_equal_questions_of_threads_are_asked_once(server: Server):
    """The other callers wait for the answer, and cost nothing."""
    server.script = lambda _body, _number: verdict(delay=0.2)
    evaluate = create_llm_as_judge(
        **options(server, cache=True, prices={"m": (1.0, 1.0)}, max_concurrency=2)
    )

    with ThreadPoolExecutor(8) as threads:
        scores = list(threads.map(lambda _: evaluate(outputs="x"), range(8)))

    evaluate.close()
    assert len(server.requests) == 1
    assert [score["score"] for score in scores] == [True] * 8
    assert sum(score["metadata"]["cost_usd"] > 0 for score in scores) == 1


async def test_equal_questions_of_a_loop_are_asked_once(server: Server):
    """If the question fails, all callers get the error, which is not cached."""
    cache = MemoryCache()
    evaluate = create_async_llm_as_judge(**options(server, cache=cache))
    other = create_async_llm_as_judge(**options(server, cache=cache, feedback_key="other"))
    server.script = lambda _body, _number: error(503, "down")

    failed = await asyncio.gather(*(judge(outputs="x") for judge in (evaluate, other) * 3))
    server.script = lambda _body, _number: verdict()
    request_count = len(server.requests)
    scores = await asyncio.gather(*(judge(outputs="x") for judge in (evaluate, other) * 3))

    assert [score["metadata"]["status"] for score in failed] == ["error"] * 6
    assert request_count == 1
    assert [score["score"] for score in scores] == [True] * 6
    assert len(server.requests) == 2


async def test_an_equal_question_is_asked_by_the_next_where_the_first_gives_up(server: Server):
    """Callers that wait for a cancelled question still get an answer."""
    server.script = lambda _body, number: verdict(delay=30 if number == 1 else 0)
    evaluate = create_async_llm_as_judge(**options(server, cache=True))
    first = asyncio.create_task(evaluate(outputs="x"))
    while not server.requests:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(evaluate(outputs="x"))
    await asyncio.sleep(0.01)

    first.cancel()

    assert (await second)["score"] is True
    assert len(server.requests) == 2


def test_the_cache_distinguishes_servers(server: Server, monkeypatch: pytest.MonkeyPatch):
    """An address from the environment is part of the key."""
    cache = MemoryCache()
    judge_options = {**options(server, cache=cache, api_key="k"), "base_url": None}
    is_cached = []
    with serving() as second:
        for url in (server.url, second.url):
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            evaluate = create_llm_as_judge(**judge_options)
            is_cached.append(evaluate(outputs="x")["metadata"]["cached"])
            evaluate.close()

        assert is_cached == [False, False]
        assert (len(server.requests), len(second.requests)) == (1, 1)


def test_the_cache_distinguishes_structured_output_options(server: Server):
    """A different method, server or bound argument makes a different question."""
    cache = MemoryCache()
    model = chat_model(server)

    def ask(judge: Any, **more: Any) -> bool:
        evaluate = create_llm_as_judge(prompt="{outputs}", judge=judge, cache=cache, **more)
        cached: bool = evaluate(outputs="x")["metadata"]["cached"]
        return cached

    assert ask(model) is False
    assert ask(model) is True
    assert ask(model, structured_output_kwargs={"method": "json_mode"}) is False
    assert ask(model, structured_output_kwargs={"method": "json_mode"}) is True
    assert ask(model.bind(top_p=0.5).with_retry()) is False
    assert ask(model.bind(top_p=0.6).with_retry()) is False
    with serving() as second:
        moved = chat_model(second)
        assert ask(moved) is False


@pytest.mark.parametrize("kind", ["openai", "langchain"])
def test_three_failures_do_not_demote_a_model(server: Server, kind: str):
    """After a busy phase of three requests, the next question uses the strict mode again."""
    server.script = lambda _body, number: (
        error(500, "busy") if number <= (3 if kind == "openai" else 2) else verdict()
    )
    model = chat_model(server)
    judge_options = (
        {"prompt": "{outputs}", "judge": model} if kind == "langchain" else options(server)
    )
    evaluate = create_llm_as_judge(**judge_options)

    ways = [evaluate(outputs=str(n))["metadata"]["asked_as"] for n in range(3)]

    evaluate.close()
    assert ways == ["text", "json_schema", "json_schema"]


def test_a_mode_that_always_fails_is_tried_less_and_never_given_up(server: Server):
    """Most questions skip the failing mode; once the server recovers, they use it again."""
    healthy = False

    def script(body: Body, _number: int) -> Reply:
        if asked_as(body) == "json_schema" and not healthy:
            return error(500, "internal")
        return completion(arguments=GOOD) if asked_as(body) == "tool" else completion(GOOD)

    server.script = script
    evaluate = create_llm_as_judge(**options(server))

    for number in range(24):
        assert evaluate(outputs=str(number))["score"] is True
    broken = server.modes.count("json_schema")
    healthy = True
    ways = [evaluate(outputs=f"again {n}")["metadata"]["asked_as"] for n in range(12)]

    evaluate.close()
    assert 4 <= broken <= 8
    assert ways[-1] == "json_schema"


def test_a_server_that_ignores_streaming_is_read(server: Server):
    """A whole completion instead of a stream is the answer, with its tokens."""
    server.script = lambda _body, _number: verdict()
    evaluate = create_llm_as_judge(**options(server, stream=True))

    score = evaluate(outputs="x")
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        other = create_llm_as_judge(prompt="{outputs}", judge=client, model="m", stream=True)
        again = other(outputs="x")

    evaluate.close()
    assert (score["score"], score["metadata"]["input_tokens"]) == (True, 100)
    assert again["score"] is True
    assert len(server.requests) == 2


def test_a_whole_completion_as_one_event_is_read(server: Server):
    """Some servers send the whole completion as one event."""
    whole = verdict().body
    server.script = lambda _body, _number: Reply(chunks=(whole,))
    evaluate = create_llm_as_judge(**options(server, stream=True))

    score = evaluate(outputs="x")

    evaluate.close()
    assert score["score"] is True


def test_a_response_that_is_neither_stream_nor_completion_is_an_error(server: Server):
    """The message shows the response."""
    server.script = lambda _body, _number: Reply('{"detail": "nothing here"}')
    evaluate = create_llm_as_judge(**options(server, stream=True))

    score = evaluate(outputs="x")

    evaluate.close()
    assert score["score"] is None
    assert "nothing here" in score["metadata"]["error"]


def test_a_stream_whose_tokens_never_come_is_read(server: Server):
    """The verdict counts, and no tokens are invented."""
    server.script = lambda _body, _number: streamed(GOOD, tokens=None)
    evaluate = create_llm_as_judge(**options(server, stream=True))

    score = evaluate(outputs="x")

    evaluate.close()
    assert (score["score"], score["metadata"]["input_tokens"]) == (True, 0)


async def test_a_function_that_hangs_keeps_no_event_loop(server: Server):
    """The event loop ends although the function is still running."""
    release = threading.Event()
    evaluate = create_async_llm_as_judge(
        prompt="{outputs}", judge=lambda _m, _s: release.wait(30), timeout=0.05
    )

    score = await evaluate(outputs="x")

    await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 10)
    release.set()
    assert "no answer within" in score["metadata"]["error"]


def test_a_spent_budget_is_not_passed_on_to_another_evaluator():
    """An evaluator that waits for an equal question asks itself if the other's budget is spent."""
    released, begun = threading.Event(), threading.Event()

    def judge(messages: Any, _schema: Any) -> dict[str, Any]:
        if "first" in str(messages):
            begun.set()
            released.wait(60)
        return {"reasoning": "9" * 2000, "score": True}

    judge.cache_key = "the same"  # type: ignore[attr-defined]
    judge_options: dict[str, Any] = {"prompt": "{outputs}", "judge": judge, "model": "m"}
    prices = {"m": {"input": 0.0, "output": 100_000.0}}
    poor = create_llm_as_judge(**judge_options, cache=True, max_cost=51.0, prices=prices)
    rich = create_llm_as_judge(**judge_options, cache=True)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(poor, outputs="first")
        begun.wait(60)
        second = pool.submit(poor, outputs="both ask this")
        _until(lambda: len(_PENDING._waiters) == 2)
        other = pool.submit(rich, outputs="both ask this")
        _until(lambda: any(_PENDING._waiters.values()))
        released.set()

        assert first.result()["score"] is True
        assert second.result()["metadata"]["status"] == "not_evaluated"
        assert other.result()["score"] is True


def test_a_blocking_question_does_not_wait_for_its_own_event_loop():
    """A blocking judge in a coroutine answers even if a task of the loop asks the same question."""
    scores: list[Any] = []

    async def slow(_messages: Any, _schema: Any) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"reasoning": "r", "score": True}

    def fast(_messages: Any, _schema: Any) -> dict[str, Any]:
        return {"reasoning": "r", "score": True}

    slow.cache_key = fast.cache_key = "the same"  # type: ignore[attr-defined]
    judge_options: dict[str, Any] = {"prompt": "{outputs}", "model": "m", "cache": True}

    async def main() -> None:
        asking = asyncio.create_task(
            create_async_llm_as_judge(judge=slow, **judge_options)(outputs="x")
        )
        await asyncio.sleep(0)
        scores.append(create_llm_as_judge(judge=fast, **judge_options)(outputs="x")["score"])
        scores.append((await asking)["score"])

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    thread.join(60)

    assert scores == [True, True]


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)
