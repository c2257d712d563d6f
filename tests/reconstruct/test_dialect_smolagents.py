"""smolagents: spans by hand, as OpenInference writes them for its two kinds of agents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import Event, Span
from oteval.reconstruct import reconstruct

from .builders import brief, codes, only, span, texts

SCOPE = "openinference.instrumentation.smolagents"
KIND = "openinference.span.kind"
TASK = [("system", "s"), ("user", "New task:\nq")]
CALLS = [("k1", {"city": "Paris"}), ("k2", {"city": "Tokyo"})]


def oi(name: str, start: int, kind: str, attributes: dict[str, Any], **fields: Any) -> Span:
    return span(name, start, scope=SCOPE, attributes={KIND: kind, **attributes}, **fields)


def run(name: str = "a", start: int = 1, **fields: Any) -> Span:
    attributes = {
        "input.value": '{"task": "q", "stream": false, "reset": true}',
        "smolagents.task": "q",
        "smolagents.tools_names": ["get_weather", "final_answer"],
        "output.value": "done",
        **fields.pop("attributes", {}),
    }
    fields.setdefault("title", "ToolCallingAgent.run")
    return oi(name, start, "AGENT", attributes, **fields)


def step(name: str, start: int, **fields: Any) -> Span:
    fields.setdefault("parent", "a")
    return oi(name, start, "CHAIN", {"input.value": "{}"}, title="Step 1", **fields)


def model(
    name: str,
    start: int,
    sent: list[tuple[str, str]],
    text: str | None = None,
    calls: list[tuple[str, Any]] | None = None,
    **fields: Any,
) -> Span:
    """Return a model call: the sent messages in flat keys, the answer's text in one part."""
    attributes: dict[str, Any] = {"llm.model_name": "m", "llm.token_count.prompt": 9}
    for i, (role, content) in enumerate(sent):
        attributes[f"llm.input_messages.{i}.message.role"] = role
        attributes[f"llm.input_messages.{i}.message.content"] = content
    out = "llm.output_messages.0.message."
    attributes[f"{out}role"] = "assistant"
    if text is not None:
        attributes[f"{out}contents.0.message_content.type"] = "text"
        attributes[f"{out}contents.0.message_content.text"] = text
    for i, (id_, arguments) in enumerate(calls or ()):
        call = f"{out}tool_calls.{i}.tool_call."
        attributes[f"{call}id"] = id_
        attributes[f"{call}function.name"] = "get_weather"
        attributes[f"{call}function.arguments"] = json.dumps(arguments)
    return oi(name, start, "LLM", {**attributes, **fields.pop("attributes", {})}, **fields)


def used(name: str, start: int, tool_input: Any, result: Any = None, **fields: Any) -> Span:
    attributes = {
        "tool.name": "get_weather",
        "tool.parameters": '{"city": {"type": "string"}, "unit": {"type": "string"}}',
        "input.value": tool_input if isinstance(tool_input, str) else json.dumps(tool_input),
    }
    if result is not None:
        attributes["output.value"] = result
    attributes.update(fields.pop("attributes", {}))
    return oi(name, start, "TOOL", attributes, title="SimpleTool", **fields)


def called(*calls: tuple[str, Any], of: str = "get_weather") -> tuple[str, str]:
    """Return the framework's text of a step's calls: a Python repr."""
    functions = [
        {"id": id_, "type": "function", "function": {"name": of, "arguments": arguments}}
        for id_, arguments in calls
    ]
    return ("tool-call", f"Calling tools:\n{functions}")


def kwargs(**arguments: Any) -> dict[str, Any]:
    return {"args": [], "sanitize_inputs_outputs": True, "kwargs": arguments}


