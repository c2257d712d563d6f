"""action.yml: its shell steps run for real, against a stand-in for GitHub's API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from .make import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}
BOT = "github-actions[bot]"
# What stands for oteval: it writes a report, and ends as the test says.
FAKE = """#!{python}
import pathlib, sys
words = sys.argv[1:]
assert words[-2] == "--md", words
if words[0] != "broken":
    pathlib.Path(words[-1]).write_text("report of " + " | ".join(words[:-2]) + "\\n")
sys.exit(int(words[1]) if words[1].isdigit() else 0)
"""


@dataclass
class Api:
    """A stand-in for GitHub's API.

    Attributes:
        url: Its address.
        comments: The comments of the pull request.
        requests: The requests, as method and path.
        status: The status of answers, if it refuses all of them.
    """

    url: str = ""
    comments: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    status: int = 200

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Answer as GitHub does."""
        self.requests.append(f"{method} {path.partition('?')[0]}")
        if self.status != 200:
            return self.status, {"message": "refused"}
        if path == "/user":
            return 403, {"message": "Resource not accessible by integration"}
        if method == "GET":
            page = int(re.findall(r"[?&]page=(\d+)", path)[0])
            return 200, self.comments[100 * (page - 1) : 100 * page]
        if method == "PATCH":
            item = next(c for c in self.comments if path.endswith(f"/comments/{c['id']}"))
            item["body"] = body["body"]
        else:
            item = {"id": 1000 + len(self.comments), "user": {"login": BOT}, **body}
            self.comments.append(item)
        return 200, {**item, "html_url": f"https://github.test/{item['id']}"}


@pytest.fixture
def api() -> Iterator[Api]:
    """Serve the stand-in on a free port."""
    state = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            assert self.headers["authorization"] == "Bearer secret"
            status, answer = state.answer(self.command, self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PATCH = do_GET  # noqa: N815  names of http.server

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()


@dataclass
class Job:
    """A job of a workflow that uses the action.

    Attributes:
        folder: The runner's folder.
        api: The stand-in for GitHub's API.
        event: The event that started the workflow.
    """

    folder: Path
    api: Api
    event: dict[str, Any]

    def run(self, **inputs: str) -> tuple[int, str]:
        """Run the steps as a runner does; return the status of the job, and what was printed."""
        defaults = {name: str(item["default"]) for name, item in ACTION["inputs"].items()}
        values = {**defaults, "install": "", "token": "secret", **inputs}
        for name in ("output", "summary"):
            (self.folder / name).write_text("")
        (self.folder / "event.json").write_text(json.dumps(self.event))
        status, printed = 0, ""
        for step in ACTION["runs"]["steps"]:
            if not self._is_wanted(step, values):
                continue
            done = self._step(step, values)
            printed += done.stdout + done.stderr
            status = done.returncode
            if status:
                break
        return status, printed

    def _is_wanted(self, step: dict[str, Any], values: dict[str, str]) -> bool:
        condition = re.fullmatch(r"inputs\.([\w-]+) (==|!=) '(.*)'", step.get("if", ""))
        if condition is None:
            assert "if" not in step
            return True
        return (values[condition[1]] == condition[3]) == (condition[2] == "==")

    def _step(self, step: dict[str, Any], values: dict[str, str]) -> Any:
        assert "${{" not in step["run"]
        outputs = dict(
            line.split("=", 1) for line in (self.folder / "output").read_text().splitlines()
        )

        def expand(text: str) -> str:
            names = {f"inputs.{name}": value for name, value in values.items()}
            names |= {f"steps.gates.outputs.{name}": value for name, value in outputs.items()}
            return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: names[match[1]], text)

        environment = {
            **os.environ,
            **{name: expand(str(value)) for name, value in step.get("env", {}).items()},
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_API_URL": self.api.url,
            "GITHUB_REPOSITORY": "acme/shop",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "RUNNER_TEMP": str(self.folder),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False
        )


