"""Results in the form of MCP, as tools' spans hold them: as JSON, and as Python prints them."""

from __future__ import annotations

import json

import pytest

from oteval import create_tool_error_evaluator
from oteval.messages.call_outcome import outcome_of
from oteval.model import Span, Trajectory

from .builders import agent, asks, chat, only, span, tool, user

TEXT = "order is locked"
BLOCK = {"type": "text", "text": TEXT, "annotations": None}
PRINTED = f"[TextContent(type='text', text='{TEXT}', annotations=None, meta=None)]"
FAILED = {
    "JSON": json.dumps({"content": [BLOCK], "isError": True}),
    "the fields printed": f"meta=None content={PRINTED} structuredContent=None isError=True",
    "the object printed": f"CallToolResult(meta=None, content={PRINTED}, isError=True)",
}
FINE = {
    "JSON": json.dumps({"content": [BLOCK], "isError": False}),
    "blocks": json.dumps([BLOCK]),
    "blocks printed": PRINTED,
    "the fields printed": f"meta=None content={PRINTED} structuredContent=None isError=False",
    "the object printed": f"CallToolResult(meta=None, content={PRINTED}, isError=False)",
}
DIALECTS = ["genai", "openinference", "langfuse", "mlflow"]


def _tool(dialect: str, result: str) -> Span:
    attributes = {
        "openinference": {
            "openinference.span.kind": "TOOL",
            "tool.name": "look",
            "input.value": '{"order": 17}',
            "output.value": result,
        },
        "langfuse": {
            "langfuse.observation.type": "tool",
            "langfuse.observation.input": '{"order": 17}',
            "langfuse.observation.output": result,
        },
        "mlflow": {
            "mlflow.spanType": '"TOOL"',
            "mlflow.spanInputs": '{"order": 17}',
            "mlflow.spanOutputs": json.dumps(result),
        },
    }
    if dialect == "genai":
        return tool("t", 4, args={"order": 17}, result=result, parent="r")
    return span("t", 4, parent="r", title="look", attributes=attributes[dialect])


def run_of(dialect: str, result: str) -> Trajectory:
    """Return a run whose only tool returned a result."""
    ask = asks(("look", {"order": 17}, "c1"))
    return only(
        agent("r", 1, end=9), chat("m", 2, [user("hi")], ask, parent="r"), _tool(dialect, result)
    )


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FAILED)
def test_a_failed_call_is_an_error_with_its_text(form: str, dialect: str):
    """The flag counts in every form, and the text is that of the blocks (litellm#29110)."""
    run = run_of(dialect, FAILED[form])

    assert [(m.content, m.is_error) for m in run.messages if m.role == "tool"] == [(TEXT, True)]
    assert create_tool_error_evaluator()(outputs=run)["score"] is False


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("form", FINE)
def test_a_result_of_blocks_is_their_text(form: str, dialect: str):
    """It is the same text as in the message that the model gets."""
    run = run_of(dialect, FINE[form])

    assert [(m.content, m.is_error) for m in run.messages if m.role == "tool"] == [(TEXT, False)]


@pytest.mark.parametrize(
    "result",
    [
        json.dumps([{"type": "image", "data": "AA", "mimeType": "image/png"}]),
        json.dumps([{"type": "text", "text": "seen"}, {"type": "image", "data": "AA"}]),
        json.dumps([{"type": "book", "text": "Emma"}]),
        json.dumps([{"city": "Oslo"}, {"city": "Rome"}]),
        "[]",
    ],
)
def test_data_and_pictures_stay_as_they_are(result: str):
    """Nothing of a result is lost."""
    run = run_of("genai", result)

    assert [m.content for m in run.messages if m.role == "tool"] == [result]


def test_a_printed_result_in_a_message_tells_its_failure_too():
    """A text that only mentions the flag is none."""
    assert outcome_of(FAILED["the fields printed"]).failed
    assert outcome_of(FAILED["the object printed"]).failed
    assert not outcome_of(FINE["the object printed"]).failed
    assert not outcome_of("The server answers with isError=True").failed
