"""CrewAI: the capture, a crew whose model client is not instrumented, and CrewAI's own spans."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Message, Span
from oteval.reconstruct import reconstruct

from .builders import asks, brief, capture, codes, only, said, span, texts, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories

NAME = "crewai_openinference"
SCOPE = "openinference.instrumentation.crewai"
KIND = "openinference.span.kind"
SECOND = [GOLD[0], *GOLD[6:]]


def as_asked(messages: tuple[Message, ...], gold: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Return messages with gold's prompt and question where CrewAI words them anew."""
    assert gold[0]["content"] in (messages[0].content or "")
    assert gold[1]["content"] in (messages[1].content or "")
    asked = (replace(m, content=g["content"]) for m, g in zip(messages, gold[:2], strict=False))
    return (*asked, *messages[2:])


def task(name: str, start: int, output: Any = None, **fields: Any) -> Span:
    attributes = {KIND: "AGENT", "task_id": "7", "graph.node.id": "writer"}
    if output is not None:
        attributes["output.value"] = output if isinstance(output, str) else json.dumps(output)
    attributes.update(fields.pop("attributes", {}))
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def used(name: str, start: int, given: Any, result: str | None = "r", **fields: Any) -> Span:
    attributes = {KIND: "TOOL", "tool.name": "look", "input.value": given}
    if result is not None:
        attributes["output.value"] = result
    attributes.update(fields.pop("attributes", {}))
    return span(name, start, scope=SCOPE, attributes=attributes, **fields)


def test_the_capture_holds_two_independent_crews():
    """Each kickoff is one agent's run with gold's calls and results, without gaps."""
    first, second = trajectories(NAME)

    assert_gold(as_asked(first.messages, GOLD), GOLD[:6])
    assert_gold(as_asked(second.messages, SECOND), SECOND)
    for found in (first, second):
        assert_joined(found.messages)
        assert (found.agent, found.turn, found.gaps) == ("support_agent", 1, ())
        assert found.dialects == ("crewai", "openinference")
        assert found.models == ("gpt-4o-mini-2026-01-01",)
        assert (found.usage.model_calls, len(found.tools)) == (2, 2)
        assert found.own_messages == found.messages


def test_without_model_spans_the_tasks_output_tells_all():
    """Where the model client is not instrumented, the messages are the task's own account."""
    spans, logs = capture(NAME)
    kept = [s for s in spans if s.attributes.get(KIND) != "LLM"]

    first, second = reconstruct(kept, logs)

    assert_gold(as_asked(first.messages, GOLD), GOLD[:6])
    assert_gold(as_asked(second.messages, SECOND), SECOND)
    assert_joined(second.messages)
    assert all(c.span_id for m in first.messages for c in m.tool_calls)
    assert codes(first) == codes(second) == ["no_model_spans"]


def test_an_earlier_tasks_output_has_the_task_and_the_answer():
    """Before the output held messages, it held what was to be done and what came of it."""
    found = only(task("a", 1, {"description": "do it", "raw": "done", "messages": None}))

    assert brief(found.messages) == [("user", "do it"), ("assistant", "done")]


def test_a_tasks_output_that_was_cut_tells_the_answer():
    """Messages that are not all there are not taken for all: what was done is told in short."""
    cut = '{"description": "do it", "raw": "done", "messages": [{"role": "user", "content": "x"}, {'

    assert brief(only(task("a", 1, cut)).messages) == [("user", "do it"), ("assistant", "done")]


@pytest.mark.parametrize(
    "output",
    ["__REDACTED__", "", "plain", "[1]", '{"messages": [', '{"messages": [7, null]}', '{"raw": 7}'],
)
def test_malformed_output_of_a_task_survives(output: str):
    """Whatever stands where a task's output is expected, there is a run of the agent."""
    found = only(task("a", 1, output))

    assert found.agent == "writer"
    assert all(m.role in ("user", "assistant") for m in found.messages)
    assert "no_model_spans" in codes(found)


def test_tasks_of_one_crew_are_runs_of_their_own():
    """The crew's span is no agent; its tasks' agents are named by their roles."""
    crew = span("k", 1, title="Crew.kickoff", scope=SCOPE, attributes={KIND: "CHAIN"})
    bare = task("b", 5, {"raw": "y"}, parent="k", title="editor._execute_core")
    bare = replace(bare, attributes={k: v for k, v in bare.attributes.items() if "node" not in k})

    found = reconstruct([crew, task("a", 2, {"raw": "x"}, parent="k"), bare])

    assert [(t.agent, texts(t), t.parent_id) for t in found] == [
        ("writer", ["x"], ""),
        ("editor", ["y"], ""),
    ]


