"""The answers of agents: another one than recorded is a divergence of its own kind."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.base.redaction.secrets import SecretRedactor
from oteval.model import RecordedAnswer, Recording, Span
from oteval.replays.agent_answers import AgentAnswers
from oteval.replays.recording_files import load, save
from oteval.replays.redacted_recordings import redacted_recording
from oteval.replays.session import ReplaySession
from oteval.replays.target import replay_target

from .recorded_tools import recorded_agent, recording_of_spans
from .shop import shop_recording


@dataclass
class Reply:
    """An answer as a dataclass."""

    text: str
    order: int


class Model(pydantic.BaseModel):
    """An answer as a model."""

    text: str


def raising(error: BaseException) -> Callable[[], Any]:
    """Return a function that raises."""

    def fail() -> Any:
        raise error

    return fail


def agent_of(act: Callable[[], Any], name: str = "clerk", **options: Any) -> Any:
    """Return an agent that answers with the result of a function."""

    @oteval.agent(name=name, **options)
    def clerk(question: str) -> Any:
        return act()

    return lambda: clerk("Refund 17")


def async_agent_of(act: Callable[[], Any]) -> Any:
    """Return a coroutine function, called."""

    @oteval.agent
    async def clerk(question: str) -> Any:
        await asyncio.sleep(0)
        return act()

    return lambda: asyncio.run(clerk("Refund 17"))


def stream_of(act: Callable[[], Any]) -> Any:
    """Return a generator, read to its end."""

    @oteval.agent
    def clerk(question: str) -> Iterator[Any]:
        yield "Well: "
        yield str(act())

    return lambda: list(clerk("Refund 17"))


def async_stream_of(act: Callable[[], Any]) -> Any:
    """Return an asynchronous generator, read to its end."""

    @oteval.agent
    async def clerk(question: str) -> AsyncIterator[Any]:
        yield "Well: "
        yield str(act())

    async def read() -> list[Any]:
        return [chunk async for chunk in clerk("Refund 17")]

    return lambda: asyncio.run(read())


AGENTS = (agent_of, async_agent_of, stream_of, async_stream_of)

CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str, str]] = {
    "text": (lambda: "Refunded.", lambda: "ERROR", "Refunded.", "ERROR"),
    "nothing": (lambda: None, lambda: "ERROR", "None", "ERROR"),
    "no answer": (lambda: "Refunded.", lambda: None, "Refunded.", "None"),
    "text of nothing": (
        lambda: None,
        lambda: "None",
        "None (builtins:NoneType)",
        "None (builtins:str)",
    ),
    "number": (lambda: 7, lambda: 8, "7", "8"),
    "type": (lambda: 7, lambda: "7", "7 (builtins:int)", "7 (builtins:str)"),
    "dict": (lambda: {"a": 1}, lambda: {"a": 2}, '{"a":1}', '{"a":2}'),
    "dataclass": (
        lambda: Reply("Done", 17),
        lambda: Reply("Done", 18),
        '{"text":"Done","order":17}',
        '{"text":"Done","order":18}',
    ),
    "model": (
        lambda: Model(text="Done"),
        lambda: Model(text="No"),
        '{"text":"Done"}',
        '{"text":"No"}',
    ),
    "messages": (
        lambda: [{"role": "assistant", "content": "Done"}],
        lambda: [{"role": "assistant", "content": "No"}],
        "Done",
        "No",
    ),
    "exception": (
        raising(ValueError("no order")),
        lambda: "sorry",
        "ValueError: no order",
        "sorry",
    ),
}


@pytest.mark.parametrize("form", AGENTS)
@pytest.mark.parametrize("name", CHANGES)
def test_an_unchanged_answer_passes(name: str, form: Any, tmp_path: Path) -> None:
    """The same value, or the same exception, is no divergence, whatever the function's kind."""
    save(recorded_agent(form(CHANGES[name][0])), tmp_path / "recording.jsonl")

    with oteval.replay(load(tmp_path / "recording.jsonl")) as replay, suppress(ValueError):
        form(CHANGES[name][0])()

    assert replay.result.passed
    assert replay.result.reasons == replay.recording.reasons