def test_a_tool_calling_agent_is_read():
    """Its memory's texts become calls and results, so that a call and its echo are one message."""
    observed = ("tool-response", "Observation:\nsunny\nrainy")
    trajectory = only(
        run(),
        step("s1", 2),
        model("c", 3, TASK, "I look.", CALLS, parent="s1"),
        used("t", 4, kwargs(city="Paris"), "sunny", parent="s1"),
        used("u", 5, kwargs(city="Tokyo"), "rainy", parent="s1"),
        step("s2", 6),
        model(
            "d",
            7,
            [*TASK, ("assistant", "I look."), called(*CALLS), observed],
            calls=[("k3", {"city": "Oslo"})],
            parent="s2",
        ),
        used("v", 8, kwargs(city="Oslo"), "cold", parent="s2"),
        step("s3", 9),
        model(
            "e",
            10,
            [
                *TASK,
                ("assistant", "I look."),
                called(*CALLS),
                observed,
                called(("k3", {"city": "Oslo"})),
                ("tool-response", "Call id: k3\nObservation:\ncold"),
            ],
            "a",
            parent="s3",
        ),
    )

    assert brief(trajectory.messages) == [
        *TASK,
        ("assistant", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]),
        ("tool", "sunny"),
        ("tool", "rainy"),
        ("assistant", [("get_weather", {"city": "Oslo"})]),
        ("tool", "cold"),
        ("assistant", "a"),
    ]
    assert trajectory.messages[2].content == "I look."
    assert [m.tool_call_id for m in trajectory.messages if m.role == "tool"] == ["k1", "k2", "k3"]
    assert (trajectory.gaps, trajectory.rewrites, trajectory.dialects) == ((), (), ("smolagents",))
    assert (trajectory.agent, trajectory.models) == ("ToolCallingAgent", ("m",))
    assert (trajectory.usage.model_calls, trajectory.usage.input_tokens) == (3, 27)


CODE = "Thought: look.\n<code>\nget_weather('Paris')\nget_weather('Tokyo')\n"


def test_a_code_agents_tools_are_its_answers_calls():
    """The model asks by code: the tools that ran are its calls, the observation a user's text."""
    echo = ("assistant", f"{CODE}</code>")
    ran = called(("call_1", "get_weather('Paris')"), of="python_interpreter")
    observed = ("tool-response", "Observation:\nExecution logs:\nsunny")
    trajectory = only(
        run(title="CodeAgent.run"),
        step("s1", 2),
        model("c", 3, TASK, CODE, parent="s1"),
        used("t", 4, {"args": ["Paris"], "kwargs": {}}, "sunny", parent="s1"),
        used("u", 5, {"args": ["Tokyo"], "kwargs": {}}, "rainy", parent="s1"),
        step("s2", 6),
        model("d", 7, [*TASK, echo, ran, observed], "All sunny.", parent="s2"),
    )

    assert brief(trajectory.messages) == [
        *TASK,
        ("assistant", [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})]),
        ("tool", "sunny"),
        ("tool", "rainy"),
        ("user", "Observation:\nExecution logs:\nsunny"),
        ("assistant", "All sunny."),
    ]
    assert trajectory.messages[2].content == CODE
    assert (trajectory.agent, trajectory.gaps, trajectory.rewrites) == ("CodeAgent", (), ())


def test_the_raw_request_is_read_where_messages_have_no_keys():
    """Messages that are objects have no flat keys: the request's own form is read."""
    request = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}], "tool_calls": None},
            {"role": "tool-call", "content": [{"type": "text", "text": called(CALLS[0])[1]}]},
            {"role": "tool-response", "content": [{"type": "text", "text": "Error:\nno"}]},
        ]
    }
    trajectory = only(
        run(), model("c", 2, [], "a", parent="a", attributes={"input.value": json.dumps(request)})
    )

    assert brief(trajectory.messages) == [
        ("user", "q"),
        ("assistant", [("get_weather", {"city": "Paris"})]),
        ("tool", "Error:\nno"),
        ("assistant", "a"),
    ]
    assert trajectory.messages[2].is_error


@pytest.mark.parametrize(
    ("tool_input", "arguments"),
    [
        (kwargs(city="Paris"), {"city": "Paris"}),
        ({"args": ["Paris", "C"], "kwargs": {}}, {"city": "Paris", "unit": "C"}),
        ({"args": ["Paris"], "kwargs": {"unit": "C"}}, {"city": "Paris", "unit": "C"}),
        ({"args": [{"city": "Paris"}], "kwargs": {}}, {"city": "Paris"}),
        ({"args": [{"odd": 1}], "kwargs": {}}, {"city": {"odd": 1}}),
        ({"args": [1, 2, 3], "kwargs": {}}, {"city": 1, "unit": 2, "args": [3]}),
        (kwargs(), {}),
        ({"args": 5, "kwargs": "odd"}, {}),
        ("{'args': (), 'kwargs': {'city': 'Paris'}, 'sanitize_inputs_outputs': True}", None),
        ("{'args': ['Paris'], 'kwargs': {}, 'sanitize_inputs_outputs': False}", None),
        ({"city": "Paris"}, {"city": "Paris"}),
        ("plain", "plain"),
    ],
)
def test_a_tools_arguments_have_their_names(tool_input: Any, arguments: Any):
    """Positional arguments get the names of the tool's inputs; JSON and a Python repr are read."""
    trajectory = only(run(), used("t", 2, tool_input, "r", parent="a"))

    (call,) = trajectory.messages[1].tool_calls
    assert call.arguments == ({"city": "Paris"} if arguments is None else arguments)


