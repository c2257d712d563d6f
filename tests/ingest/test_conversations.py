"""Files of conversations, in each format, become runs with the calls and results they hold."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from oteval.base.errors import InputError
from oteval.ingest.trace_files import read_stream
from oteval.model import ScoredRun, Usage

from ..make import ROOT

DATA = ROOT / "tests" / "data" / "conversations"

CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "What did I pay for order 17?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look_up", "arguments": '{"order": 17}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"paid": 40}'},
    {"role": "assistant", "content": "You paid 40."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "What did I pay for order 17?"},
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c1", "name": "look_up", "input": {"order": 17}}],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": '{"paid": 40}'}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "You paid 40."}]},
]
RESPONSES: list[dict[str, Any]] = [
    {"role": "user", "content": "What did I pay for order 17?"},
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "look_up",
        "arguments": '{"order": 17}',
    },
    {"type": "function_call_output", "call_id": "c1", "output": '{"paid": 40}'},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "You paid 40."}],
    },
]
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "human", "content": "What did I pay for order 17?"},
    {
        "type": "ai",
        "content": "",
        "tool_calls": [{"name": "look_up", "args": {"order": 17}, "id": "c1"}],
    },
    {"type": "tool", "content": '{"paid": 40}', "tool_call_id": "c1"},
    {"type": "ai", "content": "You paid 40."},
]
FORMS = {"openai": CHAT, "anthropic": ANTHROPIC, "responses": RESPONSES, "langchain": LANGCHAIN}
SAID = [
    ("user", "What did I pay for order 17?", [], False),
    ("assistant", None, [("look_up", {"order": 17})], False),
    ("tool", '{"paid": 40}', [], False),
    ("assistant", "You paid 40.", [], False),
]


def load(text: str | bytes) -> tuple[list[ScoredRun], list[str]]:
    """Return the runs and the problems of a file."""
    data = text.encode() if isinstance(text, str) else text
    batches = list(read_stream(io.BytesIO(data), "file"))
    runs = [run for batch in batches for run in batch.runs]
    return runs, [str(problem) for batch in batches for problem in batch.problems]


def one(text: str | bytes) -> ScoredRun:
    """Return the only run of a file without problems."""
    runs, problems = load(text)
    assert not problems
    (run,) = runs
    return run


def said(run: ScoredRun) -> list[tuple[str, str | None, list[tuple[str, Any]], bool]]:
    """Return who said what in a run."""
    return [
        (
            message.role,
            message.content or None,
            [(call.name, call.arguments) for call in message.tool_calls],
            message.is_error,
        )
        for message in run.trajectory.messages
    ]


def lines(*documents: Any) -> str:
    """Return documents as JSON lines."""
    return "".join(json.dumps(document) + "\n" for document in documents)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        lambda messages: json.dumps(messages, indent=2),
        lambda messages: lines(*messages),
        lambda messages: json.dumps([messages]),
        lambda messages: lines(messages),
        lambda messages: json.dumps({"messages": messages}),
        lambda messages: json.dumps({"messages": messages}, indent=2),
        lambda messages: json.dumps([{"messages": messages, "id": "a"}]),
        lambda messages: json.dumps(
            {"inputs": {"messages": messages[:1]}, "outputs": {"messages": messages[1:]}}
        ),
    ],
    ids=[
        *("list", "indented list", "a message a line", "list of lists", "a list a line"),
        *("object", "indented object", "list of objects", "LangSmith's example"),
    ],
)
def test_messages_in_any_form_and_any_file_are_one_run(form: str, write: Any):
    """The form of the messages and the layout of the file make no difference."""
    assert said(one(write(FORMS[form]))) == SAID


def test_equal_conversations_are_two_runs_and_loading_again_gives_the_same_ids():
    """Nothing is lost in a file that holds the same conversation twice."""
    first, second = load(lines(CHAT, CHAT))[0]
    again = load(lines(CHAT, CHAT))[0]

    assert first.trajectory.id != second.trajectory.id
    assert [run.trajectory.id for run in again] == [first.trajectory.id, second.trajectory.id]


def test_what_an_object_says_beside_its_messages_is_kept():
    """Short values are attributes, a reward is a score, tools are the tools that were offered."""
    tools = [{"type": "function", "function": {"name": "look_up"}}]
    run = one(
        json.dumps(
            {
                "id": "a",
                "session_id": "s",
                "model": "gpt",
                "reward": 0.5,
                "tools": tools,
                "messages": CHAT,
                "metadata": {"task": "refund", "long": "x" * 1000},
            }
        )
    )

    trajectory = run.trajectory
    assert (trajectory.conversation_id, trajectory.models) == ("s", ("gpt",))
    assert trajectory.tools == tuple(tools)
    assert trajectory.attributes["task"] == "refund"
    assert "long" not in trajectory.attributes
    assert [(score.evaluator, score.score, score.passed) for score in run.scores] == [
        ("reward", 0.5, None)
    ]


def test_sharegpt():
    """Speakers, calls and observations of ShareGPT."""
    call = {"name": "look_up", "arguments": {"order": 17}}
    turns = [
        {"from": "human", "value": "What did I pay for order 17?"},
        {"from": "function_call", "value": json.dumps(call)},
        {"from": "observation", "value": '{"paid": 40}'},
        {"from": "gpt", "value": "You paid 40."},
    ]
    assert said(one(json.dumps({"conversations": turns}))) == SAID

    with pytest.raises(InputError, match=r"conversations\[0\].from is 'robot'; known are human"):
        load(json.dumps({"conversations": [{"from": "robot", "value": "x"}]}))


def test_a_dataset_of_texts():
    """An example of LangSmith whose inputs and outputs are texts."""
    run = one(json.dumps({"inputs": {"question": "How?"}, "outputs": {"answer": "So."}}))
    assert said(run) == [("user", "How?", [], False), ("assistant", "So.", [], False)]


TAU2 = {
    "timestamp": "2026-01-01T00:00:00",
    "info": {"environment_info": {"domain_name": "telecom"}, "agent_info": {"llm": "gpt"}},
    "tasks": [{"id": "1"}],
    "simulations": [
        {
            "id": "s1",
            "task_id": "1",
            "trial": 0,
            "termination_reason": "user_stop",
            "start_time": "2026-01-01T00:00:00",
            "end_time": "2026-01-01T00:01:00",
            "reward_info": {"reward": 1.0},
            "messages": [
                {"role": "user", "content": "What did I pay for order 17?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c", "name": "look_up", "arguments": {"order": 17}}],
                    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
                },
                {"role": "tool", "id": "c", "content": '{"paid": 40}', "requestor": "assistant"},
                {
                    "role": "user",
                    "content": None,
                    "tool_calls": [{"id": "u", "name": "restart", "requestor": "user"}],
                },
                {"role": "tool", "id": "u", "content": "restarted", "requestor": "user"},
                {"role": "assistant", "content": "You paid 40.", "tool_calls": None},
            ],
        },
        {"id": "s2", "messages": 3},
    ],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_results_of_tau2(indent: int | None):
    """A run a simulation, with its reward; the user's own calls are not the agent's."""
    runs, problems = load(json.dumps(TAU2, indent=indent))

    (run,) = runs
    assert said(run) == SAID
    assert run.trajectory.usage == Usage(5, 2, 0, 1)
    assert run.trajectory.attributes["domain"] == "telecom"
    assert run.trajectory.end_ns - run.trajectory.start_ns == 60 * 10**9
    assert [(score.evaluator, score.score, score.passed) for score in run.scores] == [
        ("reward", 1.0, True)
    ]
    assert problems == ["file:1: simulation s2: messages is the value 3 instead of a list"]


def test_results_of_tau_bench():
    """The first tau-bench wrote a list of objects with `traj`."""
    run = one(json.dumps([{"task_id": 0, "reward": 0.0, "traj": CHAT, "trial": 1}]))
    assert said(run) == SAID
    assert [(score.evaluator, score.score) for score in run.scores] == [("reward", 0.0)]


def atif(**fields: Any) -> dict[str, Any]:
    """Return a trajectory in the Agent Trajectory Interchange Format."""
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "shop", "version": "1", "model_name": "gpt"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "What did I pay for order 17?"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "reasoning_content": "Hm.",
                "timestamp": "2026-01-01T00:00:00Z",
                "tool_calls": [
                    {
                        "tool_call_id": "c1",
                        "function_name": "look_up",
                        "arguments": {"order": 17},
                    }
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": '{"paid": 40}'}]},
                "metrics": {"prompt_tokens": 9, "completion_tokens": 3, "cached_tokens": 4},
            },
            {"step_id": 3, "source": "agent", "message": "You paid 40."},
        ],
        **fields,
    }


def test_atif():
    """A step's calls and results, tokens, reasoning; a sub-agent is a run with a parent."""
    sub = atif(trajectory_id="sub", agent={"name": "clerk", "version": "1"})
    runs, problems = load(json.dumps(atif(subagent_trajectories=[sub]), indent=1))

    assert not problems
    shop, clerk = (run.trajectory for run in runs)
    assert [said(run) for run in runs] == [SAID, SAID]
    assert shop.messages[1].parts == ({"type": "reasoning", "content": "Hm."},)
    assert (shop.agent, shop.models, shop.usage.input_tokens) == ("shop", ("gpt",), 9)
    assert (clerk.agent, clerk.parent_id) == ("clerk", shop.id)