@pytest.mark.parametrize("form", AGENTS)
@pytest.mark.parametrize("name", CHANGES)
def test_another_answer_is_a_divergence(name: str, form: Any) -> None:
    """The report has both answers, and where the agent's function is."""
    before, after, recorded, actual = CHANGES[name]
    recording = recorded_agent(form(before))
    is_stream = form in (stream_of, async_stream_of)
    if is_stream and name in ("type", "text of nothing"):
        return  # both are the same text

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recording):
        form(after)()

    divergence = caught.value.divergence
    assert divergence.kind == "answer"
    assert divergence.line.startswith(f"{Path(__file__).name}:") or __file__.endswith(
        divergence.line.partition(":")[0]
    )
    assert divergence.line.endswith("clerk")
    if not is_stream:
        assert (divergence.recorded, divergence.actual) == (recorded, actual)


def test_answers_of_sub_agents_belong_to_their_questions() -> None:
    """Agents of the same name may answer in another order; another answer to one is reported."""

    def run(*answers: tuple[str, str]) -> Callable[[], Any]:
        @oteval.agent
        def checker(question: str, answer: str) -> str:
            return answer

        @oteval.agent
        def lead(question: str) -> str:
            for answer in answers:
                checker(*answer)
            return "done"

        return lambda: lead("Check both")

    recording = recorded_agent(run(("a", "yes"), ("b", "no")))
    assert [answer.agent for answer in recording.answers] == ["lead", "checker", "checker"]

    with oteval.replay(recording):
        run(("b", "no"), ("a", "yes"))()
    with (
        pytest.raises(ReplayDiverged, match="the agent checker returned another answer"),
        oteval.replay(recording),
    ):
        run(("a", "yes"), ("b", "maybe"))()


def test_a_renamed_agent_is_compared() -> None:
    """The only agent of a recording is the only one of a replay, whatever its name."""
    recording = recorded_agent(agent_of(lambda: "Refunded."))

    with pytest.raises(ReplayDiverged, match="another answer"), oteval.replay(recording):
        agent_of(lambda: "ERROR", name="assistant")()


def test_variable_parts_of_an_answer_are_ignored() -> None:
    """--normalize applies to answers too."""
    recording = recorded_agent(agent_of(lambda: "Refunded at 12:01"))

    with oteval.replay(recording, normalize=[r"\d\d:\d\d"]):
        agent_of(lambda: "Refunded at 17:30")()


@dataclass
class Stamped:
    """An answer with an id and a time, such as a library's object."""

    text: str
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


def test_ids_and_times_in_objects_are_not_compared() -> None:
    """They differ in every run, also of an agent that has not changed; in plain JSON they count."""
    recording = recorded_agent(agent_of(lambda: {"reply": Stamped("Done")}))

    with oteval.replay(recording):
        agent_of(lambda: {"reply": Stamped("Done")})()
    with pytest.raises(ReplayDiverged), oteval.replay(recording):
        agent_of(lambda: {"reply": Stamped("No")})()

    plain = recorded_agent(agent_of(lambda: {"id": str(uuid.uuid4())}))
    with pytest.raises(ReplayDiverged), oteval.replay(plain):
        agent_of(lambda: {"id": str(uuid.uuid4())})()


def test_a_redacted_answer_equals_any_text() -> None:
    """What redaction removed from the recording cannot differ."""
    secret = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"
    recording = recorded_agent(agent_of(lambda: f"Your key: {secret}"))
    clean = redacted_recording(recording, SecretRedactor([]))
    assert secret not in str(clean)

    with oteval.replay(clean):
        agent_of(lambda: "Your key: other")()
    with pytest.raises(ReplayDiverged), oteval.replay(clean):
        agent_of(lambda: "No key")()


