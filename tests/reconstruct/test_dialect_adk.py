"""Google ADK: its two telemetry schemas, retold messages, and missing content."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import LogRecord, Message, Span
from oteval.reconstruct import reconstruct
from oteval.reconstruct.dialects.adk import with_original_turns

from .builders import agent, asks, brief, capture, chat, codes, gives, only, said, span, texts, user
from .test_captures import GOLD, assert_gold, assert_joined, trajectories, turns

ADK = "gcp.vertex.agent"
CAPTURES = ("google_adk_schema1", "google_adk_experimental")
LONG = (
    "For context: below is what another agent did, quoted between "
    "<<<BEGIN_QUOTED_AGENT_CONTENT>>> and <<<END_QUOTED_AGENT_CONTENT>>>."
)


def quoted(text: str) -> str:
    return f"\n<<<BEGIN_QUOTED_AGENT_CONTENT>>>\n{text}\n<<<END_QUOTED_AGENT_CONTENT>>>"


def tells(*lines: str, opening: str = LONG) -> dict[str, Any]:
    parts = [{"type": "text", "content": text} for text in (opening, *lines)]
    return {"role": "user", "parts": parts}


def content(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def call_llm(
    name: str, start: int, request: Any, response: Any, parent: str = "a", **fields: Any
) -> Span:
    attributes = {
        "gen_ai.system": ADK,
        "gen_ai.request.model": "gemini",
        f"{ADK}.session_id": "s1",
        f"{ADK}.llm_request": request if isinstance(request, str) else json.dumps(request),
        f"{ADK}.llm_response": response if isinstance(response, str) else json.dumps(response),
        **fields.pop("attributes", {}),
    }
    return span(
        name, start, parent=parent, title="call_llm", scope=ADK, attributes=attributes, **fields
    )


def old_tool(name: str, start: int, args: Any, response: Any, **fields: Any) -> Span:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "k1",
        f"{ADK}.llm_request": "{}",
        f"{ADK}.llm_response": "{}",
        f"{ADK}.tool_call_args": args,
        f"{ADK}.tool_response": response,
        **fields.pop("attributes", {}),
    }
    return span(name, start, scope=ADK, attributes=attributes, **fields)


def as_gold(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages as gold has them: ADK adds to the prompt, and puts errors in a field."""
    gold = []
    for message in messages:
        if message.role == "system":
            text = (message.content or "").split("\n", 1)[0]
            message = replace(message, content=text)
        elif message.is_error:
            text = json.loads(message.content or "")["error"]
            message = replace(message, content=text)
        gold.append(message)
    return tuple(gold)


@pytest.mark.parametrize("name", CAPTURES)
def test_both_schemas_hold_golds_conversation(name: str):
    """The two turns have gold's messages, each call's id and span, and no gap."""
    first, second = turns(trajectories(name))

    assert_gold(as_gold(first.messages), GOLD[:6])
    assert_gold(as_gold(second.messages), GOLD)
    assert_joined(second.messages)
    assert (second.turn, second.new_from, second.history) == (2, 6, first)
    for trajectory in (first, second):
        assert (trajectory.gaps, trajectory.dialects, trajectory.agent) == (
            (),
            ("google-adk",),
            "support_agent",
        )
        assert (trajectory.usage.model_calls, trajectory.usage.input_tokens) == (2, 120)
        assert [t["name"] for t in trajectory.tools] == [
            "transfer_to_agent",
            "get_weather_tool",
            "lookup_order_tool",
        ]
        assert trajectory.conversation_id == "conv-001"
    calls = [call for m in second.messages for call in m.tool_calls]
    assert all(call.span_id and call.end_ns > call.start_ns for call in calls)


def test_the_first_schema_names_the_model_that_answered():
    """The response's own model version is taken, not the name that was asked for."""
    assert turns(trajectories("google_adk_schema1"))[0].models == ("gemini-fake-001",)


