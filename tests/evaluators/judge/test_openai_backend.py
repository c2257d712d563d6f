"""Responses of OpenAI-compatible servers, over real sockets with the real client."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from oteval import (
    JudgeError,
    MemoryCache,
    create_async_llm_as_judge,
    create_llm_as_judge,
)
from oteval.evaluators.judge.output_modes import OutputModeMemory

from ...model_server import (
    Body,
    Reply,
    Server,
    asked_as,
    completion,
    error,
    shown,
    streamed,
    verdict,
)

Judge = Callable[..., Any]
GOOD = json.dumps({"reasoning": "It does.", "score": True})


@pytest.fixture(params=["sync", "async"])
def judge(request: pytest.FixtureRequest, server: Server) -> Iterator[Judge]:
    """Return a function that asks about "x" with a blocking or an asynchronous evaluator."""
    made: list[Any] = []

    def ask(**options: Any) -> Any:
        known = {"prompt": "Is it so? {outputs}", "model": "openai:m", "base_url": server.url}
        known = {**known, **options}
        if request.param == "async":
            evaluator = create_async_llm_as_judge(**known)
            return asyncio.run(evaluator(outputs="x"))
        evaluator = create_llm_as_judge(**known)
        made.append(evaluator)
        return evaluator(outputs="x")

    yield ask
    for evaluator in made:
        evaluator.close()


def test_a_result_has_the_reasoning_and_the_cost(judge: Judge):
    """It has exactly four keys; the metadata has tokens, cost, latency and the raw answer."""
    found = judge(prices={"m": {"input": 1.0, "output": 10.0}})

    assert list(found) == ["key", "score", "comment", "metadata"]
    assert (found["key"], found["score"], found["comment"]) == ("score", True, "It does.")
    metadata = found["metadata"]
    assert (metadata["input_tokens"], metadata["output_tokens"]) == (100, 20)
    assert metadata["cost_usd"] == pytest.approx((100 * 1 + 20 * 10) / 1e6)
    assert (metadata["raw"], metadata["model"]) == (GOOD, "scripted")
    assert metadata["latency_s"] > 0
    assert "error" not in metadata


def test_the_request_is_strict_structured_output_with_reasoning_first(judge: Judge, server: Server):
    """The first request has a strict JSON schema with the reasoning before the score."""
    judge(temperature=0.0, seed=7, request_options={"max_tokens": 99})

    (body,) = server.requests
    schema = body["response_format"]["json_schema"]
    assert (body["model"], body["temperature"], body["seed"]) == ("m", 0.0, 7)
    assert (body["max_tokens"], schema["strict"]) == (99, True)
    assert list(schema["schema"]["properties"]) == ["reasoning", "score"]
    assert schema["schema"]["additionalProperties"] is False


def only(*taken: str) -> Callable[[Body, int], Reply]:
    """Return a script that refuses all ways of asking but some."""

    def script(body: Body, _number: int) -> Reply:
        kind = asked_as(body)
        if kind not in taken:
            return error(400, f"{kind} is not supported here")
        if kind == "tool":
            return completion(arguments=GOOD, finish="tool_calls")
        return completion(GOOD)

    return script


@pytest.mark.parametrize("mode", ["json_schema", "tool", "json_object", "text"])
def test_a_refused_mode_leads_to_the_next_supported_one(judge: Judge, server: Server, mode: str):
    """After a 400 the next mode is used, and remembered for this server and model."""
    server.script = only(mode)

    first, second = judge(), judge()

    assert (first["score"], first["metadata"]["asked_as"]) == (True, mode)
    assert second["metadata"]["requests"] == 1
    ways = ["json_schema", "tool", "json_object", "text"]
    assert server.modes == [*ways[: ways.index(mode) + 1], mode]


def test_a_server_that_fails_on_json_schema_gets_the_next_mode(judge: Judge, server: Server):
    """A 500 on the schema, as llama.cpp's server sends, counts as a refusal of the mode."""

    def script(body: Body, number: int) -> Reply:
        if asked_as(body) == "json_schema":
            return error(500, "internal")
        return only("json_object")(body, number)

    server.script = script

    found = judge(max_retries=0)

    assert (found["score"], found["metadata"]["asked_as"]) == (True, "json_object")


def test_a_remembered_mode_that_is_refused_later_is_dropped(judge: Judge, server: Server):
    """A mode is remembered only as long as the server accepts it."""
    assert judge()["score"] is True
    server.script = only("tool")

    found = judge()

    assert (found["score"], found["metadata"]["asked_as"]) == (True, "tool")
    assert judge()["metadata"]["requests"] == 1


