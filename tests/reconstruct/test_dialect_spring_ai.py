"""Spring AI: the chat client's run, its tools, and model calls without content."""

from __future__ import annotations

from typing import Any

from oteval import create_forbidden_tools_evaluator
from oteval.model import Span, ToolCall, Trajectory

from .builders import codes, only, span

SYSTEM = {"gen_ai.operation.name": "framework", "gen_ai.system": "spring_ai"}


def tool_run(name: str, start: int, **attributes: Any) -> Span:
    """Return the span of a tool, with its content if `arguments` and `result` are given."""
    content = {f"spring.ai.tool.call.{key}": value for key, value in attributes.items()}
    kind = {"spring.ai.kind": "tool_call", "spring.ai.tool.definition.name": name}
    return span(f"tool_call {name}", start, parent="client", attributes=SYSTEM | kind | content)


def conversation(*tools: Span) -> list[Span]:
    """Return the spans of a chat client that called the model twice, around `tools`."""
    client = {"spring.ai.kind": "chat_client", "spring.ai.chat.client.conversation.id": "s"}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": "10",
        "gen_ai.usage.output_tokens": "5",
    }
    return [
        span("client", 1, end=100, title="spring_ai chat_client", attributes=SYSTEM | client),
        span("c1", 2, parent="client", title="chat gpt-4o", attributes=chat),
        *tools,
        span("c2", 50, parent="client", title="chat gpt-4o", attributes=chat),
    ]


def calls(run: Trajectory) -> list[ToolCall]:
    """Return the calls of a run."""
    return [call for message in run.messages for call in message.tool_calls]


def test_tools_are_read_with_their_content():
    """The calls are known although the model calls have no content."""
    tool = tool_run("look", 10, id="k", arguments='{"x": 1}', result='"sunny"')
    run = only(*conversation(tool))

    (call,) = calls(run)
    assert (call.name, call.arguments, call.id) == ("look", {"x": 1}, "k")
    assert [m.content for m in run.messages if m.role == "tool"] == ["sunny"]
    assert run.conversation_id == "s"
    assert set(run.dialects) == {"spring-ai", "genai-events"}
    assert (run.usage.model_calls, run.usage.input_tokens) == (2, 20)
    assert set(codes(run)) == {"content_not_captured"}


def test_a_tool_without_content_names_the_property():
    """Without the property the call's name is known, and the gap says what to set."""
    run = only(*conversation(tool_run("look", 10)))

    assert [call.name for call in calls(run)] == ["look"]
    assert any(
        "spring.ai.tools.observations.include-content=true" in gap.detail for gap in run.gaps
    )


def test_a_forbidden_tool_fails_although_messages_are_missing():
    """What was seen is enough for a failure; the same run without it is no pass."""
    check = create_forbidden_tools_evaluator(forbidden=["refund"])

    assert check(outputs=only(*conversation(tool_run("refund", 10))))["score"] is False
    assert check(outputs=only(*conversation()))["score"] is None
