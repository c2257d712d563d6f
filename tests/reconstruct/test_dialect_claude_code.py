"""Claude Code: spans by the documentation, with the log records in the interaction's context."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from oteval.model import Event, LogRecord, Span, Usage
from oteval.reconstruct import reconstruct

from .builders import TRACE, brief, codes, only, span, texts

SCOPE = "com.anthropic.claude_code.tracing"


def turn(name: str = "i", start: int = 1, prompt: Any = "list the files", **fields: Any) -> Span:
    attributes = {"session.id": "s1", "user_prompt": prompt, "interaction.sequence": 1}
    attributes = {key: value for key, value in attributes.items() if value is not None}
    return code("interaction", name, start, attributes, **{"end": start + 90, **fields})


def code(kind: str, name: str, start: int, attributes: dict[str, Any], **fields: Any) -> Span:
    return span(
        name, start, title=f"claude_code.{kind}", scope=SCOPE, attributes=attributes, **fields
    )


def request(name: str, start: int, *, parent: str = "i", **attributes: Any) -> Span:
    fields = {
        key: attributes.pop(key) for key in ("status_code", "trace", "end") if key in attributes
    }
    told = {"model": "claude-sonnet-5", "request_id": f"req_{name}", "success": True}
    return code("llm_request", name, start, {**told, **attributes}, parent=parent, **fields)


def tool(
    name: str,
    start: int,
    *,
    of: str = "Bash",
    parent: str = "i",
    output: dict[str, Any] | None = None,
    **attributes: Any,
) -> Span:
    events = (Event("tool.output", start, output),) if output is not None else ()
    told = {"tool_name": of, "tool_use_id": f"toolu_{name}"}
    return code("tool", name, start, {**told, **attributes}, parent=parent, events=events, end=99)


def log(
    event: str, time: int, *, of: str = "i", trace: str = TRACE, **attributes: Any
) -> LogRecord:
    body = f"claude_code.{event}"
    return LogRecord(trace, of, time, event_name=event, body=body, attributes=attributes)


def says(name: str, text: str, time: int = 50) -> LogRecord:
    return log("assistant_response", time, response=text, request_id=f"req_{name}")


def done(name: str, time: int = 50, **attributes: Any) -> LogRecord:
    return log(
        "tool_result", time, tool_use_id=f"toolu_{name}", **{"success": "true", **attributes}
    )


def a_turn() -> tuple[list[Span], list[LogRecord]]:
    """Return a turn with content switched on: a request, a tool, and the answer."""
    spans = [
        turn(),
        request(
            "r1",
            2,
            stop_reason="tool_use",
            input_tokens=3,
            output_tokens=5,
            cache_read_tokens=10,
            cache_creation_tokens=2,
        ),
        tool("t1", 10, output={"input": '{"command":"ls"}', "output": "a.py\nb.py"}),
        code("tool.execution", "t1x", 11, {"success": True}, parent="t1"),
        request("r2", 20, stop_reason="end_turn"),
    ]
    logs = [says("r1", "I look.", 4), done("t1", 12), says("r2", "Two files.", 22)]
    return spans, logs


def test_a_turn_is_read_from_spans_and_the_records_that_name_them():
    """Text comes from the records of the requests, calls and results from the tools' spans."""
    spans, logs = a_turn()

    found = only(*spans, logs=logs)

    assert brief(found.messages) == [
        ("user", "list the files"),
        ("assistant", [("Bash", {"command": "ls"})]),
        ("tool", "a.py\nb.py"),
        ("assistant", "Two files."),
    ]
    assert found.messages[1].content == "I look."
    assert found.messages[1].tool_calls[0].id == found.messages[2].tool_call_id == "toolu_t1"
    assert found.gaps == ()
    assert (found.agent, found.conversation_id) == ("claude-code", "s1")
    assert (found.models, found.dialects) == (("claude-sonnet-5",), ("claude-code",))


def test_tokens_of_the_cache_are_part_of_the_input():
    """What was read from and written to the cache counts as input, which the span leaves out."""
    spans, logs = a_turn()

    found = only(*spans, logs=logs)

    assert found.usage == Usage(15, 5, 10, 2, cache_write_tokens=2)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_arrival_does_not_matter(seed: int):
    """Records are joined by what they name, not by where they stand."""
    spans, logs = a_turn()
    whole = reconstruct(spans, logs)

    random.Random(seed).shuffle(spans)
    random.Random(seed).shuffle(logs)

    assert reconstruct(spans, logs) == whole


