from __future__ import annotations

import json
from typing import Any

import pytest

from oteval.model import (
    Gap,
    Message,
    Reference,
    RetrievedDocument,
    Rewrite,
    Score,
    SpanRef,
    ToolCall,
    Trajectory,
    Usage,
    reported_cost,
    trajectory_id,
)


def said(text: str, role: str = "assistant") -> Message:
    return Message(role, text)


def line(length: int, **fields: Any) -> Trajectory:
    """Return the last of `count` turns, each with a question and an answer."""
    trajectory = None
    for i in range(length):
        tail = (said(f"q{i}", "user"), said(f"a{i}"))
        trajectory = Trajectory(
            f"t{i}", SpanRef("t", str(i)), tail=tail, new_from=2 * i, history=trajectory, turn=i + 1
        )
    assert trajectory is not None
    return trajectory


@pytest.mark.parametrize("status", ["error", "not_evaluated"])
@pytest.mark.parametrize("verdict", [{"score": 0.0}, {"score": 1.0}, {"passed": False}])
def test_a_failed_evaluation_has_no_verdict(status: Any, verdict: dict[str, Any]):
    """An error is never a 0, and not evaluated is never a pass."""
    with pytest.raises(ValueError, match=status):
        Score("t", "trace", "span", "e", "v", status=status, **verdict)


@pytest.mark.parametrize(
    ("metadata", "cost"),
    [
        ({"cost_usd": 0.25}, 0.25),
        ({"cost": 2}, 2.0),
        ({"cost_usd": 0.25, "cost": 1.0}, 0.25),
        ({"cost_usd": None, "cost": 1.0}, 1.0),
        ({"cost_usd": 0}, 0.0),
        ({"cost_usd": True}, None),
        ({"cost_usd": "1"}, None),
        ({"cost_usd": float("nan")}, None),
        ({"cost_usd": float("inf")}, None),
        ({"cost_usd": -1.0}, None),
        ({"cost_usd": 10**400}, None),
        ({}, None),
    ],
)
def test_the_cost_of_a_result_is_in_its_metadata(metadata: dict[str, Any], cost: float | None):
    """The key is ``cost_usd`` or ``cost``; only a finite number that is not negative counts."""
    score = Score("t", "a", "b", "e", "v", metadata=metadata)

    assert score.cost == cost
    assert reported_cost(metadata) == cost


def test_the_json_form_of_a_score():
    """The object of ``oteval score --json`` has every field; empty ones are None."""
    full = Score(
        *("t", "trace", "span", "e", "v"),
        score=1.0,
        label="good",
        passed=True,
        comment="why",
        metadata={"n": 1},
        sample_p=0.5,
    )
    empty = Score("t", "trace", "span", "e", "v", status="error", comment="boom")

    assert full.as_dict() == {
        "trajectory_id": "t",
        "trace_id": "trace",
        "span_id": "span",
        "evaluator": "e",
        "version": "v",
        "score": 1.0,
        "label": "good",
        "passed": True,
        "status": "ok",
        "comment": "why",
        "metadata": {"n": 1},
    }
    assert (empty.as_dict()["score"], empty.as_dict()["passed"]) == (None, None)
    assert (empty.as_dict()["label"], empty.as_dict()["comment"]) == (None, "boom")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"b": 1, "a": "é"}, '{"b":1,"a":"é"}'), ({}, "{}"), ("no json", "no json"), (None, "")],
)
def test_the_arguments_of_a_call_are_json_text(arguments: Any, text: str):
    """OpenAI's format has arguments as text; unknown ones are "", unlike no arguments."""
    assert ToolCall("look", arguments, "k").as_dict() == {
        "id": "k",
        "type": "function",
        "function": {"name": "look", "arguments": text},
    }


@pytest.mark.parametrize(
    ("message", "shape"),
    [
        (Message("user", "q", name="ann"), {"role": "user", "content": "q", "name": "ann"}),
        (Message("assistant"), {"role": "assistant", "content": None}),
        (
            Message("tool", "r", tool_call_id="k", is_error=True),
            {"role": "tool", "content": "r", "tool_call_id": "k", "is_error": True},
        ),
        (Message("tool"), {"role": "tool", "content": None, "tool_call_id": ""}),
        (
            Message("user", "see", parts=({"type": "image"},)),
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image"}]},
        ),
        (
            Message("user", parts=({"type": "image"},)),
            {"role": "user", "content": [{"type": "image"}]},
        ),
        (
            Message("assistant", tool_calls=(ToolCall("f", {}, "k"),)),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "k", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
        ),
    ],
)
def test_a_message_in_openais_format(message: Message, shape: dict[str, Any]):
    """Empty fields are omitted."""
    assert message.as_dict() == shape


