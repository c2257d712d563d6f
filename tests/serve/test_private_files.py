"""Only the owner can access the files of a server, and it runs no code from its folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.served import Served, until

from .clients import agent_run

pytestmark = pytest.mark.slow

RULES = """
evaluators:
  - {name: own, type: python, call: own_evaluator:judge}
completion: {quiet: 200ms}
"""
TRAPS = ("duckdb", "yaml", "orjson", "pyarrow", "prometheus_client", "httpx", "grpc", "re2")


def serve(folder: Path) -> subprocess.CompletedProcess[str]:
    """Return what a server says that does not start."""
    command = [sys.executable, "-m", "oteval", "serve", "--http", "127.0.0.1:0", "--grpc", ""]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("kind", ["symbolic link", "writable by all", "writable by a group"])
@pytest.mark.parametrize("suffix", ["spool", "forward"])
def test_a_folder_that_others_could_use_is_refused(tmp_path: Path, kind: str, suffix: str) -> None:
    """One line names the folder; nothing is written to it."""
    folder = tmp_path / f"oteval.duckdb.{suffix}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "symbolic link":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        folder.chmod(0o777 if "all" in kind else 0o770)

    found = serve(tmp_path)

    assert found.returncode == 2
    assert str(folder) in found.stderr
    assert len(found.stderr.splitlines()) <= 2
    assert list(folder.iterdir()) == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Return a server whose folder holds files named like what it imports."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    (tmp_path / "own_evaluator.py").write_text("def judge(trajectory):\n    return True\n")
    before = os.umask(0)
    os.close(os.open(tmp_path / "traces.duckdb.server.json", os.O_CREAT, 0o666))
    try:
        server = Served(tmp_path)
    finally:
        os.umask(before)
    yield server
    server.stop()


def test_files_are_the_owners_alone_whatever_the_umask(served: Served) -> None:
    """Under umask 0 no file or folder that the server makes has a bit for others."""
    trace_id, request = agent_run()
    assert served.post("/v1/traces", request.SerializeToString())[0] == 200
    until(lambda: served.get(f"/api/trajectories/{trace_id}")[0] == 200, 60)
    folder = served.db.parent
    made = [path for path in folder.rglob("*") if path.name.startswith("traces.duckdb")]
    made += [path for parent in made if parent.is_dir() for path in parent.rglob("*")]

    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in made}

    assert len(modes) >= 4
    assert {name for name, mode in modes.items() if mode & 0o077} == set()


def test_only_what_the_configuration_calls_is_imported(tmp_path: Path) -> None:
    """Files of the working folder that are named like packages run in no process."""
    (tmp_path / "oteval.yaml").write_text(RULES)
    (tmp_path / "own_evaluator.py").write_text("def judge(trajectory):\n    return True\n")
    for name in TRAPS:
        (tmp_path / f"{name}.py").write_text(
            f"import pathlib, sys\n"
            f"if 'oteval.serve' in ' '.join(sys.orig_argv):\n"
            f"    pathlib.Path({str(tmp_path / 'ran')!r}).write_text({name!r})\n"
            f"    raise SystemError\n"
            f"import importlib.util, importlib.machinery\n"
            f"paths = [p for p in sys.path if p not in ('', {str(tmp_path)!r})]\n"
            f"spec = importlib.machinery.PathFinder.find_spec({name!r}, paths)\n"
            f"module = importlib.util.module_from_spec(spec)\n"
            f"sys.modules[{name!r}] = module\n"
            f"spec.loader.exec_module(module)\n"
        )
    server = Served(tmp_path)
    try:
        trace_id, request = agent_run()
        assert server.post("/v1/traces", request.SerializeToString())[0] == 200

        def scored() -> bool:
            status, body = server.get(f"/api/trajectories/{trace_id}")
            return status == 200 and bool(json.loads(body)["scores"])

        until(scored, 60)
        state = server.state()
    finally:
        server.stop()

    assert not (tmp_path / "ran").exists()
    assert state["restarts"] == 0