def test_records_without_a_trace_are_joined_by_what_they_name():
    """Older versions emit records outside any span; the request's id is enough."""
    spans, logs = a_turn()
    bare = [
        LogRecord("", "", r.time_ns, event_name=r.event_name, attributes=r.attributes) for r in logs
    ]

    assert only(*spans, logs=bare).messages == only(*spans, logs=logs).messages


def test_turns_of_a_session_are_one_conversation():
    """The second interaction has a trace of its own and goes on from the first."""
    spans, logs = a_turn()
    later = [
        turn("j", 200, "thanks", trace="b" * 32),
        request("r3", 201, parent="j", trace="b" * 32, stop_reason="end_turn"),
    ]
    more = log("assistant_response", 202, of="j", trace="b" * 32, response="!", request_id="req_r3")

    first, second = reconstruct([*spans, *later], [*logs, more])

    assert (second.turn, second.new_from, second.history) == (2, 4, first)
    assert texts(second)[4:] == ["thanks", "!"]


def a_subagent() -> tuple[list[Span], list[LogRecord]]:
    asks = {"input": {"subagent_type": "Explore", "prompt": "find it"}, "output": "found"}
    spans = [
        turn(),
        request("r1", 2, stop_reason="tool_use"),
        tool("a1", 10, of="Agent", output=asks, subagent_type="Explore"),
        request("s1", 11, parent="a1", agent_id="ag1", stop_reason="tool_use"),
        tool(
            "t1", 13, of="Agent", parent="a1", output={"input": {"prompt": "deeper"}, "output": "x"}
        ),
        request("d1", 14, parent="t1", agent_id="ag2", parent_agent_id="ag1"),
        tool(
            "t2", 15, of="Read", parent="t1", output={"input": {"file_path": "a"}, "content": "1"}
        ),
        request("s2", 30, parent="a1", agent_id="ag1"),
        request("r2", 50),
    ]
    logs = [says("d1", "deep", 14), says("s2", "found", 31), says("r2", "Here.", 51)]
    return spans, logs


def test_subagents_are_linked_to_the_calls_that_started_them():
    """What hangs below an Agent tool is the sub-agent's, however deep they are nested."""
    spans, logs = a_subagent()

    main, inner, deep = reconstruct(spans, logs)

    assert (inner.parent_id, inner.parent_call_id, inner.agent) == (main.id, "toolu_a1", "Explore")
    assert (deep.parent_id, deep.parent_call_id, deep.agent) == (inner.id, "toolu_t1", "Agent")
    assert texts(inner) == ["find it", None, "x", "found"]
    assert [c.name for m in main.messages for c in m.tool_calls] == ["Agent"]
    assert [c.name for m in deep.messages for c in m.tool_calls] == ["Read"]
    assert texts(main)[-2:] == ["found", "Here."]


def test_a_failed_tool_says_why():
    """The tool's own span is never an error: the record, or the part that ran it, tells."""
    by_record = only(
        turn(),
        request("r1", 2, stop_reason="tool_use"),
        tool("t1", 10),
        logs=[done("t1", success="false", error="no such file")],
    )
    failed = code(
        "tool.execution",
        "x",
        11,
        {"success": False, "error": "ShellError"},
        parent="t1",
        status_code=2,
    )
    by_span = only(turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10), failed)

    for found, why in ((by_record, "no such file"), (by_span, "ShellError")):
        result = found.messages[2]
        assert (result.role, result.content, result.is_error) == ("tool", f"Error: {why}", True)


def test_one_witness_is_enough_for_an_error():
    """A part that failed counts against its own attribute, and against the record."""
    failed = code(
        "tool.execution", "x", 11, {"success": True}, parent="t1", status_code=2, status_message="!"
    )
    spans = [turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10), failed]

    found = only(*spans, logs=[done("t1")])

    assert (found.messages[2].is_error, found.messages[2].content) == (True, "Error: !")


@pytest.mark.parametrize("seed", range(3))
def test_ids_that_repeat_go_to_the_first(seed: int):
    """A call that runs again under its id leaves the record with the one that started first."""
    spans = [
        turn(),
        request("r1", 2, stop_reason="tool_use"),
        tool("t1", 10, tool_use_id="k"),
        tool("t2", 12, tool_use_id="k"),
    ]
    record = log("tool_result", 13, tool_use_id="k", success="true", tool_input='{"x":1}')
    random.Random(seed).shuffle(spans)

    found = only(*spans, logs=[record])

    assert [c.arguments for c in found.messages[1].tool_calls] == [{"x": 1}, None]


