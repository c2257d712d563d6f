"""Files that commands write are private to their owner under any umask; see SECURITY.md."""

from __future__ import annotations

import ast
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import oteval as package
from oteval.cli import cli
from oteval.store import Store

from ..make import ROOT, TRACES, chat
from .conftest import Run
from .test_main import commands

DEMO = "oteval-demo/demo.duckdb"
DB = ("--db", DEMO)
RULES = ("-c", "oteval-demo/oteval.yaml")
# Files that users export for others have the modes of the user's umask.
PUBLISHED = {"report.html", "report.md", "junit.xml", "score.md", "test_session.py"}


def outside(*arguments: str) -> int:
    """Run a command in a process, because it starts programs."""
    command = [sys.executable, "-m", "oteval", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


def made_test(oteval: Run) -> int:
    """Write a test with its recording, and convert that to a cassette."""
    run = oteval("trajectories", "--json", *DB).rows[0]["trajectory_id"]
    assert oteval("replay", "cassette", run, "-o", "new/session.jsonl.gz", *DB).status in (0, 3)
    Path("desk.py").write_text("def ask(text):\n    return text\n")
    completed = oteval(
        *("replay", "make-test", run, "--target", "desk:ask", "--no-run", *DB),
        *("--name", "session", "--dir", "new/tests"),
    )
    assert completed.status == 0, completed.err
    return 0


def archived(oteval: Run) -> int:
    """Archive, delete from the archive, back up and compact."""
    assert oteval("archive", "--older-than", "0s", "--to", "new/archive", *DB).status == 0
    run = oteval("trajectories", "--json", *DB).rows[0]
    assert oteval("delete", "--trace", run["trace_ids"][0], "--yes", *DB).status == 0
    assert oteval("backup", "backup.duckdb", *DB).status == 0
    return oteval("compact", *DB).status


def recorded(_: Run) -> int:
    """Record a program into a new database and into a file, and check the mode of its own files."""
    Path("agent.py").write_text(
        "import oteval\n"
        "@oteval.agent\n"
        "def ask(text): return text\n"
        "ask('hello')\n"
        "open('by_agent.txt', 'w').close()\n"
    )
    python = ("--", sys.executable, "agent.py")
    status = outside("run", "--db", "run.duckdb", *python)
    status += outside("run", "--to", "t.jsonl", *python)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(Path("by_agent.txt").stat().st_mode) == 0o666 & ~mask
    Path("by_agent.txt").unlink()
    return status


# Each command that writes files, and the function that runs it.
WRITERS: dict[str, Callable[[Run], int]] = {
    "demo": lambda _: 0,  # runs before each of the others
    "ingest": lambda oteval: oteval("ingest", TRACES / "genai_openai_chat.json").status,
    "score": lambda oteval: (
        oteval("score", *RULES, *DB, "--junit", "junit.xml", "--md", "score.md").status
    ),
    "report": lambda oteval: (
        oteval("report", "--html", "report.html", "--md", "report.md", *DB).status
    ),
    "export": lambda oteval: (
        oteval("export", "--jsonl", "runs.jsonl", "--parquet", "new/parquet", *DB).status
    ),
    "init": lambda oteval: oteval("init", "--force", *DB).status,
    "reference add": lambda oteval: (
        oteval("reference", "add", "oteval-demo/references/refund.json", *DB).status
    ),
    "archive": archived,
    "run": recorded,
    "replay make-test": made_test,
}
# Commands that the function of another command runs.
ALSO = {
    "archive": ("backup", "compact", "delete"),
    "replay make-test": ("replay cassette",),
}
# These write nothing but rows of a database, which the others create in the same way, or reports
# of `write_report`; `serve` and `view` have tests with their servers.
TESTED_ELSEWHERE = {
    *("rescore", "learn"),
    *("pull", "serve", "view", "mcp", "eval", "compare", "pairwise", "dataset add", "judge label"),
    *("judge calibrate", "replay verify", "replay serve", "whatif", "replay whatif", "resend"),
    *("monitor run", "monitor resend", "monitor mark", "monitor acknowledge", "monitor snooze"),
}
READERS = {
    *("trajectories", "show", "explain", "scores", "diff", "reference list", "reference check"),
    *("variants", "config check", "config schema", "push", "experiments", "dataset list"),
    *("dataset show", "status", "audit", "monitor status", "monitor backtest", "doctor"),
    *("monitor simulate", "monitor compare"),
}
GROUPS = {"reference", "config", "dataset", "judge", "replay", "monitor"}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the demo, made under the umask 000."""
    folder = tmp_path_factory.mktemp("demo")
    before = os.umask(0)
    try:
        assert outside("demo", "--dir", str(folder / "oteval-demo")) == 0
    finally:
        os.umask(before)
    return folder


@pytest.fixture(params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """Set a umask."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the files and folders below a folder that others may use, with their modes."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in folder.rglob("*")
        if path.lstat().st_mode & 0o077 and "__pycache__" not in path.parts
    }


