"""Reads the JSON schemas of tools' arguments from tool definitions in many forms.

The forms are OpenAI's ``{"type": "function", "function": {...}}``, the flat form of OpenAI's
responses and of OpenTelemetry's GenAI conventions, Anthropic's ``input_schema``, MCP's
``inputSchema``, Bedrock's ``toolSpec``, Gemini's ``functionDeclarations`` and Pydantic AI's
``parameters_json_schema``. A schema may be JSON text. Gemini's upper-case types and ``nullable``
are converted to JSON schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base.jsontext import loads
from ...messages import field_of

__all__ = ["definitions_by_name", "schemas_of"]

_SCHEMAS = (
    *("parameters", "input_schema", "inputSchema", "parametersJsonSchema"),
    *("parameters_json_schema", "args_schema"),
)
_LISTS = ("functionDeclarations", "function_declarations")
_TYPES = {"OBJECT", "ARRAY", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "NULL"}
_DEEPEST = 100


def schemas_of(tools: Iterable[Any]) -> dict[str, Mapping[str, Any] | bool | None]:
    """The schema of each tool's arguments; None for definitions without a schema.

    Args:
        tools: Definitions in any mix of forms.

    Returns:
        Schemas by tool. If a tool is defined twice, the last definition with a schema counts.
    """
    schemas: dict[str, Mapping[str, Any] | bool | None] = {}
    for tool in _each(tools):
        name = field_of(tool, "name") or field_of(tool, "type")
        if isinstance(name, str):
            schema = _schema(tool)
            schemas[name] = schemas.get(name) if schema is None else schema
    return schemas


def definitions_by_name(tools: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """The definition of each tool without its wrapper; the last one of a name counts.

    Hints beside the wrapper, as in MCP, are part of the definition.
    """
    definitions: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        hints = field_of(tool, "annotations")
        for inner in _each([tool]):
            name = field_of(inner, "name")
            if isinstance(name, str) and isinstance(inner, Mapping):
                definitions[name] = {"annotations": hints, **inner} if hints else inner
    return definitions


def _each(tools: Iterable[Any]) -> Iterator[Any]:
    """Yield definitions without their wrappers."""
    for tool in tools:
        lists = [field_of(tool, key) for key in _LISTS]
        several = next((value for value in lists if isinstance(value, (list, tuple))), None)
        if several is not None:
            yield from several
        else:
            yield field_of(tool, "function") or field_of(tool, "toolSpec") or tool


def _schema(tool: Any) -> Mapping[str, Any] | bool | None:
    for key in _SCHEMAS:
        value = field_of(tool, key)
        if isinstance(value, str):
            try:
                value = loads(value)
            except ValueError:
                continue
        if isinstance(value, Mapping) and isinstance(value.get("json"), Mapping):
            value = value["json"]
        if isinstance(value, (Mapping, bool)):
            schema = _plain(value)
            return schema if isinstance(schema, (Mapping, bool)) else None
    return None


def _plain(value: Any, depth: int = 0) -> Any:
    """Convert Gemini's types and ``nullable`` to JSON schema."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, Mapping):
        return value
    plain = {key: _plain(item, depth + 1) for key, item in value.items()}
    kind = plain.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        plain["type"] = kind.lower()
    if plain.get("nullable") is True and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
        if isinstance(plain.get("enum"), list):
            plain["enum"] = [*plain["enum"], None]
    return plain