def test_a_rejected_call_is_an_error():
    """A tool that was not allowed to run has a result that says so."""
    waits = code(
        "tool.blocked_on_user",
        "w",
        11,
        {"decision": "reject", "source": "user_reject"},
        parent="t1",
    )

    found = only(turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10), waits)

    assert found.messages[2].is_error
    assert found.messages[2].content == "Error: the call was rejected (user_reject)"


def test_an_accepted_call_is_no_error():
    """A decision to let a tool run changes nothing."""
    spans, logs = a_turn()
    waits = code("tool.blocked_on_user", "w", 10, {"decision": "accept"}, parent="t1")

    found = only(*spans, waits, logs=logs)

    assert not any(m.is_error for m in found.messages)


def test_a_failed_request_says_why():
    """A model call that failed adds no message and names its error."""
    found = only(turn(), request("r1", 2, success=False, error="overloaded", status_code=2))

    assert texts(found) == ["list the files"]
    assert codes(found) == ["model_call_failed"]
    assert found.gaps[0].detail == "the model call failed: overloaded"


def test_redacted_content_names_each_switch():
    """By default nothing but the tools' names is there, and each switch is named."""
    found = only(
        turn(prompt="<REDACTED>"),
        request("r1", 2, stop_reason="tool_use"),
        tool("t1", 10),
        request("r2", 20),
        logs=[says("r2", "<REDACTED>", 22)],
    )

    assert [m.role for m in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert [m.content for m in found.messages] == [None] * 4
    assert found.messages[1].tool_calls[0].arguments is None
    details = " ".join(gap.detail for gap in found.gaps)
    for switch in (
        "OTEL_LOG_USER_PROMPTS=1",
        "OTEL_LOG_TOOL_CONTENT=1",
        "OTEL_LOG_TOOL_DETAILS=1",
        "OTEL_LOG_ASSISTANT_RESPONSES=1",
    ):
        assert switch in details
    assert set(codes(found)) == {"redacted", "content_not_captured"}


def test_answers_without_records_name_the_switch():
    """Text is in log records only: without them a final answer is missing, not empty."""
    found = only(turn(), request("r1", 2, stop_reason="end_turn"))

    assert brief(found.messages) == [("user", "list the files"), ("assistant", None)]
    assert codes(found) == ["content_not_captured"]
    assert "load the log records too" in found.gaps[0].detail


def test_the_raw_response_tells_the_calls_as_the_model_made_them():
    """With the response's body, text, thoughts and calls come with the provider's own ids."""
    body = {
        "id": "msg_1",
        "role": "assistant",
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "<REDACTED>"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_t1", "name": "Bash", "input": {"command": "ls"}},
        ],
    }
    spans, logs = a_turn()
    raw = log("api_response_body", 4, body=json.dumps(body), request_id="req_r1")

    found = only(*spans, logs=[*logs, raw])

    answer = found.messages[1]
    assert (answer.content, answer.tool_calls[0].id) == ("I look.", "toolu_t1")
    assert answer.tool_calls[0].span_id == "t1"
    assert [part["type"] for part in answer.parts] == ["thinking"]
    assert found.gaps == ()


def test_a_raw_response_in_a_file_is_elsewhere():
    """With the bodies in files, the record holds only where they are."""
    raw = log("api_response_body", 4, body_ref="/tmp/req_r1.response.json", request_id="req_r1")

    found = only(turn(), request("r1", 2), logs=[raw])

    assert codes(found) == ["content_external"]
    assert "/tmp/req_r1.response.json" in found.gaps[0].detail


def test_tools_that_start_while_the_answer_streams_are_its_own():
    """A tool's span may begin before its request's ends; the next request's are later."""
    spans = [
        turn(),
        request("r1", 2, stop_reason="tool_use", end=15),
        tool("t1", 10, output={"input": {"x": 1}, "output": "r"}),
        tool("t2", 12, output={"input": {"x": 2}, "output": "s"}),
        request("r2", 20, stop_reason="tool_use", end=40),
        tool("t3", 30, output={"input": {"x": 3}, "output": "t"}),
        request("r3", 50),
    ]

    found = only(*spans, logs=[says("r3", "Done.")])

    assert [[c.arguments["x"] for c in m.tool_calls] for m in found.messages if m.tool_calls] == [
        [1, 2],
        [3],
    ]
    assert found.gaps == ()
    assert found.end_ns == 99


