"""What the dialects share: which of them reads a span, and what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oteval.model import Event, LogRecord, Span
from oteval.reconstruct import DIALECTS, dialects, explain

from .builders import (
    TRACE,
    agent,
    asks,
    brief,
    chat,
    codes,
    gives,
    only,
    said,
    span,
    texts,
    tool,
    user,
)


def log(name: str, body: Any, time: int, of: Span, **attributes: Any) -> LogRecord:
    return LogRecord(of.trace_id, of.span_id, time, 0, name, body=body, attributes=attributes)


@pytest.mark.parametrize(
    ("fields", "dialect"),
    [
        (
            {
                "attributes": {"openinference.span.kind": "LLM", "gen_ai.system": "x"},
                "scope": "openinference.instrumentation.x",
            },
            "openinference",
        ),
        (
            {
                "attributes": {
                    "openinference.span.kind": "LLM",
                    "gen_ai.system": "x",
                    "input.value": "q",
                }
            },
            "openinference",
        ),
        ({"attributes": {"openinference.span.kind": "LLM", "gen_ai.system": "x"}}, "genai-events"),
        ({"attributes": {"gen_ai.operation.name": "chat"}, "scope": "pydantic-ai"}, "pydantic-ai"),
        ({"attributes": {"traceloop.span.kind": "task"}}, "traceloop"),
        ({"attributes": {"llm.request.type": "chat", "gen_ai.system": "x"}}, "traceloop"),
        ({"attributes": {"gen_ai.prompt.0.role": "user", "gen_ai.system": "x"}}, "traceloop"),
        ({"attributes": {"gen_ai.system": "x"}}, "genai-events"),
        ({"attributes": {"gen_ai.operation.name": "chat"}}, "genai"),
        ({"attributes": {"app.step": "GET"}}, ""),
    ],
)
def test_a_span_goes_through_one_dialect(fields: dict[str, Any], dialect: str):
    """Specific marks go before generic ones."""
    (account,) = explain(TRACE, [span("a", **fields)]).accounts

    assert account.dialect == dialect


def test_dialects_have_names_of_their_own():
    """The names, which are stored and filtered by, do not repeat."""
    names = [dialect.name for dialect in DIALECTS]

    assert len(set(names)) == len(names)


# Specific before generic: a span that several dialects know goes to the first of them.
ORDER = (
    *("adot", "strands", "claude-code", "langfuse", "braintrust", "langsmith", "crewai"),
    *("smolagents", "dspy", "adk-openinference", "haystack-openinference", "openinference"),
    *("google-adk", "pydantic-ai", "agent-framework", "semantic-kernel", "genkit", "mastra"),
    *("gemini-cli", "openlit", "logfire", "any-agent", "vercel-ai", "spring-ai", "haystack"),
    *("litellm", "llamaindex", "traceloop", "mcp", "genai-events", "genai", "mlflow"),
)


def test_dialects_are_tried_in_a_fixed_order():
    """Each dialect of `ORDER` keeps its place, whichever others are added."""
    names = [dialect.name for dialect in DIALECTS]

    assert [name for name in names if name in ORDER] == list(ORDER)


def test_each_dialect_has_a_precedence_and_marks_of_its_own():
    """No two dialects have the same place, and only the last is not asked by its marks."""
    precedences = [dialect.precedence for dialect in DIALECTS]

    assert len(set(precedences)) == len(precedences)
    unmarked = [d for d in DIALECTS if not (d.scopes or d.keys or d.span_names or d.events)]
    assert [dialect.name for dialect in unmarked] == ["by-shape"]
    assert DIALECTS[-1] is unmarked[0]
    assert all(dialect.title for dialect in DIALECTS)


def test_every_module_of_the_folder_is_a_dialect():
    """A file in ``dialects/`` is found by being there; shared readers are elsewhere."""
    files = sorted(path.stem for path in Path(dialects.__file__).parent.glob("[a-z]*.py"))

    assert len(files) == len(DIALECTS)


def test_genai_parts_become_text_calls_results_and_the_rest():
    """Text is joined, calls and results are told, and what is not text is kept as it came."""
    blob = {"type": "blob", "mime_type": "image/png", "content": "AA=="}
    sent = {"role": "user", "parts": [{"type": "text", "content": "look"}, blob, "here"]}
    odd = {"role": "assistant", "parts": [{"type": "tool_call", "name": None}, 7, {"type": "text"}]}

    trajectory = only(chat("c", 1, [sent, odd], said("ok")))

    assert trajectory.messages[0].content == "look\nhere"
    assert trajectory.messages[0].parts == (blob,)
    assert (trajectory.messages[1].content, trajectory.messages[1].tool_calls) == (None, ())
    assert "content_not_captured" in codes(trajectory)


def test_results_beside_text_in_one_message_come_first():
    """A user's message that brings a result along gives both, the result before the text."""
    look = asks(("look", {}, "k1"))
    result_and_text = {
        "role": "user",
        "parts": [*gives({"t": 1}, "k1")["parts"], *user("and?")["parts"]],
    }

    trajectory = only(chat("c", 1, [user("q"), look, result_and_text], said("a")))

    assert brief(trajectory.messages)[2:] == [
        ("tool", '{"t":1}'),
        ("user", "and?"),
        ("assistant", "a"),
    ]
    assert trajectory.messages[2].tool_call_id == "k1"


