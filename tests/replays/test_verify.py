"""``oteval replay verify``: many sessions with a function of the agent, or with a command."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from oteval.base.child_process import ChildProcess
from oteval.model import RecordedAnswer, Recording
from oteval.replays.divergence import Divergence
from oteval.replays.recording_files import save
from oteval.replays.replay_result import ReplayResult
from oteval.replays.session import ReplaySession
from oteval.replays.target import replay_target, turn_inputs
from oteval.replays.verification import ReplayJob, verify
from oteval.replays.verified import VerifiedSession, combined
from oteval.scoring import refresh
from oteval.store import Store
from oteval.views.replay import replay_junit, replay_markdown, replay_summary, replays_view

from ..commands import Run, oteval
from ..make import chat, span
from .shop import SHOP, recording_file, shop_recording, write_shop

__all__ = ["oteval"]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return the current folder of commands, which has the agent."""
    write_shop(tmp_path)
    return tmp_path


# A function of the agent


def test_each_session_has_a_result(oteval: Run, shop: Path) -> None:
    """An exception, a crash or a divergence of one session does not affect the others."""
    names = ("Refund 17", "raises", "crashes", "hidden", "Refund 18")
    files = [recording_file(shop, name) for name in names]

    done = oteval(
        "replay",
        "verify",
        *files,
        "--target",
        "shop:target",
        "--json",
        "--workers",
        "1",
        "--junit",
        "junit.xml",
        "--md",
        "report.md",
    )

    rows = {row["session"]: row for row in done.rows}
    assert done.status == 1
    assert [row["status"] for row in done.rows] == [
        *("passed", "error", "crashed", "diverged", "passed")
    ]
    assert {row["fidelity"] for row in done.rows} == {"wire", None}
    assert rows["raises"]["detail"] == "the agent raised ValueError: no such order"
    assert rows["raises"]["output"] == "asked: raises"
    assert rows["Refund_17"]["model_calls"] == {"recorded": 2, "served": 2}
    (divergence,) = rows["hidden"]["divergences"]
    assert divergence["kind"] == "prompt"
    assert divergence["recorded"] == "You refund orders."
    assert divergence["actual"] == "You refund nothing."
    assert divergence["line"].startswith("shop.py:")
    assert "2 passed" in done.err
    suite = ElementTree.parse(shop / "junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "2")
    assert "| hidden | diverged | wire |" in (shop / "report.md").read_text()


@pytest.mark.slow
def test_a_session_that_hangs_ends_at_the_limit(oteval: Run, shop: Path) -> None:
    """Its process is killed, and the report has the line where it waits."""
    files = [recording_file(shop, name) for name in ("hangs",)]

    done = oteval(
        # On a busy machine the agent's code starts late.
        *("replay", "verify", *files, "--target", "shop:target", "--json", "--timeout", "5")
    )

    (row,) = done.rows
    assert (done.status, row["status"]) == (1, "timeout")
    assert row["detail"].startswith("no end after 5 s, at ")
    assert "shop.py" in row["detail"]


ASK = """
import sys
import oteval
import shop

@oteval.agent
def ask(question):
    shop.target(question)
    return ANSWER

if __name__ == "__main__":
    ask(sys.argv[1])
"""


@pytest.mark.parametrize(("answer", "status"), [("Refunded.", "passed"), ("ERROR", "diverged")])
@pytest.mark.parametrize(
    "goal",
    [
        pytest.param(("--", sys.executable, "ask.py", "Refund 17"), id="command"),
        pytest.param(("--target", "ask:ask"), id="target"),
    ],
)
@pytest.mark.slow
def test_the_answer_of_a_decorated_agent(
    oteval: Run, shop: Path, goal: Sequence[str], answer: str, status: str
) -> None:
    """The answer is compared both in processes of a command and in a function."""
    (shop / "ask.py").write_text(ASK.replace("ANSWER", repr(answer)))
    message = {"role": "assistant", "parts": [{"type": "text", "content": "Refunded."}]}
    recorded = RecordedAnswer("ask", answer=json.dumps([message]), is_decorated=True)
    save(replace(shop_recording("Refund 17"), answers=(recorded,)), shop / "session.jsonl")

    done = oteval("replay", "verify", "session.jsonl", "--json", *goal)

    (row,) = done.rows
    assert row["status"] == status, row
    divergences = [
        (divergence["kind"], divergence["recorded"], divergence["actual"])
        for divergence in row["divergences"]
    ]
    assert divergences == ([] if status == "passed" else [("answer", "Refunded.", "ERROR")])
    assert done.status == (status != "passed")


def test_ctrl_c_leaves_a_worker_that_still_imports_alone() -> None:
    """The parent kills the process; until then, its import neither fails nor prints a traceback."""
    settings = {"target": "json:dumps", "options": {}, "input": "text", "timeout": 1}
    process = ChildProcess(
        "oteval.replays.verify_worker", json.dumps(settings), waits_with_interrupts=True
    )
    try:
        os.kill(process.pid, signal.SIGINT)
        assert json.loads(process.output.readline()) == {"ready": True}
    finally:
        process.close()


def test_the_report_for_people() -> None:
    """The report has a table, then each divergence with its line of code, in three formats."""
    divergence = Divergence(
        *("prompt", "message 0 (system): the text differs"),
        recorded="You refund orders.",
        actual="You [b]refund[/b] nothing.",
        line="shop.py:15 in chat",
    )
    result = ReplayResult("a1", "wire", ("one reason",), (divergence,), model_calls=2, served=1)
    sessions = [
        VerifiedSession("a1", "diverged", result=result),
        VerifiedSession("b2", "passed", result=replace(result, divergences=(), served=2)),
        VerifiedSession("c3", "crashed", "the process of the agent died", output="boom"),
        VerifiedSession("d4", "not_replayed", "the recording has no model calls"),
    ]
    console = Console(width=120, file=io.StringIO())

    console.print(replays_view(sessions))

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[1].startswith("b2       passed        wire              2/2")
    text = "\n".join(lines)
    assert "a1 diverged (fidelity wire)" in text
    assert "recorded: You refund orders." in text
    assert "actual:   You [b]refund[/b] nothing." in text
    assert "at shop.py:15 in chat" in text
    assert "boom" in text
    summary = "4 sessions: 1 diverged, 1 passed, 1 crashed, 1 not replayed (fidelity wire)"
    assert replay_summary(sessions) == summary
    suite = ElementTree.fromstring(replay_junit(sessions))[0]
    figures = [suite.get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert figures == ["4", "1", "1", "1"]
    assert "| a1 | diverged | wire | prompt: message 0" in replay_markdown(sessions)
    assert [VerifiedSession.from_dict(session.as_dict()).as_dict() for session in sessions] == [
        session.as_dict() for session in sessions
    ]


@pytest.mark.slow
def test_options_reach_the_replay(oteval: Run, shop: Path) -> None:
    """A frozen clock, ignored patterns, and recorded answers for requests that differ."""
    today = recording_file(shop, "today", prompt="Today is 2023-11-14.")
    base = ("replay", "verify", today, "--target", "shop:target", "--json")

    plain = oteval(*base)
    frozen = oteval(*base, "--freeze", "clock,uuid")
    ignored = oteval(*base, "--normalize", r"\d{4}-\d\d-\d\d")
    ordinal = oteval(*base, "--miss", "ordinal")

    assert plain.rows[0]["divergences"][0]["kind"] == "prompt"
    assert (plain.status, frozen.status, ignored.status) == (1, 0, 0)
    assert (ordinal.status, ordinal.rows[0]["flagged"] > 0) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ((), 2, "give the agent as --target"),
        (("--target", "shop:target", "--", "python"), 2, "give the agent as --target"),
        (("--target", "shop:nothing"), 2, "has no function 'nothing'"),
        pytest.param(
            *(("--target", "nowhere:target"), 2, "cannot import nowhere"), marks=pytest.mark.slow
        ),
        (("--target", "shop:target", "--freeze", "dice"), 2, "unknown source 'dice'"),
        (("--target", "shop:target", "--normalize", "("), 2, "normalize"),
        (("--", "/nowhere/agent"), 2, "/nowhere/agent: cannot be started"),
        (("--", "true"), 3, "no Python process of the command loaded the replay"),
    ],
)
def test_wrong_arguments(
    oteval: Run, shop: Path, arguments: tuple[str, ...], status: int, text: str
) -> None:
    """One line names the session, and the status distinguishes errors from failed sessions."""
    done = oteval("replay", "verify", recording_file(shop, "Refund 17"), *arguments)

    assert done.status == status, done
    assert text in done.err


