"""Gemini's contents as the parts that all dialects share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..model import PROVIDER
from .kinds import first_of
from .values import list_of

__all__ = ["call_part", "definitions", "from_candidate", "result_part"]

_PARAMETERS = ("parameters_json_schema", "parametersJsonSchema", "parameters")
_DECLARATIONS = ("function_declarations", "functionDeclarations")


def from_candidate(candidate: Mapping[str, Any]) -> list[Any]:
    """An answer in the form of parts, after the searches that its grounding names."""
    content = candidate.get("content")
    fields = content if isinstance(content, Mapping) and content.get("parts") else {}
    parts = [*_searches(candidate), *list_of(fields.get("parts"))]
    return [{**fields, "role": "model", "parts": parts}] if parts else []


def _searches(candidate: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the call and the result of a search that Google ran for an answer.

    The answer has them next to its content, not as parts, and without an id.
    """
    grounding = first_of(candidate, ("groundingMetadata", "grounding_metadata"))
    if not isinstance(grounding, Mapping):
        return
    queries = first_of(grounding, ("webSearchQueries", "web_search_queries"))
    if not queries:
        return
    call = call_part("google_search", {"queries": queries})
    yield {**call, "executed_by": PROVIDER}
    chunks = first_of(grounding, ("groundingChunks", "grounding_chunks"))
    if chunks:
        yield result_part("google_search", chunks)


def call_part(name: Any, arguments: Any, id_: Any = None) -> dict[str, Any]:
    """The part of a tool call."""
    return {"type": "tool_call", "id": id_, "name": name, "arguments": arguments}


def result_part(name: Any, response: Any, id_: Any = None) -> dict[str, Any]:
    """The part of a tool's result."""
    return {"type": "tool_call_response", "id": id_, "name": name, "response": response}


def definitions(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The definitions of the functions that a Gemini request's config offers."""
    tools = config.get("tools")
    functions = []
    for tool in tools if isinstance(tools, list) else []:
        declared = first_of(tool, _DECLARATIONS) if isinstance(tool, Mapping) else None
        for item in declared if isinstance(declared, list) else []:
            if isinstance(item, Mapping):
                functions.append(_definition(item))
    return functions


def _definition(item: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "name": item.get("name"),
        "description": item.get("description"),
        "parameters": first_of(item, _PARAMETERS),
    }
