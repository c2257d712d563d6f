"""OpenLIT: spans by hand, as its SDK writes them."""

from __future__ import annotations

from typing import Any

from oteval.model import Event, Span
from oteval.reconstruct import reconstruct

from .builders import asks, brief, chat, codes, gives, only, said, span, system, tool, user

SCOPE = "openlit.instrumentation.openai"
ASKED = asks(("look", {"x": 1}, "k1"), ("look", {"x": 2}, "k2"))
RESULTS = [gives("r1", "k1"), gives("r2", "k2")]
MARKS = {
    "gen_ai.tool.name": "look, look",
    "gen_ai.tool.call.id": "k1, k2",
    "gen_ai.tool.args": '{"x": 1}, {"x": 2}',
}


def call(name: str, start: int, sent: Any, got: Any, **fields: Any) -> Span:
    return chat(name, start, sent, got, scope=SCOPE, **fields)


TOLD = [
    ("user", "q"),
    ("assistant", [("look", {"x": 1}), ("look", {"x": 2})]),
    ("tool", "r1"),
    ("tool", "r2"),
    ("assistant", "a"),
]


def test_calls_left_out_of_the_history_are_found_by_their_ids():
    """The history holds results without the calls; a traced function only groups."""
    found = only(
        span("f", 1, scope="openlit", attributes={"gen_ai.output.messages": "a"}, end=99),
        call("c", 2, [user("q")], ASKED, parent="f", attributes=MARKS),
        call("d", 5, [user("q"), *RESULTS], said("a"), parent="f"),
    )

    assert brief(found.messages) == TOLD
    assert (found.gaps, found.dialects) == ((), ("openlit",))


def test_traces_are_linked_by_what_was_said():
    """Each model call may be a trace of its own, and each turn; the order does not matter."""
    history = [user("q"), *RESULTS, said("a"), user("p")]
    spans = [
        call("c", 1, [user("q")], ASKED, trace="a" * 32),
        call("d", 5, [user("q"), *RESULTS], said("a"), trace="b" * 32),
        call("e", 9, history, said("b"), trace="c" * 32),
    ]
    first, second = reconstruct(spans[::-1])

    assert brief(first.messages) == TOLD
    assert brief(second.messages) == [*TOLD, ("user", "p"), ("assistant", "b")]
    assert (first.gaps, second.gaps, second.turn) == ((), (), 2)


def test_a_history_that_is_not_loaded_is_a_gap():
    """Of calls in traces that are not there, only the ids are known."""
    found = only(call("d", 5, [user("q"), *RESULTS], said("a")))

    assert codes(found) == ["calls_left_out"]
    assert [c.id for c in found.messages[1].tool_calls] == ["k1", "k2"]


def test_equal_questions_with_other_calls_are_not_linked():
    """Two chats that begin alike are told apart by the ids of their calls."""
    other = [gives("r1", "k8"), gives("r2", "k9")]
    found = reconstruct(
        [
            call("c", 1, [user("q")], ASKED, trace="a" * 32),
            call("d", 5, [user("q"), *other], said("a"), trace="b" * 32),
        ]
    )

    assert len(found) == 2


def test_the_system_prompt_is_shown_once():
    """It stands in the messages and in an attribute of its own."""
    prompt = '[{"type": "text", "content": "s"}]'
    sent = [system("s"), user("q")]
    one = call("c", 1, sent, said("a"), attributes={"gen_ai.system_instructions": prompt})

    assert brief(only(one).messages)[:2] == [("system", "s"), ("user", "q")]


def test_the_responses_api_has_a_gap():
    """Its calls and results are left out, and that is said."""
    kind = {"openai.api.type": "responses"}
    found = only(
        span("f", 1, scope="openlit", end=99),
        call("c", 2, [user("q")], asks(("look", {"x": 1}, "k")), parent="f", attributes=kind),
        call("d", 5, [user("q")], said("a"), parent="f", attributes=kind),
    )

    assert "content_not_captured" in codes(found)
    assert brief(found.messages)[:2] == [("user", "q"), ("assistant", [("look", {"x": 1})])]


def test_agents_without_a_name_only_group():
    """Turns and tasks of the Agents SDK are called `invoke_agent`, and hold its agents' calls."""
    kind = {"gen_ai.operation.name": "invoke_agent"}
    found = only(
        span("a", 1, scope=SCOPE, attributes={**kind, "gen_ai.agent.name": "desk"}, end=99),
        span("b", 2, parent="a", scope=SCOPE, attributes=kind, end=50),
        call("c", 3, [user("q")], asks(("look", {"x": 1}, "k")), parent="b"),
        tool("t", 5, id="k", result="r", parent="b", scope=SCOPE, args='{"x": 1}'),
        span("d", 60, parent="a", scope=SCOPE, attributes=kind, end=90),
        call("e", 61, [user("q"), gives("r", "k")], said("a"), parent="d"),
    )

    assert (found.agent, len(found.messages), found.gaps) == ("desk", 4, ())