def test_recordings_without_model_calls_are_not_replayed(oteval: Run, shop: Path) -> None:
    """If no session could be verified, the status is 3."""
    done = oteval("replay", "verify", recording_file(shop), "--target", "shop:target")

    assert done.status == 3
    assert "the recording has no model calls" in done.err


@pytest.mark.parametrize(("name", "status"), [("Refund 17", 3), ("hidden", 1)])
def test_a_named_session_that_is_not_replayed_is_no_pass(
    oteval: Run, shop: Path, name: str, status: int
) -> None:
    """An unverified session counts although the others passed; a failure takes precedence."""
    empty = recording_file(shop, session="empty")

    done = oteval(
        *("replay", "verify", recording_file(shop, name), empty, "--target", "shop:target")
    )

    line = "1 of 2 named sessions could not be replayed: empty: the recording has no model calls"
    assert done.status == status
    assert (line in done.err) == (status == 3)


def test_a_selected_session_that_is_not_replayed_is_left_out(oteval: Run, shop: Path) -> None:
    """Filters select runs without model calls as well; the sessions that were replayed decide."""
    messages = [("system", "You refund orders."), ("user", "Refund 17")]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    with Store("runs.duckdb") as store:
        store.spans.write(
            [
                chat(1, 1, messages, "done", **{"gen_ai.request.model": "m"}),
                span(2, 1, name="invoke_agent clerk", attributes=agent),
            ]
        )
        refresh(store)
    base = ("replay", "verify", "--db", "runs.duckdb", "--target", "shop:target")

    selected = oteval(*base, "--json")
    ids = [row["session"] for row in selected.rows]
    chosen = oteval(*base, *ids)

    assert sorted(row["status"] for row in selected.rows) == ["not_replayed", "passed"]
    assert (selected.status, chosen.status) == (0, 3)


