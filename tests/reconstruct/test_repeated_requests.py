"""Failed requests that were sent again, each in a separate trace, are one run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oteval.model import Span, Trajectory
from oteval.reconstruct import reconstruct

from .builders import agent, asks, brief, chat, codes, gives, said, system, user

SECOND = 10**9
Q, A = [system("s"), user("q")], said("a")
ASKED, GIVEN = asks(("look", {"x": 1}, "k1")), gives("r1", "k1")
FAILED: dict[str, Any] = {"status_code": 2, "status_message": "Connection error."}


def call(number: int, sent: list[dict[str, Any]], got: dict[str, Any] | None, **more: Any) -> Span:
    """Return a model call in a trace of its own, a second after the one before; None failed."""
    at = more.pop("at", number) * SECOND
    failed = {} if got else FAILED
    process = {"service.name": "svc", **more.pop("process", {"process.pid": 7})}
    span = chat(f"{number:016x}", at, sent, got, end=at + SECOND // 2, **failed, **more)
    return replace(span, trace_id=f"{number:032x}", resource=process)


def runs_of(trajectories: list[Trajectory]) -> list[tuple[int, list[Any]]]:
    return [(len(t.trace_ids), brief(t.own_messages)) for t in trajectories]


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_first_request_that_failed_belongs_to_the_run_that_sends_it_again(failures: int) -> None:
    """The run begins with the first try, has each message once, and a gap for each failure."""
    tries = [call(number, Q, None) for number in range(1, failures + 1)]
    retry = call(8, Q, ASKED)
    answered = call(9, [*Q, ASKED, GIVEN], A)

    (trajectory,) = reconstruct([*tries, retry, answered])

    assert trajectory.root_span.trace_id == tries[0].trace_id
    assert brief(trajectory.messages) == [
        ("system", "s"),
        ("user", "q"),
        ("assistant", [("look", {"x": 1})]),
        ("tool", "r1"),
        ("assistant", "a"),
    ]
    assert codes(trajectory) == ["model_call_failed"] * failures
    assert (trajectory.turn, trajectory.usage.model_calls) == (1, failures + 2)


def test_a_later_question_that_failed_belongs_to_its_turn() -> None:
    """The second turn's request is sent again, and is not a third turn."""
    later = [*Q, A, user("q2")]

    trajectories = reconstruct(
        [call(1, Q, A), call(2, later, got=None), call(3, later, said("a2"))]
    )

    assert [trajectory.turn for trajectory in trajectories] == [1, 2]
    assert brief(trajectories[1].own_messages) == [("user", "q2"), ("assistant", "a2")]
    assert codes(trajectories[1]) == ["model_call_failed"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(call(1, Q, said("b")), call(2, Q, A), id="answered"),
        pytest.param(call(1, Q, got=None), call(2, [*Q, user("q2")], A), id="another question"),
        pytest.param(call(1, Q, got=None), call(2, [system("t"), Q[1]], A), id="another prompt"),
        pytest.param(call(1, Q, got=None), call(2, Q, A, at=70), id="later"),
        pytest.param(call(1, Q, got=None, at=2), call(2, Q, A, at=2), id="at once"),
        pytest.param(
            call(1, Q, got=None), call(2, Q, A, process={"process.pid": 8}), id="another process"
        ),
        pytest.param(
            call(1, Q, got=None, process={}),
            call(2, Q, A, process={}),
            id="processes without a name",
        ),
        pytest.param(
            call(1, Q, got=None, session="x"), call(2, Q, A, session="y"), id="other chat"
        ),
    ],
)
def test_other_requests_begin_runs_of_their_own(before: Span, after: Span) -> None:
    """Only the same request of the same process, soon after it failed, is the same run."""
    assert [count for count, _ in runs_of(reconstruct([before, after]))] == [1, 1]


def test_runs_with_a_span_of_their_own_are_not_joined() -> None:
    """An agent that is started again is another run."""
    spans = []
    for number, got in ((1, None), (2, A)):
        at, trace = number * SECOND, f"{number:032x}"
        failed = {} if got else FAILED
        spans += [
            agent(f"a{number}", at, trace=trace, end=at + 9),
            chat(f"c{number}", at + 1, Q, got, trace=trace, parent=f"a{number}", **failed),
        ]

    assert [count for count, _ in runs_of(reconstruct(spans))] == [1, 1]


def test_each_failure_goes_to_the_next_of_the_same_requests() -> None:
    """Two runs of one question, each with a failure, stay two."""
    spans = [
        call(1, Q, got=None),
        call(2, Q, A),
        call(3, Q, got=None),
        call(4, Q, A),
        call(5, Q, A),
    ]

    assert [count for count, _ in runs_of(reconstruct(spans))] == [2, 2, 1]
