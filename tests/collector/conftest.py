"""Fixtures of the tests beside other programs: Debian's Alertmanager and its receiver."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.served import until

from ..otlp_endpoint import Downstream, listening
from .test_flow import free_port, program

ROUTES = """
route: {{receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: hook, webhook_configs: [{{url: '{url}/hook', send_resolved: true}}]}}]
"""


@pytest.fixture
def receiver() -> Iterator[Downstream]:
    """Return where Alertmanager sends its own notifications."""
    with listening() as found:
        yield found


@pytest.fixture
def alertmanager(receiver: Downstream, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an Alertmanager."""
    path = program(
        "OTEVAL_ALERTMANAGER",
        "",
        "prometheus-alertmanager" if shutil.which("prometheus-alertmanager") else "alertmanager",
    )
    (tmp_path / "routes.yml").write_text(ROUTES.format(url=receiver.url))
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            path,
            f"--config.file={tmp_path}/routes.yml",
            f"--storage.path={tmp_path}/data",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: _is_ready(url), 30)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def heard(receiver: Downstream) -> list[str]:
    """Return the states of the alerts that Alertmanager notified, in order."""
    bodies = map(json.loads, receiver.bodies("/hook"))
    return [alert["status"] for body in bodies for alert in body["alerts"]]


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def asked(url: str, path: str) -> Any:
    """Return the answer of a server, which is JSON."""
    with urllib.request.urlopen(url + path, timeout=5) as response:
        return json.load(response)