# Targets in this process


def shop_module() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(SHOP, "shop.py", "exec"), names)
    return names


def test_a_conversation_calls_the_target_once_a_turn() -> None:
    """It gets the session and the number of the turn; coroutines share one event loop."""
    recording = shop_recording("Refund 17", "Refund 18", "And 19")

    session = replay_target(ReplaySession(recording), shop_module()["in_turns"], "text")

    assert (session.status, session.detail) == ("passed", "")
    assert session.result is not None
    assert (session.result.served, session.result.model_calls) == (6, 6)


def test_inputs_can_be_messages_or_none() -> None:
    """The input has the messages up to the user's, without system instructions."""
    recording = shop_recording("Refund 17", "Refund 18")

    (first,), (second,) = turn_inputs(recording, "messages")

    assert turn_inputs(recording, "none") == [()]
    assert first == [{"role": "user", "content": "Refund 17"}]
    assert [message["role"] for message in second] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert second[1]["tool_calls"][0]["function"]["name"] == "refund"
    assert second[-1]["content"] == "Refund 18"


def test_an_agent_that_stops_early_misses_calls() -> None:
    """The agent diverges although its answer may be right: recorded calls are missing."""
    session = replay_target(ReplaySession(shop_recording("Refund 17")), lambda text: text, "text")

    assert session.status == "diverged"
    assert session.divergences[0].kind == "missing_call"


def test_generators_are_read_to_their_end() -> None:
    """An agent may stream its answer, synchronously or not."""
    answer = shop_module()["answer"]

    def streamed(text: str) -> Any:
        yield answer(text)

    async def streamed_later(text: str) -> Any:
        yield answer(text)

    for target in (streamed, streamed_later):
        session = ReplaySession(shop_recording("Refund 17"))
        assert replay_target(session, target, "text").status == "passed"