def test_parts_of_one_atif_session_are_two_runs():
    """A continuation shares the id of its session."""
    later = atif()
    later["steps"] = later["steps"][:1]
    assert len({run.trajectory.id for run in load(lines(atif(), later))[0]}) == 2


def test_a_log_of_inspect():
    """A log that inspect_ai 0.3.285 wrote, whose members are compressed by zstd."""
    runs, problems = load((DATA / "inspect.eval").read_bytes())

    assert not problems
    paid, missing = sorted(runs, key=lambda run: run.trajectory.start_ns)
    call = ("look_up", {"order": 9999})
    assert said(missing)[1:] == [
        ("user", "And for 9999?", [], False),
        ("assistant", "tool call for tool look_up", [call], False),
        ("tool", "order 9999 not found", [], True),
        ("assistant", "I cannot find it.", [], False),
    ]
    assert paid.trajectory.agent == "shop"
    assert [(score.evaluator, score.score, score.passed) for score in paid.scores] == [
        ("includes", 1.0, True)
    ]
    assert [(score.evaluator, score.score, score.passed) for score in missing.scores] == [
        ("includes", 0.0, False)
    ]


def test_a_damaged_archive_and_one_without_json_say_so():
    """Neither is read as something else."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "x")
        archive.writestr("b.txt", "y" * 1000)
    with pytest.raises(InputError, match=r"a zip archive without a .json file"):
        load(packed.getvalue())
    with pytest.raises(InputError, match=r"a damaged zip archive"):
        load(packed.getvalue()[:500])


def claude(uuid: str, parent: str | None, message: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a line of a session of Claude Code."""
    return {
        "type": message["role"],
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s",
        "isSidechain": False,
        "cwd": "/project",
        "version": "2.1.12",
        "message": message,
        "timestamp": "2026-01-01T00:00:00.000Z",
        **fields,
    }