@pytest.fixture
def job(tmp_path: Path, api: Api) -> Job:
    """Return a job of a pull request."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "oteval"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    return Job(tmp_path, api, {"pull_request": {"number": 7}})


def test_a_second_run_updates_the_comment(job: Job, api: Api):
    """One comment for each name, whoever else comments with the same mark."""
    api.comments += [{"id": n, "user": {"login": "someone"}, "body": "hello"} for n in range(120)]
    api.comments.append({"id": 500, "user": {"login": "mallory"}, "body": "<!-- oteval: a -->"})

    assert job.run(name="a", command="score 'two words'")[0] == 0
    assert job.run(name="a", command="score again")[0] == 0
    assert job.run(name="b")[0] == 0

    own = [comment["body"] for comment in api.comments if comment["user"]["login"] == BOT]
    assert len(own) == 2
    assert own[0].startswith("<!-- oteval: a -->\n## a\n\nreport of score | again")
    assert api.comments[120]["body"] == "<!-- oteval: a -->"
    assert (job.folder / "summary").read_text().startswith("## b\n\nreport of score")


def test_names_that_differ_in_signs_only_have_comments_of_their_own(job: Job, api: Api):
    """Letters of every script and all signs count; none of them ends the mark."""
    names = ["a/b", "a-b", "a--b", "価格", "返金", "a --> b"]
    for name in names:
        assert job.run(name=name)[0] == 0
    assert job.run(name="返金", command="score again")[0] == 0

    bodies = [comment["body"] for comment in api.comments]
    assert [body.splitlines()[1] for body in bodies] == [f"## {name}" for name in names]
    assert all(body.splitlines()[0].count("-->") == 1 for body in bodies)
    assert [body for body in bodies if "again" in body] == [bodies[4]]


def test_the_status_of_the_gates_decides(job: Job, api: Api):
    """A failed gate fails the job after the comment, and a command without a report says so."""
    status, _ = job.run(command="score 1 --db x.duckdb")

    assert status == 1
    assert "report of score | 1 | --db | x.duckdb" in api.comments[0]["body"]
    assert job.run(command="broken 3 x")[0] == 3
    assert "ended with status 3, without a report" in api.comments[0]["body"]


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_without_permission_the_job_goes_on(job: Job, api: Api, status: int):
    """It says what is missing, and the status is that of the command."""
    api.status = status

    done, printed = job.run()

    assert done == 0
    assert f"::warning title=oteval::no comment, GitHub answered {status}" in printed
    assert ("pull-requests: write" in printed) == (status != 500)
    assert "report of score" in (job.folder / "summary").read_text()
    assert "secret" not in printed


def test_without_a_token_or_a_pull_request_there_is_no_request(job: Job, api: Api):
    """A push, a job without a token, and a job that wants no comment."""
    assert "no token" in job.run(token="")[1]
    assert job.run(comment="false")[0] == 0
    job.event = {"ref": "refs/heads/main"}
    assert "not a pull request" in job.run()[1]
    assert api.requests == []


def test_an_unreachable_api_is_a_warning(job: Job, api: Api):
    """The job goes on without its comment."""
    api.url = "http://127.0.0.1:9"

    done, printed = job.run(command="score 1 --db x.duckdb")

    assert done == 1
    assert "::warning title=oteval::no comment" in printed


def test_inputs_cannot_run_anything(job: Job, tmp_path: Path):
    """Text of a workflow reaches the command as words, and the scripts not at all."""
    hostile = "$(touch hacked); `touch hacked` && touch hacked"

    assert job.run(command=f"score {hostile!r}", name=hostile)[0] == 0
    assert not (tmp_path / "hacked").exists()


def test_the_real_command_has_the_option():
    """The commands that the description names write Markdown."""
    for command in ("score", "eval"):
        done = subprocess.run(
            [sys.executable, "-m", "oteval", command, "--help"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "--md" in done.stdout
