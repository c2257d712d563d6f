from __future__ import annotations

import copy
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from oteval.base.errors import InputError
from oteval.evaluators import to_messages
from oteval.evaluators.calls import CallTable, read
from oteval.model import Message, SpanRef, ToolCall, Trajectory

from .helpers import call, flat, passes, said, tool, user

PARIS = {"city": "Paris"}


class Thing(SimpleNamespace):
    """An object with attributes, as frameworks make them."""


def the_call(item: Any) -> ToolCall:
    """Return the only call of one message."""
    (message,) = to_messages([item])
    (made,) = message.tool_calls
    return made


def shape(messages: tuple[Message, ...]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return roles and calls alone."""
    return [(m.role, [(c.name, c.arguments) for c in m.tool_calls]) for m in messages]


EXPECTED = [
    ("user", []),
    ("assistant", [("weather", PARIS)]),
    ("tool", []),
    ("assistant", []),
]

OPENAI = [user(), said(call("weather", PARIS, "c1")), tool(call_id="c1"), said(content="Sunny.")]
OPENAI_OBJECTS = [
    Thing(role="user", content="hello"),
    Thing(
        role="assistant",
        content=None,
        tool_calls=[
            Thing(id="c1", function=Thing(name="weather", arguments='{"city": "Paris"}')),
        ],
    ),
    Thing(role="tool", content="fine", tool_call_id="c1"),
    Thing(role="assistant", content="Sunny.", tool_calls=None),
]
LANGCHAIN = [
    Thing(type="human", content="hello"),
    Thing(type="ai", content="", tool_calls=[{"name": "weather", "args": PARIS, "id": "c1"}]),
    Thing(type="tool", content="fine", tool_call_id="c1", status="success"),
    Thing(type="AIMessageChunk", content="Sunny.", tool_calls=[]),
]
LANGCHAIN_DUMPED = [
    {"type": "human", "content": "hello"},
    {"type": "ai", "content": "", "tool_calls": [{"name": "weather", "args": PARIS, "id": "c1"}]},
    {"type": "tool", "content": "fine", "tool_call_id": "c1"},
    {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "AIMessage"],
        "kwargs": {"content": "Sunny."},
    },
]
ANTHROPIC = [
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": PARIS},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "fine"}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}]},
]
GENAI = [
    {"role": "user", "parts": [{"type": "text", "content": "hello"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": PARIS}],
        "finish_reason": "tool_call",
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "fine"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}]},
]
BARE = [
    user(),
    {"role": "ai", "tool_calls": [{"name": "weather", "args": PARIS, "id": "c1"}]},
    {"role": "function", "content": "fine"},
    {"role": "assistant", "content": "Sunny."},
]
OWN = (
    Message("user", "hello"),
    Message("assistant", tool_calls=(ToolCall("weather", PARIS, "c1"),)),
    Message("tool", "fine", tool_call_id="c1"),
    Message("assistant", "Sunny."),
)
TRAJECTORY = Trajectory("t", SpanRef("0" * 32, "0" * 16), tail=OWN)
FORMS = {
    "openai": OPENAI,
    "openai objects": OPENAI_OBJECTS,
    "langchain": LANGCHAIN,
    "langchain dumped": LANGCHAIN_DUMPED,
    "anthropic": ANTHROPIC,
    "genai parts": GENAI,
    "bare calls": BARE,
    "own messages": list(OWN),
    "own trajectory": TRAJECTORY,
    "dict": {"messages": OPENAI},
    "tuple": tuple(ANTHROPIC),
    "state object": Thing(messages=LANGCHAIN),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_as_the_same_trajectory(form):
    """Roles and calls come out equal from every form in section 2."""
    assert shape(to_messages(FORMS[form])) == EXPECTED


@pytest.mark.parametrize("left", FORMS)
@pytest.mark.parametrize("right", FORMS)
def test_forms_mix_freely_between_the_sides(left, right):
    """Any form on one side strictly matches any form on the other."""
    assert passes(FORMS[left], FORMS[right])


def test_forms_mix_freely_within_a_list():
    """One list may hold a message of each form."""
    mixed = [LANGCHAIN[0], ANTHROPIC[1], GENAI[2], OWN[3]]

    assert passes(mixed, OPENAI)


def test_one_message_is_a_trajectory():
    """A message without a list around it counts as a list of one."""
    for one in (OPENAI[1], LANGCHAIN[1], OPENAI_OBJECTS[1], OWN[1], LANGCHAIN_DUMPED[3]):
        assert len(to_messages(one)) == 1


def test_pydantic_like_blocks_in_content():
    """Anthropic's own objects, blocks included, are read by their attributes."""
    block = Thing(type="tool_use", id="c1", name="weather", input=PARIS)

    assert the_call(Thing(role="assistant", type="message", content=[block])).arguments == PARIS


def test_calls_repeated_in_content_blocks_count_once():
    """LangChain repeats in tool_calls what the content blocks say; new ids are added."""
    blocks = [
        {"type": "tool_use", "id": "a", "name": "one", "input": {}},
        {"type": "tool_use", "id": "b", "name": "two", "input": {}},
    ]
    message = Thing(type="ai", content=blocks, tool_calls=[{"name": "one", "args": {}, "id": "a"}])

    (read_message,) = to_messages([message])

    assert [c.name for c in read_message.tool_calls] == ["one", "two"]


def test_results_in_a_user_message_become_tool_messages_before_its_text():
    """Each Anthropic result is a tool message of its own; what the user adds follows."""
    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"type": "tool_result", "tool_use_id": "b", "content": "2", "is_error": True},
        {"type": "text", "text": "go on"},
    ]

    messages = to_messages([{"role": "user", "content": blocks}])

    assert [(m.role, m.content, m.tool_call_id, m.is_error) for m in messages] == [
        ("tool", "1", "a", False),
        ("tool", "2", "b", True),
        ("user", "go on", "", False),
    ]


