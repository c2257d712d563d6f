"""Replays of agents that use the real openai client: answers, divergences, misses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest

import oteval
from oteval.base.errors import ConfigError, ReplayDiverged
from oteval.model import Chunk, RecordedToolCall, Recording
from oteval.replays.divergence import Divergence

from ..model_server import Body, Reply, completion, error, serving, streamed
from .agents import (
    RESULTS,
    SYSTEM,
    TOOLS,
    async_client,
    chat,
    client,
    parallel_agent,
    refund_agent,
    refunds,
)
from .recorded import record, recording_of

URL = "http://127.0.0.1:65535/v1"  # nobody answers there; the port may differ


def answer(body: Body, number: int) -> Reply:
    """Script: repeat the last message."""
    return completion(f"{body['messages'][-1]['content']}: answer {number}")


@pytest.fixture(scope="module")
def single() -> Recording:
    """Return the recording of one model call."""
    return record(chat, answer)


@pytest.fixture(scope="module")
def refund() -> Recording:
    """Return the recording of an agent with two tools, run one after the other."""
    return record(refund_agent, refunds)


def only(caught: pytest.ExceptionInfo[ReplayDiverged], replay: Any) -> Divergence:
    """Return the divergence of a replay, which must be the only one."""
    (divergence,) = replay.result.divergences
    assert caught.value.divergence is divergence
    return divergence


def test_a_replay_needs_no_server(refund: Recording) -> None:
    """Chat completions are answered from the recording, at any port of this machine."""
    with oteval.replay(refund) as replay:
        assert refund_agent(URL) == "Refunded."

    assert replay.result.passed
    assert (replay.result.served, replay.result.model_calls) == (2, 2)
    assert replay.result.coverage == 1
    assert replay.result.fidelity == "wire"


def test_a_stream_is_replayed_chunk_by_chunk() -> None:
    """The chunks of a stream arrive as recorded."""

    def agent(url: str) -> list[str | None]:
        with client(url) as model:
            messages: list[Any] = [{"role": "user", "content": "Hi"}]
            events = model.chat.completions.create(model="m", messages=messages, stream=True)
            return [event.choices[0].delta.content for event in events if event.choices]

    recording = record(agent, lambda *_: streamed("Hello there, friend"))

    with oteval.replay(recording):
        assert agent(URL)[:3] == ["Hello t", "here, f", "riend"]


def test_a_stream_is_rebuilt_for_an_agent_that_did_not_stream(single: Recording) -> None:
    """An answer recorded as JSON is streamed if the agent now asks for a stream; that is noted."""
    with oteval.replay(single, miss="ordinal") as replay, client(URL) as model:
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Refund 17"},
        ]
        events = model.chat.completions.create(model="gpt-test", messages=messages, stream=True)
        texts = [event.choices[0].delta.content or "" for event in events if event.choices]

    assert "".join(texts) == "Refund 17: answer 1"
    (divergence,) = replay.divergences
    assert divergence.summary == "model call 1: stream is true instead of not set"


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}


def respond(url: str) -> str:
    """Ask by the Responses API."""
    with client(url) as model:
        return model.responses.create(model="m", input="Hi", instructions="Greet").output_text


def respond_streaming(url: str) -> str:
    """Ask by the Responses API for a stream."""
    with client(url) as model:
        events = model.responses.create(model="m", input="Hi", instructions="Greet", stream=True)
        return "".join(e.delta for e in events if e.type == "response.output_text.delta")


@pytest.mark.parametrize(("agent", "differences"), [(respond, 0), (respond_streaming, 1)])
def test_the_responses_api_is_replayed(agent: Callable[[str], str], differences: int) -> None:
    """The Responses API is answered as chat completions are, also as a stream."""
    recording = record(respond, lambda *_: Reply(RESPONSE))

    with oteval.replay(recording, miss="ordinal") as replay:
        assert agent(URL) == "Hello"

    assert len(replay.divergences) == differences


def test_timing_as_recorded(single: Recording) -> None:
    """The chunks come at their recorded times after the request."""
    exchange = single.model_calls[0].exchange
    assert exchange is not None
    late = replace(exchange, chunks=(Chunk(exchange.response_body, 50_000_000),))

    with oteval.replay(recording_of([late]), timing="recorded"):
        begin = time.perf_counter()
        chat(URL)

    assert time.perf_counter() - begin >= 0.05


async def test_parallel_requests_may_come_in_any_order() -> None:
    """Requests made at the same time get the answers of their own questions."""
    questions = ["one", "two", "three"]
    recording = await asyncio.to_thread(
        record, lambda url: asyncio.run(parallel_agent(url, questions)), answer
    )

    async with oteval.replay(recording) as replay:
        answers = await parallel_agent(URL, questions, delays=(0.02, 0.01, 0.0))

    assert [text.split(":")[0] for text in answers] == questions
    assert replay.result.passed


def test_retries_happen_as_recorded_without_waiting() -> None:
    """A recorded 429 is served, and the client's own retry gets the recorded answer."""

    def script(_body: Body, number: int) -> Reply:
        if number == 1:
            return error(429, "slow down", retry_after_ms="1")
        return completion("at last")

    def agent(url: str) -> str | None:
        with client(url, max_retries=2) as model:
            messages: list[Any] = [{"role": "user", "content": "Hi"}]
            done = model.chat.completions.create(model="m", messages=messages)
            return done.choices[0].message.content

    recording = record(agent, script)

    with oteval.replay(recording) as replay:
        assert agent(URL) == "at last"

    assert replay.result.served == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("ReadTimeout: timed out", openai.APITimeoutError),
        ("ConnectError: refused", openai.APIConnectionError),
        ("SomethingElse: failed", openai.APIConnectionError),
    ],
)
def test_a_recorded_error_of_the_transport_is_raised(
    single: Recording, error: str, kind: type[Exception]
) -> None:
    """An exchange without a response raises the exception of the client's library."""
    exchange = single.model_calls[0].exchange
    assert exchange is not None
    failed = replace(exchange, status=0, chunks=(), error=error)

    with oteval.replay(recording_of([failed])) as replay, pytest.raises(kind):
        chat(URL)

    assert replay.result.passed