def test_openai_messages_are_read_as_well():
    """OpenAI's own form, with arguments as text, is taken where parts are expected."""
    call = {"id": "k1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    sent = [
        {"role": "human", "content": [{"type": "text", "text": "q"}]},
        {"role": "ai", "content": None, "tool_calls": [call]},
        {"role": "function", "tool_call_id": "k1", "content": "r", "name": "look"},
    ]

    trajectory = only(chat("c", 1, sent, {"content": "a", "role": "model"}))

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert (trajectory.messages[2].tool_call_id, trajectory.messages[2].name) == ("k1", "look")


def test_parallel_calls_in_neighbouring_messages_are_one():
    """The Responses API's items, one a call, become one message."""
    trajectory = only(
        chat("c", 1, [user("q"), asks(("f", {}, "1")), asks(("g", {}, "2"))], said("a"))
    )

    assert [m.role for m in trajectory.messages] == ["user", "assistant", "assistant"]
    assert [c.name for c in trajectory.messages[1].tool_calls] == ["f", "g"]


@pytest.mark.parametrize("where", ["log", "event"])
def test_genai_content_comes_in_events_too(where: str):
    """The details event in a log record or on the span stands in for the span's attributes."""
    content = {
        "gen_ai.input.messages": [user("q")],
        "gen_ai.output.messages": [said("a")],
        "gen_ai.system_instructions": [{"type": "text", "content": "s"}],
    }
    name = "gen_ai.client.inference.operation.details"
    bare = chat("c", 1)
    full = chat("c", 1, events=(Event(name, 1, content),))

    trajectory = (
        only(bare, logs=[log(name, None, 1, bare, **content)]) if where == "log" else only(full)
    )

    assert texts(trajectory) == ["s", "q", "a"]
    assert trajectory.gaps == ()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "content_not_captured"),
        ("", "content_not_captured"),
        ("[]", "content_not_captured"),
        ("[5, null]", "content_unreadable"),
        ({"bytesValue": "AA=="}, "content_unreadable"),
        ("[", "content_truncated"),
    ],
)
def test_content_without_messages_says_why(value: Any, code: str):
    """An attribute that is there and tells nothing is a gap, not an empty conversation."""
    trajectory = only(span("c", attributes={"gen_ai.output.messages": value}))

    assert codes(trajectory) == [code]


