"""`oteval.capture` records the spans of its block and no others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from opentelemetry import _logs, trace
from opentelemetry.sdk.trace import TracerProvider

import oteval
from oteval.evaluators.result_listeners import listen
from oteval.store import Store

from ..agent import answer

CONFIG = """
evaluators:
  - name: looked-up
    type: trajectory_match
    mode: superset
    tool_args: ignore
    reference: wanted.json
"""
WANTED = """
[{"role": "user", "content": "q"},
 {"role": "assistant", "tool_calls": [{"name": "look_up", "args": {}}]},
 {"role": "tool", "content": "done"}, {"role": "assistant", "content": "a"}]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "wanted.json").write_text(WANTED)
    path = tmp_path / "oteval.yaml"
    path.write_text(CONFIG)
    return path


def tools_of(run: oteval.Trajectory) -> list[str]:
    return [call.name for message in run.messages for call in message.tool_calls]


def test_the_block_gives_the_agents_trajectory():
    """Without a tracer provider of the user, the spans of the block are reconstructed."""
    with oteval.capture() as run:
        answer("q", "look_up", "refund")

    assert tools_of(run.trajectory) == ["look_up", "refund"]
    assert run.trajectory.agent == "clerk"
    assert run.trajectory.messages[-1].content == "q: 2 calls"
    assert len(run.spans) == 6


def test_what_ran_before_and_after_is_not_in_it():
    """Only the spans of the block are captured."""
    answer("before")
    with oteval.capture() as run:
        answer("inside")
    answer("after")

    assert [trajectory.messages[0].content for trajectory in run.trajectories] == ["inside"]


def test_what_an_earlier_block_left_running_stays_out():
    """A span whose parent belongs to a closed capture is not in a later one."""
    tracer = trace.get_tracer("late")
    with oteval.capture() as first:
        parent = tracer.start_span("left running")
    context = trace.set_span_in_context(parent)
    with oteval.capture() as second:
        tracer.start_span("late child", context=context).end()
        parent.end()
        answer("second")

    assert first.spans == []
    assert {span.name for span in second.spans}.isdisjoint({"late child", "left running"})
    assert second.trajectory.messages[0].content == "second"


def test_a_span_around_all_blocks_does_not_mix_them():
    """Blocks inside one outer span, such as a test runner's, are captured separately."""
    with trace.get_tracer("session").start_as_current_span("session"):
        captures = []
        for question in ("one", "two"):
            with oteval.capture() as run:
                answer(question)
            captures.append(run)

    assert [run.trajectory.messages[0].content for run in captures] == ["one", "two"]