def test_an_edited_prompt_is_one_divergence(refund: Recording) -> None:
    """The divergence names the message, its texts and the line of the agent's code."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(refund) as replay:
        refund_agent(URL, system=f"{SYSTEM} Be brief.")

    divergence = only(caught, replay)
    assert (divergence.kind, divergence.call, divergence.message) == ("prompt", 1, 0)
    assert (divergence.recorded, divergence.actual) == (SYSTEM, f"{SYSTEM} Be brief.")
    assert "agents.py:" in divergence.line
    assert divergence.line.endswith("in refund_agent")


def test_a_changed_tool_result_is_one_divergence(refund: Recording) -> None:
    """The request with the result differs, and names the tool."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(refund, tools="run") as replay:
        refund_agent(URL, results={**RESULTS, "lookup": "paid 31 EUR"})

    divergence = only(caught, replay)
    assert (divergence.kind, divergence.call, divergence.message) == ("tool_result", 2, 3)
    assert "lookup" in divergence.summary
    assert "--normalize" in divergence.suggestion


def test_swapped_tools_are_one_divergence(refund: Recording) -> None:
    """Results in another order are a divergence if the tools ran one after the other."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(refund) as replay:
        refund_agent(URL, order=(1, 0))

    divergence = only(caught, replay)
    assert (divergence.kind, divergence.call) == ("tool_order", 2)
    assert (divergence.recorded, divergence.actual) == (["lookup", "refund"], ["refund", "lookup"])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"tools": TOOLS[:1]}, "tool_schema"),
        ({"model": "gpt-other"}, "model"),
    ],
)
def test_other_changes_of_the_request(refund: Recording, change: Any, kind: str) -> None:
    """Tools and the model are compared as well."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(refund) as replay:
        refund_agent(URL, **change)

    assert only(caught, replay).kind == kind


def test_calls_that_were_not_made_are_missing(refund: Recording) -> None:
    """An agent that stops early diverges at the end of the replay."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(refund) as replay:
        pass

    divergence = only(caught, replay)
    assert (divergence.kind, divergence.call) == ("missing_call", 1)


def test_calls_that_were_not_recorded_are_extra(single: Recording) -> None:
    """A repeated request has no second answer."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(single) as replay:
        [chat(URL) for _ in range(2)]

    assert only(caught, replay).kind == "extra_call"


def test_normalize_ignores_text_that_varies(single: Recording) -> None:
    """Text that matches a pattern is equal."""
    with oteval.replay(single, normalize=[r"\d+"]) as replay:
        assert chat(URL, question="Refund 18") == "Refund 17: answer 1"

    assert replay.result.passed


