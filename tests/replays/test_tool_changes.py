"""Repetitions from step k with other answers of tools: faults, and other results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from oteval import ConfigError
from oteval.model import Chunk, RecordedToolCall, Recording
from oteval.record.decorators import tool
from oteval.replays.http_answers import HttpAnswer
from oteval.replays.tool_changes import ToolChanges, changed_answer, changed_call, tool_changes
from oteval.replays.what_if_session import WhatIfOptions, WhatIfSession

from ..model_server import Body, Reply, Script, completion, serving
from .agents import client
from .recorded import record, tool_request

QUESTION = "Refund order 17"
OFFERED: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("refund", "repay")
]
RECORDED = RecordedToolCall("refund", {"order": 17}, '{"status":"ok"}', call_id="call_1")


class Agent:
    """A loop on the OpenAI client that shows failures of its tools to the model."""

    tools = OFFERED[:1]

    def __init__(self) -> None:
        self.results: list[str] = []
        self.ran = 0

    def tool(self) -> Callable[..., Any]:
        """Return the function that refunds for real."""

        def refund(order: int) -> dict[str, str]:
            self.ran += 1
            return {"status": "ok"}

        return refund

    def __call__(self, url: str) -> str:
        """Answer the question."""
        function = self.tool()
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        with client(url) as model:
            while True:
                done = model.chat.completions.create(
                    model="gpt-test", messages=messages, tools=self.tools
                )
                message = done.choices[0].message
                if not message.tool_calls:
                    return message.content or ""
                messages.append(message.to_dict())
                for call in message.tool_calls:
                    result = self.call(function, json.loads(call.function.arguments))
                    self.results.append(result)
                    answer = {"role": "tool", "tool_call_id": call.id, "content": result}
                    messages.append(answer)

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> str:
        """Call the tool."""
        try:
            return json.dumps(function(**arguments))
        except Exception as error:
            return f"{type(error).__name__}: {error}"


def script(body: Body, _number: int) -> Reply:
    """Script: a model that tries a failed refund again once, and then says so."""
    results = [m["content"] for m in body["messages"] if m["role"] == "tool"]
    if results and "ok" in results[-1]:
        return completion("Refunded.")
    if len(results) > 1:
        return completion("I could not refund it.")
    return tool_request(("refund", '{"order": 17}'), call_id=f"call_{len(results)}")


def repeat(
    agent: Callable[[str], Any] | None = None,
    model: Script = script,
    recording: Recording | None = None,
    **options: Any,
) -> tuple[WhatIfSession, list[Body]]:
    """Repeat a recorded refund, and return the session and the requests to the live model."""
    slept: list[float] = []
    session = WhatIfSession(
        recording or record(Agent(), script), WhatIfOptions(**options), sleep=slept.append
    )
    session.slept = slept  # type: ignore[attr-defined]
    with serving(model) as server, session:
        (agent or Agent())(server.url)
    return session, server.requests


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        ("refund=timeout", "TimeoutError: the tool timed out"),
        ("refund=error:503", "RuntimeError: HTTP 503: Service Unavailable"),
        ("refund=error", "RuntimeError: HTTP 500: Internal Server Error"),
        ("refund=empty", "{}"),
        ("refund=malformed", '"{\\"status\\":"'),
        ("refund=wrong-type", '"0"'),
    ],
)
def test_faults_reach_the_agent_as_its_tool_would_raise_or_return_them(
    fault: str, result: str
) -> None:
    """The tool never runs, and the new run has a failed call."""
    agent = Agent()

    session, requests = repeat(agent, faults=(fault,))

    new = session.player.new_recording
    assert agent.results == [result, result]
    assert agent.ran == 0
    assert [call.is_error for call in new.tool_calls] == [True, True]
    assert session.player.coverage.changed == (fault, fault)
    assert requests[-1]["messages"][-1]["content"] == result


def test_a_retry_gets_the_recorded_result() -> None:
    """A fault of the first call does not use up the recording."""
    agent = Agent()

    session, _ = repeat(agent, faults=("refund#1=timeout",))

    coverage = session.player.coverage
    assert agent.results == ["TimeoutError: the tool timed out", '{"status": "ok"}']
    assert (coverage.exact, coverage.replaced, coverage.tool_calls) == (1, 1, 2)
    assert coverage.text == "1 exact, 1 changed"


def test_a_slow_tool_waits_for_the_time_that_it_is_given() -> None:
    """A blocking function waits; nothing sleeps for real in this test."""
    agent = Agent()

    session, _ = repeat(agent, faults=("refund=slow:5s",))

    assert session.slept == [5.0]  # type: ignore[attr-defined]
    assert agent.results == ['{"status": "ok"}']
    assert session.player.new_recording.tool_calls[0].is_error is False


class LateAgent(Agent):
    """An agent with a tool that is a coroutine, and a time limit of its own for it."""

    tools = OFFERED[1:]

    def __init__(self, decorate: Callable[..., Any] = lambda function: function) -> None:
        super().__init__()
        self.decorate = decorate

    def tool(self) -> Callable[..., Any]:
        """Return the coroutine function that pays for real."""

        async def repay(order: int) -> dict[str, str]:
            self.ran += 1
            return {"status": "ok"}

        decorated: Callable[..., Any] = self.decorate(repay)
        return decorated

    def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> str:
        """Call the tool with a time limit."""

        async def limited() -> Any:
            return await asyncio.wait_for(function(**arguments), 0.01)

        try:
            return json.dumps(asyncio.run(limited()))
        except TimeoutError:
            return "TimeoutError"


@pytest.mark.parametrize("decorate", [lambda function: function, tool])
def test_a_slow_coroutine_lets_the_agents_time_limit_end_it(decorate: Callable[..., Any]) -> None:
    """The delay is awaited on the agent's event loop, so that its own time limit counts."""

    def late_script(body: Body, number: int) -> Reply:
        reply = script(body, number)
        return Reply(json.loads(json.dumps(reply.body).replace("refund", "repay")))

    recording, agent = record(LateAgent(), late_script), LateAgent(decorate)
    session = WhatIfSession(recording, WhatIfOptions(faults=("repay#1=slow:60s",)))

    with serving(late_script) as server, session:
        agent(server.url)

    assert agent.results == ["TimeoutError", '{"status": "ok"}']
    assert agent.ran == 0


