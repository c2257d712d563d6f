"""The order of model calls, tools and requests in a replay, over kinds, sub-agents and threads."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from oteval.base.errors import ReplayDiverged
from oteval.model import (
    Chunk,
    Exchange,
    Message,
    RecordedModelCall,
    RecordedRequest,
    RecordedToolCall,
    Recording,
    ToolCall,
)
from oteval.record.context import running_thread
from oteval.replays.http_answers import HttpRequest
from oteval.replays.player import Player
from oteval.replays.recording_files import load, save

ASK = "http://models.example/v1/chat/completions"
Step = Callable[[Player], Any]


def call(text: str, start: int, *, thread: str = "", **fields: Any) -> RecordedModelCall:
    """Return a model call that takes 5 ns."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    request = RecordedRequest("chat_completions", "m", (Message("user", text),))
    times = {"start_ns": start, "end_ns": start + 5}
    exchange = Exchange("POST", ASK, {}, body, 200, chunks=(Chunk(b"{}"),), thread=thread, **times)
    return RecordedModelCall(request, Message("assistant", "ok"), exchange, **times, **fields)


def tool(name: str, start: int, **fields: Any) -> RecordedToolCall:
    """Return the execution of a tool that takes 5 ns."""
    return RecordedToolCall(name, {}, "done", start_ns=start, end_ns=start + 5, **fields)


def post(path: str, start: int, **fields: Any) -> Exchange:
    """Return a request with effects that takes 5 ns."""
    url = f"https://bank.example/{path}"
    times = {"start_ns": start, "end_ns": start + 5}
    return Exchange(**{"method": "POST", "url": url, "status": 200, **times, **fields})


def asks(text: str) -> Step:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    return lambda player: player.answer(HttpRequest("POST", ASK, {}, body))


def runs(name: str) -> Step:
    return lambda player: player.answer_tool(name, {})


def sends(path: str, method: str = "POST") -> Step:
    return lambda player: player.answer(HttpRequest(method, f"https://bank.example/{path}"))


SESSION = Recording(
    "session-1",
    "wire",
    model_calls=(call("May I pay?", 10), call("check", 50), call("mail", 60)),
    tool_calls=(tool("pay", 20),),
    exchanges=(post("debit", 30), post("credit", 40)),
)
STEPS = {
    "model call 1": asks("May I pay?"),
    "the tool pay": runs("pay"),
    "POST https://bank.example/debit": sends("debit"),
    "POST https://bank.example/credit": sends("credit"),
    "model call 2": asks("check"),
    "model call 3": asks("mail"),
}


def test_the_recorded_order_passes() -> None:
    """Nothing is out of order in an agent that has not changed."""
    player = Player(SESSION)

    for step in STEPS.values():
        step(player)

    assert player.finish().passed


@pytest.mark.parametrize(
    ("early", "late"), list(itertools.pairwise(STEPS)), ids=lambda name: name.replace(" ", "_")
)
def test_two_steps_in_the_other_order(early: str, late: str) -> None:
    """Of each pair of kinds, the steps have an order, and the divergence names both."""
    player = Player(SESSION)
    names = list(STEPS)
    index = names.index(early)
    names[index : index + 2] = late, early

    with suppress(ReplayDiverged):
        for name in names:
            STEPS[name](player)

    (divergence,) = player.finish().divergences
    assert divergence.kind == "order"
    assert (
        divergence.summary == f"{late} came before {early}, which ended before it in the recording"
    )
    assert (divergence.recorded, divergence.actual) == ([early, late], [late, early])


def test_two_tools_keep_their_own_kind() -> None:
    """Tools in the other order are named by their arguments, whether or not a model asked."""
    player = Player(Recording("s", "semconv", tool_calls=(tool("pay", 10), tool("mail", 20))))
    player.answer_tool("mail", {})

    with pytest.raises(ReplayDiverged, match="mail ran before pay") as caught:
        player.answer_tool("pay", {})

    assert caught.value.divergence.kind == "tool_order"


@pytest.mark.parametrize(
    ("recording", "steps"),
    [
        pytest.param(
            replace(SESSION, exchanges=(post("stock", 12), *SESSION.exchanges)),
            ["POST https://bank.example/stock", *STEPS],
            id="overlapped",
        ),
        pytest.param(
            replace(
                SESSION,
                exchanges=tuple(
                    replace(exchange, start_ns=0, end_ns=0) for exchange in SESSION.exchanges
                ),
            ),
            ["POST https://bank.example/debit", *(name for name in STEPS if "debit" not in name)],
            id="unknown times",
        ),
        pytest.param(
            replace(SESSION, tool_calls=(tool("pay", 20, runs_agent=True),)),
            ["the tool pay", *(name for name in STEPS if "pay" not in name)],
            id="an agent as a tool",
        ),
        pytest.param(
            replace(SESSION, exchanges=(post("rates", 5, method="GET"), *SESSION.exchanges)),
            list(STEPS),
            id="a reading request that is cached",
        ),
    ],
)
def test_what_has_no_order_passes(recording: Recording, steps: Sequence[str]) -> None:
    """Overlaps, unknown times, agents as tools, and requests that are not made, are no order."""
    player = Player(recording)

    for name in steps:
        STEPS.get(name, sends(name.rpartition("/")[2]))(player)

    assert player.finish().passed


