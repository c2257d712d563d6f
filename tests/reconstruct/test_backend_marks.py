"""Spans as a backend stores them: with marks of its own, or without their scope."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oteval.model import Span
from oteval.reconstruct import explain, reconstruct

from .builders import DATA, TRACE, capture, chat, names, said, span, user

CAPTURES = [
    (folder, name)
    for folder, without in (("frameworks", "truth"), ("traces", "gold"), ("shapes", "expected"))
    for name in names(DATA / folder, without)
]
MARKS = {
    "mlflow": {
        "mlflow.spanType": '"LLM"',
        "mlflow.spanInputs": '{"messages": [{"role": "user", "content": "as MLflow has it"}]}',
        "mlflow.spanOutputs": '"as MLflow has it"',
    },
    "phoenix": {
        "openinference.span.kind": "LLM",
        "llm.model_name": "m",
        "output.value": '{"id": "r", "model": "m"}',
    },
}


@pytest.mark.parametrize(("folder", "name"), CAPTURES)
def test_the_marks_of_a_backend_change_no_run(folder: str, name: str):
    """Of a span that a framework's dialect reads, what a backend added is not read."""
    spans, logs = capture(name, DATA / folder)
    whole = [t.messages for t in reconstruct(spans, logs)]
    of_a_dialect = {span_id for span_id, dialect in _dialects(spans).items() if dialect}

    for backend, marks in MARKS.items():
        own = next(iter(marks))
        read = of_a_dialect - {one.span_id for one in spans if own in one.attributes}
        marked = [_marked(one, backend) if one.span_id in read else one for one in spans]
        assert [t.messages for t in reconstruct(marked, logs)] == whole, backend


def _dialects(spans: list[Span]) -> dict[str, str]:
    traces: dict[str, list[Span]] = {}
    for one in spans:
        traces.setdefault(one.trace_id, []).append(one)
    accounts = [explain(trace, members).accounts for trace, members in traces.items()]
    return {one.span.span_id: one.dialect for told in accounts for one in told}


def _marked(one: Span, backend: str) -> Span:
    return replace(one, attributes={**MARKS[backend], **one.attributes})


@pytest.mark.parametrize(
    ("attributes", "dialect"),
    [
        ({"mlflow.spanType": '"LLM"', "gen_ai.operation.name": "chat"}, "genai"),
        ({"mlflow.spanType": '"LLM"', "openinference.span.kind": "LLM"}, "openinference"),
        ({"mlflow.spanType": '"LLM"'}, "mlflow"),
        ({"openinference.span.kind": "LLM", "gen_ai.operation.name": "chat"}, "genai"),
        ({"openinference.span.kind": "TOOL", "langsmith.span.kind": "tool"}, "langsmith"),
        ({"crewai.event_name": "e", "gen_ai.operation.name": "chat"}, "crewai"),
        ({"model_request_parameters": "{}", "gen_ai.operation.name": "chat"}, "pydantic-ai"),
        ({"request_data": "{}", "gen_ai.system": "openai"}, "logfire"),
        ({"telemetry.sdk.name": "openlit", "gen_ai.operation.name": "chat"}, "openlit"),
        ({"gen_ai.agent.name": "gemini-cli", "gen_ai.operation.name": "llm_call"}, "gemini-cli"),
    ],
)
def test_a_span_without_its_scope_is_known_by_what_its_framework_wrote(
    attributes: dict[str, str], dialect: str
):
    """What a framework wrote comes before what a backend made of it."""
    (account,) = explain(TRACE, [span("a", attributes=attributes)]).accounts

    assert account.dialect == dialect


def test_a_call_that_two_instrumentations_wrote_is_one_call_without_scopes_too():
    """The provider's id of the answer tells; equal words alone do not."""
    one = {"gen_ai.response.id": "r1"}
    inner = chat("b", 2, [user("q")], said("a"), parent="a", end=8, attributes=one)
    beside = chat("c", 2, [user("q")], said("a"), trace="b" * 32, end=8, attributes=one)
    outer = chat("a", 1, [user("q")], said("a"), end=9, attributes=one)

    assert [t.usage.model_calls for t in reconstruct([outer, inner])] == [1]
    assert [t.usage.model_calls for t in reconstruct([outer, beside])] == [1]
    other = replace(beside, attributes={**beside.attributes, "gen_ai.response.id": "r2"})
    assert [t.usage.model_calls for t in reconstruct([outer, other])] == [1, 1]
