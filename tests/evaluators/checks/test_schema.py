"""Arguments against the tools' definitions."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval import ConfigError, create_tool_schema_evaluator
from oteval.evaluators.checks.tool_schema import schemas_of
from oteval.model import Message, ToolCall

from ...make import gap, run
from .helpers import asks, runs, score

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
GEMINI = {
    "type": "OBJECT",
    "properties": {"city": {"type": "STRING"}, "days": {"type": "INTEGER", "nullable": True}},
    "required": ["city"],
}
FORMS: dict[str, Any] = {
    "openai": {"type": "function", "function": {"name": "t", "parameters": SCHEMA}},
    "flat": {"type": "function", "name": "t", "parameters": SCHEMA},
    "text": {"name": "t", "parameters": json.dumps(SCHEMA)},
    "anthropic": {"name": "t", "input_schema": SCHEMA},
    "mcp": {"name": "t", "inputSchema": SCHEMA},
    "strands": {"name": "t", "inputSchema": {"json": SCHEMA}},
    "bedrock": {"toolSpec": {"name": "t", "inputSchema": {"json": SCHEMA}}},
    "gemini": {"functionDeclarations": [{"name": "t", "parameters": GEMINI}]},
    "gemini_python": {"function_declarations": [{"name": "t", "parameters_json_schema": SCHEMA}]},
    "pydantic_ai": {"name": "t", "parameters_json_schema": SCHEMA},
}


def result(tools: Any, *calls: Message, **options: Any) -> Any:
    """Return the result of a check of some calls."""
    return create_tool_schema_evaluator(tools=tools, **options)(outputs=list(calls))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_definition_is_read(form: str) -> None:
    """In each form arguments that fit pass, and those that do not are named with where."""
    tools = [FORMS[form]]

    assert result(tools, asks("t", city="Rome", days=2))["score"] is True
    wrong = result(tools, asks("t", city=1))
    missing = result(tools, asks("t"))
    assert wrong["comment"] == ("call 0 t({\"city\":1}): city: 1 is not of type 'string'")
    assert missing["comment"] == "call 0 t({}): 'city' is a required property"


def test_geminis_null_is_json_schemas() -> None:
    """A nullable value may be null, and the caller's definition is not changed."""
    before = json.dumps(GEMINI)

    assert result([FORMS["gemini"]], asks("t", city="Rome", days=None))["score"] is True
    assert result([FORMS["gemini"]], asks("t", city=None))["score"] is False
    assert json.dumps(GEMINI) == before


def test_what_is_wrong_is_counted() -> None:
    """The figures have the calls, those that could be checked and those that are wrong."""
    found = result([FORMS["flat"]], asks("t", city="x"), asks("u"), asks("t"))

    assert found["metadata"] == {"calls": 3, "checked": 2, "invalid": 2}
    assert "call 1 u({}): no definition names u (defined: t)" in found["comment"]
    assert result([FORMS["flat"]], asks("u"), unknown_tools="ignore")["score"] is True


def test_arguments_that_are_no_json_do_not_fit() -> None:
    """What the model wrote is no object at all."""
    call = Message("assistant", tool_calls=(ToolCall("t", '{"city": '),))

    assert "the arguments are not valid JSON" in result([FORMS["flat"]], call)["comment"]


@pytest.mark.parametrize(
    ("tools", "call", "comment"),
    [
        ([], asks("t"), "the trace holds no tool definitions"),
        ([{"name": "t"}], asks("t"), "the definition of t has no schema"),
        (
            [FORMS["flat"]],
            Message("assistant", tool_calls=(ToolCall("t"),)),
            "the arguments of t are not in the trace",
        ),
        (
            [{"name": "t", "parameters": {"type": 5}}],
            asks("t"),
            "the definition of t is not a valid schema",
        ),
        (
            [{"name": "t", "parameters": {"$ref": "#/$defs/x"}}],
            asks("t"),
            "the definition of t refers to",
        ),
        (
            [{"name": "t", "parameters": {"$ref": "#"}}],
            asks("t"),
            "the definition of t never ends",
        ),
    ],
)
def test_what_cannot_be_checked_is_not_evaluated(tools: Any, call: Message, comment: str) -> None:
    """A missing, broken or endless definition is neither a pass nor a failure."""
    found = create_tool_schema_evaluator()(outputs={"messages": [call], "tools": tools})

    assert found["score"] is None
    assert comment in found["comment"]


def test_a_call_that_is_wrong_is_a_failure_whatever_else_is_unknown() -> None:
    """What cannot be checked does not hide what can."""
    found = create_tool_schema_evaluator()(
        outputs={"messages": [asks("t"), asks("u")], "tools": [FORMS["flat"], {"name": "u"}]}
    )

    assert found["score"] is False


def test_no_reference_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition from a trace cannot make oteval ask a server."""
    asked: list[Any] = []

    def refuse(*address: Any, **__: Any) -> Any:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    tools = [{"name": "t", "parameters": {"$ref": "http://127.0.0.1:9/schema.json"}}]

    found = create_tool_schema_evaluator()(outputs={"messages": [asks("t")], "tools": tools})

    assert found["score"] is None
    assert "http://127.0.0.1:9/schema.json" in found["comment"]
    assert asked == []


def test_a_definition_that_was_lost_is_not_a_tool_that_is_not_there() -> None:
    """Where content is missing, so may be definitions."""
    made = run(1, asks("u"), tools=(FORMS["flat"],), gaps=(gap("content_truncated"),))

    assert score(create_tool_schema_evaluator(), made).status == "not_evaluated"


@pytest.mark.parametrize(
    "name",
    [
        *("genai_openai_chat", "openinference_responses", "pydantic_ai_v5", "traceloop_old_chat"),
        *("vercel_ai6_stream", "strands_latest", "google_adk_schema1", "crewai_openinference"),
    ],
)
def test_the_calls_of_captures_fit_their_definitions(name: str) -> None:
    """Real agents of many frameworks called their tools as these are defined."""
    first = runs(name)[0]

    found = score(create_tool_schema_evaluator(), first)

    assert (found.status, found.passed) == ("ok", True), found.comment
    assert found.metadata["checked"] == 2


@pytest.mark.parametrize("name", ["genai_openai_chat_nocontent", "v2_legacy_chat"])
def test_captures_without_definitions_are_not_evaluated(name: str) -> None:
    """Instrumentations that hold no definitions make no run pass."""
    assert score(create_tool_schema_evaluator(), runs(name)[0]).status == "not_evaluated"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(st.lists(json_values, max_size=4))
def test_definitions_of_any_form_are_read_without_failing(tools: list[Any]) -> None:
    """What traces hold in place of definitions is never more than unknown."""
    assert isinstance(schemas_of(tools), dict)

    found = create_tool_schema_evaluator()(outputs={"messages": [asks("t")], "tools": tools})

    assert found["score"] in (None, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": {}}, "tools is {}"),
        ({"tools": []}, "holds no tool definitions"),
        ({"unknown_tools": "pass"}, "unknown_tools: unknown value 'pass'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    """The text names the argument."""
    with pytest.raises(ConfigError, match=message):
        create_tool_schema_evaluator(**options)