def test_another_400_in_a_remembered_mode_is_an_error_at_once(judge: Judge, server: Server):
    """A prompt that is too long is not sent in three more modes."""
    judge()
    server.script = lambda _body, _number: error(400, "too many tokens", "context_length_exceeded")

    found = judge()

    assert found["score"] is None
    assert "answered 400: too many tokens" in found["metadata"]["error"]
    assert len(server.requests) == 2


def test_json_object_and_text_put_the_schema_in_the_prompt(judge: Judge, server: Server):
    """At its end, because the request has no other place for it."""
    server.script = only("text")

    judge()

    assert '"score":{"type":"boolean"' in shown(server.requests[-1])
    assert "JSON" in shown(server.requests[2])
    assert "JSON schema" not in shown(server.requests[0])


@pytest.mark.parametrize(
    "text",
    [
        "It is fine, I would say true.",
        '{"reasoning": "cut off in the mid',
        '{"score": true}',
        '{"reasoning": "x", "score": "true"}',
        '{"reasoning": "x", "score": 1}',
        '{"reasoning": "x", "score": null}',
        '[{"reasoning": "x", "score": true}]',
        '{"reasoning": "a", "score": true} {"reasoning": "b", "score": false}',
        "",
    ],
    ids=["prose", "cut", "no reasons", "text", "number", "null", "list", "two", "nothing"],
)
def test_malformed_answers_lead_to_other_modes_and_a_repair(
    judge: Judge, server: Server, text: str
):
    """Unusable answers are asked for in each other way, and in the end mended by one more turn."""
    server.script = lambda _body, number: completion(text if number <= 4 else GOOD)

    found = judge()

    assert found["score"] is True
    assert found["metadata"]["requests"] == 5
    last = server.requests[-1]["messages"]
    assert [message["role"] for message in last[-2:]] == ["assistant", "user"]
    assert "cannot be used" in last[-1]["content"]


def test_an_answer_that_stays_malformed_is_an_error(judge: Judge, server: Server):
    """After one repair turn the score is None, and the reason shows the answer."""
    server.script = lambda _body, _number: completion("I cannot say.")

    found = judge()

    assert (found["score"], found["metadata"]["status"]) == (None, "error")
    assert "after a repair turn: the answer is not a JSON object" in found["metadata"]["error"]
    assert server.modes == ["json_schema", "tool", "json_object", "text", "text"]
    assert found["metadata"]["input_tokens"] == 500


@pytest.mark.parametrize(
    ("options", "score"),
    [
        ({"choices": [0.0, 0.5, 1.0]}, 0.7),
        ({"choices": [1, 2, 3]}, 4),
        ({"continuous": True}, 1.2),
        ({"continuous": True}, -0.01),
        ({"continuous": True}, float("nan")),
    ],
    ids=["between choices", "beyond choices", "above", "below", "nan"],
)
def test_a_score_outside_the_scale_is_an_error(
    judge: Judge, server: Server, options: dict[str, Any], score: float
):
    """It is neither taken, rounded nor asked for again."""
    server.script = lambda _body, _number: verdict(score)

    found = judge(**options)

    assert (found["score"], len(server.requests)) == (None, 1)
    assert "score" in found["metadata"]["error"]


@pytest.mark.parametrize(
    ("options", "score"),
    [({"choices": [0.0, 0.5, 1.0]}, 0.5), ({"continuous": True}, 0), ({"continuous": True}, 1.0)],
)
def test_a_score_on_the_scale_is_accepted(
    judge: Judge, server: Server, options: dict[str, Any], score: float
):
    """Choices and the ends of the scale count."""
    server.script = lambda _body, _number: verdict(score)

    assert judge(**options)["score"] == score


@pytest.mark.parametrize(
    "reply",
    [
        completion(None, refusal="I will not judge people."),
        completion("", finish="content_filter"),
    ],
    ids=["refusal", "filter"],
)
def test_a_refusal_is_a_final_error(judge: Judge, server: Server, reply: Reply):
    """A judge that refuses is not asked again."""
    server.script = lambda _body, _number: reply

    found = judge()

    assert found["score"] is None
    assert "the judge refused" in found["metadata"]["error"]
    assert len(server.requests) == 1