def test_another_result_of_a_tool() -> None:
    """The content of the option takes the place of the recorded result of one call."""
    agent = Agent()

    session, requests = repeat(agent, tool_results={"refund#1": '{"status": "denied"}'})

    assert agent.results == ['{"status": "denied"}', '{"status": "ok"}']
    assert session.player.coverage.changed == ("refund#1",)
    assert session.player.new_recording.tool_calls[0].is_error is False
    assert len(requests) == 3


def test_calls_before_step_k_are_kept() -> None:
    """The recording answers the first model call, and the live model only the second."""
    agent = Agent()

    session, requests = repeat(agent, from_call=2, tool_results={"refund": '{"status": "no"}'})

    new = session.player.new_recording
    assert len(requests) == 2
    assert [message["role"] for message in requests[0]["messages"]] == ["user", "assistant", "tool"]
    assert requests[0]["messages"][-1]["content"] == '{"status": "no"}'
    assert len(new.model_calls) == 3
    assert session.result.divergences == ()


def test_kept_calls_are_not_changed() -> None:
    """A call is counted from the beginning of the session, and changed only from step k on."""

    def twice(body: Body, _number: int) -> Reply:
        count = sum(message["role"] == "tool" for message in body["messages"])
        if count == 2:
            return completion("Refunded.")
        return tool_request(("refund", f'{{"order": {17 + count}}}'), call_id=f"call_{count}")

    recording, agent = record(Agent(), twice), Agent()
    session, requests = repeat(
        agent, twice, recording, from_call=3, faults=("refund=timeout", "refund#1=empty")
    )

    assert agent.results == ['{"status": "ok"}', "TimeoutError: the tool timed out"]
    assert session.player.coverage.changed == ("refund=timeout",)
    assert len(requests) == 1


def test_an_agent_that_differs_before_step_k_is_a_divergence() -> None:
    """No request reaches the model, and the result names the difference."""

    def changed(url: str) -> None:
        messages: list[Any] = [{"role": "user", "content": "Refund order 18"}]
        with client(url) as model, pytest.raises(Exception, match="replay"):
            model.chat.completions.create(model="gpt-test", messages=messages)

    session, requests = repeat(changed, from_call=2)

    (divergence,) = session.result.divergences
    assert divergence.kind == "prompt"
    assert "model call 1" in divergence.summary
    assert requests == []