def test_threads_are_captured():
    """Agents in threads, which lose the context, are captured as well."""
    with oteval.capture() as run:
        threads = [threading.Thread(target=answer, args=(f"q{n}", "look_up")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(trajectory.messages[0].content or "" for trajectory in run.trajectories) == [
        f"q{n}" for n in range(8)
    ]


async def test_blocks_of_tasks_that_run_at_once_stay_apart():
    """Each of many asynchronous blocks captures the agent of its task."""

    async def captured(number: int) -> str:
        with oteval.capture() as run:
            await asyncio.sleep(0)
            answer(f"q{number}")
            await asyncio.sleep(0.01)
            answer(f"again {number}")
        return " ".join(trajectory.messages[0].content or "" for trajectory in run.trajectories)

    questions = await asyncio.gather(*(captured(number) for number in range(20)))

    assert questions == [f"q{number} again {number}" for number in range(20)]


def test_a_block_in_a_block_gives_both():
    """The outer block also has the spans of the inner block."""
    with oteval.capture() as outer:
        answer("outer")
        with oteval.capture() as inner:
            answer("inner")

    assert [trajectory.messages[0].content for trajectory in inner.trajectories] == ["inner"]
    assert [trajectory.messages[0].content for trajectory in outer.trajectories] == [
        "outer",
        "inner",
    ]


def test_a_provider_of_ones_own_is_captured():
    """An agent that does not use the global provider is captured by naming its own."""
    provider = TracerProvider()
    with oteval.capture(tracer_provider=provider) as run:
        answer("mine", provider=provider)
    with oteval.capture(tracer_provider=provider) as again:
        answer("again", provider=provider)

    assert run.trajectory.messages[0].content == "mine"
    assert len(again.spans) == len(run.spans)


def test_log_records_are_captured_as_they_were_when_emitted():
    """A body is captured as it was emitted, even if it is changed later."""
    body = {"content": "as said"}
    with oteval.capture() as run, trace.get_tracer("t").start_as_current_span("s"):
        _logs.get_logger("l").emit(body=body, event_name="gen_ai.user.message")
        body["content"] = "changed"

    assert [(log.event_name, log.body) for log in run.logs] == [
        ("gen_ai.user.message", {"content": "as said"})
    ]
    assert run.logs[0].span_id == run.spans[0].span_id


def test_the_trajectory_can_be_read_while_the_block_runs():
    """Ended runs are there at once; later ones follow when they end."""
    with oteval.capture() as run:
        answer("one")
        first = run.trajectory
        answer("two")

        assert first.messages[0].content == "one"
        assert len(run.trajectories) == 2


def test_no_run_and_several_runs_are_named():
    """`trajectory` refuses to choose, and lists the captured runs."""
    with oteval.capture() as nothing:
        pass
    with oteval.capture() as several:
        answer("one", name="a")
        answer("two", name="b")

    with pytest.raises(
        oteval.NotFound, match="no agent run was captured: no span has ended"
    ) as raised:
        _ = nothing.trajectory
    assert "record the agent with 'oteval run -- pytest'" in str(raised.value)
    with pytest.raises(oteval.NotFound, match=r"2 agent runs were captured \(a, b\)"):
        _ = several.trajectory


def test_scores_need_no_database(config: Path):
    """A configuration scores the captured runs in memory."""
    with oteval.capture() as run:
        answer("good", "look_up", "more")
        answer("bad", "more")

    scores = run.score(config)

    assert [(score.evaluator, score.passed) for score in scores] == [
        ("looked-up", True),
        ("looked-up", False),
    ]


def test_a_database_keeps_spans_and_scores(config: Path, tmp_path: Path):
    """With a database, another process can look at the captured runs and their scores."""
    db = tmp_path / "runs.duckdb"
    for question in ("one", "two"):
        with oteval.capture(db) as run:
            answer(question, "look_up")
        scores = run.score(config)

    with Store(db) as store:
        trajectories = list(store.trajectories.read())
        newest = [
            run for runs in store.scores.of([t.id for t in trajectories]).values() for run in runs
        ]

    assert [trajectory.messages[0].content for trajectory in trajectories] == ["one", "two"]
    assert len(scores) == 1
    assert [score.passed for score in newest] == [True, True]


def test_a_database_that_cannot_be_used_is_known_before_the_agent_runs(tmp_path: Path):
    """The block is not entered."""
    path = tmp_path / "notes.txt"
    path.write_text("no database")

    with pytest.raises(oteval.NotAStore), oteval.capture(path):
        pytest.fail("entered")


def test_a_provider_that_takes_no_processor_is_refused():
    """The error names the remedy."""
    provider = trace.NoOpTracerProvider()

    with (
        pytest.raises(oteval.ConfigError, match="NoOpTracerProvider"),
        oteval.capture(tracer_provider=provider),
    ):
        pytest.fail("entered")


def test_an_sdk_that_is_switched_off_is_named(monkeypatch: pytest.MonkeyPatch):
    """The error says that nothing would be captured."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

    with pytest.raises(oteval.ConfigError, match="OTEL_SDK_DISABLED"), oteval.capture():
        pytest.fail("entered")


def test_each_score_is_announced_once(tmp_path: Path):
    """Nested evaluators, even in threads, and repeated scoring announce no extra score."""
    config = tmp_path / "oteval.yaml"
    config.write_text(
        "evaluators:\n"
        "- {name: slow, type: python, call: 'tests.record.test_span_capture:nested', timeout: 30}\n"
        "- {name: calls, type: python, call: 'tests.record.test_span_capture:nested'}\n"
    )
    heard: list[str] = []
    stop = listen(lambda result: heard.append(result["key"]))

    try:
        with oteval.capture() as run:
            answer("first")
            run.score(config)
            answer("second", name="other")
            run.score(config)
    finally:
        stop()

    assert sorted(heard) == ["calls", "calls", "slow", "slow"]


def nested(outputs: object) -> bool:
    """An evaluator that asks another one."""
    return oteval.trajectory_superset(outputs=outputs, reference_outputs=[])["score"] is True