def test_an_answer_cut_off_at_its_limit_says_so(judge: Judge, server: Server):
    """Other modes would be cut off as well, so they are not tried."""
    server.script = lambda _body, _number: completion('{"reasoning": "long', finish="length")

    found = judge()

    assert "cut off at its token limit" in found["metadata"]["error"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_retried_after_its_delay(judge: Judge, server: Server, status: int):
    """The client honours Retry-After, and the verdict counts."""
    server.script = lambda _body, number: (
        error(status, "busy", retry_after="0.2") if number == 1 else verdict()
    )
    start = time.monotonic()

    found = judge()

    assert found["score"] is True
    assert time.monotonic() - start >= 0.2
    assert server.modes == ["json_schema", "json_schema"]


def test_a_server_that_stays_busy_is_an_error(judge: Judge, server: Server):
    """After the client's retries, the reason is the server's message."""
    server.script = lambda _body, _number: error(429, "slow down", retry_after_ms="1")

    found = judge(max_retries=2)

    assert found["score"] is None
    assert "answered 429: slow down" in found["metadata"]["error"]
    assert len(server.requests) == 3


def test_a_slow_answer_is_an_error_within_its_time(judge: Judge, server: Server):
    """No call waits much longer than the timeout."""
    server.script = lambda _body, _number: verdict(delay=20)
    start = time.monotonic()

    found = judge(timeout=0.3, max_retries=0)

    assert found["metadata"]["error"].endswith("within 0.3 s")
    assert time.monotonic() - start < 10


def test_an_unreachable_server_is_an_error_in_one_line(judge: Judge):
    """The reason names the address."""
    found = judge(base_url="http://127.0.0.1:9/v1", max_retries=0)

    assert found["score"] is None
    assert found["metadata"]["error"].startswith("cannot reach http://127.0.0.1:9/v1")
    assert "\n" not in found["metadata"]["error"]


def test_a_missing_key_is_an_error_that_says_what_to_set(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
):
    """Making the evaluator works without a key; asking says what to do."""
    found = judge(base_url=None)

    assert found["metadata"]["error"] == "no API key: set OPENAI_API_KEY, or give api_key"


def test_a_server_of_ones_own_needs_no_key_and_gets_none(
    judge: Judge, server: Server, monkeypatch: pytest.MonkeyPatch
):
    """Without a key a placeholder is sent; a given key is sent as it is."""
    judge()
    judge(api_key="abc")

    sent = [headers["authorization"] for headers in server.headers]
    assert sent == ["Bearer none", "Bearer abc"]


@pytest.mark.parametrize(
    "reply",
    [Reply("<html>gateway</html>"), Reply({"object": "nothing"}), Reply({"choices": []})],
    ids=["html", "no choices", "empty choices"],
)
def test_a_reply_that_is_no_completion_is_an_error(judge: Judge, server: Server, reply: Reply):
    """What a proxy may send in between does not end the run."""
    server.script = lambda _body, _number: reply

    found = judge(max_retries=0)

    assert found["score"] is None
    assert found["metadata"]["error"]


def test_streamed_answers_are_put_together(judge: Judge, server: Server):
    """A stream's text and its tokens are the answer's."""
    server.script = lambda _body, _number: streamed(GOOD)

    found = judge(stream=True)

    assert (found["score"], found["metadata"]["input_tokens"]) == (True, 50)
    assert server.requests[0]["stream"] is True


def test_a_stream_that_breaks_off_is_an_error(judge: Judge, server: Server):
    """Half an answer is none."""
    server.script = lambda _body, _number: streamed(GOOD[:20], breaks=True)

    found = judge(stream=True, max_retries=0)

    assert found["score"] is None


def test_answers_are_kept_by_the_whole_request(judge: Judge, server: Server):
    """The same question is asked once, whatever its nonce; another setting is another question."""
    cache = MemoryCache()

    first, second = judge(cache=cache), judge(cache=cache)
    judge(cache=cache, temperature=0.5)

    assert (first["metadata"]["cached"], second["metadata"]["cached"]) == (False, True)
    assert second["score"] is True
    assert second["metadata"]["cost_usd"] == 0
    assert len(server.requests) == 2


def test_failures_are_not_kept(judge: Judge, server: Server):
    """An error is asked about again."""
    cache = MemoryCache()
    server.script = lambda _body, number: completion("?") if number <= 5 else verdict()

    assert judge(cache=cache)["score"] is None
    assert judge(cache=cache)["score"] is True


def test_several_samples_vote(judge: Judge, server: Server):
    """The majority is the score, and the share that agreed is told."""
    server.script = lambda _body, number: verdict(number != 2)

    found = judge(samples=3)

    assert found["score"] is True
    assert found["metadata"]["vote_share"] == pytest.approx(2 / 3)
    assert sorted(vote["score"] for vote in found["metadata"]["votes"]) == [False, True, True]


def test_a_jury_votes_by_model(judge: Judge, server: Server):
    """Each model is asked once, and a tie is no pass."""
    server.script = lambda body, _number: verdict(body["model"] == "a", reasoning=body["model"])

    found = judge(model=None, jury=["openai:a", {"model": "b", "temperature": 0.3}])

    assert (found["score"], found["comment"]) == (False, "b")
    assert {body["model"] for body in server.requests} == {"a", "b"}
    assert [body.get("temperature") for body in server.requests].count(0.3) == 1


def test_a_failed_vote_is_no_vote(judge: Judge, server: Server):
    """Two of three make a verdict; one of three does not."""
    server.script = lambda body, _number: (
        completion(None, refusal="no") if body["model"] in ("b", "c") else verdict()
    )

    two = judge(model=None, jury=["a", "a2", "b"])
    one = judge(model=None, jury=["a", "b", "c"])

    assert (two["score"], two["metadata"]["failed_votes"]) == (True, 1)
    assert (one["score"], one["metadata"]["status"]) == (None, "error")


def test_a_spent_budget_is_not_evaluated(server: Server):
    """Once the money is gone nobody is asked, and the score says that it was not evaluated."""
    evaluate = create_llm_as_judge(
        prompt="{outputs}",
        model="openai:m",
        base_url=server.url,
        prices={"m": (100.0, 1000.0)},
        max_cost=0.04,
    )
    server.script = lambda _body, _number: verdict(tokens=(10, 20))

    found = [evaluate(outputs=str(number)) for number in range(4)]

    evaluate.close()
    assert [one["score"] for one in found] == [None, None, None, None]


def test_a_budget_is_for_as_many_calls_as_it_pays(server: Server):
    """Calls are paid until the next would cost too much."""
    evaluate = create_llm_as_judge(
        prompt="{outputs}",
        model="openai:m",
        base_url=server.url,
        prices={"m": (0.0, 1000.0)},
        max_cost=1.0,
    )
    server.script = lambda _body, _number: verdict(tokens=(10, 300))  # $0.30

    found = [evaluate(outputs=str(number)) for number in range(5)]

    evaluate.close()
    assert [one["score"] for one in found] == [True, True, True, None, None]
    assert found[-1]["metadata"]["status"] == "not_evaluated"
    assert "max_cost of $1 is spent ($0.9000 so far)" in found[-1]["metadata"]["error"]
    assert len(server.requests) == 3


async def test_no_more_are_under_way_than_allowed(server: Server):
    """Twenty questions at once reach the server three at a time."""
    server.script = lambda _body, _number: verdict(delay=0.02)
    evaluate = create_async_llm_as_judge(
        prompt="{outputs}", model="openai:m", base_url=server.url, max_concurrency=3
    )

    await asyncio.gather(*(evaluate(outputs=str(number)) for number in range(20)))

    assert server.busiest <= 3


def test_clients_of_ones_own_are_used(server: Server):
    """An OpenAI client is asked with its own address, and with more patience if told so."""
    server.script = lambda _body, number: error(503, "x") if number == 1 else verdict()
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0) as client:
        evaluate = create_llm_as_judge(
            prompt="{outputs}", judge=client, model="openai:m", max_retries=1, timeout=5
        )

        found = evaluate(outputs="x")

    assert found["score"] is True
    assert server.headers[0]["authorization"] == "Bearer k"