def test_a_stream_that_was_left_early_is_not_compared() -> None:
    """How much of a generator is read depends on its consumer."""

    @oteval.agent
    def clerk(question: str) -> Iterator[str]:
        yield "a"
        yield "b"

    recording = recorded_agent(lambda: next(clerk("Hi")))

    with oteval.replay(recording):
        list(clerk("Hi"))


def test_hidden_answers_are_not_compared() -> None:
    """An agent without content in its spans has no recorded answer."""
    recording = recorded_agent(agent_of(lambda: "a", capture_content=False))

    with oteval.replay(recording):
        agent_of(lambda: "b", capture_content=False)()


def test_recordings_without_answers_pass() -> None:
    """Recordings of earlier versions have none."""
    recording = replace(recorded_agent(agent_of(lambda: "a")), answers=())

    with oteval.replay(recording):
        agent_of(lambda: "b")()


# Targets


FRAMEWORK = (
    RecordedAnswer(
        "clerk",
        answer=json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": "Refunded."}]}]
        ),
    ),
)


@pytest.mark.parametrize(
    ("returned", "is_same"),
    [
        ("Refunded.", True),
        ("Answer: Refunded. Bye", True),
        (["Refun", "ded."], True),
        (None, True),
        ({"took": 3}, True),
        ("ERROR", False),
        ("", False),
        (["ERR", "OR"], False),
    ],
)
def test_what_the_target_returns_has_the_answer_of_a_frameworks_agent(
    returned: Any, is_same: bool
) -> None:
    """A text that lacks it is a divergence; other values say nothing of it."""
    answers = AgentAnswers(FRAMEWORK)
    answers.target_returned(returned, "shop.py:3 in ask")

    divergences = answers.divergences()

    assert [divergence.kind for divergence in divergences] == ([] if is_same else ["answer"])
    assert [divergence.line for divergence in divergences] == (
        [] if is_same else ["shop.py:3 in ask"]
    )


def test_the_recorded_answer_of_a_framework() -> None:
    """It is the output of the agent's span."""
    message = {"role": "assistant", "parts": [{"type": "text", "content": "Refunded."}]}
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "clerk",
        "gen_ai.output.messages": json.dumps([message]),
    }
    span = Span("a" * 32, "b" * 16, name="invoke_agent clerk", attributes=attributes, scope="x")

    (answer,) = recording_of_spans([span]).answers

    assert (answer.agent, answer.is_decorated) == ("clerk", False)
    assert json.loads(answer.answer or "") == [message]


@pytest.mark.parametrize(
    ("text", "status"), [("no such order", "passed"), ("another text", "error")]
)
def test_a_recorded_exception_of_the_agent_is_expected(text: str, status: str) -> None:
    """An agent that ended with an exception passes if it ends with the same one."""
    exchanges = [call.exchange for call in shop_recording("Refund 17").model_calls]
    recording = Recording(
        "session-1",
        "wire",
        inputs=("Refund 17",),
        exchanges=tuple(exchange for exchange in exchanges if exchange is not None),
        answers=(RecordedAnswer("clerk", error="ValueError: no such order"),),
    )

    def target(question: str) -> None:
        raise ValueError(text)

    assert replay_target(ReplaySession(recording), target, "text").status == status


def test_structured_answers_of_a_framework_are_compared() -> None:
    """An object with the recorded fields is the answer; one with other fields may hold it."""
    message = {"role": "assistant", "parts": [{"type": "text", "content": '{"text":"Done"}'}]}

    def divergences(returned: Any) -> list[Any]:
        answers = AgentAnswers((RecordedAnswer("clerk", answer=json.dumps([message])),))
        answers.target_returned(returned)
        return answers.divergences()

    assert divergences(Model(text="Done")) == []
    assert divergences({"took": 3}) == []
    assert len(divergences(Model(text="ERROR"))) == 1