@pytest.mark.parametrize("name", CAPTURES)
def test_an_agent_that_takes_over_goes_on_from_the_true_messages(name: str):
    """Messages retold to the next agent are recognised: nothing is repeated or lost."""
    _, second, handed = trajectories(name)

    assert (handed.agent, handed.gaps) == ("support_agent", ())
    assert (handed.history, handed.turn) == (second, 3)
    assert [(m.role, m.name) for m in handed.own_messages if m.role != "tool"] == [
        ("user", ""),
        ("assistant", "support_agent"),
        ("system", ""),
        ("assistant", "weather_agent"),
        ("assistant", "weather_agent"),
    ]
    (transfer,) = handed.own_messages[1].tool_calls
    assert transfer.arguments == {"agent_name": "weather_agent"}
    assert not any("For context" in (text or "") for text in texts(handed))


@pytest.mark.parametrize("name", CAPTURES)
def test_an_agent_that_takes_over_and_arrives_alone_tells_the_conversation(name: str):
    """Without the spans of the earlier agent, its retold messages are used, with its name."""
    spans, logs = capture(name)
    inside = {s.span_id for s in spans if s.attributes.get("gen_ai.agent.name") == "weather_agent"}
    for s in sorted(spans, key=lambda s: s.start_ns):
        if s.parent_id in inside:
            inside.add(s.span_id)

    alone = only(*(s for s in spans if s.span_id in inside), logs=logs)

    assert_gold(as_gold(alone.messages[1:6]), GOLD[1:6])
    assert alone.messages[2].name == alone.messages[5].name == "support_agent"
    assert brief(alone.messages)[-6:-3] == [
        ("user", "delegate: weather please"),
        ("assistant", [("transfer_to_agent", {"agent_name": "weather_agent"})]),
        ("tool", '{"result":null}'),
    ]
    assert alone.new_from == len(alone.messages) - 3
    assert codes(alone) == ["missing_parent"]


def test_without_content_the_structure_is_had_and_both_settings_are_named():
    """Calls, ids, times and errors stay; the gap names the settings for content in schema 2."""
    first, second, handed = trajectories("google_adk_native")

    assert [m.role for m in second.messages] == [
        *("assistant", "tool", "tool", "assistant"),
        *("assistant", "tool", "assistant"),
    ]
    calls = [call for m in second.messages for call in m.tool_calls]
    assert [(c.name, c.arguments) for c in calls] == [
        ("get_weather_tool", None),
        ("get_weather_tool", None),
        ("lookup_order_tool", None),
    ]
    assert all(call.id and call.span_id for call in calls)
    assert [m.is_error for m in second.messages if m.role == "tool"] == [False, False, True]
    assert [m.name for m in handed.own_messages if m.role == "assistant"] == [
        *("support_agent", "weather_agent", "weather_agent")
    ]
    for trajectory in (first, second, handed):
        assert set(codes(trajectory)) == {"content_not_captured"}
        for gap in trajectory.gaps:
            assert "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental" in gap.detail
            assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY" in gap.detail


@pytest.mark.parametrize(
    ("line", "role", "meant"),
    [
        ("[a b] said:{}", "assistant", "hi: [x] said: y\nthere"),
        (
            "[a] called tool `f` with parameters:{}",
            "assistant",
            {"x": [1, None, True], "it's": "ü"},
        ),
        ("[a] called tool `f` with parameters:{}", "assistant", {}),
        ("[a] `f` tool returned result:{}", "tool", {"result": None}),
    ],
)
@pytest.mark.parametrize("is_long", [True, False])
def test_retold_lines_become_what_they_retell(line: str, role: str, meant: Any, *, is_long: bool):
    """Texts, calls and results come back, from between markers and from the line itself."""
    value = meant if isinstance(meant, str) else str(meant)
    text = line.format(quoted(value) if is_long else f" {value}")
    opening = LONG if is_long else "For context:"

    message = only(chat("c", 1, [tells(text, opening=opening)], said("ok"), scope=ADK)).messages[0]

    assert message.role == role
    if role == "tool":
        assert json.loads(message.content or "") == meant
    elif isinstance(meant, str):
        assert (message.content, message.name) == (meant, line[1 : line.index("]")])
    else:
        assert [(c.name, c.arguments) for c in message.tool_calls] == [("f", meant)]