def test_a_cut_raw_response_gives_way_to_the_text():
    """A body that was cut at the limit is no whole answer; the response's text is."""
    spans, logs = a_turn()
    raw = log("api_response_body", 4, body='{"content":[{"type":"te', request_id="req_r1")

    assert only(*spans, logs=[*logs, raw]).messages == only(*spans, logs=logs).messages


def test_text_that_was_cut_says_so():
    """Claude Code cuts long content itself; what is left is shown with a gap."""
    found = only(turn(), request("r1", 2), logs=[says("r1", "long [TRUNCATED 9 chars]")])

    assert texts(found)[-1] == "long [TRUNCATED 9 chars]"
    assert codes(found) == ["content_shortened"]
    assert "CLAUDE_CODE_OTEL_CONTENT_MAX_LENGTH" in found.gaps[0].detail


def test_arguments_come_from_the_record_where_the_span_has_none():
    """The record's `tool_input` stands in; values as long as the limit are told to be cut."""
    spans = [turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10)]

    whole = only(*spans, logs=[done("t1", tool_input='{"x":1}')])
    cut = only(*spans, logs=[done("t1", tool_input=json.dumps({"x": "y" * 512}))])

    assert whole.messages[1].tool_calls[0].arguments == {"x": 1}
    assert "content_shortened" not in codes(whole)
    assert "content_shortened" in codes(cut)


def test_a_command_is_known_from_the_spans_details():
    """Older versions name only the command, or the file: then that is what is known."""
    spans = [turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10, full_command="ls -l")]

    found = only(*spans)

    assert found.messages[1].tool_calls[0].arguments == {"command": "ls -l"}
    assert "content_not_captured" in codes(found)


def test_a_tool_of_an_mcp_server_gets_its_whole_name():
    """The record names server and tool where the span only says that it is one."""
    parameters = json.dumps({"mcp_server_name": "git", "mcp_tool_name": "log"})
    spans = [turn(), request("r1", 2, stop_reason="tool_use"), tool("t1", 10, of="mcp_tool")]

    found = only(*spans, logs=[done("t1", tool_parameters=parameters)])

    assert found.messages[1].tool_calls[0].name == "mcp__git__log"


def test_what_is_written_to_a_file_is_not_its_result():
    """Of the Write tool, `content` is what it was given."""
    written = tool("t1", 10, of="Write", output={"input": {"file_path": "a"}, "content": "new"})

    found = only(turn(), request("r1", 2, stop_reason="tool_use"), written)

    assert found.messages[2].content is None


def test_compaction_is_no_answer():
    """The request that summarises the history is counted and says nothing."""
    spans, logs = a_turn()
    aside = request("c", 15, query_source="compact", output_tokens=7)

    found = only(*spans, aside, logs=[*logs, says("c", "summary", 16)])

    assert texts(found) == texts(only(*spans, logs=logs))
    assert found.usage.model_calls == 3


@pytest.mark.parametrize("value", [None, 7, "", [], {"a": 1}, "{", "<REDACTED>", True, ["x"]])
@pytest.mark.parametrize(
    "key",
    [
        "user_prompt",
        "request_id",
        "response",
        "tool_input",
        "success",
        "body",
        "error",
        "tool_use_id",
        "tool_name",
        "output",
        "input",
        "input_tokens",
        "tool_parameters",
    ],
)
def test_no_value_makes_it_fail(key: str, value: Any):
    """Whatever an attribute holds, there is one trajectory with the user's turn."""
    spans = [
        turn(**({"prompt": value} if key == "user_prompt" else {})),
        request("r1", 2, **{key: value}),
        tool("t1", 10, output={key: value}, **({} if key == "output" else {key: value})),
        code("tool.execution", "x", 11, {key: value}, parent="t1"),
    ]
    logs = [
        log(name, 12, **{"request_id": "req_r1", "tool_use_id": "toolu_t1", key: value})
        for name in (
            "assistant_response",
            "api_response_body",
            "tool_result",
            "tool_decision",
            "user_prompt",
            "unheard_of",
        )
    ]

    found = only(*spans, logs=logs)

    assert found.messages[0].role == "user"