@pytest.mark.parametrize("key", ["response", "result"])
def test_genai_results_under_either_name(key):
    """`response` and the older `result` both hold a tool's answer."""
    part = {"type": "tool_call_response", "id": "c1", key: {"ok": True}}

    (message,) = to_messages([{"role": "user", "parts": [part]}])

    assert (message.role, message.content, message.tool_call_id) == ("tool", '{"ok":true}', "c1")


@pytest.mark.parametrize("flag", [{"is_error": True}, {"error": "boom"}, {"status": "error"}])
def test_tool_messages_carry_failure_in_three_ways(flag):
    """`is_error`, `error` and `status="error"` all mark a failed call."""
    assert to_messages([tool(**flag)])[0].is_error
    assert not to_messages([tool(status="success")])[0].is_error


def test_legacy_function_call_and_custom_tools():
    """OpenAI's old function_call and its custom tools are calls as well."""
    old = {"role": "assistant", "content": "", "function_call": {"name": "f", "arguments": "{}"}}
    custom = said({"id": "x", "type": "custom", "custom": {"name": "g", "input": "free text"}})

    assert the_call(old).name == "f"
    assert the_call(custom).arguments == "free text"
    assert passes([old], flat("f"))


def test_invalid_calls_of_langchain_are_calls():
    """What LangChain files under invalid_tool_calls the model did ask for."""
    invalid = [{"name": "f", "args": "{broken", "id": "1", "error": "no JSON"}]

    made = the_call(Thing(type="ai", content="", tool_calls=[], invalid_tool_calls=invalid))

    assert (made.name, made.arguments) == ("f", "{broken")


@pytest.mark.parametrize("mode", ["strict", "unordered", "subset", "superset", "in_order"])
def test_no_calls_in_three_ways_and_no_content_in_two(mode):
    """tool_calls None, [] and absent are the same, and so are content None and ""."""
    ways = [
        {"role": "assistant", "content": None, "tool_calls": None},
        {"role": "assistant", "content": "", "tool_calls": []},
        {"role": "assistant"},
    ]
    for left in ways:
        for right in ways:
            assert passes([left], [right], mode)


@pytest.mark.parametrize("absent", ["", "  ", "null", "{}"])
def test_absent_arguments_are_an_empty_object(absent):
    """None, blank, null and missing arguments of a dict all mean {}."""
    for other in ({"name": "f"}, {"name": "f", "args": None}, {"name": "f", "args": {}}):
        assert passes([said(call("f", absent))], [{"role": "ai", "tool_calls": [other]}])


@pytest.mark.parametrize("args", ["exact", "ignore", "subset", "superset", "tolerant", ["a"]])
def test_invalid_json_is_compared_as_the_raw_string(args):
    """Arguments that are no JSON never raise: equal text matches, other text does not."""
    broken, other = [said(call("f", '{"a": 1'))], [said(call("f", '{"a": 2'))]
    options = {"tool_args_match_mode": args}

    assert passes(broken, broken, **options)
    assert passes(broken, other, **options) == (args == "ignore")
    assert passes(broken, flat(("f", {"a": 1})), **options) == (args == "ignore")