def test_what_agents_did_at_once_stays_apart():
    """A `ParallelAgent`'s calls come one after another before their results."""
    lines = ["[{}] said: I look", "[{}] called tool `f` with parameters: {{'x': 1}}"]
    retold = [
        tells(*(line.format(name) for line in lines), opening="For context:")
        for name in ("one", "two")
    ]

    trajectory = only(chat("c", 1, retold, said("ok"), scope=ADK))

    assert [(m.name, m.content, len(m.tool_calls)) for m in trajectory.messages[:2]] == [
        ("one", "I look", 1),
        ("two", "I look", 1),
    ]


@pytest.mark.parametrize(
    "message",
    [
        tells(
            "[a] called tool `f` with parameters: {'x': <object at 0x1>}", opening="For context:"
        ),
        tells("[a] called tool `f` with parameters: some words", opening="For context:"),
        tells("[a] said: hi", "and more", opening="For context:"),
        tells("[a] said: hi", opening="For context: please note"),
        tells(f"[a] said:{quoted('hi')} and more"),
        tells(f"[a] `f` tool returned result:{quoted('{')}"),
        tells(),
        {"role": "assistant", "parts": tells("[a] said: x", opening="For context:")["parts"]},
        {"role": "user", "parts": [{"type": "text", "content": "For context:"}, {"type": "blob"}]},
        {"role": "user", "parts": "For context:"},
        {"role": "user"},
        "For context:",
        None,
    ],
)
def test_what_cannot_be_told_exactly_stays_a_users_text(message: Any):
    """A message that only looks retold, or whose values cannot be parsed, is left as it is."""
    assert with_original_turns([message]) == [message]


def test_retold_calls_of_one_turn_stay_one_message():
    """A text and two calls retold in one content are one message, and the results are two."""
    sent = [
        user("q"),
        tells(
            "[a] said: wait",
            "[a] called tool `f` with parameters: {'n': 1}",
            "[a] called tool `g` with parameters: None",
            opening="For context:",
        ),
        tells(
            "[a] `f` tool returned result: {'r': 1}",
            "[a] `g` tool returned result: {'r': 2}",
            opening="For context:",
        ),
    ]

    trajectory = only(chat("c", 1, sent, said("ok"), scope=ADK))

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("f", {"n": 1}), ("g", {})]),
        ("tool", '{"r":1}'),
        ("tool", '{"r":2}'),
        ("assistant", "ok"),
    ]
    assert trajectory.messages[1].content == "wait"
    assert (trajectory.new_from, trajectory.gaps) == (4, ())


@pytest.mark.parametrize("name", [*CAPTURES, "google_adk_native"])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_arrival_does_not_matter(name: str, seed: int):
    """Spans and log records in any order give equal trajectories."""
    spans, logs = capture(name)
    whole = reconstruct(spans, logs)

    random.Random(seed).shuffle(spans)
    random.Random(seed).shuffle(logs)

    assert reconstruct(spans, logs) == whole


def test_an_agent_below_a_model_call_takes_over():
    """Old releases run the agent that takes over inside the call that asked for it."""
    question = content("user", {"text": "q"})
    transfer = {"id": "k1", "name": "transfer_to_agent", "args": {"agent_name": "b"}}
    lines = [
        "[a] called tool `transfer_to_agent` with parameters: {'agent_name': 'b'}",
        "[a] `transfer_to_agent` tool returned result: {'result': None}",
    ]
    context = [content("user", {"text": "For context:"}, {"text": line}) for line in lines]
    spans = [
        agent("a", 1, of="a", scope=ADK, end=99),
        call_llm(
            "c1",
            2,
            {"contents": [question]},
            {"content": content("model", {"function_call": transfer})},
            end=98,
        ),
        agent("b", 10, of="b", parent="c1", scope=ADK, end=90),
        call_llm(
            "c2",
            11,
            {"contents": [question, *context]},
            {"content": content("model", {"text": "done"})},
            parent="b",
        ),
    ]

    (handed,) = reconstruct(spans)

    assert (handed.agent, handed.usage.model_calls) == ("a", 2)
    assert brief(handed.messages) == [
        ("user", "q"),
        ("assistant", [("transfer_to_agent", {"agent_name": "b"})]),
        ("tool", '{"result":null}'),
        ("assistant", "done"),
    ]


