"""A check of calls' arguments against the JSON schemas in the tools' definitions.

Definitions have many forms: OpenAI's ``{"type": "function", "function": {...}}``, the flat form of
OpenAI's responses and of OpenTelemetry's GenAI conventions, Anthropic's ``input_schema``, MCP's
``inputSchema``, Bedrock's ``toolSpec``, Gemini's ``functionDeclarations`` and Pydantic AI's
``parameters_json_schema``. A schema may be JSON text. Gemini's upper-case types and ``nullable``
are converted to JSON schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ...base.errors import ConfigError
from ...base.jsontext import canonical, loads
from ...messages import field_of
from ..factories import with_options_of
from ..options import InConfig
from . import Call, Check, EvaluationContext, EvaluationResult, NotEvaluated, listed

__all__ = [
    "ToolSchema",
    "create_tool_schema_evaluator",
    "definitions_by_name",
    "schemas_of",
]

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


_LONGEST = 120


@dataclass(frozen=True, kw_only=True)
class ToolSchema(Check):
    """Fails if a call's arguments do not fit the tool's definition.

    Attributes:
        tools: Definitions, in the form of any provider. By default they are the
            trajectory's definitions, or the list under ``tools`` next to its messages. In
            oteval.yaml: a JSON file with a list of definitions.
        unknown_tools: Whether a call of a tool that no definition names is a failure (``fail``) or
            does not count (``ignore``).
    """

    type: ClassVar[str] = "tool_schema"

    tools: Annotated[Sequence[Any] | None, InConfig("definitions", is_file=True)] = None
    unknown_tools: Literal["fail", "ignore"] = "fail"

    def check_combination(self) -> None:
        """Refuse a value without any definition."""
        if self.tools is not None and not schemas_of(self.tools):
            raise ConfigError("tools holds no tool definitions; expected a list of them")

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """Look for arguments that do not fit."""
        schemas = schemas_of(context.tools if self.tools is None else self.tools)
        problems, unseen, checked = [], [], 0
        validators = _Validators(schemas)
        for call in context.calls:
            try:
                why = self._problem(call, context, schemas, validators)
            except NotEvaluated as reason:
                unseen.append(str(reason))
                continue
            checked += call.call.name in schemas
            if why is not None:
                problems.append(f"{call}: {why}")
        if not problems:
            if unseen:
                raise NotEvaluated(listed(list(dict.fromkeys(unseen)), "; "))
            context.require_all_calls()
        figures = {"calls": len(context.calls), "checked": checked, "invalid": len(problems)}
        return self.result(problems, figures)

    def _problem(
        self,
        call: Call,
        context: EvaluationContext,
        schemas: Mapping[str, Any],
        validators: _Validators,
    ) -> str | None:
        """The fault of a call, or None."""
        name = call.call.name
        if name not in schemas:
            if self.unknown_tools == "ignore":
                return None
            if not schemas:
                raise NotEvaluated("the trace holds no tool definitions")
            if self.tools is None and (lost := context.content_gap()):
                raise NotEvaluated(f"no definition of {name} ({lost.code}: {lost.detail})")
            return f"no definition names {name} (defined: {listed(sorted(schemas))})"
        if schemas[name] is None:
            raise NotEvaluated(f"the definition of {name} has no schema")
        if call.call.arguments is None:
            raise NotEvaluated(f"the arguments of {name} are not in the trace")
        if isinstance(call.call.arguments, str):
            return "the arguments are not valid JSON"
        return validators.fault(name, call.call.arguments)

    def describe(self) -> dict[str, Any]:
        """The options, with the definitions as canonical JSON."""
        tools = None if self.tools is None else canonical(list(self.tools))
        return {"type": self.type, "key": self.key, "tools": tools, "unknown": self.unknown_tools}


class _Validators:
    """The validators of schemas, created on first use."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._made: dict[str, Any] = {}

    def fault(self, tool: str, arguments: Any) -> str | None:
        """Where arguments do not fit, or None.

        Raises:
            NotEvaluated: The schema is invalid, or refers to another document.
        """
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            error = best_match(self._of(tool).iter_errors(arguments))
        except Unresolvable as reason:
            raise NotEvaluated(f"the definition of {tool} refers to {reason.ref!r}") from None
        except RecursionError:
            raise NotEvaluated(f"the definition of {tool} never ends") from None
        if error is None:
            return None
        # The end of the message names the fault, after the value.
        message = " ".join(error.message.split())
        cut = message if len(message) <= _LONGEST else f"…{message[-_LONGEST:]}"
        path = error.json_path.removeprefix("$").removeprefix(".")
        return f"{path}: {cut}" if path else cut

    def _of(self, tool: str) -> Any:
        # jsonschema takes a tenth of a second to import, and few need it.
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry

        if tool not in self._made:
            schema = self._schemas[tool]
            kind = validator_for(schema, default=Draft202012Validator)
            try:
                kind.check_schema(schema)
            except SchemaError as error:
                where = error.json_path
                raise NotEvaluated(
                    f"the definition of {tool} is not a valid schema at {where}"
                ) from None
            # An empty registry: by default references are fetched from the network.
            self._made[tool] = kind(schema, registry=Registry())
        return self._made[tool]


@with_options_of(ToolSchema)
def create_tool_schema_evaluator(**options: Any) -> ToolSchema:
    """Create an evaluator of calls' arguments against the tools' definitions.

    Args:
        **options: The options of `ToolSchema`.

    Raises:
        ConfigError: An option is wrong; the text names it.
    """
    return ToolSchema(**options)