def test_absurdly_nested_arguments_do_not_raise():
    """Neither text nested beyond the parser nor values beyond the stack is an exception."""
    text = "[" * 100_000
    value: Any = {}
    for _ in range(5000):
        value = {"a": value}
    deep = [{"role": "ai", "tool_calls": [{"name": "f", "args": value}]}]

    assert passes([said(call("f", text))], [said(call("f", text))])
    for args in ("exact", "subset", "tolerant", ["a"]):
        assert not passes(deep, flat("f"), "unordered", tool_args_match_mode=args)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "outputs is None; pass a list"),
        ("hi", "outputs is a str"),
        (7, "outputs is a int"),
        ({}, "outputs: a dict needs 'messages'"),
        ({"text": "x"}, "its keys: 'text'"),
        ({"messages": None}, "outputs.messages is None"),
        ({"messages": {"messages": []}}, "'messages' again"),
        ([user(), None], r"outputs\[1\] is None"),
        ([user(), {"content": "x"}], r"outputs\[1\]: a dict without a role"),
        ([user(), Thing(content="x")], r"outputs\[1\]: a Thing without a role"),
        ([user()] * 3 + [{"role": "robot"}], r"outputs\[3\]: unknown role 'robot'; known roles"),
        ({"messages": [{"role": "robot"}]}, r"outputs.messages\[0\]: unknown role"),
        ([{"role": ["user"]}], r"outputs\[0\]: unknown role"),
        ([Thing(type="remove", content="")], "unknown role 'remove'"),
        ([{"role": "assistant", "tool_calls": "f"}], r"outputs\[0\].tool_calls is a str"),
        ([said({"id": "1"})], r"outputs\[0\].tool_calls\[0\]: a tool call needs a name"),
        ([Message("robot")], r"outputs\[0\]: unknown role 'robot'"),
    ],
)
def test_what_is_no_trajectory_is_refused_with_its_place(value, words):
    """A ValueError says where the trouble is, in every mode alike."""
    for mode in ("strict", "subset"):
        with pytest.raises(ValueError, match=words):
            passes(value, [], mode)


def test_a_missing_reference_names_the_reference():
    """A reference of None is refused, also under subset, where a peer lets it pass."""
    with pytest.raises(InputError, match=r"reference_outputs is None"):
        passes([], None, "subset")
    with pytest.raises(InputError, match=r"reference_outputs\[0\]: unknown role"):
        passes([], [{"role": "robot"}], "subset")


def test_an_empty_list_is_a_legal_trajectory():
    """Empty lists are read as trajectories without messages."""
    assert to_messages([]) == ()
    assert passes([], [])
    assert passes({"messages": []}, [])


def test_developer_is_not_system():
    """The two system-like roles are kept apart."""
    assert not passes([{"role": "developer", "content": "x"}], [{"role": "system", "content": "x"}])


def test_callers_objects_are_never_changed():
    """Every form is equal to a deep copy of itself after it was compared and converted."""
    for form in FORMS.values():
        before = copy.deepcopy(form)

        for mode in ("strict", "unordered", "in_order"):
            passes(form, form, mode, tool_args_match_mode="tolerant")
            passes(form, form, mode, view="effects", effect_tools=["weather"])

        assert form == before


messages_strategy = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "ai", "human", "system"])},
        optional={
            "content": st.sampled_from([None, "", "x", [{"type": "text", "text": "y"}]]),
            "tool_calls": st.none()
            | st.lists(
                st.builds(
                    call,
                    st.sampled_from("fg"),
                    st.sampled_from(["", "{}", '{"a": 1}', "{bad", "null", '"s"']),
                ),
                max_size=3,
            ),
            "parts": st.just([{"type": "tool_call", "name": "p", "arguments": {}}]),
            "function_call": st.just({"name": "old", "arguments": "{}"}),
        },
    ),
    max_size=5,
)


@given(messages_strategy)
def test_the_fast_reader_agrees_with_the_general_one(messages):
    """Reading plain dicts directly gives what going through `Message` gives."""
    general = CallTable()
    for item in messages:
        for message in to_messages([item]):
            general.add(message)

    table = read(messages, "outputs")

    assert (table.roles, table.names, table.at) == (general.roles, general.names, general.at)
    calls = range(len(table.names))
    assert [table.arguments(i) for i in calls] == [general.arguments(i) for i in calls]


def test_importing_is_cheap():
    """The stage imports no pydantic, asyncio, langchain_core, pyarrow or duckdb."""
    heavy = ["asyncio", "pydantic", "langchain_core", "pyarrow", "duckdb", "yaml", "rich", "typer"]
    code = f"import sys, oteval.evaluators; print([m for m in {heavy!r} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
