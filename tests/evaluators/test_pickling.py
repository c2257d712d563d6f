"""Evaluators can be pickled: for `multiprocessing`, and for Spark."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

import oteval
from oteval import ConfigError

from ..model_server import serving, verdict

REFUND = [{"role": "assistant", "tool_calls": [{"name": "refund", "args": {"order": 7}}]}]
GRAPH = {"results": ["done"], "steps": [["agent"]]}


class Grade(TypedDict):
    """A user's own form of an answer."""

    grade: int


class Mark(BaseModel):
    """The same as a model."""

    grade: int


SCHEMA = {"title": "g", "type": "object", "properties": {"grade": {"type": "integer"}}}


def judge_it(messages: Any, schema: Any) -> dict[str, Any]:
    """Return a verdict, as a judge that is a function."""
    del messages, schema
    return {"reasoning": "r", "score": True}


def embed(texts: list[str]) -> list[list[float]]:
    """Return equal embeddings."""
    return [[1.0, 0.0] for _ in texts]


def copied(value: Any) -> Any:
    """Return a copy by pickling."""
    return pickle.loads(pickle.dumps(value))


def result_of(evaluator: Any, **case: Any) -> Any:
    """Return the result of an evaluator, asynchronous or not."""
    result = evaluator(**case)
    return asyncio.run(result) if inspect.iscoroutinefunction(evaluator) else result


@pytest.mark.parametrize(
    "evaluator",
    [
        oteval.create_llm_as_judge(prompt="{outputs}", judge=judge_it),
        oteval.create_async_llm_as_judge(prompt="{outputs}", judge=judge_it, cache=True),
        oteval.create_trajectory_llm_as_judge(
            prompt=oteval.TRAJECTORY_ACCURACY_PROMPT, judge=judge_it, max_concurrency=2
        ),
        oteval.create_async_trajectory_llm_as_judge(
            prompt=oteval.TRAJECTORY_ACCURACY_PROMPT, jury=[judge_it, judge_it, judge_it]
        ),
        oteval.create_tool_error_evaluator(missing_ok=True),
        oteval.create_trajectory_match_evaluator(
            error_pattern="no .*", effect_tools=["refund"], view="effects"
        ),
        oteval.create_async_trajectory_match_evaluator(trajectory_match_mode="subset"),
        oteval.create_embedding_similarity_evaluator(embeddings=embed),
        oteval.create_async_embedding_similarity_evaluator(embeddings=embed),
        oteval.trajectory_superset_async,
    ],
    ids=lambda evaluator: evaluator.__name__,
)
def test_a_copy_gives_the_same_result(evaluator: Any):
    """Its name, its form and its verdict are the original's."""
    copy = copied(evaluator)

    case: Any = {"outputs": REFUND, "reference_outputs": REFUND}
    assert result_of(copy, **case)["score"] == result_of(evaluator, **case)["score"]
    assert result_of(copy, **case)["score"]
    assert copy.__name__ == evaluator.__name__
    assert inspect.iscoroutinefunction(copy) == inspect.iscoroutinefunction(evaluator)


@pytest.mark.parametrize("make", [
    oteval.create_graph_trajectory_llm_as_judge,
    oteval.create_async_graph_trajectory_llm_as_judge,
])  # fmt: skip
def test_a_judge_of_graphs_can_be_pickled(make: Any):
    """Also after its copy, prompts show the thread."""
    assert result_of(copied(make(judge=judge_it)), outputs=GRAPH)["score"] is True


@pytest.mark.parametrize("schema", [Grade, Mark, SCHEMA], ids=["typed dict", "model", "json"])
def test_a_judge_with_a_schema_can_be_pickled(schema: Any):
    """Answers are checked by the copy as well."""
    with serving(lambda _body, number: _grade(7 if number < 2 else "seven")) as server:
        evaluate = oteval.create_llm_as_judge(
            prompt="{outputs}", model="m", base_url=server.url, output_schema=schema
        )
        copy = copied(evaluate)

        answer = copy(outputs="x")
        assert answer == Mark(grade=7) if schema is Mark else answer == {"grade": 7}
        with pytest.raises(oteval.JudgeError):
            copy(outputs="y")
        copy.close()


def _grade(grade: Any) -> Any:
    reply = verdict()
    reply.body["choices"][0]["message"]["content"] = f'{{"grade": {grade!r}}}'.replace("'", '"')
    return reply


@pytest.mark.parametrize("kind", ["blocking", "async", "pairwise", "json"])
def test_a_judge_at_a_server_can_be_pickled_after_use(kind: str):
    """The copy opens its own connections."""
    with serving(lambda body, _: verdict(1 if '"output_a"' in str(body) else True)) as server:
        options: Any = {"model": "m", "base_url": server.url, "api_key": "k"}
        case: Any = {"outputs": "x"}
        evaluate: Any
        if kind == "pairwise":
            evaluate = oteval.create_pairwise_llm_as_judge(**options)
            server.script = lambda _body, _number: verdict(1)
            case = {"outputs": ["x", "y"]}
        elif kind == "json":
            evaluate = oteval.create_json_match_evaluator(rubric={"a": "alike"}, **options)
            case = {"outputs": {"a": 1}, "reference_outputs": {"a": 1}}
        elif kind == "async":
            evaluate = oteval.create_async_llm_as_judge(prompt="{outputs}", **options)
        else:
            evaluate = oteval.create_llm_as_judge(prompt="{outputs}", **options)

        scores = []
        for evaluator in (evaluate, copied(evaluate)):
            result = result_of(evaluator, **case)
            result = result[0] if isinstance(result, list) else result
            scores.append(result.get("scores", result.get("score")))

    assert scores[0] == scores[1]
    assert scores[0] is not None


def test_a_user_s_client_and_a_budget_cannot_be_copied():
    """Each copy would spend the whole budget; a client belongs to its process."""
    client = openai.OpenAI(base_url="http://127.0.0.1:1/v1", api_key="k")
    with_client = oteval.create_llm_as_judge(prompt="{outputs}", model="m", judge=client)
    limited = oteval.create_llm_as_judge(
        prompt="{outputs}", model="m", max_cost=1, prices={"m": {"input": 1, "output": 1}}
    )

    with pytest.raises(ConfigError, match="give model= and base_url= instead"):
        pickle.dumps(with_client)
    with pytest.raises(ConfigError, match="each copy would spend the whole budget"):
        pickle.dumps(limited)
    client.close()
