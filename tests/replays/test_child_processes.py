"""Programs that an agent starts in a replay: stopped, unless they are guarded or allowed."""

from __future__ import annotations

import asyncio
import ctypes.util
import multiprocessing
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import oteval
from oteval.base.errors import ReplayDiverged, ReplayUnguarded
from oteval.model import Recording
from oteval.record.bootstrap import environment
from oteval.replays.child_processes import _is_guarded

from ..commands import Run, oteval as oteval_command
from .shop import recording_file, write_shop

__all__ = ["oteval_command"]

EMPTY = Recording("empty", "wire")
TOUCH = "import pathlib; pathlib.Path('acted').touch()"


def spawned() -> None:
    """Start a process by `multiprocessing`, which Python does not audit."""
    process = multiprocessing.get_context("spawn").Process(target=os.getpid)
    process.start()
    process.join()


async def shell() -> None:
    """Start a shell from an event loop."""
    await asyncio.create_subprocess_shell("touch acted")


WAYS: dict[str, Callable[[], object]] = {
    "run": lambda: subprocess.run(["touch", "acted"], check=False),
    "Popen": lambda: subprocess.Popen(["touch", "acted"]),
    "a shell": lambda: subprocess.run("touch acted", shell=True, check=False),
    "check_output": lambda: subprocess.check_output(["touch", "acted"]),
    "os.system": lambda: os.system("touch acted"),
    "os.popen": lambda: os.popen("touch acted"),
    "os.posix_spawn": lambda: os.posix_spawn("/usr/bin/touch", ["touch", "acted"], os.environ),
    "Python": lambda: subprocess.run([sys.executable, "-c", TOUCH], check=False),
    "Python in isolation": lambda: subprocess.run([sys.executable, "-I", "-c", TOUCH], check=False),
    "multiprocessing": spawned,
    "asyncio": lambda: asyncio.run(shell()),
}


@pytest.mark.parametrize("start", WAYS.values(), ids=WAYS)
def test_a_program_is_stopped_before_it_starts(
    start: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the agent starts it; the divergence names it and the option."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ReplayDiverged), oteval.replay(EMPTY) as replay:
        start()

    (divergence,) = replay.result.divergences
    assert divergence.kind == "process"
    assert "--allow-processes" in divergence.suggestion
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("miss", ["error", "ordinal"])
def test_a_program_is_stopped_in_every_mode(miss: str, tmp_path: Path) -> None:
    """Where misses are errors, the start is refused by the operating system's error."""
    target = tmp_path / "acted"

    with oteval.replay(EMPTY, miss=miss) as replay, pytest.raises(PermissionError):  # type: ignore[arg-type]
        subprocess.run(["touch", str(target)], check=False)

    assert not target.exists()
    assert not replay.result.passed


def test_an_allowed_program_runs_and_gives_no_verdict(tmp_path: Path) -> None:
    """Nobody knows what it did: the replay is not passed."""
    target = tmp_path / "acted"

    with (
        pytest.raises(ReplayUnguarded, match="touch was allowed to run"),
        oteval.replay(EMPTY, allow_processes=["touch"]) as replay,
    ):
        subprocess.run(["touch", str(target)], check=True)

    assert target.exists()
    assert not replay.result.passed


def test_programs_by_which_python_reads_facts_are_not_mentioned() -> None:
    """`platform` and `ctypes.util` start small programs on behalf of clients."""
    platform._uname_cache = None  # type: ignore[attr-defined]

    with oteval.replay(EMPTY) as replay:
        platform.uname().processor  # noqa: B018  runs `uname`
        ctypes.util.find_library("c")

    assert replay.result.passed
    assert replay.result.reasons == ()


def test_the_same_program_started_by_the_agent_is_stopped() -> None:
    """Being harmless in Python's library does not make it harmless everywhere."""
    with pytest.raises(ReplayDiverged), oteval.replay(EMPTY):
        subprocess.run(["uname"], check=False)


BOOTSTRAP = environment("oteval.replays.command_child:start", {})


@pytest.mark.parametrize(
    ("command", "is_guarded"),
    [
        (["python3", "agent.py"], True),
        (["/usr/bin/python3.11", "-W", "error", "-c", "pass"], True),
        (["python", "-m", "pytest", "-I"], True),
        (["python", "-I", "agent.py"], False),
        (["python", "-E", "agent.py"], False),
        (["python", "-S", "agent.py"], False),
        (["python", "-sE", "agent.py"], False),
        (["curl", "-s", "http://example.com"], False),
        (["sh", "-c", "python agent.py"], False),
    ],
)
def test_python_processes_of_a_replayed_command_are_guarded(
    command: list[str], is_guarded: bool
) -> None:
    """The replay is loaded into them, unless an option of Python prevents it."""
    assert _is_guarded(command[0], command, BOOTSTRAP) == is_guarded
    assert not _is_guarded(command[0], command, {})


def test_a_script_of_python_is_guarded(tmp_path: Path) -> None:
    """The first line of a file names its interpreter, as in commands of installed packages."""
    script = tmp_path / "serve"
    script.write_text("#!/usr/bin/python3\n")
    isolated = tmp_path / "isolated"
    isolated.write_text("#!/usr/bin/python3 -I\n")

    assert _is_guarded(str(script), [str(script)], BOOTSTRAP)
    assert not _is_guarded(str(isolated), [str(isolated)], BOOTSTRAP)


START = {
    "a program": "subprocess.run(['touch', 'acted'])",
    "isolated Python": f"subprocess.run([sys.executable, '-I', '-c', {TOUCH!r}])",
    "at exit": "__import__('atexit').register(subprocess.run, ['touch', 'acted'])",
    "in a thread": "threading.Thread(target=subprocess.run, args=(['touch', 'acted'],)).start()",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["command", "target"])
@pytest.mark.parametrize("code", START.values(), ids=START)
def test_a_replayed_agent_starts_nothing(
    oteval_command: Run, tmp_path: Path, code: str, how: str
) -> None:
    """In a command and in a function, also after the function has returned."""
    write_shop(tmp_path)
    path = tmp_path / "shop.py"
    text = path.read_text().replace(
        'print("asked:", question)',
        f"import subprocess; found = answer(question); {code}; return found",
    )
    path.write_text(text)
    file = recording_file(tmp_path, "Refund 17")
    agent = ["--target", "shop:target"]
    if how == "command":
        agent = ["--", sys.executable, "shop.py", "{input}"]

    done = oteval_command("replay", "verify", file, "--json", *agent)

    assert done.status == 1
    assert done.rows[0]["divergences"][0]["kind"] == "process"
    assert not (tmp_path / "acted").exists()


def test_the_import_of_a_target_is_guarded(oteval_command: Run, tmp_path: Path) -> None:
    """Code at the top of its module starts no program and sends no request."""
    write_shop(tmp_path)
    path = tmp_path / "shop.py"
    path.write_text("import subprocess\nsubprocess.run(['touch', 'acted'])\n" + path.read_text())
    file = recording_file(tmp_path, "Refund 17")

    done = oteval_command("replay", "verify", file, "--target", "shop:target")

    assert done.status == 2
    assert "the agent started touch" in done.err
    assert not (tmp_path / "acted").exists()
