"""A judge that saw only a part gives no verdict; one that is sent elsewhere is not asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from oteval import (
    create_async_llm_as_judge,
    create_embedding_similarity_evaluator,
    create_graph_trajectory_llm_as_judge,
    create_llm_as_judge,
)

from ...model_server import Reply, Server, completion, serving, shown, streamed, verdict

LONG = " ".join(f"step {n} of the run" for n in range(4000))  # about 90,000 characters
GOOD = '{"reasoning": "r", "score": true}'


def ask(server: Server, outputs: Any, **options: Any) -> Any:
    evaluate = create_llm_as_judge(
        prompt="{outputs}", model="m", base_url=server.url, max_retries=0, **options
    )
    try:
        return evaluate(outputs=outputs)
    finally:
        evaluate.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_window_that_is_too_small_is_an_error(server: Server, stream: bool):
    """A server that drops the beginning reports the tokens of the rest."""
    cut = (4096, 20)
    server.script = lambda _body, _number: (
        streamed(GOOD, tokens=cut) if stream else verdict(tokens=cut)
    )

    result = ask(server, LONG, stream=stream)

    assert (result["score"], result["metadata"]["status"]) == (None, "error")
    assert "the model saw only a part of the text" in result["comment"]
    assert "4,096 input tokens" in result["comment"]
    assert "num_ctx" in result["comment"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("outputs", "tokens"),
    [
        (LONG, (20_000, 20)),
        (LONG, None),
        (LONG, (0, 0)),
        ("short", (1, 1)),
        (" " * 100_000, (300, 20)),
        ("=" * 100_000, (300, 20)),
    ],
    ids=["all of it", "not reported", "reported as 0", "short", "white space", "a ruler"],
)
def test_a_text_that_fits_is_judged(server: Server, outputs: str, tokens: Any):
    """Counts that are missing, small texts and runs of equal characters are no sign of a cut."""
    server.script = lambda _body, _number: verdict(tokens=tokens)

    assert ask(server, outputs)["score"] is True


def test_a_cut_text_is_not_compared_by_its_embedding():
    """Embeddings of a part say nothing about the whole."""
    vectors = [{"index": n, "embedding": [1.0, 0.0], "object": "embedding"} for n in range(2)]
    usage = {"prompt_tokens": 512, "total_tokens": 512}
    body = {"object": "list", "data": vectors, "model": "m", "usage": usage}
    with serving(lambda _body, _number: Reply(body)) as server:
        evaluate = create_embedding_similarity_evaluator(model="m", base_url=server.url)

        score: Any = evaluate(outputs=LONG, reference_outputs=LONG)
        whole: Any = evaluate(outputs="a", reference_outputs="b")

    assert score["score"] is None
    assert "saw only a part" in score["comment"]
    assert whole["score"] == 1.0


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_a_redirect_to_another_host_is_refused(server: Server, is_async: bool):
    """Neither the transcript nor the key goes to a server that nobody configured."""
    with serving() as other:
        target = f"{other.url}/chat/completions?key=1"
        server.script = lambda _body, _number: Reply({}, 307, {"location": target})
        options: Any = {"prompt": "{outputs}", "model": "m", "base_url": server.url}

        if is_async:
            result = asyncio.run(create_async_llm_as_judge(**options)(outputs="x"))
        else:
            result = ask(server, "x")

        assert result["score"] is None
        assert f"redirects to another host, {other.url}/chat/completions," in result["comment"]
        assert not other.requests
    assert len(server.requests) == 1


def test_a_redirect_on_the_same_host_is_followed(server: Server):
    """A server may move its pages."""
    server.script = lambda _body, number: (
        Reply({}, 307, {"location": "/v2/chat/completions"}) if number == 1 else verdict()
    )

    assert ask(server, "x")["score"] is True


@pytest.mark.parametrize(
    "reply",
    [
        completion(""),
        completion(None),
        completion(GOOD, finish="length"),
        completion(GOOD, finish="content_filter"),
    ],
    ids=["empty", "none", "cut", "filtered"],
)
def test_an_answer_that_is_not_whole_is_no_verdict(server: Server, reply: Reply):
    """Even if its text is a verdict."""
    server.script = lambda _body, _number: reply

    result = ask(server, "x")

    assert (result["score"], result["metadata"]["status"]) == (None, "error")


def test_a_prompt_about_a_graph_may_show_a_reference_that_is_not_given(server: Server):
    """As in agentevals, whose own example of a prompt leaves it out."""
    graph = {"inputs": ["hi"], "results": ["ho"], "steps": [["agent", "tools"]]}
    evaluate = create_graph_trajectory_llm_as_judge(
        prompt="Judge this: {thread}\n{reference_outputs}", model="m", base_url=server.url
    )

    assert evaluate(outputs=graph)["score"] is True
    assert evaluate(outputs=graph, inputs=["hi"], reference_outputs=None)["score"] is True
    assert "{reference_outputs}" not in shown(server.requests[0])
    evaluate.close()