def test_the_creation_of_an_agent_is_no_run():
    """A trace that only creates an agent gives no trajectory."""
    made = span("a", 1, scope=SCOPE, attributes={"gen_ai.operation.name": "create_agent"})

    assert reconstruct([made]) == []


def test_old_events_are_read():
    """Before, prompt and completion were events: lines with roles, and text."""
    events = (
        Event("gen_ai.content.prompt", 1, {"gen_ai.prompt": "system: s\nuser: q"}),
        Event("gen_ai.content.completion", 2, {"gen_ai.completion": "a"}),
    )
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.system": "openai"}
    found = only(span("c", 1, scope="openlit.otel.tracing", attributes=attributes, events=events))

    assert brief(found.messages) == [("system", "s"), ("user", "q"), ("assistant", "a")]
    assert found.gaps == ()


def langchain(name: str, start: int, sent: Any, got: Any, **fields: Any) -> Span:
    return chat(name, start, sent, got, scope="openlit.instrumentation.langchain", **fields)


def langchain_tool(name: str, start: int, number: int, **fields: Any) -> Span:
    """Return a tool's span, with arguments and result as Python prints them."""
    return tool(
        name,
        start,
        id=f"k{number}",
        args=f"{{'x': {number}}}",
        result=f"content='r{number}' name='look' tool_call_id='k{number}'",
        scope="openlit.instrumentation.langchain",
        **fields,
    )


HOLLOW = said("")  # an answer that asked for calls, in a history of LangChain


def test_langchain_histories_have_neither_calls_nor_ids():
    """The calls are those of the answer, and its results are in their order."""
    found = only(
        span("t", 1, end=99),
        langchain("c", 2, [user("q")], ASKED, parent="t"),
        langchain_tool("s", 4, 1, parent="t"),
        langchain_tool("u", 5, 2, parent="t"),
        langchain("d", 7, [user("q"), HOLLOW, gives("r1"), gives("r2")], said("a"), parent="t"),
    )

    assert brief(found.messages) == TOLD
    assert found.gaps == ()


def test_langchain_histories_of_unknown_calls_say_so():
    """Where no span has the answer that asked, the results have no calls."""
    found = only(langchain("d", 7, [user("q"), HOLLOW, gives("r1"), gives("r2")], said("a")))

    assert codes(found) == ["calls_left_out"]


def test_blocks_of_langchain_are_printed_dicts():
    """A call of Anthropic's in the history is known by what Python prints of its block."""
    printed = "{'id': 'k1', 'input': {'x': 1}, 'name': 'look', 'type': 'tool_use'}"
    echo = {"role": "assistant", "parts": [{"type": "tool_use", "content": printed}]}
    found = only(langchain("d", 7, [user("q"), echo, gives("r1")], said("a")))

    assert brief(found.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r1"),
        ("assistant", "a"),
    ]
    assert codes(found) == []


def test_nodes_of_langgraph_are_called_agents():
    """A node's `invoke_agent` is a step of the graph, whose `invoke_workflow` is the agent."""
    scope = "openlit.instrumentation.langgraph"
    node = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "model"}
    graph = {"gen_ai.operation.name": "invoke_workflow", "gen_ai.workflow.name": "support"}
    found = only(
        span("g", 1, end=99, scope=scope, attributes=graph),
        span("m", 2, end=4, scope=scope, attributes=node, parent="g"),
        langchain("c", 2, [user("q")], ASKED, parent="m"),
        langchain_tool("s", 5, 1, parent="g"),
        langchain_tool("u", 6, 2, parent="g"),
        span("n", 7, end=9, scope=scope, attributes=node, parent="g"),
        langchain("d", 7, [user("q"), HOLLOW, gives("r1"), gives("r2")], said("a"), parent="n"),
    )

    assert (found.agent, brief(found.messages)) == ("support", TOLD)


def test_a_result_in_blocks_is_the_text_of_them():
    """The history has what Python prints of a client's blocks."""
    printed = "[{'text': 'it\\'s', 'type': 'text'}, {'text': 'r', 'type': 'text'}]"
    asked = asks(("look", {"x": 1}, "k1"))
    found = only(call("c", 1, [user("q"), asked, gives(printed, "k1")], said("a")))

    assert [m.content for m in found.messages if m.role == "tool"] == ["it's\nr"]
