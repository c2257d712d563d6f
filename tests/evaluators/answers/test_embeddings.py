"""Texts compared by their embeddings."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

import oteval

from ...loopback import serving

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 2.0], "ab": [1.0, 1.0], "none": [0.0, 0.0]}


class Embeddings(BaseHTTPRequestHandler):
    """An embeddings endpoint that answers in the reverse order, as servers may."""

    def do_POST(self) -> None:
        """Answer with the vectors of the texts."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        data = [
            {"object": "embedding", "index": at, "embedding": VECTORS[text]}
            for at, text in enumerate(asked["input"])
        ]
        body = json.dumps({"object": "list", "model": asked["model"], "data": data[::-1]}).encode()
        self.send_response(200 if asked["model"] == "small" else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    """Return the address of a running endpoint."""
    with serving(Embeddings) as running:
        yield f"{running.url}/v1"


def test_similarity_comes_from_a_server(server: str):
    """The server is asked for both texts; the angle between the vectors is the score."""
    evaluate = oteval.create_embedding_similarity_evaluator(
        model="openai:small", base_url=server, max_retries=0
    )

    found: Any = evaluate(outputs="a", reference_outputs="ab")

    assert found["key"] == "embedding_similarity"
    assert found["score"] == pytest.approx(math.sqrt(0.5))
    missing: Any = oteval.create_embedding_similarity_evaluator(
        model="openai:large", base_url=server, max_retries=0
    )(outputs="a", reference_outputs="b")
    assert missing["score"] is None
    assert "404" in missing["comment"]


@pytest.mark.parametrize(
    ("one", "two", "algorithm", "score"),
    [("a", "a", "cosine", 1.0), ("a", "b", "cosine", 0.0), ("b", "ab", "dot_product", 2.0)],
)
def test_a_function_makes_embeddings(one: str, two: str, algorithm: Any, score: float):
    """A function of texts takes the place of a model; the awaitable form gives the same."""
    options: dict[str, Any] = {
        "algorithm": algorithm,
        "embeddings": lambda texts: [VECTORS[t] for t in texts],
    }

    found: Any = oteval.create_embedding_similarity_evaluator(**options)(
        outputs=one, reference_outputs=two
    )
    evaluate: Any = oteval.create_async_embedding_similarity_evaluator(**options)

    assert found["score"] == pytest.approx(score)
    assert asyncio.run(evaluate(outputs=one, reference_outputs=two)) == found


def test_a_vector_without_direction_is_an_error():
    """It is never a similarity of 0."""
    found: Any = oteval.create_embedding_similarity_evaluator(
        embeddings=lambda texts: [VECTORS[t] for t in texts]
    )(outputs="a", reference_outputs="none")

    assert found["score"] is None
    assert "zero vector" in found["metadata"]["error"]


def test_wrong_arguments_are_refused():
    """They are named when the evaluator is made."""
    make: Any = oteval.create_embedding_similarity_evaluator
    for options, message in (
        ({"algorithm": "l2"}, "algorithm is 'l2'"),
        ({"model": "cohere:embed"}, "only openai:NAME is built in"),
        ({"embeddings": 3}, "embeddings is a int"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**options)
