"""Simulated conversations between an app and a user."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage

import oteval

from ...model_server import Reply, completion, serving


def app(message: Any, *, thread_id: str) -> dict[str, Any]:
    """An app that repeats the message that it gets, after the thread's id."""
    return {"role": "assistant", "content": f"{thread_id}: {message['content']}"}


def texts(result: Any) -> list[str]:
    """Return the messages as texts, each after its role."""
    return [f"{message['role']}: {message['content']}" for message in result["trajectory"]]


def test_a_scripted_user_talks_to_an_app():
    """Each turn has the user's message and the answer; evaluators see the whole conversation."""

    def polite(outputs: Any, reference_outputs: Any) -> dict[str, Any]:
        return {"key": "turns", "score": len(outputs) / 2 + reference_outputs}

    result: Any = oteval.run_multiturn_simulation(
        app=app,
        user=["hi", {"role": "user", "content": "bye", "id": "m2"}],
        max_turns=2,
        trajectory_evaluators=[polite, oteval.trajectory_superset],
        reference_outputs=1,
        thread_id="t",
    )

    assert texts(result) == ["user: hi", "assistant: t: hi", "user: bye", "assistant: t: bye"]
    ids = [message["id"] for message in result["trajectory"]]
    assert ids[2] == "m2"
    assert len(set(ids)) == 4
    turns, broken = result["evaluator_results"]
    assert turns == {"key": "turns", "score": 3}
    # An evaluator that raises is said to have failed, and the others still count.
    assert (broken["key"], broken["score"]) == ("trajectory_superset", None)
    assert "reference_outputs" in broken["metadata"]["error"]


def test_a_condition_ends_the_conversation():
    """It is called after each turn, with the messages so far."""

    def user(trajectory: Any, *, turn_counter: int, **_: Any) -> str:
        return f"{turn_counter} of {len(trajectory)}"

    result: Any = oteval.run_multiturn_simulation(
        app=app,
        user=user,
        stopping_condition=lambda _, turn_counter: turn_counter == 3,
        thread_id="t",
    )

    assert texts(result)[::2] == ["user: 0 of 0", "user: 1 of 2", "user: 2 of 4"]


def test_answers_come_in_many_forms():
    """Lists, dicts of messages, LangChain messages and text; known messages are not added again."""
    call = {"role": "assistant", "content": None, "id": "c"}
    call["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": "f"}}]  # type: ignore[assignment]
    result = {"role": "tool", "content": "42", "tool_call_id": "1", "id": "r"}
    answers = iter(
        [
            [call, result, AIMessage("done", id="l")],
            {"messages": [call, result, {"role": "assistant", "content": "again", "id": "x"}]},
            "text",
        ]
    )

    simulated: Any = oteval.run_multiturn_simulation(
        app=lambda _, **__: next(answers), user=["1", "2", "3"], max_turns=3
    )

    roles = [message["role"] for message in simulated["trajectory"]]
    assert roles == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant", "user", "assistant"),
    ]
    assert [message["id"] for message in simulated["trajectory"]][3] == "l"
    assert [
        call.name for m in oteval.to_messages(simulated["trajectory"]) for call in m.tool_calls
    ] == ["f"]


