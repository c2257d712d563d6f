"""Judges that are LangChain models or runnables, asked as they are, and functions."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from typing import Any

import openai
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

import oteval
from oteval import (
    ConfigError,
    MemoryCache,
    create_async_llm_as_judge,
    create_async_trajectory_llm_as_judge,
    create_llm_as_judge,
    create_trajectory_llm_as_judge,
)

from ...make import ROOT
from ...model_server import Server, asked_as, completion, error, verdict
from .chat_model import chat_model

GOOD = json.dumps({"reasoning": "r", "score": True})


def ask(judge: Any, **options: Any) -> dict[str, Any]:
    """Ask about a text with a blocking evaluator."""
    score = create_llm_as_judge(prompt="{outputs}", judge=judge, **options)(outputs="x")
    assert isinstance(score, dict)
    return score


def test_a_chat_model_is_asked_for_structured_output(server: Server):
    """One request gives the answer, the tokens and the model."""
    score = ask(chat_model(server), prices={"m": (1.0, 1.0)})

    assert (score["score"], score["comment"]) == (True, "It does.")
    assert server.modes == ["json_schema"]
    assert score["metadata"]["input_tokens"] == 100
    assert score["metadata"]["cost_usd"] == pytest.approx(120 / 1e6)


def test_a_chat_model_whose_server_refuses_schemas_uses_other_modes(server: Server):
    """With a forced tool call, then with the schema in the prompt."""

    def script(body: dict[str, Any], _number: int) -> Any:
        kind = asked_as(body)
        return verdict() if kind == "text" else error(400, f"{kind} is not supported")

    server.script = script

    assert ask(chat_model(server))["score"] is True
    assert server.modes == ["json_schema", "tool", "text"]


def test_a_forced_tool_call_of_a_chat_model_is_read(server: Server):
    """Its arguments are the answer."""
    server.script = lambda body, _number: (
        completion(arguments=GOOD, finish="tool_calls")
        if asked_as(body) == "tool"
        else error(400, "no")
    )

    score = ask(chat_model(server))

    assert (score["score"], score["metadata"]["asked_as"]) == (True, "tool")


def test_with_retry_stays_around_the_model(server: Server):
    """A failed call is tried again by LangChain's own wrapper."""
    server.script = lambda _body, number: error(429, "busy") if number < 3 else verdict()
    judge = chat_model(server).with_retry(
        retry_if_exception_type=(openai.RateLimitError,),
        wait_exponential_jitter=False,
        stop_after_attempt=3,
    )

    score = ask(judge)

    assert score["score"] is True
    assert server.modes == ["json_schema"] * 3


def test_bound_arguments_and_fallbacks_are_kept(server: Server):
    """Bound arguments are sent, and the fallback answers if the first model fails."""
    server.script = lambda body, _number: (
        completion(arguments=GOOD) if asked_as(body) == "tool" else verdict()
    )
    assert ask(chat_model(server).bind(temperature=0.25))["score"] is True
    assert server.requests[0]["temperature"] == 0.25

    broken = chat_model(server, base_url="http://127.0.0.1:9/v1")
    assert ask(broken.with_fallbacks([chat_model(server)]))["score"] is True


async def test_chat_models_are_awaited(server: Server):
    """An asynchronous evaluator uses the model's own asynchronous call."""
    evaluate = create_async_llm_as_judge(prompt="{outputs}", judge=chat_model(server))

    assert (await evaluate(outputs="x"))["score"] is True


def test_a_model_without_structured_output_is_asked_for_text():
    """Its text is parsed, after a repair turn if necessary."""
    assert ask(FakeListChatModel(responses=[GOOD]))["metadata"]["asked_as"] == "text"

    mended = ask(FakeListChatModel(responses=["well", GOOD]))
    assert (mended["score"], mended["metadata"]["requests"]) == (True, 2)


@pytest.mark.parametrize(
    "returned",
    [GOOD, AIMessage(GOOD), {"reasoning": "r", "score": True}],
    ids=["text", "message", "dict"],
)
def test_any_runnable_may_judge(returned: Any):
    """It may return a text, a message or the answer itself."""
    assert ask(RunnableLambda(lambda _messages: returned))["score"] is True


def test_a_runnable_that_fails_or_returns_something_else_is_an_error():
    """In one line."""

    def broken(_messages: Any) -> Any:
        raise RuntimeError("it\nbroke")

    assert ask(RunnableLambda(broken))["metadata"]["error"] == "RuntimeError: it broke"
    assert "expected a message" in ask(RunnableLambda(lambda _m: 3))["metadata"]["error"]


def test_answers_of_langchain_models_are_kept_by_their_own_key(server: Server):
    """Two models with the same parameters share answers; another temperature does not."""
    cache = MemoryCache()

    ask(chat_model(server), cache=cache)
    assert ask(chat_model(server), cache=cache)["metadata"]["cached"] is True
    assert ask(chat_model(server, temperature=0.9), cache=cache)["metadata"]["cached"] is False


# Functions.


