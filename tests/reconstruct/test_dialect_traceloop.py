"""OpenLLMetry's spans of the OpenAI Agents SDK and of the Responses API, by hand."""

from __future__ import annotations

import json
from typing import Any

from oteval.messages.kinds import reasoning_text
from oteval.model import Span

from .builders import asks, brief, chat, codes, only, said, span, texts, user

SCOPE = "opentelemetry.instrumentation.openai_agents"


def sdk_span(name: str, start: int, **fields: Any) -> Span:
    attributes = {key.replace("__", "."): value for key, value in fields.pop("attributes").items()}
    fields.setdefault("parent", "" if name == "a" else "a")
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def response(name: str, start: int, sent: Any, got: Any = None) -> Span:
    attributes = {"gen_ai__operation__name": "chat", "gen_ai__input__messages": json.dumps(sent)}
    if got is not None:
        attributes["gen_ai__output__messages"] = json.dumps(got)
    return sdk_span(name, start, title="openai.response", attributes=attributes)


AGENT = sdk_span(
    "a",
    1,
    attributes={
        "traceloop__span__kind": "agent",
        "gen_ai__operation__name": "invoke_agent",
        "gen_ai__agent__name": "desk",
    },
    end=99,
)


def run(name: str, start: int, id_: str, arguments: str) -> Span:
    attributes = {
        "traceloop__span__kind": "tool",
        "gen_ai__tool__name": "look",
        "gen_ai__tool__call__id": id_,
        "gen_ai__tool__call__arguments": arguments,
        "gen_ai__tool__call__result": f"r{id_}",
    }
    return sdk_span(name, start, attributes=attributes)


def test_the_items_of_one_answer_are_one_message():
    """A text and parallel calls are messages that each say why they end; no call is lost."""
    items = [
        {**said("let me look"), "finish_reason": "stop"},
        {**asks(("look", {"x": 1}, "k1")), "finish_reason": "tool_call"},
        {**asks(("look", {"x": 2}, "k2")), "finish_reason": "tool_call"},
    ]
    trajectory = only(
        AGENT,
        response("c", 2, [user("q")], items),
        run("t", 4, "k1", '{"x": 1}'),
        run("u", 5, "k2", '{"x": 2}'),
    )

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
        ("tool", "rk1"),
        ("tool", "rk2"),
    ]
    assert (trajectory.messages[1].content, trajectory.agent, trajectory.gaps) == (
        "let me look",
        "desk",
        (),
    )


def test_an_answer_that_is_not_written_has_the_right_hint():
    """Over chat completions the SDK's answers are not on the spans, with content turned on."""
    trajectory = only(AGENT, response("c", 2, [user("q")]), run("t", 4, "k1", '{"x": 1}'))

    [missing] = trajectory.gaps
    assert missing.code == "content_not_captured"
    assert "TRACELOOP_TRACE_CONTENT" not in missing.detail
    assert "instrument the model client" in missing.detail
    assert brief(trajectory.messages)[1] == ("assistant", [("look", {"x": 1})])


def test_content_that_is_off_has_the_switch():
    """Without input and output, the hint is the variable that turns content on."""
    trajectory = only(
        AGENT,
        sdk_span(
            "c", 2, attributes={"gen_ai__operation__name": "chat", "gen_ai__is_streaming": False}
        ),
    )

    assert "TRACELOOP_TRACE_CONTENT=true" in trajectory.gaps[0].detail
    assert set(codes(trajectory)) == {"content_not_captured"}


def test_a_crew_s_task_says_what_its_agent_was_asked():
    """The agent's span says neither question nor answer; with the client's spans it is one run."""
    scope = "opentelemetry.instrumentation.crewai.instrumentation"
    task = {
        "traceloop.span.kind": "task",
        "crewai.task.agent": "support",
        "crewai.task.description": "q",
        "traceloop.entity.output": "a",
    }
    worker = {"traceloop.span.kind": "agent", "gen_ai.agent.name": "support"}
    spans = [
        span("w", 1, end=99, scope=scope, attributes={"gen_ai.operation.name": "invoke_agent"}),
        span("t", 2, end=98, scope=scope, attributes=task, parent="w"),
        span("g", 3, end=97, scope=scope, attributes=worker, parent="t"),
    ]
    alone = only(*spans)
    model_call = chat("c", 4, [user("Current Task: q")], said("a"), parent="g")
    trajectory = only(*spans, model_call)

    assert (alone.agent, texts(alone), codes(alone)) == ("support", ["q", "a"], ["no_model_spans"])
    assert (trajectory.agent, texts(trajectory), codes(trajectory)) == (
        "support",
        ["Current Task: q", "a"],
        [],
    )


OLD = {"llm.request.type": "chat", "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "q"}


def completion(index: int, role: str, content: str, **fields: str) -> dict[str, str]:
    """Return the flat attributes of one completion."""
    fields = {"role": role, "content": content, **fields}
    return {f"gen_ai.completion.{index}.{name}": value for name, value in fields.items()}


def test_filter_results_beside_a_prompt_lose_nothing():
    """Azure's stand among the messages, under a name instead of an index."""
    attributes = {
        "gen_ai.prompt.prompt_filter_results": '[{"prompt_index": 0}]',
        **OLD,
        **completion(
            0,
            "assistant",
            "FILTERED",
            finish_reason="content_filter",
            content_filter_results="{}",
        ),
    }
    run = only(span("c", attributes=attributes))

    assert brief(run.messages) == [("user", "q"), ("assistant", "FILTERED")]
    assert codes(run) == []


def test_anthropics_thinking_is_reasoning():
    """It is a completion of its own, before the one that says why the model stopped."""
    attributes = {
        **OLD,
        **completion(0, "thinking", "hm"),
        **completion(1, "assistant", "fine", finish_reason="max_tokens"),
    }
    run = only(span("c", attributes=attributes))

    assert brief(run.messages) == [("user", "q"), ("assistant", "fine")]
    assert [reasoning_text(part) for part in run.messages[-1].parts] == ["hm"]
    assert (codes(run), list(run.finish_reasons)) == ([], ["length"])


def test_the_prompt_of_a_completion():
    """It has no role and no content, but a text under the name of its role."""
    attributes = {
        "llm.request.type": "completion",
        "gen_ai.prompt.0.user": "Once upon",
        "gen_ai.completion.0.content": "a time",
    }
    run = only(span("c", attributes=attributes))

    assert brief(run.messages) == [("user", "Once upon"), ("assistant", "a time")]
    assert codes(run) == []
