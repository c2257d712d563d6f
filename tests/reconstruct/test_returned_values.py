"""A tool's return value gives the same result in every dialect of spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Span
from oteval.reconstruct.dialect import ToolRun
from oteval.reconstruct.span_reader import read_span

from .builders import span

KINDS = {
    "langfuse": ("langfuse.observation.type", "tool", "langfuse.observation.output"),
    "langsmith": ("langsmith.span.kind", "tool", "gen_ai.completion"),
    "mlflow": ("mlflow.spanType", "TOOL", "mlflow.spanOutputs"),
    "openinference": ("openinference.span.kind", "TOOL", "output.value"),
    "traceloop": ("traceloop.span.kind", "tool", "traceloop.entity.output"),
}
BLOCKS = [{"type": "text", "text": "order 17 is"}, {"type": "text", "text": "locked"}]
MCP = {"content": BLOCKS, "isError": True}
MESSAGE = {"type": "tool", "content": "locked", "tool_call_id": "k", "status": "error"}
TOOL_OUTPUT = {"tool_name": "look", "raw_output": "locked", "blocks": BLOCKS, "is_error": False}


def run(dialect: str, returned: Any) -> ToolRun:
    """Return the tool's run in a dialect's span."""
    kind, value, key = KINDS[dialect]
    operation = read_span(_span({kind: value, key: json.dumps(returned)}), ())
    assert operation[0] == dialect
    assert isinstance(operation[1], ToolRun)
    return operation[1]


def _span(attributes: dict[str, Any]) -> Span:
    return span("look", 1, attributes=attributes)


@pytest.mark.parametrize("dialect", KINDS)
def test_an_mcp_result_is_its_text_and_a_recorded_failure(dialect: str):
    """MCP's envelope says beside the blocks whether the tool failed."""
    tool_run = run(dialect, MCP)

    assert tool_run.result == "order 17 is\nlocked"
    assert (tool_run.is_error, tool_run.is_outcome_recorded) == (True, True)


@pytest.mark.parametrize("dialect", KINDS)
def test_a_langchain_message_gives_its_content_id_and_failure(dialect: str):
    """A tool of LangChain's may return the message itself."""
    tool_run = run(dialect, MESSAGE)

    assert (tool_run.result, tool_run.call_id, tool_run.is_error) == ("locked", "k", True)


@pytest.mark.parametrize("dialect", KINDS)
def test_a_llamaindex_output_is_its_text_and_no_recorded_success(dialect: str):
    """LlamaIndex writes ``is_error: false`` of each tool that did not raise."""
    tool_run = run(dialect, TOOL_OUTPUT)

    assert tool_run.result == "order 17 is\nlocked"
    assert tool_run.is_outcome_recorded is False


@pytest.mark.parametrize("dialect", KINDS)
def test_data_that_looks_like_an_envelope_stays_as_it_is(dialect: str):
    """A tool's own ``content`` or ``output`` without the other fields of an envelope is data."""
    returned = {"content": ["a"], "output": 1}

    assert json.loads(run(dialect, returned).result or "") == returned