def test_a_request_inside_an_answered_tool_is_not_out_of_order() -> None:
    """The tool's own requests are not made, and what follows it is not held up."""
    inner = post("ledger", 21, end_ns=23)
    player = Player(replace(SESSION, exchanges=(inner, *SESSION.exchanges)))

    for step in STEPS.values():
        step(player)

    assert player.finish().passed


def test_tools_that_were_timed_by_another_clock_have_no_order_with_model_calls() -> None:
    """A tool cannot begin before the model asks for it: its process has another clock."""
    session = replace(
        call("Look", 1000), answer=Message("assistant", None, (ToolCall("look", {}, "call_1"),))
    )
    player = Player(
        Recording(
            "s", "wire", model_calls=(session,), tool_calls=(tool("look", 20, call_id="call_1"),)
        )
    )
    asks("Look")(player)
    runs("look")(player)

    assert player.finish().passed


def test_sub_agents_at_the_same_time_have_no_order() -> None:
    """That one call of the first ended before one of the second began is chance."""
    first = [call(f"first {step}", 10 + step * 20, thread="task 1") for step in range(2)]
    second = [call(f"second {step}", 12 + step * 20, thread="task 2") for step in range(2)]
    calls = tuple(sorted((*first, *second), key=lambda call: call.start_ns))

    for texts in (
        ["first 0", "first 1", "second 0", "second 1"],
        ["second 0", "second 1", "first 0", "first 1"],
    ):
        player = Player(Recording("s", "wire", model_calls=calls))
        for text in texts:
            asks(text)(player)
        assert player.finish().passed


def steps_of(agent: str, count: int = 3) -> Iterator[Step]:
    """Yield the steps of a sub-agent: a tool that no model asks for, a question, a request."""
    for step in range(count):
        yield runs(f"{agent}-tool-{step}")
        yield asks(f"{agent} asks {step}")
        yield sends(f"{agent}/{step}")


def recorded_at_once(label: Callable[[str], str]) -> Recording:
    """Return the recording of two sub-agents whose steps were made in turn, and overlapped."""
    start = 10
    calls, tools, posts = [], [], []
    for step in range(3):
        for kind in range(3):
            for shift, agent in enumerate(("a", "b")):
                at, thread = start + 2 * shift, label(agent)
                if kind == 0:
                    tools.append(tool(f"{agent}-tool-{step}", at, thread=thread))
                elif kind == 1:
                    calls.append(call(f"{agent} asks {step}", at, thread=thread))
                else:
                    posts.append(post(f"{agent}/{step}", at, thread=thread))
            start += 20
    return Recording(
        "s", "wire", model_calls=tuple(calls), tool_calls=tuple(tools), exchanges=tuple(posts)
    )


@pytest.mark.parametrize("merge", [(0, 1), (1, 0)])
def test_steps_of_every_kind_at_the_same_time_have_no_order(merge: tuple[int, int]) -> None:
    """Each sub-agent keeps its own order; one may run to its end before the other one begins."""
    recording = recorded_at_once(lambda agent: f"task {agent}")
    agents = [list(steps_of("a")), list(steps_of("b"))]
    player = Player(recording)
    for agent_number in merge:
        for step in agents[agent_number]:
            step(player)
    assert player.finish().passed

    own, later_agent = agents
    player = Player(recording, miss="error")
    for step in (own[2], *own[:2], *own[3:], *later_agent):
        step(player)
    kinds = {divergence.kind for divergence in player.finish().divergences}
    assert kinds == {"order"}


async def test_threads_and_tasks_have_labels_of_their_own() -> None:
    """Two tasks of a thread, and two threads, differ; a task keeps its label."""

    async def label() -> str:
        first = running_thread()
        await asyncio.sleep(0)
        assert running_thread() == first
        return first

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(label()) for _ in range(2)]
    with ThreadPoolExecutor(1) as pool:
        in_pool = pool.submit(running_thread).result()

    assert len({*(task.result() for task in tasks), in_pool, running_thread()}) == 4


def test_the_order_of_a_saved_recording(tmp_path: Any) -> None:
    """A file keeps the threads, so that it has the same order."""
    recording = recorded_at_once(lambda agent: f"task {agent}")
    save(recording, tmp_path / "session.jsonl")

    assert load(tmp_path / "session.jsonl") == recording
