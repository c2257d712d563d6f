"""Writes the traces that ``oteval demo`` shows: one refund agent, in five frameworks' dialects.

    python scripts/make_demo.py

Each trace answers the same request. Two traces are right, one of them with look-ups in parallel.
One trace refunds the wrong amount, one skips the policy, and one was recorded without content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "oteval" / "cli" / "bundled_demo"
START_NS = 1_795_000_000_000_000_000
SYSTEM = "You are a refund agent. Read the order and the policy before you refund anything."
ASKED = "My headphones (order 4711) came broken. I want my money back."
DONE = "I am sorry about the headphones. I refunded {amount} EUR to your card."
ORDER = {"order_id": "4711", "item": "headphones", "amount": 42.0, "state": "delivered"}
POLICY = {"category": "electronics", "days": 30, "refund": "full"}

Call = tuple[str, dict[str, Any], Any]
GET_ORDER: Call = ("get_order", {"order_id": "4711"}, ORDER)
CHECK_POLICY: Call = ("check_policy", {"category": "electronics"}, POLICY)


def refund(amount: float) -> Call:
    """Return the call that refunds an amount (EUR), with its result."""
    return ("refund_order", {"order_id": "4711", "amount": amount}, {"refunded": amount})


class Writer:
    """Collects the spans of one trace."""

    def __init__(self, name: str, scope: str) -> None:
        self.name, self.scope = name, scope
        self.trace_id = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        self.spans: list[dict[str, Any]] = []

    def span(
        self, name: str, start_ms: int, end_ms: int, attributes: dict[str, Any], root: bool = False
    ) -> None:
        """Add a span below the root, or the root itself; times are relative to the trace."""
        number = 0 if root else len(self.spans) + 1
        values = [{"key": key, "value": value_of(value)} for key, value in attributes.items()]
        self.spans.append(
            {
                "traceId": self.trace_id,
                "spanId": f"{number + 0xA0:016x}",
                **({} if root else {"parentSpanId": f"{0xA0:016x}"}),
                "name": name,
                "kind": 1,
                "startTimeUnixNano": str(START_NS + start_ms * 1_000_000),
                "endTimeUnixNano": str(START_NS + end_ms * 1_000_000),
                "attributes": values,
                "status": {},
            }
        )

    def save(self) -> None:
        """Write the trace as an OTLP/JSON request."""
        resource = {"attributes": [{"key": "service.name", "value": value_of("refunds")}]}
        scopes = [{"scope": {"name": self.scope, "version": "1"}, "spans": self.spans}]
        document = {"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]}
        text = json.dumps(document, indent=1) + "\n"
        (FOLDER / "traces" / f"{self.name}.json").write_text(text)


def value_of(value: Any) -> dict[str, Any]:
    """Return an OTLP AnyValue."""
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}


class Timeline:
    """Plays a conversation: each step is a model call that requests tool calls, which then run."""

    def __init__(self, steps: list[list[Call]], answer: str) -> None:
        self.steps, self.answer = steps, answer

    def play(
        self,
        model: Callable[[list[Any], Any, int], None],
        tool: Callable[[str, Call, int, int], None],
    ) -> int:
        """Call `model` and `tool` for every span; return the time of the end (ms)."""
        history: list[Any] = [("system", SYSTEM), ("user", ASKED)]
        at = 10
        for number, calls in enumerate(self.steps):
            asked = [(f"call_{number}{index}", call) for index, call in enumerate(calls)]
            model(list(history), asked, at)
            at += 400
            for index, (call_id, call) in enumerate(asked):
                tool(call_id, call, at + 10 * index, at + 10 * index + 60)
            at += 100
            history.append(("assistant", asked))
            history += [("tool", (call_id, call)) for call_id, call in asked]
        model(list(history), self.answer, at)
        return at + 410


def genai(name: str, line: Timeline, *, content: bool = True) -> None:
    """Write a trace in the current OpenTelemetry GenAI conventions."""
    out = Writer(name, "opentelemetry.instrumentation.genai.openai")

    def part(role: str, body: Any) -> dict[str, Any]:
        if role == "tool":
            call_id, call = body
            response = {"type": "tool_call_response", "id": call_id, "response": call[2]}
            return {"role": role, "parts": [response]}
        if isinstance(body, str):
            return {"role": role, "parts": [{"type": "text", "content": body}]}
        calls = [
            {"type": "tool_call", "id": call_id, "name": call[0], "arguments": call[1]}
            for call_id, call in body
        ]
        return {"role": role, "parts": calls}

    def model(history: list[Any], answer: Any, at: int) -> None:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini",
            "gen_ai.usage.input_tokens": 80 + 40 * len(history),
            "gen_ai.usage.output_tokens": 24,
        }
        if content:
            attributes["gen_ai.input.messages"] = [part(role, body) for role, body in history]
            attributes["gen_ai.output.messages"] = [part("assistant", answer)]
        out.span("chat gpt-5-mini", at, at + 390, attributes)

    def tool(call_id: str, call: Call, start: int, end: int) -> None:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call[0],
            "gen_ai.tool.call.id": call_id,
        }
        if content:
            attributes["gen_ai.tool.call.arguments"] = call[1]
            attributes["gen_ai.tool.call.result"] = call[2]
        out.span(f"execute_tool {call[0]}", start, end, attributes)

    end = line.play(model, tool)
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "refunds"}
    out.span("invoke_agent refunds", 0, end, {**agent, "test.case.id": "broken-item"}, root=True)
    out.save()


def openinference(name: str, line: Timeline) -> None:
    """Write a trace in OpenInference's flat attributes."""
    out = Writer(name, "openinference.instrumentation.openai")

    def flat(prefix: str, role: str, body: Any) -> dict[str, Any]:
        found: dict[str, Any] = {f"{prefix}.message.role": role}
        if role == "tool":
            call_id, call = body
            found[f"{prefix}.message.tool_call_id"] = call_id
            found[f"{prefix}.message.content"] = json.dumps(call[2])
        elif isinstance(body, str):
            found[f"{prefix}.message.content"] = body
        else:
            for index, (call_id, call) in enumerate(body):
                at = f"{prefix}.message.tool_calls.{index}.tool_call"
                found[f"{at}.id"] = call_id
                found[f"{at}.function.name"] = call[0]
                found[f"{at}.function.arguments"] = json.dumps(call[1])
        return found

    def model(history: list[Any], answer: Any, at: int) -> None:
        attributes: dict[str, Any] = {
            "openinference.span.kind": "LLM",
            "llm.model_name": "gpt-5-mini",
            "llm.token_count.prompt": 80 + 40 * len(history),
            "llm.token_count.completion": 24,
        }
        for index, (role, body) in enumerate(history):
            attributes |= flat(f"llm.input_messages.{index}", role, body)
        attributes |= flat("llm.output_messages.0", "assistant", answer)
        out.span("ChatCompletion", at, at + 390, attributes)

    def tool(call_id: str, call: Call, start: int, end: int) -> None:
        del call_id  # this dialect does not carry it
        attributes = {
            "openinference.span.kind": "TOOL",
            "tool.name": call[0],
            "input.value": call[1],
            "output.value": call[2],
        }
        out.span(call[0], start, end, attributes)

    end = line.play(model, tool)
    agent = {"openinference.span.kind": "AGENT", "agent.name": "refunds"}
    out.span("refunds", 0, end, {**agent, "test.case.id": "broken-item"}, root=True)
    out.save()


