from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Message
from oteval.model.identities import conversation_id, identity, name_attribute
from oteval.model.selection import Selection, parse_condition
from oteval.reconstruct import reconstruct
from oteval.store import Store

from ..make import keep, run as run_of
from ..reconstruct.builders import agent, chat, said, tool, user

PLACEHOLDERS = (
    *(
        "",
        " ",
        "undefined",
        "None",
        "null",
        "NULL",
        "nil",
        "NaN",
        "N/A",
        "n/a",
        "-",
        "--",
        "?",
        "0",
    ),
    *("[Scrubbed due to 'session']", "[Scrubbed due to 'user']", "[redacted]", "<redacted>"),
    *("__REDACTED__", "REDACTED", "***", "********", "xxxx", "<elided>", "{{session_id}}", "${id}"),
    *("{session}", "%s", "00000000-0000-0000-0000-000000000000", "0000", "unknown", "(none)"),
    *(
        "anonymous",
        "anonymous user",
        "not set",
        "no session",
        "unset",
        "missing",
        "[object Object]",
    ),
    *('"undefined"', "'None'", "<object object at 0x7f>", "default", "guest", "false"),
)
IDS = (
    *("s", "1", "42", "t-1", "thread-9", "sess-42", "conv_001", "a0", "nonesuch", "alice"),
    *("01a219c2-456b-714b-87b2-15baad1ee874", "resp_000517", "user:17/chat:3", "my chat 3"),
    *("null-island", "Chat with Bo", "session-x1", "x1", "none-7f3a"),
)


pytestmark = pytest.mark.usefixtures("own_attribute_unset")


@pytest.mark.parametrize("text", PLACEHOLDERS)
def test_a_placeholder_is_no_identity(text: str):
    """What says that there is no id, in any of its forms, names nothing."""
    assert identity(text) == ""


@pytest.mark.parametrize("text", IDS)
def test_an_id_is_itself(text: str):
    """A text that may tell two things apart is an id."""
    assert identity(text) == text


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"session.id": "undefined"}, ""),
        ({"gen_ai.conversation.id": "None", "session.id": "s-1"}, "s-1"),
        ({"session.id": 17}, "17"),
        ({"session.id": True}, ""),
        ({"session.id": ["a"]}, ""),
        ({"chat_id": "c-1"}, "c-1"),
        ({"thread.id": 1403}, ""),
        ({"thread_id": "1403"}, ""),
    ],
)
def test_the_first_true_id_names_the_conversation(attributes: dict[str, Any], expected: str):
    """A placeholder does not hide the id in another attribute; a thread of the system is none."""
    assert conversation_id(attributes) == expected


@pytest.mark.database
@pytest.mark.parametrize("text", ["undefined", "[Scrubbed due to 'session']", "None", "***"])
@pytest.mark.parametrize("key", ["session.id", "gen_ai.conversation.id"])
def test_two_users_with_a_placeholder_are_two_conversations(key: str, text: str):
    """Neither run has an id or the other's messages, also when both were stored."""
    spans = [
        chat(
            *(f"c{number}", number * 100, [user(question)], said("a")),
            trace=f"{number:032x}",
            attributes={key: text},
        )
        for number, question in ((1, "I am Bo"), (2, "I am Ann"))
    ]

    for run in reconstruct(spans):
        assert (run.conversation_id, run.history, len(run.messages)) == ("", None, 2)
    with Store(":memory:") as store:
        store.spans.write(spans)
        traces = [span.trace_id for span in spans]
        assert store.related.with_conversations(traces[:1]) == traces[:1]


@pytest.mark.database
def test_ones_own_attribute_joins_turns_and_is_remembered_by_the_store():
    """The value is copied to an attribute that later programs read without the setting."""
    spans = [
        chat(
            *(f"c{number}", number * 100, [user(f"q{number}")], said("a")),
            trace=f"{number:032x}",
            attributes={"my.thread": "t-1", "session.id": f"other-{number}"},
        )
        for number in (1, 2)
    ]
    name_attribute("conversation", "my.thread")
    with Store(":memory:") as store:
        store.spans.write(spans)
        name_attribute("conversation", "")
        traces = [span.trace_id for span in spans]

        assert store.related.with_conversations(traces[:1]) == traces
        stored, logs = store.spans.of_traces(traces)
    assert {run.conversation_id for run in reconstruct(stored, logs)} == {"t-1"}