def test_placeholders_are_missing_content():
    """A placeholder for a whole value or for a message's content is a gap, never a text."""
    hidden = "__REDACTED__"
    trajectory = only(
        agent("a", 1),
        chat(
            "c",
            2,
            [user("q"), user("<elided>")],
            asks(("look", hidden, "k1")),
            parent="a",
            attributes={"gen_ai.system_instructions": hidden},
        ),
        tool("t", 3, id="k1", args=hidden, result=hidden, parent="a"),
    )

    assert texts(trajectory) == ["q", None, None, None]
    assert trajectory.messages[2].tool_calls[0].arguments is None
    assert set(codes(trajectory)) == {"redacted"}
    assert {g.span_id for g in trajectory.gaps} == {"c", "t"}


def test_old_events_tell_a_model_call():
    """One log record a message, in order of time, gives what was sent and the first choice."""
    call = {"id": "k1", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    c = span("c", 1, attributes={"gen_ai.system": "openai"})
    logs = [
        log("gen_ai.choice", {"index": 1, "message": {"content": "other"}}, 7, c),
        log("gen_ai.choice", {"index": 0, "message": {"content": "a"}}, 6, c),
        log("gen_ai.tool.message", {"content": "r", "id": "k1"}, 5, c),
        log("gen_ai.assistant.message", {"tool_calls": [call]}, 4, c),
        log("gen_ai.user.message", '{"content": "q"}', 3, c),
        log("gen_ai.system.message", {"content": "s"}, 2, c),
    ]

    trajectory = only(c, logs=logs)

    assert brief(trajectory.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
        ("assistant", "a"),
    ]
    assert (trajectory.messages[3].tool_call_id, codes(trajectory)) == ("k1", ["several_choices"])
    assert [(r.at, brief(r.messages)) for r in trajectory.rewrites] == [
        (4, [("assistant", "other")])
    ]


@pytest.mark.parametrize("by", ["seq", "index"])
def test_old_events_at_one_time_keep_their_order(by: str):
    """Records of one time are ordered by their message's index, else by their arrival."""
    c = span("c", 1, attributes={"gen_ai.system": "openai"})
    logs = [
        LogRecord(
            c.trace_id,
            c.span_id,
            5,
            0,
            "gen_ai.user.message",
            body={"content": f"q{i}"},
            attributes={"gen_ai.message.index": i} if by == "index" else {},
            seq=i if by == "seq" else 0,
        )
        for i in range(4)
    ]

    assert texts(only(c, logs=logs[::-1])) == ["q0", "q1", "q2", "q3"]


def test_old_events_on_the_span_tell_a_tool():
    """A tool's arguments are its message event, its result the choice."""
    trajectory = only(
        agent("a", 1),
        chat("c", 2, [user("q")], asks(("look", {"x": 1}, "k1")), parent="a"),
        span(
            "t",
            3,
            parent="a",
            attributes={
                "gen_ai.system": "x",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look",
            },
            events=(
                Event("gen_ai.tool.message", 3, {"content": '{"x": 1}'}),
                Event("gen_ai.choice", 4, {"message": [{"text": "r"}]}),
            ),
        ),
    )

    assert trajectory.messages[1].tool_calls[0].span_id == "t"
    assert trajectory.messages[2].content == '[{"text":"r"}]'
    assert trajectory.gaps == ()


def test_openinference_flat_keys_sort_as_numbers():
    """Message 10 comes after message 9, whatever the order of the attributes."""
    attributes: dict[str, Any] = {"openinference.span.kind": "LLM"}
    for i in reversed(range(12)):
        attributes[f"llm.input_messages.{i}.message.role"] = "user"
        attributes[f"llm.input_messages.{i}.message.content"] = f"q{i}"

    trajectory = only(span("c", attributes=attributes))

    assert texts(trajectory) == [f"q{i}" for i in range(12)]


def test_openinference_reads_the_raw_request_where_the_flat_keys_are_missing():
    """The raw request and response stand in for the flat attributes."""
    trajectory = only(
        span(
            "c",
            attributes={
                "openinference.span.kind": "LLM",
                "input.value": '{"messages": [{"role": "user", "content": "q"}]}',
                "output.value": '{"choices": [{"message": {"role": "assistant", "content": "a"}}]}',
                "llm.invocation_parameters": '{"previous_response_id": "r1"}',
                "llm.token_count.prompt": "7",
                "llm.token_count.completion": 1e400,
            },
        )
    )

    assert texts(trajectory) == ["q", "a"]
    assert (trajectory.usage.input_tokens, trajectory.usage.output_tokens) == (7, 0)


def test_openinference_hidden_texts_are_a_gap():
    """With only the texts hidden, the structure is had and the setting named."""
    message = "llm.input_messages.0.message"
    trajectory = only(
        span(
            "c",
            attributes={
                "openinference.span.kind": "LLM",
                f"{message}.role": "user",
                f"{message}.content": "__REDACTED__",
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": "a",
            },
        )
    )

    assert texts(trajectory) == [None, "a"]
    assert codes(trajectory) == ["redacted"]
    assert "OPENINFERENCE_HIDE_INPUTS" in trajectory.gaps[0].detail


def test_openinference_contents_and_tools_are_read():
    """Parts of a message, tool definitions as text and a LangChain tool's result are unwrapped."""
    part = "llm.input_messages.0.message.contents"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    kind = "openinference.span.kind"
    result = '{"type": "tool", "data": {"content": "r", "status": "error", "tool_call_id": "k1"}}'
    trajectory = only(
        span("a", 1, attributes={kind: "AGENT", "metadata": '{"lc_agent_name": "desk"}'}),
        span(
            "c",
            2,
            parent="a",
            attributes={
                kind: "LLM",
                "llm.input_messages.0.message.role": "user",
                f"{part}.0.message_content.type": "text",
                f"{part}.0.message_content.text": "q",
                f"{part}.1.message_content.type": "image",
                "llm.output_messages.0.message.role": "assistant",
                f"{call}.id": "k1",
                f"{call}.function.name": "look",
                f"{call}.function.arguments": '{"x": 1}',
                "llm.tools.0.tool.json_schema": '{"name": "look"}',
                "llm.tools.1.tool": "no mapping",
            },
        ),
        span(
            "t",
            3,
            parent="a",
            attributes={
                kind: "TOOL",
                "tool.name": "look",
                "input.value": '{"x": 1}',
                "output.value": result,
            },
        ),
    )

    assert (trajectory.agent, trajectory.tools) == ("desk", ({"name": "look"},))
    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r"),
    ]
    assert trajectory.messages[0].parts == ({"type": "image"},)
    assert trajectory.messages[2].is_error