def traceloop(name: str, line: Timeline) -> None:
    """Write a trace in OpenLLMetry's indexed attributes."""
    out = Writer(name, "opentelemetry.instrumentation.openai.v1")

    def indexed(prefix: str, role: str, body: Any) -> dict[str, Any]:
        found: dict[str, Any] = {f"{prefix}.role": role}
        if role == "tool":
            call_id, call = body
            found |= {f"{prefix}.tool_call_id": call_id, f"{prefix}.content": json.dumps(call[2])}
        elif isinstance(body, str):
            found[f"{prefix}.content"] = body
        else:
            for index, (call_id, call) in enumerate(body):
                at = f"{prefix}.tool_calls.{index}"
                arguments = json.dumps(call[1])
                found |= {f"{at}.id": call_id, f"{at}.name": call[0], f"{at}.arguments": arguments}
        return found

    def model(history: list[Any], answer: Any, at: int) -> None:
        attributes: dict[str, Any] = {
            "llm.request.type": "chat",
            "gen_ai.system": "OpenAI",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini",
            "gen_ai.usage.prompt_tokens": 80 + 40 * len(history),
            "gen_ai.usage.completion_tokens": 24,
        }
        for index, (role, body) in enumerate(history):
            attributes |= indexed(f"gen_ai.prompt.{index}", role, body)
        attributes |= indexed("gen_ai.completion.0", "assistant", answer)
        out.span("openai.chat", at, at + 390, attributes)

    def tool(call_id: str, call: Call, start: int, end: int) -> None:
        del call_id  # this dialect does not carry it
        attributes = {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": call[0],
            "traceloop.entity.input": {"args": [], "kwargs": call[1]},
            "traceloop.entity.output": call[2],
        }
        out.span(f"{call[0]}.tool", start, end, attributes)

    end = line.play(model, tool)
    workflow = {"traceloop.span.kind": "workflow", "traceloop.entity.name": "refunds"}
    root = {**workflow, "test.case.id": "broken-item"}
    out.span("refunds.workflow", 0, end, root, root=True)
    out.save()