def test_asynchronous_functions_are_awaited():
    """App, user, condition and evaluators may each be asynchronous or not."""

    async def aapp(message: Any, *, thread_id: str) -> str:
        await asyncio.sleep(0)
        return "yes"

    async def stops(trajectory: Any, *, turn_counter: int) -> bool:
        return turn_counter == 2

    async def judged(outputs: Any, **_: Any) -> list[dict[str, Any]]:
        return [{"key": "n", "score": len(outputs)}]

    result: Any = asyncio.run(
        oteval.run_multiturn_simulation_async(
            app=aapp,
            user=lambda _, **__: "go on",
            stopping_condition=stops,
            trajectory_evaluators=[judged],
        )
    )

    assert len(result["trajectory"]) == 4
    assert result["evaluator_results"] == [{"key": "n", "score": 4}]
    with pytest.raises(ValueError, match="use run_multiturn_simulation_async"):
        oteval.run_multiturn_simulation(app=aapp, user=["x"], max_turns=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"app": app, "user": ["x"]}, "pass max_turns, stopping_condition or both"),
        ({"app": app, "user": ["x"], "max_turns": 2}, "user has 1 messages, and turn 2 needs"),
        ({"app": lambda _, **__: 3, "user": ["x"], "max_turns": 1}, "app returned no message"),
        ({"app": lambda _, **__: [], "user": ["x"], "max_turns": 1}, "the list is empty"),
    ],
)
def test_errors_name_the_argument(options: dict[str, Any], message: str):
    """The error says which argument is missing, or which function returned no message."""
    with pytest.raises(ValueError, match=message):
        oteval.run_multiturn_simulation(**options)


def test_an_exception_of_the_app_ends_the_simulation():
    """It reaches the caller."""

    def broken(message: Any, **_: Any) -> str:
        raise LookupError("no such order")

    with pytest.raises(LookupError, match="no such order"):
        oteval.run_multiturn_simulation(app=broken, user=["x"], max_turns=1)


def test_a_model_plays_the_user():
    """It sees its instructions and the conversation with the roles swapped, without tools."""
    bodies: list[Any] = []

    def script(body: Any, number: int) -> Any:
        bodies.append(body)
        return completion(f"question {number}")

    with serving(script) as server:
        user = oteval.create_llm_simulated_user(
            system="You want a refund.",
            model="openai:small",
            base_url=server.url,
            fixed_responses=["hello"],
        )
        result: Any = oteval.run_multiturn_simulation(
            app=app, user=user, max_turns=3, thread_id="t"
        )

    assert texts(result)[::2] == ["user: hello", "user: question 1", "user: question 2"]
    assert bodies[0]["messages"] == [
        {"role": "system", "content": "You want a refund."},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "t: hello"},
    ]
    assert bodies[0]["model"] == "small"


def test_a_model_begins_the_conversation():
    """The asynchronous form does the same."""
    with serving(lambda body, _: completion(body["messages"][-1]["content"][:5])) as server:
        user = oteval.create_async_llm_simulated_user(
            system="You want a refund.", model="small", base_url=server.url
        )
        result: Any = asyncio.run(
            oteval.run_multiturn_simulation_async(app=app, user=user, max_turns=1, thread_id="t")
        )

    assert texts(result)[0] == "user: Begin"


def test_a_user_that_is_cut_off_is_an_error():
    """A message that the token limit cut off is not sent."""
    with serving(lambda *_: completion("I want", finish="length")) as server:
        user = oteval.create_llm_simulated_user(system="s", model="m", base_url=server.url)
        with pytest.raises(oteval.JudgeError, match="cut off by its token limit"):
            user([], turn_counter=0)
    with pytest.raises(ValueError, match="a simulated user needs model="):
        oteval.create_llm_simulated_user(system="s")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (completion("I want", finish="content_filter"), "stopped with 'content_filter'"),
        (Reply({"error": {"message": "slow down", "code": 429}}), "failed: slow down"),
        (completion("I want", tokens=(512, 3)), "saw only a part of the text"),
        (completion(""), "wrote no text"),
    ],
    ids=["filtered", "an error", "a part", "empty"],
)
def test_a_user_says_only_whole_messages(reply: Reply, message: str):
    """A model that failed, stopped early or saw a part of the conversation says nothing."""
    talk = [{"role": "user", "content": " ".join(map(str, range(5000)))}]
    with serving(lambda *_: reply) as server:
        user = oteval.create_llm_simulated_user(system="s", model="m", base_url=server.url)
        with pytest.raises(oteval.JudgeError, match=message):
            user(talk, turn_counter=0)
