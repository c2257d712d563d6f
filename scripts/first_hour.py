"""The first hour of a newcomer, in an environment that contains only oteval.

    python scripts/first_hour.py ENVIRONMENT FOLDER

It runs and instruments an agent, loads and scores its traces, and starts the pages and the server,
in a new folder. It ends with an error at the first step that fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

_AGENT = """
import sys
import oteval

@oteval.tool
def look_up(order):
    return "open"

@oteval.agent
def clerk(question):
    with oteval.model_call(model="m", messages=question) as call:
        call.answer("It is open")
    return look_up(7)

if len(sys.argv) > 1:
    oteval.instrument(sys.argv[1])
clerk("Is order 7 open?")
"""
_CONFIG = "evaluators: [{name: no-tool-errors, type: tool_errors}]\n"
_SECONDS = 120


class FirstHour:
    """The commands of an environment, run in a folder."""

    def __init__(self, environment: Path, folder: Path) -> None:
        path = f"{environment.resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self._environ = {**os.environ, "PATH": path}
        self._environ.pop("PYTHONPATH", None)
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "agent.py").write_text(_AGENT)
        (folder / "oteval.yaml").write_text(_CONFIG)

    def run(self, command: str, expected: str = "") -> None:
        """Run a command; its output must contain a text."""
        print(f"$ {command}", flush=True)
        done = subprocess.run(  # noqa: S603
            command.split(),
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        if expected not in done.stdout:
            raise SystemExit(f"{command}: no {expected!r} in\n{done.stdout}")

    def start(self, command: str, path: str = "") -> None:
        """Start a server, read a page of it, and end it."""
        print(f"$ {command}", flush=True)
        with subprocess.Popen(  # noqa: S603
            command.split(),
            cwd=self._folder,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                for line in process.stdout or ():
                    if url := re.search(r"http://[^\s,]+", line):
                        address = url[0] + path
                        urllib.request.urlopen(address, timeout=_SECONDS).close()  # noqa: S310
                        break
                else:
                    raise SystemExit(f"{command}: it has no address")
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(_SECONDS)


def main(environment: Path, folder: Path) -> None:
    """Take all the steps."""
    hour = FirstHour(environment, folder)
    hour.run("oteval demo --dir demo", "not evaluated")
    hour.run("oteval report --html report.html --db demo/demo.duckdb")
    if "Content-Security-Policy" not in (folder / "report.html").read_text("utf-8"):
        raise SystemExit("report.html: no Content-Security-Policy")
    hour.run("oteval run -- python agent.py")
    hour.run("oteval trajectories", "clerk")
    hour.run("python agent.py traces.jsonl")
    hour.run("oteval ingest --db loaded.duckdb traces.jsonl", "stored 3")
    hour.run("oteval score --db loaded.duckdb", "no-tool-errors")
    hour.start("oteval view --no-open --db loaded.duckdb")
    address = "127.0.0.1:0"
    hour.start(f"oteval serve --db served.duckdb --http {address} --grpc {address}", "/healthz")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