def test_a_tool_that_failed_is_an_error():
    """The span's exception is the result."""
    failed = Event("exception", 2, {"exception.message": "no such city"})
    trajectory = only(run(), used("t", 2, kwargs(), parent="a", status_code=2, events=(failed,)))

    result = trajectory.messages[2]
    assert (result.content, result.is_error) == ("Error: no such city", True)
    assert codes(trajectory) == ["no_model_spans"]


def test_a_result_that_is_not_recorded_is_a_gap():
    """Of a tool that returns an image or anything, the span has no result, and says so."""
    trajectory = only(run(), used("t", 2, kwargs(), parent="a"))

    assert trajectory.messages[2].content is None
    assert set(codes(trajectory)) == {"content_not_captured", "no_model_spans"}
    assert any("output_type" in gap.detail for gap in trajectory.gaps)


def test_a_run_without_model_spans_is_told_by_its_span():
    """The run has the task and the answer, not the arguments of the Python method."""
    assert brief(only(run()).messages) == [("user", "q"), ("assistant", "done")]


def test_a_managed_agent_is_a_run_of_its_own():
    """It runs inside a step of the agent that manages it."""
    outer, inner = reconstruct(
        [
            run(title="CodeAgent.run"),
            step("s1", 2),
            model("c", 3, TASK, "<code>search('x')</code>", parent="s1"),
            run("b", 4, parent="s1", attributes={"smolagents.task": "x"}),
            model("d", 5, [("system", "s"), ("user", "x")], "y", parent="b"),
        ]
    )

    assert (inner.parent_id, inner.agent, texts(inner)) == (
        outer.id,
        "ToolCallingAgent",
        ["s", "x", "y"],
    )


@pytest.mark.parametrize(
    "text", ["", "Calling tools:\n", "Calling tools:\n[7]", "Calling tools:\n[{'a'", "Calling"]
)
def test_texts_that_tell_no_calls_stay_texts(text: str):
    """A text that cannot be read as calls is the assistant's text."""
    sent = [*TASK, ("tool-call", text), ("tool-response", "Observation:\nr")]

    trajectory = only(run(), model("c", 2, sent, "a", parent="a"))

    assert brief(trajectory.messages) == [
        *TASK,
        ("assistant", text),
        ("user", "Observation:\nr"),
        ("assistant", "a"),
    ]


@pytest.mark.parametrize("value", [7, "[", "__REDACTED__", "[5]", '{"task": 7}'])
def test_malformed_values_survive(value: Any):
    """Any value in place of content gives a trajectory."""
    odd = {
        "input.value": value,
        "output.value": value,
        "smolagents.task": value,
        "tool.parameters": value,
    }

    trajectories = reconstruct(
        [
            run(attributes=odd),
            model("c", 2, [], parent="a", attributes=odd),
            used("t", 3, kwargs(), parent="a", attributes=odd),
        ]
    )

    assert [t.agent for t in trajectories] == ["ToolCallingAgent"]
    assert all(m.content != "__REDACTED__" for t in trajectories for m in t.messages)


def failed(text: str) -> tuple[str, str]:
    """Return the framework's text of a failed step; the memory drops the step's calls."""
    return ("tool-response", f"Error:\n{text}\nNow let's retry: take care!\n")


BROKEN = "Error executing tool 'get_weather' with arguments {'city': 'Paris'}: ValueError: no"


def test_a_failed_call_that_the_memory_drops_is_shown():
    """The next call is sent the error alone; the call is the one that the answer asked for."""
    trajectory = only(
        run(end=20),
        model("c", 3, TASK, calls=CALLS[:1], parent="a"),
        used("t", 4, kwargs(city="Paris"), parent="a", status_code=2),
        model("d", 7, [*TASK, failed(BROKEN)], "a", parent="a"),
    )

    assert brief(trajectory.messages[2:4]) == [
        ("assistant", [("get_weather", {"city": "Paris"})]),
        ("tool", f"Error:\n{BROKEN}\nNow let's retry: take care!\n"),
    ]
    assert (trajectory.messages[3].is_error, trajectory.messages[3].tool_call_id) == (True, "k1")
    assert "history_rewritten" not in codes(trajectory)