def answered(uuid: str, parent: str, *blocks: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a line with a part of an answer."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 7}
    fields = {"id": name, "model": "claude", "role": "assistant", "usage": usage}
    return claude(uuid, parent, {**fields, "content": list(blocks)})


def test_a_session_of_claude_code():
    """A run for each question; the lines of one answer count their tokens once."""
    runs, problems = load(
        lines(
            {"type": "summary", "summary": "Orders", "leafUuid": "9"},
            claude("1", None, {"role": "user", "content": "What did I pay for order 17?"}),
            answered("2", "1", {"type": "thinking", "thinking": "Hm."}, name="m1"),
            answered(
                *("3", "2"),
                {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"order": 17}},
                name="m1",
            ),
            claude("4", "3", ANTHROPIC[2]),
            answered("5", "4", {"type": "text", "text": "You paid 40."}, name="m2"),
            claude("6", "5", {"role": "user", "content": [{"type": "text", "text": "Thanks"}]}),
            answered("7", "6", {"type": "text", "text": "Welcome."}, name="m3"),
        )
    )

    assert not problems
    first, second = (run.trajectory for run in runs)
    assert said(runs[0]) == SAID
    assert (first.turn, first.usage.model_calls, first.usage.input_tokens) == (1, 2, 210)
    assert (second.turn, second.conversation_id) == (2, "s")
    assert [message.content for message in second.own_messages] == ["Thanks", "Welcome."]
    assert len(second.messages) == 6


