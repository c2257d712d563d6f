"""`oteval view` starts a browser without telling other users of the machine how to log in."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx
import pytest

from oteval.cli import browser
from oteval.cli.browser import BrowserStart
from oteval.store import Store

BROWSER = """#!/bin/sh
for argument; do echo "$argument"; done > {pipe}
"""


def test_the_command_line_of_the_browser_has_no_way_in(tmp_path: Path):
    """It names a file of the user alone, whose link works once; the file is gone at the end."""
    pipe, program = tmp_path / "arguments", tmp_path / "browser"
    os.mkfifo(pipe)
    program.write_text(BROWSER.format(pipe=pipe))
    program.chmod(0o700)
    Store(tmp_path / "t.duckdb").close()
    process = subprocess.Popen(
        [sys.executable, "-m", "oteval", "view", "--db", "t.duckdb"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "BROWSER": str(program)},
    )
    try:
        assert process.stdout is not None
        printed = re.search(r"http://\S+", process.stdout.readline())
        assert printed
        (argument,) = pipe.read_text().splitlines()
        place = Path(unquote(urlsplit(argument).path))
        page = place.read_text()
        link = re.search(r'href="([^"]+)"', page)
        assert link
        with httpx.Client(timeout=60) as first, httpx.Client(timeout=60) as second:
            first.get(link[1])
            second.get(link[1])
            base = link[1].partition("/login")[0]
            statuses = first.get(f"{base}/runs").status_code, second.get(f"{base}/runs").status_code
        mode = stat.S_IMODE(place.stat().st_mode)
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        if process.stdout:
            process.stdout.close()

    assert argument.startswith("file:///")
    assert "code=" not in argument
    assert link[1] != printed[0]
    assert mode == 0o600
    assert statuses == (200, 401)
    assert status == 0
    assert not place.exists()


@pytest.mark.parametrize("has_home", [True, False])
def test_browsers_from_snaps_can_open_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_home: bool
):
    """They see neither /tmp nor hidden folders, so the file is in the home folder if it can be."""
    home = tmp_path / "home"
    if has_home:
        home.mkdir()
    opened: list[str] = []
    monkeypatch.setattr(browser, "_SNAPS", tmp_path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(browser.webbrowser, "open", opened.append)
    with BrowserStart() as start:
        start.open('http://127.0.0.1/login?code="a&b"')
        (place,) = start._files
        page = place.read_text()

    assert (place.parent == home) is has_home
    assert "code=&quot;a&amp;b&quot;" in page
    assert not place.exists()
