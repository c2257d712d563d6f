"""Follow a tutorial: write its files, run its commands, compare what they print.

The parts of a page, in order:

- "`name`:" and a code block is a file. If the block is a diff, the file is edited.
- A block ``console`` has commands after ``$``, each with the output that it prints. ``...`` stands
  for lines that are left out. A command that fails must be followed by ``$ echo $?``.
- ``<!-- not tested: reason -->`` before a block leaves it out.

Ids, times and ports of a page are those of its author: ids and times match any others, and a port
stands for the free one that the server of the page gets.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..commands import Run
from ..make import ROOT

__all__ = ["Command", "File", "Walkthrough", "parts"]

WIDTH = "100"
PATIENCE = 120.0

_PART = re.compile(
    r"^`(?P<name>[\w./-]+)`:\n\n```(?P<kind>\w+)\n(?P<text>.*?)^```$"
    r"|^(?:<!-- not tested: (?P<reason>[^\n]+) -->\n)?```console\n(?P<console>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_ID = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{8,32}\b")
_VARYING = [
    (_ID, "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "DATE"),
    (re.compile(r"\b\d[\d.]* (us|ms|s|min|h|d)\b"), "TIME"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), "ADDRESS"),
    (re.compile(r"\s+"), " "),
]


class File(NamedTuple):
    """A file that the page writes or edits.

    Attributes:
        name: Its path in the folder.
        text: Its content, or the lines of a diff.
        is_diff: Whether the text edits the file.
    """

    name: str
    text: str
    is_diff: bool


class Command(NamedTuple):
    """A command of the page.

    Attributes:
        line: The command.
        output: The lines that it prints, as far as the page shows them.
    """

    line: str
    output: list[str]


def parts(page: str) -> list[File | Command]:
    """Return the files and the tested commands of a page, in order."""
    found: list[File | Command] = []
    for match in _PART.finditer(page):
        if match["name"]:
            found.append(File(match["name"], match["text"], match["kind"] == "diff"))
        elif not match["reason"]:
            found.extend(_commands(match["console"]))
    return found


def _commands(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            commands.append(Command(line.removeprefix("$ "), []))
        elif line.strip() not in ("", "..."):
            commands[-1].output.append(line)
    return commands


def _plain(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line.strip()


def _matches(documented: str, printed: str) -> bool:
    """Whether a printed line is the documented one, but for texts that an ellipsis stands for.

    An ellipsis that touches a word is the command's own, which may cut the word earlier.
    """
    *cut, end = _plain(documented).split("…")
    known = [re.escape(part if part.endswith(" ") else part[:-4]) for part in cut]
    return bool(re.fullmatch(".*".join([*known, re.escape(end)]), _plain(printed)))


@dataclass
class _Server:
    """A command that runs in the background.

    Attributes:
        process: Its process.
        lines: What it has printed.
        has_address: Whether an address is among these lines, or the process has ended.
    """

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    has_address: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop(self) -> None:
        """End the process, and read its output to the end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                if "127.0.0.1:" in line:
                    self.has_address.set()
        self.has_address.set()


@dataclass
class Walkthrough:
    """A page that is followed in a folder.

    Attributes:
        folder: The folder.
        oteval: Runs a command of oteval in this process.
        environment: The environment of commands, which the page may change.
        status: The exit status of the last command.
    """

    folder: Path
    oteval: Run
    environment: dict[str, str]
    status: int = 0
    _ids: dict[str, str] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)
    _servers: list[_Server] = field(default_factory=list)
    _is_live: bool = False

    def follow(self, page: str) -> None:
        """Write the files and run the commands of a page, in order."""
        steps = parts(page)
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            if isinstance(step, File):
                self._write(step)
            else:
                may_fail = isinstance(following, Command) and following.line == "echo $?"
                self._check(step, may_fail=may_fail)

    def stop(self) -> None:
        """End the servers of the page."""
        for server in self._servers:
            server.stop()

    def _write(self, file: File) -> None:
        path = self.folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = self._actual(file.text)
        if file.is_diff:
            lines = text.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] in " -")
            new = "".join(line[1:] for line in lines if line[0] in " +")
            before = path.read_text("utf-8")
            assert before.count(old) == 1, f"{file.name} holds the lines of the diff once"
            text = before.replace(old, new)
        path.write_text(text, "utf-8")

    def _actual(self, text: str) -> str:
        """Return a text of the page with the ids and ports of this run."""
        for documented, actual in (self._ids | self._ports).items():
            text = re.sub(rf"\b{documented}\b", actual, text)
        return text

    def _check(self, command: Command, *, may_fail: bool) -> None:
        """Run a command; beside `oteval serve`, repeat it until its output is documented."""
        end = time.monotonic() + (PATIENCE if self._is_live else 0.0)
        while missing := self._attempt(command, may_fail=may_fail):
            if time.monotonic() > end:
                raise AssertionError(f"$ {command.line}\n{missing}")
            time.sleep(0.2)

    def _attempt(self, command: Command, *, may_fail: bool) -> str:
        """Run a command; return what is not as documented."""
        printed = self._run(self._actual(command.line))
        if self.status and not may_fail:
            return f"exit status {self.status}:\n{printed}"
        lines = printed.splitlines()
        pairs = []
        for documented in command.output:
            at = next((n for n, line in enumerate(lines) if _matches(documented, line)), None)
            if at is None:
                return f"does not print: {documented}\nbut:\n{printed}"
            pairs.append((documented, lines.pop(at)))
        for documented, line in pairs:
            ids = zip(_ID.findall(documented), _ID.findall(line), strict=False)
            self._ids.update(pair for pair in ids if pair[0] != pair[1])
        return ""

    def _run(self, line: str) -> str:
        words = shlex.split(line)
        status, self.status = self.status, 0
        if line == "echo $?":
            return str(status)
        if words[0] == "export":
            pairs = (word.partition("=") for word in words[1:])
            self.environment.update({name: value for name, _, value in pairs})
            os.environ.update(self.environment)
            return ""
        if words[-1] == "&":
            return self._start(words[:-1])
        if words[0] == "oteval" and words[1] != "run" and not set(words) & {"|", ">"}:
            self._forget_modules()
            self.status, out, err = self.oteval(*words[1:])
            return out + err
        done = subprocess.run(
            ["bash", "-c", f'oteval() {{ "{sys.executable}" -m oteval "$@"; }}; {line}'],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def _forget_modules(self) -> None:
        """Let the next command import the folder's modules as they are now."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self.folder)):
                del sys.modules[name]

    def _start(self, words: list[str]) -> str:
        """Start a server on a free port, and learn which port of the page it stands for."""
        is_serve = words[:2] == ["oteval", "serve"]
        self._is_live |= is_serve
        if is_serve and "--http" not in words:
            words = [*words, "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:4318"]
        documented = re.findall(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<= )\d{4}\b", " ".join(words))[-1]
        words = [re.sub(rf"\b{documented}$", "0", word) for word in words]
        program = [sys.executable, "-m", "oteval"] if is_serve else [sys.executable]
        server = _Server(
            subprocess.Popen(
                [*program, *words[1:]],
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        self._servers.append(server)
        assert server.has_address.wait(PATIENCE), "the server does not start"
        printed = "".join(server.lines)
        address = re.search(r"127\.0\.0\.1:(\d+)", printed)
        assert address, printed
        self._ports[documented] = address[1]
        return printed


def environment() -> dict[str, str]:
    """Return the environment in which a page is followed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OPENAI_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": WIDTH}