def test_delegated_work_is_linked_to_the_call():
    """A coworker's task runs inside the tool that delegates it; the tool has a function's name."""
    told = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "k1",
                    "type": "function",
                    "function": {"name": "delegate_work_to_coworker", "arguments": '{"task": "x"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "k1", "content": "y"},
        {"role": "assistant", "content": "a"},
    ]
    outer, inner = reconstruct(
        [
            task("a", 1, {"messages": told}),
            used(
                "t",
                2,
                '{"task": "x"}',
                "y",
                parent="a",
                attributes={"tool.name": "Delegate work to coworker"},
            ),
            task("b", 3, {"raw": "y"}, parent="t", attributes={"graph.node.id": "expert"}),
        ]
    )

    assert (inner.agent, inner.parent_id, inner.parent_call_id) == ("expert", outer.id, "k1")
    assert codes(outer) == ["no_model_spans"]


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"x": 1}', {"x": 1}),
        ('{"calling": {"tool_name": "look", "arguments": {"x": 1}}, "tool_string": "s"}', {"x": 1}),
        ('{"calling": "tool_name=\'look\' arguments={\'x\': 1}", "tool": "t"}', {"x": 1}),
        ('{"calling": {"tool_name": "look", "arguments": null}}', {}),
        ('{"calling": null, "tool_string": "s"}', None),
        ("__REDACTED__", None),
    ],
)
def test_the_use_of_a_tool_names_its_arguments(given: str, arguments: Any):
    """Of either kind of tool span, the arguments are those of the call."""
    found = only(task("a", 1), used("t", 2, given, parent="a"))

    (call,) = found.messages[0].tool_calls
    assert (call.name, call.arguments) == ("look", arguments)


def test_a_tool_that_failed_is_an_error():
    """A tool's error is in its status alone; the result tells it."""
    found = only(
        task("a", 1), used("t", 2, "{}", None, parent="a", status_code=2, status_message="no")
    )

    assert (found.messages[1].content, found.messages[1].is_error) == ("Error: no", True)


def test_crewais_own_spans_are_no_agents():
    """They hold no content: among others they add nothing, and alone they are no run."""
    own = [
        span(
            f"o{i}",
            i + 5,
            title=title,
            parent="a",
            scope="crewai.telemetry",
            attributes={"crew_key": "k", "tool_name": "look", "llm": "m"},
        )
        for i, title in enumerate(("Crew Created", "Task Execution", "Tool Usage"))
    ]
    found = only(task("a", 1, {"raw": "x"}), *own)
    alone = reconstruct([replace(own[0], parent_id="")])

    assert (texts(found), codes(found)) == (["x"], ["no_model_spans"])
    assert alone == []


def native(name: str, start: int, operation: str, **attributes: Any) -> Span:
    """Return one of CrewAI's own spans."""
    told = {key.replace("__", "."): value for key, value in attributes.items()}
    event = {"crewai.event_name": operation, "gen_ai.operation.name": operation}
    parent = "" if name == "a" else "a"
    end = 99 if name == "a" else start + 1
    return span(name, start, parent=parent, scope="crewai", attributes={**event, **told}, end=end)


def test_reprs_in_the_history_of_crewais_own_spans_are_read():
    """Calls in the history and tools' schemas are Python reprs; a failure has a second span."""
    asked = asks(("look", {"x": "1"}, "k"))
    repr_of = asks(("'look'", '\'{"x": "1"}\'', "k"))
    failed = {"role": "tool", "parts": [{"type": "text", "content": "Error executing tool: bad"}]}
    schema = [
        {
            "type": "function",
            "name": "look",
            "description": "'d'",
            "parameters": {"properties": {"x": "{'type': 'string'}"}, "required": ["'x'"]},
        }
    ]
    arguments = {"gen_ai__tool__name": "look", "gen_ai__tool__call__arguments": '{"x": "1"}'}
    found = only(
        native("a", 1, "invoke_agent", gen_ai__agent__name="f67e", crewai__agent__role="desk"),
        native(
            "c",
            2,
            "chat",
            gen_ai__input__messages=json.dumps([user("q")]),
            gen_ai__output__messages=json.dumps([asked]),
            gen_ai__tool__definitions=json.dumps(schema),
        ),
        native("t", 4, "execute_tool", **arguments, error__type="ValueError"),
        native("f", 5, "execute_tool", **arguments, crewai__event_name="tool_failure_detected"),
        native(
            "d",
            7,
            "chat",
            gen_ai__input__messages=json.dumps([user("q"), repr_of, failed]),
            gen_ai__output__messages=json.dumps([said("a")]),
        ),
    )

    assert brief(found.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": "1"})]),
        ("tool", "Error executing tool: bad"),
        ("assistant", "a"),
    ]
    assert found.messages[2].is_error
    assert (found.agent, found.gaps, found.dialects) == ("desk", (), ("crewai",))
    assert found.tools[0]["description"] == "'d'"
    assert found.tools[0]["parameters"] == {
        "properties": {"x": {"type": "string"}},
        "required": ["x"],
    }
