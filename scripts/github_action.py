"""The steps of action.yml: run an oteval command, write the job's summary, and comment.

    python3 scripts/github_action.py run        # COMMAND, NAME: writes the report and its outputs
    python3 scripts/github_action.py comment    # REPORT, NAME, TOKEN: comments on the pull request

It needs only Python. A comment that cannot be written is a warning: the exit status of the command
decides. Each name has one comment, which later runs update.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

# GitHub's limits are 65,536 characters of a comment, and 1 MiB of a summary.
LONGEST_COMMENT, LONGEST_SUMMARY = 60_000, 900_000
TIMEOUT = 30  # seconds
PAGE, MOST_PAGES = 100, 50  # comments
WORKFLOW_BOT = "github-actions[bot]"
DENIED = (401, 403, 404)


def run() -> int:
    """Run the command; its status goes into the outputs, and its report into the summary."""
    name = os.environ["NAME"]
    folder = Path(os.environ.get("RUNNER_TEMP") or ".").absolute()
    report = folder / f"oteval-{re.sub(r'[^A-Za-z0-9_-]+', '-', name)}.md"
    report.unlink(missing_ok=True)
    command = ["oteval", *shlex.split(os.environ["COMMAND"]), "--md", str(report)]
    print(f"$ {shlex.join(command)}", flush=True)
    try:
        status = subprocess.run(command, check=False).returncode  # noqa: S603  no shell
    except OSError as error:
        tell("error", f"oteval cannot be started: {error.strerror}")
        status = 127
    if not report.exists():
        report.write_text(f"`oteval` ended with status {status}, without a report.\n", "utf-8")
    append("GITHUB_OUTPUT", f"status={status}\nreport={report}\n")
    append("GITHUB_STEP_SUMMARY", cut(text_of(report, name), LONGEST_SUMMARY))
    return 0


def comment() -> int:
    """Write the comment, or say why there is none."""
    number, token = pull_request(), os.environ.get("TOKEN", "")
    if number is None:
        tell("notice", "not a pull request: no comment, see the job's summary")
        return 0
    if not token:
        tell("warning", "no token: no comment, see the job's summary")
        return 0
    name = os.environ["NAME"]
    body = cut(f"{marker(name)}\n{text_of(Path(os.environ['REPORT']), name)}", LONGEST_COMMENT)
    try:
        link = GitHub(token).write(number, marker(name), body)
    except HTTPError as error:
        hint = "; the job needs: permissions: pull-requests: write" if error.code in DENIED else ""
        tell("warning", f"no comment, GitHub answered {error.code}{hint}; see the job's summary")
    except (URLError, OSError, ValueError) as error:
        tell("warning", f"no comment: {error}; see the job's summary")
    else:
        print(f"comment: {link}")
    return 0


class GitHub:
    """The comments of pull requests, over GitHub's API."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._api = os.environ.get("GITHUB_API_URL", "https://api.github.com")
        self._repository = os.environ["GITHUB_REPOSITORY"]

    def write(self, number: int, mark: str, body: str) -> str:
        """Update the own comment with a mark, or add one; return its address."""
        author = self._author()
        for item in self._comments(number):
            is_own = (item.get("user") or {}).get("login") == author
            if is_own and str(item.get("body")).startswith(mark):
                path = f"issues/comments/{item['id']}"
                return str(self._ask("PATCH", path, {"body": body})["html_url"])
        return str(self._ask("POST", f"issues/{number}/comments", {"body": body})["html_url"])

    def _author(self) -> str:
        """The token's user. The token of a workflow may not ask, and belongs to a bot."""
        try:
            return str(self._send("GET", f"{self._api}/user")["login"])
        except HTTPError:
            return WORKFLOW_BOT

    def _comments(self, number: int) -> Iterator[dict[str, Any]]:
        for page in range(1, MOST_PAGES + 1):
            path = f"issues/{number}/comments?per_page={PAGE}&page={page}"
            items = self._ask("GET", path)
            yield from items
            if len(items) < PAGE:
                return

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._send(method, f"{self._api}/repos/{self._repository}/{path}", body)

    def _send(self, method: str, url: str, body: Any = None) -> Any:
        request = Request(  # noqa: S310  the address is GitHub's
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {self._token}",
                "accept": "application/vnd.github+json",
                "content-type": "application/json",
                "user-agent": "oteval",
            },
        )
        with urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            return json.loads(answer.read())


def pull_request() -> int | None:
    """The number of the pull request that started the workflow, or None."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return int(event["pull_request"]["number"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def marker(name: str) -> str:
    """The line by which the comment of a name is found again."""
    return f"<!-- oteval: {quote(name, safe=' ').replace('--', '-%2D')} -->"


def text_of(report: Path, name: str) -> str:
    """A report below its heading."""
    heading = " ".join(name.split())
    return f"## {heading}\n\n{report.read_text('utf-8')}"


def cut(text: str, longest: int) -> str:
    """A text of at most a length, cut at a line."""
    if len(text) <= longest:
        return text
    return f"{text[:longest].rpartition(chr(10))[0]}\n\n… cut; the command prints all of it.\n"


def append(variable: str, text: str) -> None:
    """Append to a file of the runner, if there is one."""
    if path := os.environ.get(variable):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)


def tell(kind: str, text: str) -> None:
    """Print a message that the runner shows on the job's page."""
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    print(f"::{kind} title=oteval::{escaped}", flush=True)


if __name__ == "__main__":
    sys.exit({"run": run, "comment": comment}[sys.argv[1]]())