def test_an_agent_as_a_tool_is_linked_to_its_call():
    """An agent that runs inside a tool's span is a sub-agent of the call, in its own session."""
    lookup = content("model", {"function_call": {"id": "k1", "name": "look", "args": {"q": "x"}}})
    lookup_result = content(
        "user", {"function_response": {"id": "k1", "name": "look", "response": {"r": 1}}}
    )
    question, inner_question = content("user", {"text": "q"}), content("user", {"text": "x"})
    spans = [
        agent("a", 1, of="outer", session="s1", scope=ADK, end=90),
        call_llm("c1", 2, {"contents": [question]}, {"content": lookup}),
        old_tool("t", 10, '{"q": "x"}', '{"r": 1}', parent="a", end=50),
        span("i", 11, parent="t", title="invocation", scope=ADK, end=49),
        agent("b", 12, of="inner", session="s2", parent="i", scope=ADK, end=48),
        call_llm(
            "c2",
            13,
            {"contents": [inner_question]},
            {"content": content("model", {"text": "y"})},
            parent="b",
        ),
        call_llm(
            "c3",
            60,
            {"contents": [question, lookup, lookup_result]},
            {"content": content("model", {"text": "done"})},
        ),
    ]

    outer, inner = reconstruct(spans)

    assert (inner.agent, inner.parent_id, inner.parent_call_id) == ("inner", outer.id, "k1")
    assert brief(inner.messages) == [("user", "x"), ("assistant", "y")]
    assert brief(outer.messages) == [
        ("user", "q"),
        ("assistant", [("look", {"q": "x"})]),
        ("tool", '{"r":1}'),
        ("assistant", "done"),
    ]
    assert (outer.conversation_id, inner.conversation_id) == ("s1", "s2")
    assert (outer.gaps, inner.gaps) == ((), ())


def test_agents_of_old_releases_are_known_by_their_span_name():
    """An agent's span without attributes is not a wrapper; its session comes from the calls."""
    trajectory = only(
        span("r", 1, title="invocation", scope=ADK),
        span("a", 2, parent="r", title="agent_run [old]", scope=ADK),
        call_llm("c", 3, {"contents": [content("user", {"text": "q"})]}, {"content": None}),
    )

    assert (trajectory.agent, trajectory.conversation_id) == ("old", "s1")
    assert brief(trajectory.messages) == [("user", "q")]


def test_gemini_parts_are_read_in_either_spelling():
    """Thoughts, files and camel-cased calls are kept; a system instruction may be a content."""
    file = {"file_data": {"file_uri": "gs://x", "mime_type": "image/png"}}
    request = {
        "config": {"system_instruction": {"parts": [{"text": "be"}, {"text": "good"}]}},
        "contents": [
            "hello",
            content("user", {"text": "look"}, file, {"thought_signature": "AA"}),
            content("model", {"text": "hm", "thought": True}, {"functionCall": {"name": "f"}}),
            content("user", {"functionResponse": {"name": "f", "response": {"result": 3}}}),
        ],
    }
    answer = content("model", {"text": "think", "thought": True}, {"text": "ok"})

    trajectory = only(call_llm("c", 1, request, {"content": answer}, parent=""))

    assert brief(trajectory.messages) == [
        ("system", "be\ngood"),
        ("user", "hello"),
        ("user", "look"),
        ("assistant", [("f", {})]),
        ("tool", '{"result":3}'),
        ("assistant", "ok"),
    ]
    assert trajectory.messages[2].parts[0] == {"type": "file_data", **file}
    assert trajectory.messages[3].parts == ({"type": "reasoning", "content": "hm"},)
    assert trajectory.messages[5].parts == ({"type": "reasoning", "content": "think"},)


@pytest.mark.parametrize("empty", ["{}", "", {}])
def test_placeholders_of_the_first_schema_name_their_own_switch(empty: Any):
    """Empty objects are content that ADK's own setting switched off."""
    spans = [
        agent("a", 1, scope=ADK, end=9),
        call_llm("c", 2, empty, empty) if empty != {} else _without(call_llm("c", 2, "{}", "{}")),
        old_tool("t", 4, empty, empty, parent="a"),
    ]

    trajectory = only(*spans)

    assert brief(trajectory.messages) == [("assistant", [("look", None)]), ("tool", None)]
    assert codes(trajectory) == ["content_not_captured", "content_not_captured"]
    for gap in trajectory.gaps:
        assert "unset ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS or set it to true" in gap.detail