def hides_exceptions() -> None:
    """Ask with another prompt, and go on after an exception."""
    try:
        chat(URL, "Another prompt")
    except Exception:
        pytest.fail("the agent saw an ordinary exception")


def hides_everything() -> None:
    """Ask with another prompt, hide everything, and ask again."""
    with contextlib.suppress(BaseException):
        chat(URL, "Another prompt")
    with pytest.raises(ReplayDiverged):
        chat(URL)


def exits() -> None:
    """Ask with another prompt, and end the program if that fails."""
    try:
        chat(URL, "Another prompt")
    except BaseException as caught:
        raise SystemExit(0) from caught


@pytest.mark.parametrize("agent", [hides_exceptions, hides_everything, exits])
def test_an_agent_cannot_hide_a_divergence(single: Recording, agent: Callable[[], None]) -> None:
    """Neither ``except Exception`` nor a bare ``except`` nor an exit makes a replay pass."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(single) as replay:
        agent()

    assert only(caught, replay).kind == "prompt"


def test_an_error_of_the_agent_is_not_replaced(single: Recording) -> None:
    """Without a divergence, the agent's exception passes; calls after it are not missing."""
    with pytest.raises(ZeroDivisionError), oteval.replay(single) as replay:
        raise ZeroDivisionError

    assert replay.result.passed


def in_thread(work: Callable[[], object]) -> None:
    """Run a function in a bare thread that swallows everything."""

    def run() -> None:
        with contextlib.suppress(BaseException):
            work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def in_pool(work: Callable[[], object]) -> None:
    """Run a function in a pool, and ignore its future."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work)


def in_task(work: Callable[[], object]) -> None:
    """Run a function in a task whose exception nobody retrieves."""

    async def main() -> None:
        await asyncio.gather(asyncio.to_thread(work), return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("swallow", [in_thread, in_pool, in_task])
def test_threads_and_tasks_hide_nothing(
    single: Recording, swallow: Callable[[Callable[[], object]], None]
) -> None:
    """A divergence that a thread or a task swallows is raised at the end of the block."""
    with pytest.raises(ReplayDiverged) as caught, oteval.replay(single) as replay:
        swallow(lambda: chat(URL, "Another prompt"))

    assert only(caught, replay).kind == "prompt"


def test_a_task_group_hides_nothing(single: Recording) -> None:
    """A group of exceptions with a divergence becomes the divergence."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(chat, URL, "Another prompt"))

    with pytest.raises(ReplayDiverged), oteval.replay(single):
        asyncio.run(main())


def test_miss_error_answers_with_an_http_error(single: Recording) -> None:
    """The client raises its own exception once; the block does not raise."""
    with (
        oteval.replay(single, miss="error") as replay,
        pytest.raises(openai.ConflictError, match="oteval replay"),
    ):
        chat(URL, "Another prompt", timeout=5)

    assert [divergence.kind for divergence in replay.result.divergences] == ["prompt"]
    assert not replay.result.passed


def test_miss_ordinal_gives_the_recorded_answer(refund: Recording) -> None:
    """The agent runs to its end with the recorded answers; one change is one divergence."""
    with oteval.replay(refund, miss="ordinal") as replay:
        assert refund_agent(URL, system=f"{SYSTEM} Be brief.") == "Refunded."

    assert [divergence.kind for divergence in replay.result.divergences] == ["prompt"]
    assert replay.result.flagged == 2


def test_miss_fork_goes_on_for_real(refund: Recording) -> None:
    """From the first divergence on, requests reach the model; they are counted."""
    with serving(refunds) as server, oteval.replay(refund, miss="fork", allow_live=True) as replay:
        assert refund_agent(server.url, system="Another.") == "Refunded."

    assert len(server.requests) == replay.result.live == 2


def test_fork_needs_permission(single: Recording) -> None:
    """Real requests are never sent by accident."""
    with pytest.raises(ConfigError, match="allow_live"):
        oteval.replay(single, miss="fork")


def test_replays_cannot_be_nested(single: Recording) -> None:
    """A replay inside another is refused, and the outer one goes on."""
    with oteval.replay(single) as replay:
        with pytest.raises(ConfigError, match="in progress"), oteval.replay(single):
            pass
        assert chat(URL)

    assert replay.result.passed