def test_each_command_that_writes_is_in_the_table():
    """Every command is in one of the lists."""
    names = {" ".join(name) for name in commands(cli)}

    also = {name for names in ALSO.values() for name in names}
    assert names == {*WRITERS, *also, *TESTED_ELSEWHERE, *READERS, *GROUPS}


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.slow
def test_files_of_a_command_are_private(oteval: Run, tmp_path: Path, demo: Path, command: str):
    """Under the umask 000, only files to hand on have a bit for others."""
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True)
    before = os.umask(0)
    try:
        assert WRITERS[command](oteval) in (0, 1)
    finally:
        assert os.umask(before) == 0

    modes = open_to_others(tmp_path)
    for own in ("agent.py", "desk.py"):
        modes.pop(own, None)
    assert {name: mode for name, mode in modes.items() if Path(name).name not in PUBLISHED} == {}


def test_reports_have_the_modes_of_the_umask(oteval: Run, tmp_path: Path, demo: Path, umask: int):
    """The next step of a build can read them."""
    shutil.copytree(demo, tmp_path, dirs_exist_ok=True)
    assert WRITERS["report"](oteval) == 0

    mode = oct(0o666 & ~umask)
    assert open_to_others(tmp_path) == {"report.html": mode, "report.md": mode}


def test_files_of_a_library_are_private(tmp_path: Path, umask: int):
    """The database and its log are private in a process that keeps its own umask."""
    path = tmp_path / "new" / "x.duckdb"
    package.InProcess  # noqa: B018  the SDK is installed
    (tmp_path / "new").mkdir(mode=0o700)
    seen: dict[str, str] = {}
    with Store(path) as store:
        for number in range(1, 4):
            store.spans.write([chat(number, number, [("user", "secret")], "x")])
            assert Path(f"{path}.wal").stat().st_size
            seen |= open_to_others(tmp_path)
            store._connection.execute("CHECKPOINT store")
            other = store.sibling()
            other.scores.write([])
            other.close()
            seen |= open_to_others(tmp_path)
        store.backup(tmp_path / "backup.duckdb")
        server = store.serve(lambda _: b"", {})
        seen |= open_to_others(tmp_path)
        server.close()
    Store(path).compact()

    assert {**seen, **open_to_others(tmp_path)} == {}
    assert [entry.name for entry in path.parent.iterdir()] == ["x.duckdb"]
    assert os.umask(umask) == umask


def test_a_log_that_others_could_read_becomes_private(tmp_path: Path):
    """DuckDB creates the log in a checkpoint during a commit; the next statement fixes its mode."""
    path = tmp_path / "x.duckdb"
    with Store(path) as store:
        store.spans.write([chat(1, 1, [("user", "secret")], "x")])
        Path(f"{path}.wal").chmod(0o644)
        store.spans.write([chat(2, 2, [("user", "secret")], "x")])
        assert open_to_others(tmp_path) == {}


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.duckdb"])
@pytest.mark.slow
def test_an_agents_own_recording_is_private(tmp_path: Path, umask: int, name: str):
    """`oteval.instrument` in a program, with folders that it creates."""
    code = (
        "import os, sys; import oteval\n"
        f"os.umask({umask})\n"
        "oteval.instrument(sys.argv[1])\n"
        "oteval.agent(lambda text: text)('secret')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    target = tmp_path / "a" / "b" / name
    command = [sys.executable, "-c", code, str(target)]

    subprocess.run(command, env=environment, check=True, capture_output=True, cwd=tmp_path)

    assert target.exists()
    assert open_to_others(tmp_path) == {}


WRITING = {"write_text", "write_bytes", "mkdir", "touch", "copyfile", "copy2", "copytree"}
# Modules that write files by other means, each with the reason.
ALLOWED = {
    "base/files.py": "the place where it is done",
    "cli/common.py": "a report to a device",
    "base/durable_log/writer.py": "segments, with a mode",
    "serve/publish/request_log.py": "segments, with a mode",
    "serve/decoder.py": "rejected requests, with a mode",
    "scoring/trace_folder.py": "marks, with a mode",
    "replays/verification.py": "in a temporary folder",
    "replays/verify_worker.py": "in a temporary folder",
    "replays/whatif.py": "in a temporary folder",
    "replays/what_if_session.py": "in a temporary folder",
    "replays/command_runner.py": "in a temporary folder",
    "replays/command_child.py": "in a temporary folder",
    "record/child_setup.py": "an empty mark in a temporary folder",
    "record/bootstrap/sitecustomize.py": "in a temporary folder, with a mode",
    "store/database_files.py": "the log, with a mode",
    "replays/testing/baselines.py": "figures for a repository",
    "extras/spark/result_places.py": "results, whose folders Spark's processes share",
    "extras/spark/judges.py": "answers, whose folder Spark's processes share",
}


def writes(node: ast.AST) -> bool:
    """Return whether a call creates a file or a folder."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "open":
        texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        flags = any("O_CREAT" in ast.dump(arg) for arg in node.args)
        flags |= any(isinstance(arg, ast.Name) and arg.id == "flags" for arg in node.args)
        return flags or any(isinstance(text, str) and set("wax") & set(text) for text in texts[-1:])
    return name in WRITING


@pytest.mark.slow
def test_all_writing_goes_through_one_module():
    """A module that creates files itself is listed with its reason, and each reason is needed."""
    root = Path(package.__file__).parent
    writers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(map(writes, ast.walk(ast.parse(path.read_text("utf-8")))))
    }

    assert writers == {*ALLOWED}
