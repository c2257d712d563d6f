"""A small agent instrumented with OpenTelemetry's SDK."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry import trace

__all__ = ["answer"]


def answer(question: str, *tools: str, provider: Any = None, name: str = "clerk") -> str:
    """Run the agent: it calls each tool with the question and reports its calls."""
    tracer = (provider or trace).get_tracer("agent")
    said: list[dict[str, Any]] = [_message("user", _text(question))]
    with tracer.start_as_current_span(
        f"invoke_agent {name}",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name},
    ):
        for number, tool in enumerate(tools):
            call = {"type": "tool_call", "id": f"c{number}", "name": tool}
            asked = _message("assistant", {**call, "arguments": {"text": question}})
            _chat(tracer, said, asked)
            with tracer.start_as_current_span(
                f"execute_tool {tool}",
                attributes={
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.call.id": f"c{number}",
                },
            ):
                result = {"type": "tool_call_response", "id": f"c{number}", "response": "done"}
            said += [asked, _message("tool", result)]
        text = f"{question}: {len(tools)} calls"
        _chat(tracer, said, _message("assistant", _text(text)))
    return text


def _chat(tracer: Any, said: list[dict[str, Any]], answered: dict[str, Any]) -> None:
    with tracer.start_as_current_span(
        "chat m",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps([answered]),
        },
    ):
        pass


def _message(role: str, part: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}