def test_reading_flat_keys_leaves_the_attributes_alone():
    """An attribute whose value is itself nested is not written into by a longer key."""
    attributes = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message": {"role": "user", "content": "q"},
        "llm.input_messages.0.message.name": "ann",
        "llm.output_messages.0": {"message": {"role": "assistant"}},
        "llm.output_messages.0.message.content": "a",
    }
    before = repr(attributes)

    only(span("c", attributes=attributes))

    assert repr(attributes) == before


def test_traceloop_functions_are_agents_and_tools():
    """A decorated function's one argument is what was asked; its tools' arguments are named."""
    kind, name = "traceloop.span.kind", "traceloop.entity.name"
    trajectory = only(
        span(
            "w",
            1,
            attributes={
                kind: "workflow",
                name: "desk",
                "traceloop.entity.input": '{"args": ["q"], "kwargs": {}}',
                "traceloop.entity.output": '"a"',
                "traceloop.association.properties.session_id": "s",
            },
        ),
        *(
            span(
                f"t{i}",
                i + 2,
                parent="w",
                attributes={
                    kind: "tool",
                    name: "look",
                    "traceloop.entity.input": text,
                    "traceloop.entity.output": '{"r": 1}',
                },
            )
            for i, text in enumerate(
                (
                    '{"args": [], "kwargs": {"x": 1}}',
                    '{"args": [1, 2], "kwargs": {}}',
                    '{"args": [1], "kwargs": {"x": 1}}',
                    '{"args": [], "kwargs": {}}',
                    '{"args": 5, "kwargs": "odd"}',
                    '{"x": 1}',
                )
            )
        ),
    )

    calls = [call.arguments for m in trajectory.messages for call in m.tool_calls]
    assert (trajectory.agent, trajectory.conversation_id) == ("desk", "s")
    assert (texts(trajectory)[0], texts(trajectory)[-1]) == ("q", "a")
    assert calls == [{"x": 1}, [1, 2], {"x": 1, "args": [1]}, {}, {}, {"x": 1}]