def test_ctrl_c_shows_the_finished_sessions(
    oteval: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier failure is still reported, and no message claims that files were kept."""

    def stopped(*_: Any, **__: Any) -> Iterator[VerifiedSession]:
        yield VerifiedSession("s-1", "error", "no such order")
        raise KeyboardInterrupt

    monkeypatch.setattr("oteval.cli.replay.verify_sessions", stopped)
    files = [recording_file(shop, name) for name in ("Refund 17", "Refund 18")]

    done = oteval("replay", "verify", *files, "--target", "shop:target")

    assert done.status == 130
    assert "no such order" in done.out
    assert done.err.strip() == "oteval: interrupted; 1 of 2 sessions not replayed"


# A command


@pytest.mark.slow
def test_a_command_is_replayed(oteval: Run, shop: Path) -> None:
    """The user's message is an argument; a divergence has its line."""
    good, hidden = (recording_file(shop, name) for name in ("Refund 17", "hidden"))
    agent = ("--json", "--", sys.executable, "shop.py")

    argument = oteval("replay", "verify", good, hidden, *agent, "{input}")

    assert [row["status"] for row in argument.rows] == ["passed", "diverged"], argument
    (divergence,) = argument.rows[1]["divergences"]
    assert divergence["kind"] == "prompt"
    assert divergence["line"].startswith("shop.py:")
    assert argument.status == 1


@pytest.mark.slow
def test_a_command_reads_standard_input(oteval: Run, shop: Path) -> None:
    """Without {input} among its arguments, the user's messages are lines of standard input."""
    good = recording_file(shop, "Refund 17")

    lines = oteval("replay", "verify", good, "--json", "--", sys.executable, "shop.py")

    assert [row["status"] for row in lines.rows] == ["passed"], lines
    assert lines.status == 0


@pytest.mark.slow
def test_a_command_that_fails(oteval: Run, shop: Path) -> None:
    """An exception, a crash and a hang have different statuses."""
    files = [recording_file(shop, name) for name in ("raises", "crashes")]
    agent = ("--json", "--", sys.executable, "shop.py", "{input}")

    done = oteval("replay", "verify", *files, *agent)
    late = oteval("replay", "verify", recording_file(shop, "hangs"), "--timeout", "0.2", *agent)

    raised, crashed = done.rows
    assert (raised["status"], crashed["status"]) == ("error", "crashed")
    assert raised["detail"] == "the agent raised ValueError: no such order"
    assert "no such order" in raised["output"]
    assert crashed["detail"] == "the agent's process died: the command ended with status 7"
    assert late.rows[0]["status"] == "timeout"


class _Finished:
    """A runner that passes every session at once."""

    def run(self, job: ReplayJob) -> VerifiedSession:
        return VerifiedSession(job.session, "passed" if job.recording.exists() else "crashed")

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_recordings_are_read_as_sessions_are_replayed() -> None:
    """Results arrive before the last recording is read, so that not all have to fit on the disk."""
    read: list[int] = []

    def recordings() -> Iterator[Recording]:
        for number in range(50):
            read.append(number)
            yield replace(shop_recording("Refund 17"), session=str(number))

    sessions = verify(recordings(), _Finished, workers=2)
    first = next(sessions)

    assert (first.session, first.status) == ("0", "passed")
    assert len(read) < 30
    assert [session.session for session in sessions] == [str(number) for number in range(1, 50)]
    assert len(read) == 50


def process(*numbers: int, kinds: Sequence[str] = ()) -> VerifiedSession:
    """Return the result of one process of a command, for a session with two model calls."""
    missing = () if kinds else tuple(f"model call {n}" for n in (1, 2) if n not in numbers)
    kinds = kinds or ["missing_call"] * bool(missing)
    divergences = tuple(Divergence(kind, kind) for kind in kinds)  # type: ignore[arg-type]
    result = ReplayResult(
        "s", "wire", (), divergences, model_calls=2, served=len(numbers), missing=missing
    )
    return VerifiedSession("s", "diverged" if divergences else "passed", result=result)


def test_processes_of_a_command_share_a_session() -> None:
    """A call is missing only if no process of the command made it."""
    idle = process()

    alone = combined([idle, process(1, 2)])
    together = combined([process(1), idle, process(2)])
    same = combined([process(1), process(1)])
    less = combined([process(1), process(kinds=["network"])])

    assert alone is not None
    assert together is not None
    assert same is not None
    assert less is not None
    statuss = [session.status for session in (alone, together, same, less)]
    assert statuss == ["passed", "passed", "diverged", "diverged"]
    assert [divergence.summary for divergence in same.divergences] == [
        "none of 2 processes made model call 2"
    ]
    assert same.result is not None
    assert same.result.served == 1
    assert [divergence.kind for divergence in less.divergences] == ["network"]
    assert combined([idle]) == idle
    assert combined([]) is None