def test_a_question_that_was_taken_back_is_not_in_the_history():
    """The user went back to before the second question and asked another."""
    said_so = {"type": "text", "text": "Yes."}
    runs = load(
        lines(
            claude("1", None, {"role": "user", "content": "One?"}),
            answered("2", "1", said_so, name="a"),
            claude("3", "2", {"role": "user", "content": "Two?"}),
            answered("4", "3", said_so, name="b"),
            claude("5", "2", {"role": "user", "content": "Three?"}),
            answered("6", "5", said_so, name="c"),
        )
    )[0]

    texts = [message.content for message in runs[2].trajectory.messages]
    assert texts == ["One?", "Yes.", "Three?", "Yes."]
    assert runs[2].trajectory.turn == 2


def test_a_side_chain_of_claude_code_is_a_sub_agent():
    """Its run has the parent in whose file it stands."""
    runs = load(
        lines(
            claude("1", None, {"role": "user", "content": "One?"}),
            answered("2", "1", {"type": "text", "text": "I ask."}, name="a"),
            claude(
                *("3", None, {"role": "user", "content": "Look."}),
                isSidechain=True,
                agentId="ab12",
            ),
            answered("4", "3", {"type": "text", "text": "Found."}, name="b")
            | {"isSidechain": True, "agentId": "ab12"},
        )
    )[0]

    main, sub = (run.trajectory for run in runs)
    assert (sub.agent, sub.parent_id, main.parent_id) == ("ab12", main.id, "")
    assert [message.content for message in sub.messages] == ["Look.", "Found."]


def test_a_session_of_codex():
    """A run for each question; what the program adds before it is no question."""

    def item(**payload: Any) -> dict[str, Any]:
        stamp = "2026-01-01T00:00:00.000Z"
        return {"timestamp": stamp, "type": "response_item", "payload": payload}

    def user(text: str) -> dict[str, Any]:
        return item(type="message", role="user", content=[{"type": "input_text", "text": text}])

    usage = {"input_tokens": 50, "cached_input_tokens": 40, "output_tokens": 6}
    counted = {"type": "token_count", "info": {"last_token_usage": usage}}
    runs, problems = load(
        lines(
            {"type": "session_meta", "payload": {"id": "s", "cwd": "/project"}},
            {"type": "turn_context", "payload": {"model": "gpt-5-codex"}},
            user("<environment_context>\n</environment_context>"),
            user("What did I pay for order 17?"),
            item(type="reasoning", summary=[], encrypted_content="x"),
            item(**RESPONSES[1]),
            item(**RESPONSES[2]),
            {"type": "event_msg", "payload": counted},
            item(**RESPONSES[3]),
            user("Thanks"),
            item(**RESPONSES[3]),
        )
    )

    assert not problems
    first, second = (run.trajectory for run in runs)
    assert said(runs[0])[1:] == SAID
    assert (first.models, first.usage.cached_tokens) == (("gpt-5-codex",), 40)
    assert (second.turn, len(second.own_messages), second.conversation_id) == (2, 2, "s")


def test_a_part_of_an_unknown_kind_is_kept_with_a_gap():
    """It may be what an evaluator needs."""
    part = {"type": "hologram", "data": "x"}
    run = one(json.dumps([{"role": "user", "content": [part]}, CHAT[3]]))

    assert run.trajectory.messages[0].parts == (part,)
    assert [gap.code for gap in run.trajectory.gaps] == ["content_unreadable"]


def test_an_unreadable_conversation_costs_no_other(tmp_path: Path):
    """The line is named, and the rest is loaded."""
    bad = {"conversations": [{"from": "robot", "value": "x"}]}
    runs, problems = load(lines(CHAT, bad, CHAT))

    assert len(runs) == 2
    assert problems == [
        "file:2: conversations[0].from is 'robot'; known are human, user, gpt, assistant, chatgpt, "
        "system, tool, observation, function_response, function_call"
    ]