def pydantic_ai(name: str, line: Timeline) -> None:
    """Write a trace as Pydantic AI's first instrumentation did, with events in an attribute."""
    out = Writer(name, "pydantic-ai")

    def event(role: str, body: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"event.name": f"gen_ai.{role}.message", "role": role}
        if role == "tool":
            call_id, call = body
            return {**found, "id": call_id, "name": call[0], "content": call[2]}
        if isinstance(body, str):
            return {**found, "content": body}
        calls = [
            {"id": i, "function": {"name": c[0], "arguments": json.dumps(c[1])}} for i, c in body
        ]
        return {**found, "tool_calls": calls}

    def model(history: list[Any], answer: Any, at: int) -> None:
        choice = {"event.name": "gen_ai.choice", "index": 0, "message": event("assistant", answer)}
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.system": "openai",
            "gen_ai.request.model": "gpt-5-mini",
            "gen_ai.response.model": "gpt-5-mini",
            "gen_ai.usage.input_tokens": 80 + 40 * len(history),
            "gen_ai.usage.output_tokens": 24,
            "events": [*(event(role, body) for role, body in history), choice],
        }
        out.span("chat gpt-5-mini", at, at + 390, attributes)

    def tool(call_id: str, call: Call, start: int, end: int) -> None:
        attributes = {
            "gen_ai.tool.name": call[0],
            "gen_ai.tool.call.id": call_id,
            "tool_arguments": call[1],
            "tool_response": call[2],
        }
        out.span("running tool", start, end, attributes)

    end = line.play(model, tool)
    agent = {"agent_name": "refunds", "model_name": "gpt-5-mini", "test.case.id": "broken-item"}
    out.span("agent run", 0, end, agent, root=True)
    out.save()


def main() -> None:
    """Write the traces and the reference."""
    right = [[GET_ORDER], [CHECK_POLICY], [refund(42.0)]]
    parallel = [[CHECK_POLICY, GET_ORDER], [refund(42.0)]]
    wrong = [[GET_ORDER], [CHECK_POLICY], [refund(420.0)]]
    hasty = [[GET_ORDER], [refund(42.0)]]
    genai("1-otel-genai", Timeline(right, DONE.format(amount="42.00")))
    openinference("2-openinference-parallel", Timeline(parallel, DONE.format(amount="42.00")))
    traceloop("3-traceloop-wrong-amount", Timeline(wrong, DONE.format(amount="420.00")))
    pydantic_ai("4-pydantic-ai-no-policy", Timeline(hasty, DONE.format(amount="42.00")))
    genai("5-otel-genai-no-content", Timeline(right, DONE.format(amount="42.00")), content=False)
    messages = [
        {"role": "user", "content": ASKED},
        {
            "role": "assistant",
            "tool_calls": [
                {"function": {"name": call[0], "arguments": json.dumps(call[1])}}
                for call in (GET_ORDER, CHECK_POLICY, refund(42.0))
            ],
        },
    ]
    text = json.dumps(messages, indent=1) + "\n"
    (FOLDER / "references" / "refund.json").write_text(text)


if __name__ == "__main__":
    main()