async def test_replays_in_parallel_are_kept_apart() -> None:
    """Each task has its own recording."""
    recordings = [
        record(lambda url, word=word: chat(url, question=word), lambda body, _: answer(body, 1))
        for word in ("one", "two", "three")
    ]
    words = iter(("one", "two", "three"))

    async def verify(recording: Recording, word: str) -> str:
        async with oteval.replay(recording) as replay, async_client(URL) as model:
            await asyncio.sleep(0)
            messages: list[Any] = [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": word},
            ]
            done = await model.chat.completions.create(model="gpt-test", messages=messages)
        assert replay.result.passed
        return done.choices[0].message.content or ""

    outcomes = await asyncio.gather(*(verify(recording, next(words)) for recording in recordings))

    assert outcomes == ["one: answer 1", "two: answer 1", "three: answer 1"]


def test_replays_in_threads_are_kept_apart(single: Recording) -> None:
    """Threads that an agent starts belong to its replay."""

    def verify(_number: int) -> bool:
        with oteval.replay(single) as replay, ThreadPoolExecutor(1) as pool:
            assert pool.submit(chat, URL).result() == "Refund 17: answer 1"
        return replay.result.passed

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(verify, range(8)))


def test_everything_is_restored(single: Recording) -> None:
    """After a replay, also one that failed, sockets, names, threads and clients are as before."""
    import _socket
    import socket
    import ssl

    def state() -> list[Any]:
        owners = (socket.socket, ssl.SSLSocket, socket, _socket, threading.Thread)
        more = (ThreadPoolExecutor, asyncio.BaseEventLoop, httpx.HTTPTransport)
        return [dict(vars(owner)) for owner in (*owners, *more)]

    before = state()
    with pytest.raises(ReplayDiverged), oteval.replay(single):
        chat(URL, "Another prompt")

    assert state() == before


def test_a_client_can_be_passed_explicitly(single: Recording) -> None:
    """`http_client` gives a client that this replay answers, for either library."""
    with (
        oteval.replay(single) as replay,
        replay.http_client() as http,
        openai.OpenAI(base_url=URL, api_key="key", http_client=http) as model,
    ):
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": "Refund 17"},
        ]
        done = model.chat.completions.create(model="gpt-test", messages=messages)
        assert done.choices[0].message.content == "Refund 17: answer 1"


def executed(name: str, start: int, end: int, **more: Any) -> RecordedToolCall:
    """Return a recorded execution."""
    fields = {"result": RESULTS[name], "start_ns": start, "end_ns": end, "span_id": name, **more}
    return RecordedToolCall(name, {"order": 17}, **fields)


def test_tools_are_answered_from_the_recording() -> None:
    """The plain functions of a loop do not run."""
    tools = [executed("lookup", 10, 20), executed("refund", 30, 40)]
    recording = record(refund_agent, refunds, tools)

    with oteval.replay(recording) as replay:
        wrong = {"lookup": "ran", "refund": "ran"}
        assert refund_agent(URL, results=wrong) == "Refunded."

    assert replay.result.served_tools == 2


def test_tools_run_if_asked_for() -> None:
    """With ``tools="run"`` the tools run, and their results are compared."""
    tools = [executed("lookup", 10, 20), executed("refund", 30, 40)]
    recording = record(refund_agent, refunds, tools)

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recording, tools="run") as replay:
        refund_agent(URL, results={**RESULTS, "refund": "refused"})

    assert only(caught, replay).kind == "tool_result"


@pytest.mark.parametrize(("start", "kinds"), [(30, ["tool_order"]), (15, [])])
def test_the_order_of_intercepted_tools(start: int, kinds: list[str]) -> None:
    """Another order is a divergence, unless the recorded executions overlapped."""
    tools = [
        executed("lookup", 10, 20, call_id="call_1"),
        executed("refund", start, 40, call_id="call_2"),
    ]
    recording = record(refund_agent, refunds, tools)

    with contextlib.suppress(ReplayDiverged), oteval.replay(recording) as replay:
        refund_agent(URL, order=(1, 0))

    assert [divergence.kind for divergence in replay.result.divergences] == kinds


def test_a_tool_with_other_arguments_diverges() -> None:
    """The arguments of an intercepted tool are compared, and both are shown."""
    recording = record(refund_agent, refunds, [executed("lookup", 10, 20)])

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recording) as replay:
        replay.player.answer_tool("lookup", {"order": 18})

    divergence = only(caught, replay)
    assert divergence.kind == "tool_call"
    assert (divergence.recorded["arguments"], divergence.actual["arguments"]) == (
        {"order": 17},
        {"order": 18},
    )