def test_old_traceloop_keys_tell_a_model_call():
    """Indexed prompts and completions, with the calls inside, are read."""
    trajectory = only(
        span(
            "c",
            attributes={
                "llm.request.type": "chat",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "q",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.finish_reason": "tool_calls",
                "gen_ai.completion.0.tool_calls.0.id": "k1",
                "gen_ai.completion.0.tool_calls.0.name": "look",
                "gen_ai.completion.0.tool_calls.0.arguments": '{"x": 1}',
                "llm.request.functions.0.name": "look",
                "gen_ai.usage.prompt_tokens": 3,
                "gen_ai.usage.completion_tokens": 2,
            },
        )
    )

    assert brief(trajectory.messages) == [("user", "q"), ("assistant", [("look", {"x": 1})])]
    assert (trajectory.usage.input_tokens, trajectory.usage.output_tokens) == (3, 2)
    assert trajectory.tools == ({"name": "look"},)


def test_pydantic_ais_transcript_stands_in_for_hidden_model_calls():
    """Without its calls' content, the run's transcript tells all, and where the turn begins."""
    transcript = (
        '[{"role":"user","parts":[{"type":"text","content":"q1"}]},'
        '{"role":"assistant","parts":[{"type":"tool_call","id":"1","name":"f","arguments":"{}"},'
        '{"type":"tool_call","id":"2","name":"f","arguments":"{}"}]},'
        '{"role":"user","parts":[{"type":"tool_call_response","id":"1","result":"r1"},'
        '{"type":"tool_call_response","id":"2","result":"r2"}]},'
        '{"role":"assistant","parts":[{"type":"text","content":"a1"}]},'
        '{"role":"user","parts":[{"type":"text","content":"q2"}]},'
        '{"role":"assistant","parts":[{"type":"text","content":"a2"}]}]'
    )
    run = agent(
        "a",
        1,
        scope="pydantic-ai",
        attributes={
            "pydantic_ai.all_messages": transcript,
            "pydantic_ai.new_message_index": 4,
            "gen_ai.system_instructions": '[{"type":"text","content":"s"}]',
        },
    )

    trajectory = only(run, chat("c", 2, parent="a", scope="pydantic-ai"))

    assert texts(trajectory) == ["s", "q1", None, "r1", "r2", "a1", "q2", "a2"]
    assert (trajectory.new_from, trajectory.turn) == (6, 2)
    assert [m.content for m in trajectory.own_messages] == ["q2", "a2"]


def test_token_counts_that_cannot_be_are_none():
    """Counts that are negative, beyond all bounds or no numbers do not reach the sums."""
    for count in (-1, 1 << 48, "9" * 30, "many", [], {"doubleValue": "NaN"}, float("inf"), None):
        trajectory = only(chat("c", 1, attributes={"gen_ai.usage.input_tokens": count}))

        assert trajectory.usage.input_tokens == 0


def test_a_failure_is_told_by_its_exception_first():
    """The exception's message goes before the status, a traceback there before the error's type."""
    event = Event("exception", 1, {"exception.message": "boom"})
    kind = {"error.type": "Timeout"}
    failed = {"status_code": 2}

    details = [
        only(chat("c", 1, [user("q")], **failed, **fields)).gaps[0].detail.partition(": ")[2]
        for fields in (
            {"events": (event,), "status_message": "status"},
            {"status_message": "status", "attributes": kind},
            {"status_message": "Traceback (most recent", "attributes": kind},
            {},
        )
    ]

    assert details == ["boom", "status", "Timeout", "no reason is given"]
