"""The bootstrap starts a function in every Python child, and never breaks one."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from oteval.record.bootstrap import FOLDER, VARIABLE, environment, read_reports

# The function that is started: it leaves a file, in the folder that its settings name.
ENTRY = """
import os, pathlib
def start(settings):
    pathlib.Path(settings["folder"], f"started-{os.getpid()}").touch()
def fail(settings):
    raise RuntimeError("no luck")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the module `starter`."""
    (tmp_path / "starter.py").write_text(ENTRY)
    return tmp_path


def run(
    folder: Path,
    *command: str,
    entry: str = "starter:start",
    variables: dict[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run Python under the bootstrap, with the folder on its path."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), **(variables or {})}
    added = environment(entry, {"folder": str(folder)}, environ=environ, **options)
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**environ, **added},
        capture_output=True,
        text=True,
        check=False,
    )


def started(folder: Path) -> int:
    """Return in how many processes the function was started."""
    return len(list(folder.glob("started-*")))


def test_the_function_is_started_in_a_child_and_in_its_children(folder: Path) -> None:
    """A script that starts another one in a new interpreter needs no change for that."""
    (folder / "inner.py").write_text("print('inner')")
    (folder / "outer.py").write_text(
        "import subprocess, sys; subprocess.run([sys.executable, 'inner.py'])"
    )

    done = run(folder, "outer.py", reports=folder / "reports")

    assert (done.returncode, done.stdout, done.stderr) == (0, "inner\n", "")
    assert started(folder) == 2
    reports = read_reports(folder / "reports")
    assert [report.argv[-1] for report in reports] == ["outer.py", "inner.py"]
    assert not any(report.problem for report in reports)


def test_the_sitecustomize_that_is_shadowed_runs_as_well(folder: Path) -> None:
    """It runs first, and is the module that others import under this name."""
    (folder / "sitecustomize.py").write_text("print('mine'); ANSWER = 42")

    done = run(folder, "-c", "import sitecustomize; print(sitecustomize.ANSWER)")

    assert (done.stdout, done.stderr) == ("mine\n42\n", "")
    assert started(folder) == 1


def test_a_broken_sitecustomize_is_reported_as_without_us(folder: Path) -> None:
    """Python says so, and both the function and the program run."""
    (folder / "sitecustomize.py").write_text("1 / 0")

    done = run(folder, "-c", "print('ran')")

    assert done.stdout == "ran\n"
    assert "ZeroDivisionError" in done.stderr
    assert started(folder) == 1


def test_a_failing_start_is_said_once_and_the_program_runs(folder: Path) -> None:
    """The line is on standard error, and the children do not repeat it."""
    inner = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'])"

    done = run(folder, "-c", inner, entry="starter:fail")

    assert done.stdout == "1\n"
    assert done.stderr.count("oteval: off in process") == 1
    assert "RuntimeError: no luck" in done.stderr


def test_a_required_start_that_fails_ends_the_process(folder: Path) -> None:
    """A replay must not run live because it could not be started."""
    done = run(folder, "-c", "print('ran')", entry="starter:fail", required=True)

    assert (done.returncode, done.stdout) == (2, "")
    assert "no luck" in done.stderr


def test_an_environment_without_oteval_is_reported(folder: Path) -> None:
    """The report has the command that installs it; nothing is printed."""
    venv.create(folder / "env", symlinks=True)
    added = environment("oteval.x:start", {}, reports=folder / "reports", environ={})

    done = subprocess.run(
        [folder / "env/bin/python", "-c", "print('ran')"],
        env=added,
        capture_output=True,
        text=True,
    )

    assert (done.stdout, done.stderr) == ("ran\n", "")
    [report] = read_reports(folder / "reports")
    assert "pip install oteval" in report.problem


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_options_that_turn_it_off_leave_no_report(folder: Path, option: str) -> None:
    """Nothing is broken, and nothing started: there is only the missing report."""
    done = run(folder, option, "-c", "print('ran')", reports=folder / "reports")

    assert (done.stdout, done.stderr, started(folder)) == ("ran\n", "", 0)
    assert read_reports(folder / "reports") == []


def test_settings_that_are_not_json_do_not_break_a_process(folder: Path) -> None:
    """A variable that somebody has changed is reported on standard error."""
    environ = {"PYTHONPATH": str(FOLDER), VARIABLE: "{"}

    done = subprocess.run(
        [sys.executable, "-c", "print('ran')"], env=environ, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "JSONDecodeError" in done.stderr


def test_the_bootstrap_parses_in_old_interpreters() -> None:
    """A child may be any Python from 3.7."""
    ast.parse((FOLDER / "sitecustomize.py").read_text(), feature_version=(3, 7))


def test_the_path_is_not_doubled() -> None:
    """A command inside a command gets its own settings, and one folder in PYTHONPATH."""
    outer = environment("a:b", {"x": 1}, environ={"PYTHONPATH": f"/x{os.pathsep}"})
    inner = environment("c:d", {"x": 2}, environ=outer)

    assert inner["PYTHONPATH"] == os.pathsep.join([str(FOLDER), "/x"])
    assert json.loads(inner[VARIABLE])["settings"] == {"x": 2}