async def test_asynchronous_clients_are_awaited_and_blocking_ones_have_a_thread(server: Server):
    """Either client serves an asynchronous evaluator."""
    with openai.OpenAI(base_url=server.url, api_key="k") as blocking:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
            for judge in (client, blocking):
                evaluate = create_async_llm_as_judge(prompt="{outputs}", judge=judge, model="m")

                assert (await evaluate(outputs="x"))["score"] is True


def test_a_schema_of_ones_own_that_nothing_fits_raises(server: Server):
    """There is no result to put an error into, so it is raised."""
    server.script = lambda _body, _number: completion("no")
    schema = {"title": "t", "type": "object", "properties": {"a": {"type": "integer"}}}
    evaluate = create_llm_as_judge(
        prompt="{outputs}", model="m", base_url=server.url, output_schema=schema
    )

    with pytest.raises(JudgeError, match="no usable answer"):
        evaluate(outputs="x")
    evaluate.close()


def test_the_first_mode_that_worked_is_remembered():
    """One bad answer does not change the remembered mode; a refusal does."""
    memory, endpoint = OutputModeMemory(), ("url", "m")
    memory.record_success(endpoint, "json_schema")
    memory.record_success(endpoint, "text")
    assert memory.get(endpoint) == "json_schema"

    memory.record_refusal(endpoint, "tool")
    assert memory.get(endpoint) == "json_schema"
    memory.record_refusal(endpoint, "json_schema")
    assert memory.get(endpoint) is None
