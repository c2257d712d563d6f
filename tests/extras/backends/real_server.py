"""A real backend as a process on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import until


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def asked(url: str, body: Any = None) -> Any:
    """Return the JSON answer to a GET request, or to a POST request with a JSON body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


@contextmanager
def running(
    variable: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    health: str,
) -> Iterator[None]:
    """Run a server while the block runs; skip the test if its command is missing.

    Args:
        variable: The environment variable with the path of the command.
        arguments: The arguments of the command.
        environment: Further variables of the process.
        folder: The folder in which it runs.
        health: A URL that answers once the server is ready.
    """
    command = os.environ.get(variable, "")
    if not Path(command).is_file():
        pytest.skip(f"{variable} does not name the command of the server")
    process = subprocess.Popen(
        [command, *arguments],
        env={**os.environ, **environment},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _answers(health), 400)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except OSError:
        return False
    return True