def test_an_option_counts_more_than_the_file():
    """The name of oteval.yaml is used until an option, or the environment, gives another."""
    name_attribute("conversation", "file", is_default=True)
    assert conversation_id({"file": "a1", "option": "b1"}) == "a1"

    name_attribute("conversation", "option")
    name_attribute("conversation", "file", is_default=True)

    assert conversation_id({"file": "a1", "option": "b1"}) == "b1"


def test_the_environment_names_the_attribute_in_other_processes():
    """A process that is started with the variable reads the attribute that it names."""
    code = (
        "from oteval.model.identities import conversation_id as c; print(c({'my.thread': 't-1'}))"
    )
    name_attribute("conversation", "my.thread")

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "t-1\n"


@pytest.mark.parametrize(
    ("attributes", "resource", "expected"),
    [
        ({"user.id": "u-1", "gen_ai.agent.version": "2"}, {}, ("u-1", "2")),
        ({"langfuse.user.id": "u-1"}, {"service.version": "1.4.0"}, ("u-1", "1.4.0")),
        ({"user.id": "anonymous", "user_id": "u-2"}, {}, ("u-2", "")),
        ({"gen_ai.agent.version": "2"}, {"service.version": "0.0.0"}, ("", "0.0.0")),
        ({}, {}, ("", "")),
    ],
)
def test_a_run_has_the_user_and_the_version_that_its_spans_name(
    attributes: dict[str, Any], resource: dict[str, Any], expected: tuple[str, str]
):
    """Those that frameworks write are read without a setting; a placeholder names nobody."""
    call = chat("c1", 100, [user("q")], said("a"), attributes=attributes)
    call = replace(call, resource=resource)

    (run,) = reconstruct([call])

    assert (run.user, run.version) == expected


def test_the_version_of_a_tool_is_not_the_agents():
    """A user may be named on any span of a run, a version is that of the root's service."""
    call = chat("c1", 100, [user("q")], said("a"), parent="a1")
    used = tool("t1", 300, parent="a1")
    named = {**used.attributes, "version": "9", "user.id": "u-1"}
    used = replace(used, attributes=named, resource={"service.version": "8"})

    (run,) = reconstruct([agent("a1", 1, end=900), call, used])

    assert (run.user, run.version) == ("u-1", "")


@pytest.mark.database
@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("user", "default", ("", "", ())),
        ("version", "0.0", ("", "0.0", ())),
        ("version", "undefined", ("", "", ())),
        ("prompt", "default", ("", "", ("default",))),
        ("prompt", "<redacted>", ("", "", ())),
    ],
)
def test_a_placeholder_for_an_id_may_name_a_version_or_a_prompt(
    kind: str, text: str, expected: tuple[str, str, tuple[str, ...]]
):
    """The spans say the same as the store that copied the attribute when it had them."""
    call = chat("c1", 100, [user("q")], said("a"), attributes={"my.own": text})
    name_attribute(kind, "my.own")
    with Store(":memory:") as store:
        store.spans.write([call])
        (run,) = reconstruct([call])
        name_attribute(kind, "")
        (stored,) = reconstruct(*store.spans.of_traces([call.trace_id]))

    for one in (run, stored):
        assert (one.user, one.version, one.prompts) == expected


@pytest.mark.database
def test_the_runs_of_an_older_database_have_the_user_of_their_attributes():
    """Rows from before have no user: their root span's attributes tell, also in a filter."""
    with Store(":memory:") as store:
        kept = run_of(1, Message("user", "q"), attributes={"user.id": "u-1", "version": "7"})
        keep(store, kept)
        store._connection.execute("UPDATE trajectories SET user_id = NULL, agent_version = NULL")

        (read,) = store.trajectories.read(Selection(conditions=(parse_condition("user=u-1"),)))
        others = Selection(conditions=(parse_condition("version!=7"),))
        assert list(store.trajectories.read(others)) == []

    assert (read.user, read.version) == ("u-1", "7")