def test_a_trajectory_is_one_json_object():
    """The object of ``oteval trajectories --json`` has every documented key."""
    trajectory_object = Trajectory(
        "id",
        SpanRef("t", "s"),
        trace_ids=("t",),
        tail=(said("q", "user"),),
        agent="desk",
        models=("m",),
        usage=Usage(1, 2, 3, 4),
        finish_reasons=("stop",),
        prompts=("greet@3",),
        user="u-1",
        version="1.4.0",
        documents=(RetrievedDocument("d", "id", "s"),),
        steps=(("a", "b"),),
        gaps=(Gap("redacted", "why", "s"),),
        start_ns=1,
        end_ns=2,
    ).as_dict()

    assert json.loads(json.dumps(trajectory_object)) == {
        "trajectory_id": "id",
        "trace_ids": ["t"],
        "root_span": {"trace_id": "t", "span_id": "s"},
        "conversation_id": None,
        "agent": "desk",
        "parent_id": None,
        "turn": 1,
        "new_from": 0,
        "start_ns": 1,
        "end_ns": 2,
        "models": ["m"],
        "usage": {
            "input_tokens": 1,
            "output_tokens": 2,
            "cached_tokens": 3,
            "model_calls": 4,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
            "input_audio_tokens": 0,
            "output_audio_tokens": 0,
        },
        "finish_reasons": ["stop"],
        "prompts": ["greet@3"],
        "user": "u-1",
        "version": "1.4.0",
        "messages": [{"role": "user", "content": "q"}],
        "documents": [{"text": "d", "id": "id", "span_id": "s"}],
        "steps": [["a", "b"]],
        "gaps": [{"code": "redacted", "detail": "why", "span_id": "s"}],
    }


def test_a_rewrite_is_one_json_object():
    """The JSON form has the replaced messages, the place and the span."""
    assert Rewrite(2, (said("a"),), "s").as_dict() == {
        "at": 2,
        "span_id": "s",
        "messages": [{"role": "assistant", "content": "a"}],
    }


def test_messages_include_previous_turns_and_own_messages_do_not():
    """`messages` includes the history, `own_messages` only the turn itself."""
    third = line(3)

    assert [m.content for m in third.messages] == ["q0", "a0", "q1", "a1", "q2", "a2"]
    assert [m.content for m in third.own_messages] == ["q2", "a2"]


def test_own_messages_may_begin_inside_the_tail():
    """Earlier turns that are known only from a run's input are in its tail, but not its own."""
    trajectory = Trajectory("t", SpanRef("t", "s"), tail=(said("old"), said("new")), new_from=1)

    assert [m.content for m in trajectory.own_messages] == ["new"]


def test_own_messages_may_begin_before_the_tail():
    """Own messages that begin in the history are complete."""
    first = Trajectory("t1", SpanRef("t", "1"), tail=(said("a"), said("b")))
    second = Trajectory("t2", SpanRef("t", "2"), tail=(said("c"),), new_from=1, history=first)

    assert [m.content for m in second.own_messages] == ["b", "c"]


def test_a_long_conversation_needs_no_recursion():
    """Five thousand turns are read iteratively."""
    last = line(5000)

    assert len(last.messages) == 10_000
    assert [m.content for m in last.own_messages] == ["q4999", "a4999"]


def test_own_messages_do_not_build_the_history(monkeypatch):
    """Reading own messages does not compute the messages of the whole conversation."""
    last = line(3)
    monkeypatch.delattr(Trajectory, "messages")

    assert [m.content for m in last.own_messages] == ["q2", "a2"]


def test_messages_are_built_once():
    """The messages of the whole conversation are the same object each time."""
    last = line(3)

    assert last.messages is last.messages


def test_usages_add_up():
    """Every count is summed."""
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)


def test_a_trajectory_id_depends_on_its_root_span_only():
    """The id has 16 hex digits, is stable, and differs for different spans."""
    name = trajectory_id("t", "s")

    assert name == trajectory_id("t", "s") == "75dcdb8f1b6889a4"
    assert name not in (trajectory_id("t", "r"), trajectory_id("u", "s"))


def test_the_fingerprint_of_a_reference_depends_on_its_messages():
    """Name, source and format of the messages are irrelevant."""
    message = Message("user", "q")
    reference = Reference("a", (message,))

    assert reference.fingerprint == Reference("b", (message.as_dict(),), "file").fingerprint
    assert reference.fingerprint == Reference("c", ({"content": "q", "role": "user"},)).fingerprint
    assert reference.fingerprint != Reference("a", (Message("user", "r"),)).fingerprint