def test_requests_of_tools_get_faults_as_well() -> None:
    """A tool that runs gets the error of its server, once the server's URL is selected."""

    def ask(url: str, seen: list[Any]) -> None:
        with client(url) as model, httpx2.Client(verify=False, timeout=3) as http:
            model.chat.completions.create(
                model="gpt-test", messages=[{"role": "user", "content": QUESTION}]
            )
            for _ in range(2):
                try:
                    seen.append(http.post(f"{url}/orders/17", json={}).status_code)
                except httpx2.ReadTimeout:
                    seen.append("ReadTimeout")

    def serve(body: Body, _number: int) -> Reply:
        return completion("Hi")

    recording = record(lambda url: ask(url, []), serve)
    url = "http://*/orders/*"
    faults = ("error:503", 503), ("timeout", "ReadTimeout"), ("slow:3s", "ReadTimeout")
    for fault, expected in faults:
        seen: list[Any] = []

        session, _ = repeat(
            lambda url, seen=seen: ask(url, seen), serve, recording, faults=(f"{url}#1={fault}",)
        )

        assert seen == [expected, 200]
        assert session.player.coverage.changed == (f"{url}#1={fault}",)


def test_answers_of_requests() -> None:
    """Each fault as a client sees it; what cannot be simulated is refused."""
    answer = HttpAnswer(headers={"content-type": "application/json"}, chunks=(Chunk(b'{"a":1}'),))

    def changed(fault: str, limit: float | None = None) -> HttpAnswer | None:
        (change,) = tool_changes([f"http://shop/*={fault}"])
        return changed_answer(answer, change, limit)

    texts = {fault: changed(fault).body for fault in ("empty", "malformed", "wrong-type")}  # type: ignore[union-attr]
    assert texts == {"empty": b"", "malformed": b'{"a":', "wrong-type": b"0"}
    assert changed("slow:5s", limit=3).error.startswith("ReadTimeout")  # type: ignore[union-attr]
    assert changed("slow:5s", limit=9) == answer
    assert changed("slow:5s") is None


@pytest.mark.parametrize(
    ("recorded", "kind", "result"),
    [
        ("refunded", "empty", ""),
        ("[1, 2]", "empty", "[]"),
        ("refunded", "malformed", '{"result":'),
        ("7", "wrong-type", "{}"),
        ("refunded", "wrong-type", "0"),
    ],
)
def test_damaged_results_show_no_success(recorded: str, kind: str, result: str) -> None:
    """They have the recorded type or another one, and nothing of the recorded content."""
    (change,) = tool_changes([f"refund={kind}"])

    assert changed_call(RecordedToolCall("refund", {}, recorded), change).result == result


def test_calls_are_selected_by_number_name_and_seed() -> None:
    """The first change that selects a call counts; a seed selects the same calls again."""
    changes = ToolChanges(tool_changes(["refund#2=timeout", "re*=empty"], {"lookup": "x"}))
    kinds = [getattr(changes.take(name), "kind", None) for name in ("refund", "refund", "lookup")]

    def drawn(seed: int, session: str = "s") -> list[bool]:
        at_random = ToolChanges(tool_changes(["refund=timeout@0.3"]), seed=seed, session=session)
        return [at_random.take("refund") is not None for _ in range(300)]

    assert kinds == ["empty", "timeout", "result"]
    assert changes.applied == ["re*=empty", "refund#2=timeout", "lookup"]
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    assert drawn(7) != drawn(7, "t")
    assert 60 < sum(drawn(7)) < 120


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refund", "write --fault TOOL"),
        ("refund=broken", "'broken' is none of timeout, error, empty, slow, malformed, wrong-type"),
        ("refund=error:200", "'200' is not an HTTP status from 400 to 599"),
        ("refund=slow", "write slow:TIME, such as slow:5s"),
        ("refund=slow:x", "write slow:TIME"),
        ("refund=empty:1", "empty takes no value"),
        ("refund#0=timeout", "calls are numbered from #1"),
        ("refund=timeout@2", "the rate '2' is not above 0 and at most 1"),
        ("refund#1=timeout@0.5", "give #N or @RATE, not both"),
    ],
)
def test_wrong_faults_are_refused(fault: str, message: str) -> None:
    """The message has the option and the remedy."""
    with pytest.raises(ConfigError, match=r"fault|numbered") as raised:
        WhatIfOptions(faults=(fault,))
    assert message in str(raised.value)


def test_sessions_that_cannot_be_changed_are_named() -> None:
    """A recorded run without the tool, or without a live call, is not repeated."""
    recording = record(Agent(), script)

    assert WhatIfOptions(faults=("pay=timeout",)).unsuitable(recording) == (
        "pay=timeout: the recorded run has no call of pay"
    )
    assert WhatIfOptions(from_call=3).unsuitable(recording) == (
        "the recording has 2 model calls, none is live"
    )
    assert WhatIfOptions(from_call=2, faults=("refund=empty",)).unsuitable(recording) == ""
    assert WhatIfOptions(faults=("refund#2=empty",), from_call=2).not_applied(()) == (
        "refund#2=empty was not put in: the agent did not make call 2 of it from model call 2 on"
    )