def _without(of: Span) -> Span:
    attributes = {key: v for key, v in of.attributes.items() if "llm_re" not in key}
    return replace(of, attributes=attributes)


def test_a_tool_without_arguments_is_not_one_without_content():
    """Empty arguments beside a response mean a call without arguments."""
    trajectory = only(old_tool("t", 1, "{}", '{"result": 3}'))

    assert trajectory.messages[0].tool_calls[0].arguments == {}
    assert trajectory.messages[1].content == '{"result": 3}'
    assert "content_not_captured" not in codes(trajectory)


def test_a_tool_that_raised_says_why():
    """Of a run without a response, the exception is the result, and the placeholder id is none."""
    failed = old_tool(
        "t",
        1,
        '{"x": 1}',
        '{"result": "<not specified>"}',
        status_code=2,
        status_message="boom",
        attributes={"gen_ai.tool.call.id": "<not specified>", "error.type": "ValueError"},
    )

    call, result = only(failed).messages

    assert (call.tool_calls[0].arguments, call.tool_calls[0].id) == ({"x": 1}, "")
    assert (result.content, result.is_error) == ("Error: boom", True)


def test_an_error_that_only_the_type_tells_is_one():
    """A tool's span with an error type but no failed status is an error."""
    (_, result) = only(
        old_tool("t", 1, "{}", '{"error": "no"}', attributes={"error.type": "TOOL_ERROR"})
    ).messages

    assert (result.content, result.is_error) == ('{"error": "no"}', True)


def test_a_call_of_the_model_below_another_is_the_same_call():
    """A generate_content span below call_llm counts once, whichever of the two has the content."""
    request = {"contents": [content("user", {"text": "q"})]}
    response = {"content": content("model", {"text": "a"})}
    inner = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.input.messages": json.dumps([user("q")]),
        "gen_ai.output.messages": json.dumps([said("a")]),
    }
    bare = {"gen_ai.operation.name": "generate_content", "gen_ai.system": "gemini"}
    for outer, attributes in (
        (call_llm("c", 1, request, response, parent="", end=9), bare),
        (call_llm("c", 1, "{}", "{}", parent="", end=9), inner),
        (call_llm("c", 1, request, response, parent="", end=9), inner),
    ):
        trajectory = only(outer, span("g", 2, parent="c", scope=ADK, attributes=attributes))

        assert brief(trajectory.messages) == [("user", "q"), ("assistant", "a")]
        assert (trajectory.usage.model_calls, trajectory.gaps) == (1, ())


def test_without_the_latest_conventions_content_is_in_one_record_a_message():
    """Each record's Gemini content is read with its own role, as all are called a user's."""
    c = span(
        "c",
        1,
        scope=ADK,
        attributes={"gen_ai.operation.name": "generate_content", "gen_ai.system": "gemini"},
    )
    call = content("model", {"function_call": {"id": "k", "name": "f", "args": {"x": 1}}})
    result = content("user", {"function_response": {"id": "k", "name": "f", "response": {"r": 1}}})
    bodies = [
        ("gen_ai.system.message", {"content": "s"}),
        ("gen_ai.user.message", {"content": content("user", {"text": "q"})}),
        ("gen_ai.user.message", {"content": call}),
        ("gen_ai.user.message", {"content": result}),
        ("gen_ai.choice", {"content": content("model", {"text": "a"}), "index": 0}),
    ]
    logs = [
        LogRecord(c.trace_id, c.span_id, i, 0, name, body=body)
        for i, (name, body) in enumerate(bodies, 1)
    ]

    trajectory = only(c, logs=logs)

    assert brief(trajectory.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("f", {"x": 1})]),
        ("tool", '{"r":1}'),
        ("assistant", "a"),
    ]
    assert trajectory.gaps == ()


