"""Evaluators of a final answer or a structured output, without a trajectory.

`exact_match` and `levenshtein_distance` compare two values, `create_json_match_evaluator` compares
records field by field, `create_embedding_similarity_evaluator` compares meanings. Names, call
shapes and results match openevals. If a result differs, the docstring describes the difference.
"""

from __future__ import annotations

from .embeddings import (
    create_async_embedding_similarity_evaluator,
    create_embedding_similarity_evaluator,
)
from .json_match import create_async_json_match_evaluator, create_json_match_evaluator
from .strings import (
    exact_match,
    exact_match_async,
    levenshtein_distance,
    levenshtein_distance_async,
)

__all__ = [
    "create_async_embedding_similarity_evaluator",
    "create_async_json_match_evaluator",
    "create_embedding_similarity_evaluator",
    "create_json_match_evaluator",
    "exact_match",
    "exact_match_async",
    "levenshtein_distance",
    "levenshtein_distance_async",
]
