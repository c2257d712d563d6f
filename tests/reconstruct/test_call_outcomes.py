"""Every dialect with every kind of evidence that a call failed: the same result in each.

Each dialect has a case: a real capture, or spans by hand where there is none, in which a tool
returned the weather in Paris. The weather is replaced wherever it is recorded, in spans, messages
and log records, or the tool's span is altered.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from oteval.messages.call_outcome import outcome_of_message
from oteval.model import Event, LogRecord, Message, Span
from oteval.reconstruct import reconstruct
from oteval.reconstruct.dialect import ToolRun
from oteval.reconstruct.dialects import DIALECTS
from oteval.reconstruct.span_reader import attach_logs, read_span

from . import (
    builders,
    test_dialect_adk_openinference as adk_openinference,
    test_dialect_any_agent as any_agent,
    test_dialect_braintrust as braintrust,
    test_dialect_claude_code as claude_code,
    test_dialect_gemini_cli as gemini_cli,
    test_dialect_langwatch as langwatch,
    test_dialect_spring_ai as spring_ai,
    test_exchange_calls as exchange_calls,
)
from .builders import DATA, capture

Recorded = tuple[list[Span], list[LogRecord]]

TEXT = "Paris: 21 C and sunny"
WEATHER = {"city": "Paris", "temp_c": 21}
# What stands in each failed result, and in no capture.
WHY = "order 17 is locked"


@cache
def of_capture(name: str) -> Recorded:
    folder, _, stem = name.partition("/")
    return capture(stem, DATA / folder)


def of_mcp(result: str) -> Recorded:
    """Return a capture whose spans lack the results, with one."""
    spans, logs = of_capture("traces/fastmcp_native")
    key = "gen_ai.tool.call.result"
    return [
        replace(span, attributes={**span.attributes, key: result})
        if "get_weather" in span.name
        else span
        for span in spans
    ], logs


def of_gemini_cli(result: str) -> Recorded:
    output = {"status": "success", "response": {"llmContent": result}}
    request = {"callId": "k", "name": "look", "args": {"x": 1}}
    return [
        gemini_cli.made("c", 1, "llm_call", [gemini_cli.USER], [gemini_cli.CALL], end=2),
        gemini_cli.made("t", 3, "tool_call", request, output, parent="c"),
    ], []


def of_claude_code(result: str) -> Recorded:
    spans, logs = claude_code.a_turn()
    return [put(span, "a.py\nb.py", result) for span in spans], logs


def of_any_agent(result: str) -> Recorded:
    spans = [
        any_agent.agent("a", 1, of="desk", scope=any_agent.SCOPE),
        any_agent.llm("c", 2, any_agent.CALLS[:1], any_agent.SENT),
        any_agent.run("t", 3, {"x": 1}, result),
        any_agent.llm("d", 5, "done"),
    ]
    return spans, []


def of_adk_openinference(result: str) -> Recorded:
    contents = [adk_openinference.ASKED, adk_openinference.CALL]
    overwritten = adk_openinference.overwritten("a", contents, "it is", end=99)
    return [overwritten, adk_openinference.used({"result": result})], []


def of_langwatch(result: str) -> Recorded:
    call = {"id": "k", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    spoke, typed = langwatch.spoke, langwatch.typed
    return [
        spoke("helper", 1, "agent", typed("text", "q"), typed("text", "a"), end=20),
        spoke("c", 2, "llm", typed("chat_messages", [langwatch.QUESTION]),
              typed("chat_messages", [calling]), parent="helper"),
        spoke("look", 4, "tool", typed("json", {"x": 1}), typed("text", result), parent="helper"),
        spoke("d", 6, "llm", "[]", typed("text", "a"), parent="helper"),
    ], []  # fmt: skip


def of_braintrust(result: str) -> Recorded:
    return braintrust.agent_run(result), []


def of_spring_ai(result: str) -> Recorded:
    tool = spring_ai.tool_run("look", 10, id="k", arguments='{"x": 1}', result=result)
    return spring_ai.conversation(tool), []


def of_http(result: str) -> Recorded:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    received = {"role": "tool", "tool_call_id": "c1", "content": result}
    asking = exchange_calls.completion(None, exchange_calls.CALL)
    bodies = {"h1": ([{"role": "user", "content": "q"}], asking)}
    sent = [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}, received]
    bodies["h2"] = (sent, exchange_calls.completion("done", response_id="r2"))
    root = exchange_calls.agent("a", 1, end=99)
    spans = {name: exchange_calls.http(name, int(name[1]) * 10, parent="a") for name in bodies}
    logs = [
        exchange_calls.exchange(spans[name], {"model": "m", "messages": messages}, answer)
        for name, (messages, answer) in bodies.items()
    ]
    return [root, *spans.values()], logs


def of_shapes(result: str) -> Recorded:
    question = {"role": "user", "content": "q"}
    call = {"id": "k", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    received = {"role": "tool", "tool_call_id": "k", "content": result}
    calls = (([question], json.dumps(calling)), ([question, calling, received], "done"))
    model_calls = [
        builders.span(
            f"c{start}",
            start,
            parent="a",
            attributes={
                "acme.llm.model": "m",
                "acme.llm.request": json.dumps({"messages": sent}),
                "acme.llm.response": answer,
            },
        )
        for start, (sent, answer) in zip((2, 6), calls, strict=True)
    ]
    used = {"acme.tool.name": "look", "acme.tool.args": '{"x": 1}', "acme.tool.result": result}
    tool = builders.span("t", 4, parent="a", attributes={**used, "acme.tool.call_id": "k"})
    return [builders.span("a", 1, end=9), *model_calls, tool], []


CASES: dict[str, str | Callable[[str], Recorded]] = {
    "adk-openinference": of_adk_openinference,
    "adot": "traces/adot_agentcore_strands",
    "agent-framework": "traces/ms_agent_framework",
    "any-agent": of_any_agent,
    "braintrust": of_braintrust,
    "by-shape": of_shapes,
    "claude-code": of_claude_code,
    "crewai": "frameworks/crewai_native",
    "dspy": "frameworks/dspy_react_openinference",
    "gemini-cli": of_gemini_cli,
    "genai": "traces/langgraph_genai",
    "genai-events": "frameworks/bedrock_converse_botocore_genai",
    "genkit": "frameworks/genkit_native",
    "google-adk": "traces/google_adk_schema1",
    "haystack": "traces/haystack_native",
    "haystack-openinference": "frameworks/haystack_pipeline_openinference",
    "http": of_http,
    "langfuse": "traces/langfuse_sdk",
    "langsmith": "traces/langgraph_langsmith",
    "langwatch": of_langwatch,
    "litellm": "traces/litellm_otel",
    "llamaindex": "frameworks/llamaindex_functionagent_traceloop",
    "logfire": "frameworks/logfire_agents_chat",
    "mastra": "frameworks/mastra_native",
    "mcp": of_mcp,
    "mlflow": "traces/mlflow",
    "openinference": "traces/langgraph_openinference",
    "openlit": "frameworks/openlit_openai",
    "pydantic-ai": "traces/pydantic_ai_v5",
    "semantic-kernel": "traces/semantic_kernel",
    "smolagents": "frameworks/smolagents_toolcalling_openinference",
    "spring-ai": of_spring_ai,
    "strands": "traces/strands_default",
    "traceloop": "traces/traceloop_chat",
    "vercel-ai": "traces/vercel_ai6_stream",
}


def recorded(name: str) -> Recorded:
    case = CASES[name]
    return of_capture(case) if isinstance(case, str) else case(TEXT)


def is_weather(value: Any) -> bool:
    return isinstance(value, dict) and WEATHER.items() <= value.items()


def put(value: Any, old: str, new: Any) -> Any:
    """Return a value, or a span, with a result replaced, in whatever it is encoded."""
    if isinstance(value, (Span, LogRecord, Event)):
        replacements = {"attributes": put(value.attributes, old, new)}
        if isinstance(value, Span):
            replacements["events"] = tuple(put(event, old, new) for event in value.events)
        if isinstance(value, LogRecord):
            replacements["body"] = put(value.body, old, new)
        return replace(value, **replacements)
    if isinstance(value, dict):
        return new if is_weather(value) else {k: put(v, old, new) for k, v in value.items()}
    if isinstance(value, list):
        return [put(item, old, new) for item in value]
    return in_text(value, old, new) if isinstance(value, str) else value


def in_text(value: str, old: str, new: Any) -> str:
    text = new if isinstance(new, str) else json.dumps(new)
    if value == old or is_weather(parsed(value)):
        return text
    decoded = parsed(value)
    if isinstance(decoded, (dict, list, str)):
        changed = put(decoded, old, new)
        return value if changed == decoded else json.dumps(changed)
    for weather in (old, '{"city": "Paris", "temp_c": 21, "sky": "sunny"}'):
        value = value.replace(f"'{weather}'", repr(text)).replace(weather, text)
    return value


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def results(spans: Sequence[Span], logs: Sequence[LogRecord]) -> list[Message]:
    """Return the results of all calls."""
    runs = reconstruct(spans, logs)
    return [m for run in runs for m in run.own_messages if m.role == "tool"]


def with_result(name: str, new: Any) -> list[Message]:
    """Return the results where the weather is replaced."""
    case = CASES[name]
    if not isinstance(case, str):
        return results(*case(new if isinstance(new, str) else json.dumps(new)))
    spans, logs = of_capture(case)
    return results([put(s, TEXT, new) for s in spans], [put(r, TEXT, new) for r in logs])


def of_the_tool(messages: Sequence[Message]) -> list[Message]:
    """Return the altered results, without the answers of sub-agents that speak of them."""
    texts = [(m, (m.content or "").replace("\\", "")) for m in messages]
    return [m for m, text in texts if WHY in text and "Tool said" not in text]


def tool_span(spans: Sequence[Span], logs: Sequence[LogRecord]) -> Span | None:
    """Return the span of the tool that returned the weather."""
    by_span = defaultdict(list)
    for record in attach_logs(spans, logs):
        by_span[record.span_id].append(record)
    of_results = [m.span_id for m in results(spans, logs) if "Paris" in (m.content or "")]
    for span in sorted(spans, key=lambda span: span.span_id not in of_results):
        _, operation = read_span(span, by_span[span.span_id], by_shape=True)
        if isinstance(operation, ToolRun) and span.span_id in of_results:
            return span
    return None


def test_every_dialect_has_a_case():
    """A new dialect needs its row here."""
    assert sorted(CASES) == sorted(dialect.name for dialect in DIALECTS)


@pytest.mark.parametrize("name", CASES)
def test_the_case_is_read_by_the_dialect_and_shows_a_success(name: str):
    """The unaltered capture has the weather as a result that is not an error."""
    spans, logs = recorded(name)

    assert name in {dialect for run in reconstruct(spans, logs) for dialect in run.dialects}
    weather = [m for m in results(spans, logs) if (m.content or "").strip('"{').find("Paris") >= 0]
    assert weather
    assert not any(m.is_error for m in weather)


REPORTED: dict[str, Any] = {
    "MCP": {"content": [{"type": "text", "text": WHY}], "isError": True},
    "MCP, encoded once more": json.dumps(
        json.dumps({"content": [{"type": "text", "text": WHY}], "isError": True})
    ),
    "Anthropic": {"type": "tool_result", "tool_use_id": "k", "content": WHY, "is_error": True},
    "LangChain": {"type": "tool", "content": WHY, "tool_call_id": "k", "status": "error"},
    "error": {"error": WHY},
    "error in an object": {"error": {"code": 17, "message": WHY}},
    "status": {"status": "error", "message": WHY},
    "success": {"success": False, "message": WHY},
    "error as a repr": str({"error": WHY}),
    "text": f"Error: {WHY}",
    "text in lower case": f"error: {WHY}",
    "text, encoded once more": json.dumps(f"Error: {WHY}"),
    "exception": f"shop.errors.OrderError: {WHY}",
    "HTTP": f"HTTP 500 {WHY}",
    "traceback": f"Traceback (most recent call last):\n  File x\nOrderError: {WHY}",
}
SOUND: dict[str, Any] = {
    "no error": {"error": None, "text": WHY},
    "false": {"error": False, "text": WHY},
    "empty": {"error": "", "errors": [], "text": WHY},
    "a text about errors": f"No errors found: {WHY}",
    "a rate": f"error_rate: 0.1 ({WHY})",
    "an error in the midst": f"a.py:17: raise OrderError('{WHY}')".replace("'", ""),
    "MCP": {"content": [{"type": "text", "text": f"Error: {WHY}"}], "isError": False},
}


@pytest.mark.parametrize("name", CASES)
def test_a_result_that_reports_an_error_is_a_failed_call(name: str):
    """What a tool returns tells the failure in every dialect, and of no other call."""
    for evidence, reported in REPORTED.items():
        messages = with_result(name, reported)
        failed = of_the_tool(messages)
        others = [m for m in messages if "Tokyo" in (m.content or "") and m not in failed]

        assert failed, evidence
        assert all(m.is_error for m in failed), evidence
        assert all(WHY in outcome_of_message(m).reason for m in failed), evidence
        assert not any(m.is_error for m in others), evidence


@pytest.mark.parametrize("name", CASES)
def test_a_false_friend_is_not_a_failed_call(name: str):
    """A result that only has the words of an error is a success in every dialect."""
    for evidence, result in SOUND.items():
        sound = of_the_tool(with_result(name, result))

        assert sound, evidence
        assert not any(m.is_error for m in sound), evidence


RAISED = Event("exception", 1, {"exception.type": "OrderError", "exception.message": WHY})
ALTERED: dict[str, Callable[[Span], Span]] = {
    "status": lambda span: replace(span, status_code=2, status_message=WHY),
    "exception, status unset": lambda span: replace(
        span, status_code=0, events=(*span.events, RAISED)
    ),
    "exception, status OK": lambda span: replace(
        span, status_code=1, events=(*span.events, RAISED)
    ),
    "error.type": lambda span: replace(
        span, status_code=0, attributes={**span.attributes, "error.type": "OrderError"}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_span_that_records_a_failure_is_a_failed_call(name: str):
    """The span's witnesses each suffice; the text that the model was sent stays.

    A dialect without spans of tools has its results in messages, where a status stands for it.
    """
    spans, logs = recorded(name)
    span = tool_span(spans, logs)
    if span is None:
        messages = with_result(name, REPORTED["Anthropic"])
        assert any(m.is_error for m in of_the_tool(messages))
        return
    for evidence, alter in ALTERED.items():
        altered = alter(span)
        messages = results([altered if s is span else s for s in spans], logs)
        (failed,) = (m for m in messages if m.span_id == span.span_id)
        others = [m for m in messages if "Tokyo" in (m.content or "") and m is not failed]

        assert (failed.is_error, failed.is_outcome_recorded) == (True, True), evidence
        assert "Paris" in (failed.content or ""), evidence
        assert not any(m.is_error for m in others), evidence


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"exception.type": "shop.OrderError", "exception.message": WHY}, WHY),
        ({"exception.type": "KeyError", "exception.message": "17"}, "KeyError: 17"),
        ({"exception.type": "asyncio.TimeoutError"}, "TimeoutError"),
    ],
)
def test_the_exception_stands_in_for_a_result_that_is_not_there(event: dict[str, str], text: str):
    """A failed call without a result has the exception as its text, named where it says little."""
    spans, logs = of_any_agent(TEXT)
    attributes = {k: v for k, v in spans[2].attributes.items() if v != TEXT}
    raised = Event("exception", 1, event)
    spans[2] = replace(spans[2], attributes=attributes, events=(raised,))

    (failed,) = results(spans, logs)

    assert (failed.content, failed.is_error) == (f"Error: {text}", True)


@pytest.mark.parametrize("kind", ["langgraph.errors.GraphInterrupt", "CallDeferred"])
def test_an_exception_that_only_leaves_the_tool_is_not_a_failure(kind: str):
    """Frameworks raise to wait for a person, or to hand over."""
    spans, logs = of_any_agent(TEXT)
    raised = Event("exception", 1, {"exception.type": kind, "exception.message": "(...)"})
    spans[2] = replace(spans[2], status_code=2, events=(raised,))

    (waiting,) = results(spans, logs)

    assert not waiting.is_error