def test_elided_records_are_content_not_captured():
    """Records that only say <elided> give no messages, and the settings are named."""
    c = span("c", 1, scope=ADK, attributes={"gen_ai.operation.name": "generate_content"})
    logs = [
        LogRecord(c.trace_id, c.span_id, 1, 0, name, body={"content": "<elided>", "index": 0})
        for name in ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.choice")
    ]

    trajectory = only(c, logs=logs)

    assert texts(trajectory) == [None]
    assert codes(trajectory) == ["content_not_captured"]


def test_a_failed_call_says_why():
    """A refused answer and a failed call each name their reason."""
    response = {"error_code": "SAFETY", "error_message": "no"}
    refused = only(call_llm("c", 1, {"contents": ["q"]}, response, parent=""))
    failed = only(span("c", 1, title="call_llm", scope=ADK, status_code=2, status_message="429"))

    assert [gap.detail for gap in refused.gaps] == ["the model call failed: no"]
    assert texts(refused) == ["q"]
    assert failed.gaps[0].detail == "the model call failed: 429"


def test_a_cut_request_is_not_whole():
    """Of a request that was cut, the content that the cut goes through is left out."""
    request = json.dumps({"contents": [content("user", {"text": "q"})] * 2})
    response = json.dumps({"content": content("model", {"text": "a"}), "finish_reason": "STOP"})

    trajectory = only(call_llm("c", 1, request[:-30], response[:-4], parent=""))

    assert texts(trajectory)[0] == "q"
    assert len(trajectory.messages) == 2
    assert codes(trajectory) == ["content_truncated", "content_truncated"]


@pytest.mark.parametrize(
    "odd",
    [
        *("[]", "null", "5", '"x"', "[1, null]", "<not serializable>", 5, None, [1], {"a": None}),
        '{"contents": 5, "config": 5}',
        '{"contents": [5, null, {}, {"parts": 5}, {"parts": [5, null, {}]}]}',
        '{"content": {"parts": null}, "config": {"tools": [5, {"function_declarations": [5]}]}}',
        '{"contents": [{"parts": [{"function_call": 5}, {"function_response": {}}]}]}',
        '{"config": {"system_instruction": 5}, "contents": null, "content": 5}',
        '{"config": {"system_instruction": [5, {"text": 5}]}}',
    ],
)
def test_odd_values_never_raise(odd: Any):
    """Spans are read with any values of their attributes."""
    keys = ("llm_request", "llm_response", "tool_call_args", "tool_response")
    for title in ("call_llm", "execute_tool x", "invoke_agent x", "generate_content"):
        for operation in ("", "execute_tool", "generate_content"):
            attributes = {f"{ADK}.{key}": odd for key in keys}
            attributes["gen_ai.operation.name"] = operation
            odd_span = span("x", 1, title=title, scope=ADK, attributes=attributes)

            for trajectory in reconstruct([odd_span, chat("c", 3, [user("q")], asks(("f", {})))]):
                assert not any(gap.code == "internal_error" for gap in trajectory.gaps)


@pytest.mark.parametrize("contents", ["q", ["q"], {"parts": [{"text": "q"}]}, {"text": "q"}])
def test_contents_may_be_one_text_or_one_content(contents: Any):
    """A request's contents may be a bare text, or a content that is in no list."""
    answer = content("model", {"text": "a"})

    run = only(call_llm("c", 1, {"contents": contents}, {"content": answer}))

    assert [(message.role, message.content) for message in run.messages] == [
        ("user", "q"),
        ("assistant", "a"),
    ]


def test_the_merged_pseudo_span_is_no_tool():
    """The span that only repeats parallel results adds no call and no gap."""
    merged = old_tool(
        "m", 5, "N/A", "[]", parent="a", attributes={"gen_ai.tool.name": "(merged tools)"}
    )
    trajectory = only(
        agent("a", 1, scope=ADK, end=9),
        chat("c", 2, [user("q")], asks(("look", {"x": 1}, "k1")), parent="a", scope=ADK),
        old_tool("t", 4, '{"x": 1}', '{"r": 1}', parent="a"),
        merged,
        chat(
            "d",
            6,
            [user("q"), asks(("look", {"x": 1}, "k1")), gives({"r": 1}, "k1")],
            said("ok"),
            parent="a",
            scope=ADK,
        ),
    )

    assert [m.role for m in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    assert trajectory.gaps == ()
