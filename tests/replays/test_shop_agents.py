"""Small agents of a shop that really act: recorded exactly, replayed without an effect.

`tests/data/replay_agents` has the agents, a scripted model server that counts what reaches it, and
`check.py`, which records an agent, stops the server and verifies the agent unchanged and changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..make import ROOT

pytestmark = pytest.mark.slow

AGENTS = ROOT / "tests" / "data" / "replay_agents"
LATE = "thread,atexit,pyclean,pychild,answer" + (",curl" if shutil.which("curl") else "")
CASES = {
    "a plain loop": ("a01_plain_openai.py", "prompt,model,schema,temp,swap,drop,extra,stop"),
    "streams and threads": ("a03_stream_threads.py", "prompt,model,schema"),
    "OpenAI Agents": ("a09one_oai_agents.py", "prompt,model"),
    "Pydantic AI": ("a10def_pydantic.py", "prompt,model,deny"),
    "order across kinds": ("e_order.py", "payfirst,agents,answer"),
    "acts late": ("e_late.py", LATE),
    "acts late, as a function": ("e_late.py", LATE, "--target"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_agent_of_the_shop_acts_only_when_it_is_recorded(case: tuple[str, ...]) -> None:
    """The recording is exact, unchanged it passes, each change is reported, nothing is executed."""
    agent, changes, *options = case
    python = Path(sys.executable)

    done = subprocess.run(
        [
            *(sys.executable, AGENTS / "check.py", AGENTS / agent, "--changes", changes),
            *("--python", python, "--oteval", python.with_name("oteval"), *options),
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    assert "WRONG" not in done.stdout