def test_a_function_is_given_messages_and_a_schema():
    """Its dict is the answer, checked like any other."""
    seen: list[Any] = []

    def judge(messages: list[dict[str, Any]], schema: dict[str, Any]) -> dict[str, Any]:
        seen.append((messages, schema))
        return {"reasoning": "r", "score": False}

    assert ask(judge)["score"] is False
    (((message,), schema),) = seen
    assert message["role"] == "user"
    assert schema["required"] == ["reasoning", "score"]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        ({"score": True}, "reasoning: field required"),
        ({"reasoning": "r", "score": 0.5}, "score: input should be a valid boolean"),
        (None, "returned a NoneType"),
        ("no JSON", "not a JSON object"),
    ],
)
def test_a_function_that_gives_no_verdict_is_an_error(returned: Any, reason: str):
    """It is called once: there is nothing to ask it in another way."""
    calls: list[int] = []

    def judge(_messages: Any, _schema: Any) -> Any:
        calls.append(1)
        return returned

    score = ask(judge)

    assert score["score"] is None
    assert reason in score["metadata"]["error"]
    assert len(calls) == 1


def test_a_function_that_raises_or_hangs_is_an_error():
    """Within its time."""

    def broken(_messages: Any, _schema: Any) -> Any:
        raise ValueError("bad")

    assert ask(broken)["metadata"]["error"] == "ValueError: bad"
    release = threading.Event()
    hung = ask(lambda _m, _s: release.wait(60), timeout=0.1)
    release.set()
    assert hung["metadata"]["error"] == "no answer within 0.1 s"


async def test_asynchronous_functions_are_awaited():
    """And one that hangs is given up."""

    async def judge(_messages: Any, _schema: Any) -> dict[str, Any]:
        return {"reasoning": "r", "score": True}

    async def hangs(_messages: Any, _schema: Any) -> dict[str, Any]:
        await asyncio.sleep(30)
        return {}

    good = create_async_llm_as_judge(prompt="{outputs}", judge=judge)
    hung = create_async_llm_as_judge(prompt="{outputs}", judge=hangs, timeout=0.05)

    assert (await good(outputs="x"))["score"] is True
    assert "no answer within" in (await hung(outputs="x"))["metadata"]["error"]


def test_a_blocking_evaluator_refuses_asynchronous_judges():
    """At creation, for coroutine functions and asynchronous clients."""

    async def judge(_messages: Any, _schema: Any) -> dict[str, Any]:
        return {}

    client = openai.AsyncOpenAI(api_key="k", base_url="http://127.0.0.1:9")
    for wrong in (judge, client):
        with pytest.raises(ConfigError, match="use the async form"):
            create_llm_as_judge(prompt="{outputs}", judge=wrong, model="m")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "a model is needed"),
        ({"judge": 3}, "judge is a int"),
        ({"judge": openai.OpenAI(api_key="k")}, "model is needed"),
        ({"jury": []}, "jury is empty"),
        ({"jury": ["a"], "judge": print}, "exclude each other"),
        ({"jury": [{"modle": "a"}]}, "unknown key 'modle'"),
        ({"model": "m", "samples": 0}, "samples is 0"),
        ({"model": "m", "max_concurrency": 0}, "max_concurrency is 0"),
        ({"model": "m", "max_cost": -1}, "max_cost is -1"),
        ({"model": "m", "samples": 2, "output_schema": {"properties": {}}}, "cannot be voted on"),
        ({"model": "nobody:m"}, "pip install langchain"),
    ],
)
def test_wrong_options_are_refused_at_creation(options: Any, reason: str):
    """In one line with the remedy."""
    with pytest.raises(ConfigError, match=reason):
        create_llm_as_judge(prompt="{outputs}", **options)


# The public names.

NAMES = (
    *("prompt", "model", "system", "feedback_key", "judge", "continuous", "choices"),
    *("use_reasoning", "few_shot_examples", "output_schema"),
)


@pytest.mark.parametrize(
    ("create", "key"),
    [
        (create_llm_as_judge, "score"),
        (create_async_llm_as_judge, "score"),
        (create_trajectory_llm_as_judge, "trajectory_accuracy"),
        (create_async_trajectory_llm_as_judge, "trajectory_accuracy"),
    ],
)
def test_the_factories_have_the_signatures_of_openevals(create: Any, key: str):
    """All are keyword-only with openevals' defaults; oteval adds its options."""
    parameters = inspect.signature(create).parameters

    assert set(NAMES) < set(parameters)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in NAMES)
    assert parameters["feedback_key"].default == key
    assert parameters["use_reasoning"].default is True
    is_trajectory = "trajectory" in create.__name__
    default = oteval.TRAJECTORY_ACCURACY_PROMPT_WITH_REFERENCE
    assert parameters["prompt"].default == (default if is_trajectory else inspect.Parameter.empty)
    with pytest.raises(TypeError, match="unexpected keyword argument 'modle'"):
        create(prompt="p", modle="x")


def test_evaluators_are_what_frameworks_look_for():
    """They have a name and a description; asynchronous ones are coroutine functions."""
    blocking = create_trajectory_llm_as_judge(judge=lambda _m, _s: {})
    awaited = create_async_trajectory_llm_as_judge(judge=lambda _m, _s: {})

    assert blocking.__name__ == awaited.__name__ == "trajectory_accuracy"  # type: ignore[attr-defined]
    assert inspect.iscoroutinefunction(awaited)
    assert blocking.describe() == awaited.evaluator.describe()
    assert json.dumps(blocking.describe())


@pytest.mark.parametrize("code", ["from oteval import create_llm_as_judge", "import oteval"])
def test_importing_judges_imports_no_client(code: str):
    """The openai package and LangChain take seconds to import, so the first request does it."""
    code += "; import sys; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert not {"openai", "langchain_core", "httpx", "httpx2", "duckdb"} & set(done.stdout.split())