def test_of_several_dropped_calls_the_tools_spans_tell_the_results():
    """A step of two calls has one error; the spans show which call failed."""
    trajectory = only(
        run(end=20),
        model("c", 3, TASK, "I look.", CALLS, parent="a"),
        used("t", 4, kwargs(city="Paris"), parent="a", status_code=2),
        used("u", 5, kwargs(city="Tokyo"), "rainy", parent="a"),
        model("d", 7, [*TASK, ("assistant", "I look."), failed(BROKEN)], "a", parent="a"),
    )

    results = [(m.tool_call_id, m.is_error) for m in trajectory.messages if m.role == "tool"]
    assert results == [("k1", True), ("k2", False)]
    assert texts(trajectory)[-2:] == ["rainy", "a"]
    assert codes(trajectory) == []


@pytest.mark.parametrize("first", [CALLS[:1], CALLS])
def test_each_of_several_failed_steps_has_its_own_error(first: list[tuple[str, Any]]):
    """The memory has their errors one after another, whatever number of calls each step made."""
    again = [("k3", {"city": "Oslo"})]
    errors = [failed(BROKEN), failed("no Oslo"), failed("no Rome")]
    trajectory = only(
        run(end=20),
        model("c", 3, TASK, calls=first, parent="a"),
        model("d", 5, [*TASK, *errors[:1]], calls=again, parent="a"),
        model("e", 7, [*TASK, *errors[:2]], calls=[("k4", {"city": "Rome"})], parent="a"),
        model("f", 9, [*TASK, *errors], "a", parent="a"),
    )

    steps = [m.tool_call_id or [c.id for c in m.tool_calls] for m in trajectory.messages[2:]]
    ids = [id_ for id_, _ in first]
    assert steps == [ids, *ids, ["k3"], "k3", ["k4"], "k4", []]
    assert texts(trajectory)[-4:] == [errors[1][1], None, errors[2][1], "a"]
    assert "history_rewritten" not in codes(trajectory)


def test_an_error_of_an_answer_without_calls_is_said_to_the_model():
    """A text without a readable call stays in the memory, and so does the error."""
    error = failed("Error while parsing tool call from model output: no blob")
    trajectory = only(
        run(end=20),
        model("c", 3, TASK, "Hm.", parent="a"),
        model("d", 7, [*TASK, ("assistant", "Hm."), error], "a", parent="a"),
    )

    assert [m.role for m in trajectory.messages[2:]] == ["assistant", "user", "assistant"]


def test_a_call_that_is_written_as_text_is_a_call():
    """A model that is offered no tools answers with a blob, which the memory shows as a call."""
    text = 'Action:\n{"name": "get_weather", "arguments": {"city": "Paris"}}'
    trajectory = only(
        run(end=20),
        model("c", 3, TASK, text, parent="a"),
        model(
            "d",
            7,
            [*TASK, ("assistant", text), called(CALLS[0]), ("tool-response", "Observation:\nx")],
            "a",
            parent="a",
        ),
    )

    assert brief(trajectory.messages[2:4]) == [
        ("assistant", [("get_weather", {"city": "Paris"})]),
        ("tool", "x"),
    ]
    assert "history_rewritten" not in codes(trajectory)


def test_a_later_runs_task_is_its_own():
    """The agent object's attribute still holds the task of the first run."""
    attributes = {"input.value": '{"task": "new"}', "smolagents.task": "old"}

    assert texts(only(run(attributes=attributes))) == ["new", "done"]


def test_an_answer_of_which_only_the_role_is_there_is_missing():
    """A streamed answer that was not recorded leaves a role alone; the gap says so."""
    trajectory = only(run(attributes={"output.value": ""}), model("m", 3, TASK, parent="a"))

    assert texts(trajectory) == ["s", "New task:\nq"]
    assert codes(trajectory) == ["content_not_captured"]
    assert "no output" in trajectory.gaps[0].detail


@pytest.mark.parametrize("length", [40, 80])
def test_texts_of_calls_that_were_cut_name_a_gap(length: int):
    """A text of calls cut by a limit is not read as a whole one, in history and in answers."""
    role, text = called(*CALLS)
    history = only(run(), model("m", 3, [*TASK, (role, text[:length])], "done", parent="a"))
    written = json.dumps({"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}})
    answer = only(run(), model("m", 3, TASK, f"Action:\n{written[: length - 10]}", parent="a"))

    assert codes(history) == ["content_truncated"]
    assert codes(answer) == ["content_truncated"]
