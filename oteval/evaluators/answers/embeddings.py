"""Compares two texts by the similarity of their embeddings.

Embeddings are vectors; texts of similar meaning have similar directions. They come from a model
behind an OpenAI-compatible server, from LangChain's `Embeddings`, or from a function.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from ...base.errors import ConfigError, JudgeError
from ..factories import named_partial, with_options_of
from ..openai_client import model_name, open_client
from ..result_listeners import observed
from ..types import EvaluatorResult, SimpleAsyncEvaluator, SimpleEvaluator
from .strings import require_both, text_of

__all__ = [
    "create_async_embedding_similarity_evaluator",
    "create_embedding_similarity_evaluator",
]

_KEY = "embedding_similarity"
_TIMEOUT = 60.0
Algorithm = Literal["cosine", "dot_product"]
Vector = Sequence[float]
Embed = Callable[[list[str]], Sequence[Vector]]


def create_embedding_similarity_evaluator(
    *,
    model: str = "openai:text-embedding-3-small",
    algorithm: Algorithm = "cosine",
    embeddings: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = _TIMEOUT,
    max_retries: int = 2,
) -> SimpleEvaluator:
    """Create an evaluator that scores the similarity of two texts by their embeddings.

    Unlike openevals, scores are not rounded to two decimals, and a failed request results in the
    score None with the reason.

    Args:
        model: ``openai:NAME``, at any OpenAI-compatible server.
        algorithm: ``cosine`` (-1 to 1) or ``dot_product``.
        embeddings: In place of a model: LangChain's ``Embeddings``, or a function that returns a
            vector for each text of a list.
        base_url: The server's address; else ``OPENAI_BASE_URL``.
        api_key: The server's key; else ``OPENAI_API_KEY``.
        timeout: Seconds to wait for an answer.
        max_retries: How often the client repeats a failed request.

    Returns:
        An evaluator with the key ``embedding_similarity``.

    Raises:
        ConfigError: An argument is wrong.
    """
    if algorithm not in ("cosine", "dot_product"):
        raise ConfigError(f"algorithm is {algorithm!r}; expected 'cosine' or 'dot_product'")
    embed = _embed_of(embeddings, model, base_url, api_key, timeout, max_retries)
    evaluator: SimpleEvaluator = named_partial(_evaluate, _KEY, embed, algorithm)
    return evaluator


def _evaluate(
    embed: Embed,
    algorithm: Algorithm,
    *,
    outputs: Any,
    reference_outputs: Any = None,
    inputs: Any = None,
    **extra: Any,
) -> EvaluatorResult:
    """Compare outputs with the reference."""
    del inputs, extra
    require_both(_KEY, outputs, reference_outputs)
    texts = [text_of(outputs, "outputs"), text_of(reference_outputs, "reference_outputs")]
    return observed(_compared(embed, texts, algorithm))


@with_options_of(create_embedding_similarity_evaluator)
def create_async_embedding_similarity_evaluator(**options: Any) -> SimpleAsyncEvaluator:
    """Create a coroutine function that scores by the similarity of embeddings.

    Requests run in a thread, so that the event loop is not blocked.

    Args:
        **options: The options of `create_embedding_similarity_evaluator`.

    Returns:
        A coroutine function with the key ``embedding_similarity``.

    Raises:
        ConfigError: An option is wrong.
    """
    evaluate = create_embedding_similarity_evaluator(**options)
    evaluator: SimpleAsyncEvaluator = named_partial(_evaluate_in_thread, _KEY, evaluate)
    return evaluator


async def _evaluate_in_thread(
    evaluate: SimpleEvaluator, **case: Any
) -> EvaluatorResult | list[EvaluatorResult]:
    """Compare outputs with the reference."""
    return await asyncio.to_thread(evaluate, **case)


def _compared(embed: Embed, texts: list[str], algorithm: Algorithm) -> EvaluatorResult:
    try:
        output, reference = (list(map(float, vector)) for vector in embed(texts))
        score = _similarity(output, reference, algorithm)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return {"key": _KEY, "score": None, "comment": reason, "metadata": {"error": reason}}
    return {"key": _KEY, "score": score, "comment": None, "metadata": {"algorithm": algorithm}}


def _similarity(output: Vector, reference: Vector, algorithm: Algorithm) -> float:
    if len(output) != len(reference) or not output:
        raise JudgeError(f"the embeddings have {len(output)} and {len(reference)} dimensions")
    product = math.fsum(a * b for a, b in zip(output, reference, strict=True))
    if algorithm == "cosine":
        length = math.hypot(*output) * math.hypot(*reference)
        if not length:
            raise JudgeError("an embedding is the zero vector, which has no direction")
        product = max(-1.0, min(1.0, product / length))
    if not math.isfinite(product):
        raise JudgeError("an embedding holds a number that is not finite")
    return product


def _embed_of(
    embeddings: Any,
    model: str,
    base_url: str | None,
    api_key: str | None,
    timeout: float,
    max_retries: int,
) -> Embed:
    """The function that computes embeddings."""
    if embeddings is not None:
        embed = getattr(embeddings, "embed_documents", embeddings)
        if not callable(embed):
            raise ConfigError(
                f"embeddings is a {type(embeddings).__name__}; expected LangChain's Embeddings or "
                "a function that returns a vector for each text"
            )
        function: Embed = embed
        return function
    name = model_name(model, base_url, "LangChain's embeddings as embeddings=")

    options = {"timeout": timeout, "max_retries": max_retries}
    return partial(_request, name, base_url, api_key, options)


def _request(
    model: str,
    base_url: str | None,
    api_key: str | None,
    options: Mapping[str, Any],
    texts: list[str],
) -> Sequence[Vector]:
    """Request the embeddings of texts from a server.

    Raises:
        JudgeError: The model cannot have seen all of the texts.
    """
    # Imported late: the judges take long to import.
    from ..judge.completions import token_count
    from ..judge.output_modes import unseen_text

    with open_client(base_url, api_key, **options) as client:
        response = client.embeddings.create(model=model, input=texts, encoding_format="float")
    if problem := unseen_text(texts, token_count(getattr(response.usage, "prompt_tokens", None))):
        raise JudgeError(problem)
    by_index = {embedding.index: embedding.embedding for embedding in response.data}
    return [by_index[index] for index in range(len(texts))]
