"""Values of plain functions: a loop that transforms them before it sends them passes unchanged.

Each agent is recorded by ``oteval run`` against a scripted model, and verified with the model
stopped. Its functions are undecorated; they write a line into a file whenever they really run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ..model_server import Body, Reply, completion, serving
from .recorded import tool_request

pytestmark = pytest.mark.slow

HEAD = """
import asyncio
import functools
import importlib
import json
import sys
from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import httpx2


def act(order):
    with open("acted", "a") as file:
        file.write(f"{order}\\n")
"""
LOOP = """
URL = Path("url").read_text()
client = httpx2.Client(verify=False)


def ask(question):
    number = question.split()[-1]
    case = importlib.import_module(f"case_{number}")
    messages = [{"role": "user", "content": question}]
    offer = {"type": "function", "function": {"name": f"refund_{number}"}}
    while True:
        body = {"model": "m", "messages": messages, "tools": [offer]}
        reply = client.post(URL + "/chat/completions", json=body).json()
        message = reply["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            content = case.send(json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


if __name__ == "__main__":
    for question in sys.argv[1:]:
        print(ask(question))
"""
# The function of the tool, and how the loop makes the text for the model of its result.
CASES = {
    "JSON of a wrapper": """
def refund(order):
    act(order)
    return {"order": order, "state": "done"}
def send(a): return json.dumps({"result": refund(**a)})
""",
    "a text in an f-string": """
def refund(order):
    act(order)
    return "12"
def send(a): return f"Result: {refund(**a)}"
""",
    "an index": """
def refund(order):
    act(order)
    return {"state": "done", "secret": order}
def send(a): return refund(**a)["state"]
""",
    "an attribute of a dataclass": """
@dataclass
class Refund:
    order: int
    amount: Decimal
def refund(order):
    act(order)
    return Refund(order, Decimal("9.90"))
def send(a): return str(refund(**a).amount)
""",
    "an attribute of a pydantic model": """
import pydantic
class Refund(pydantic.BaseModel):
    order: int
    due: date
def refund(order):
    act(order)
    return Refund(order=order, due=date(2026, 5, 1))
def send(a): return refund(**a).due.isoformat()
""",
    "an attribute of an object": """
class Refund:
    def __init__(self, order):
        self.order = order
    def line(self):
        return f"refunded {self.order}"
def refund(order):
    act(order)
    return Refund(order)
def send(a): return refund(**a).line()
""",
    "an exception, reworded": """
class Refused(Exception):
    def __init__(self, order, why):
        super().__init__(order, why)
        self.why = why
def refund(order):
    act(order)
    raise Refused(order, "too late")
def send(a):
    try:
        return refund(**a)
    except Refused as error:
        return f"{type(error).__name__}! {error.why}"
""",
    "an exception of another kind than its text": """
def refund(order):
    act(order)
    return {}["order"]
def send(a):
    try:
        return refund(**a)
    except LookupError as error:
        return "not found: " + str(error)
""",
    "None": """
def refund(order):
    act(order)
def send(a): return "ok" if refund(**a) is None else "not ok"
""",
    "a bool": """
def refund(order):
    act(order)
    return True
def send(a): return "yes" if refund(**a) is True else "no"
""",
    "an amount": """
def refund(order):
    act(order)
    return Decimal("19.90")
def send(a): return str(refund(**a) * 2)
""",
    "a date": """
def refund(order):
    act(order)
    return datetime(2026, 5, 1, 12, 30)
def send(a): return (refund(**a) + timedelta(days=1)).isoformat()
""",
    "a list, joined": """
def refund(order):
    act(order)
    return ["checked", "paid"]
def send(a): return ", ".join(refund(**a))
""",
    "a tuple, unpacked": """
def refund(order):
    act(order)
    return order, "done"
def send(a):
    order, state = refund(**a)
    return f"{state}: {order + 1}"
""",
    "bytes": """
def refund(order):
    act(order)
    return b"\\x00done"
def send(a): return refund(**a).hex()
""",
    "a set": """
def refund(order):
    act(order)
    return {"b", "a"}
def send(a): return "|".join(sorted(refund(**a)))
""",
    "a coroutine function": """
async def refund(order):
    act(order)
    await asyncio.sleep(0)
    return SimpleNamespace(state="done")
def send(a): return asyncio.run(refund(**a)).state
""",
    "coroutine functions at the same time": """
async def refund(order):
    act(order)
    await asyncio.sleep(0)
    return {"state": "done"}
async def gathered(a):
    return await asyncio.gather(refund(**a), asyncio.sleep(0, "slept"))
def send(a): return json.dumps(asyncio.run(gathered(a)))
""",
    "a method": """
class Desk:
    def __init__(self):
        self.name = "desk 1"
    def refund(self, order):
        act(order)
        return {"by": self.name}
desk = Desk()
def send(a): return "by " + getattr(desk, "refund")(**a)["by"]
""",
    "a function in a table": """
def give_back(order):
    act(order)
    return {"state": "done"}
TOOLS = {"refund": give_back}
def send(a): return TOOLS["refund"](**a)["state"].upper()
""",
    "a partial": """
def give_back(log, order):
    act(order)
    return [log, order]
TOOLS = {"refund": functools.partial(give_back, "log")}
def send(a): return "-".join(map(str, TOOLS["refund"](**a)))
""",
    "a closure": """
def made(state):
    def refund(order):
        nonlocal state
        act(order)
        state += 1
        return {"state": state}
    return refund
refund = made(6)
def send(a): return str(refund(**a)["state"])
""",
    "a closure that each call makes": """
def made(state):
    def refund(order):
        act(order)
        return {"state": state}
    return refund
def send(a): return made("done")(**a)["state"]
""",
    "a thread": """
from concurrent.futures import ThreadPoolExecutor
def refund(order):
    act(order)
    return {"state": "done"}
def send(a):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(refund, **a).result()["state"]
""",
    "arguments that are converted": """
def refund(order):
    act(order)
    return {"state": "done"}
def send(a): return refund(str(a["order"]))["state"]
""",
    "arguments in one": """
def refund(arguments):
    act(arguments["order"])
    return {"state": "done"}
def send(a): return refund(a)["state"]
""",
    "a module that is imported late": """
LATE = "from case_NUMBER import act\\ndef refund(order): return act(order) or {'state': 'done'}\\n"
Path("late_NUMBER.py").write_text(LATE)
def send(a):
    import late_NUMBER
    return late_NUMBER.refund(**a)["state"]
""",
    "a function that calls itself": """
def refund(order, depth=0):
    if depth == 400:
        act(order)
        return {"depth": depth}
    return refund(order, depth + 1)
def send(a): return str(refund(**a)["depth"])
""",
}
NUMBERS = {name: number for number, name in enumerate(CASES)}
# Changes of the first agent, and of the loop that all of them have.
CHANGED = {
    "the transformation": ("case_0.py", "json.dumps({", "json.dumps({'changed': 1, "),
    "the request": ("agent.py", '"model": "m"', '"model": "m2"'),
    "an effect before it is asked for": (
        "agent.py",
        "    while True:",
        "    case.send({'order': 17})\n    while True:",
    ),
    "the arguments": ("agent.py", 'json.loads(call["function"]["arguments"])', "{'order': 18}"),
    "a second call": ("agent.py", "content = case", "case.send({'order': 17}); content = case"),
}


class Shop(NamedTuple):
    """A folder in which the agents are recorded and verified."""

    folder: Path

    def write(self, file: str, old: str = "", new: str = "") -> None:
        """Write the agents' modules, with a change in one of them."""
        modules = {"agent.py": HEAD + LOOP}
        for name, number in NUMBERS.items():
            code = re.sub(r"\brefund\b", f"refund_{number}", CASES[name])
            modules[f"case_{number}.py"] = HEAD + code.replace("NUMBER", str(number))
        for name, code in modules.items():
            (self.folder / name).write_text(code.replace(old, new) if name == file else code)

    def oteval(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call oteval in the folder."""
        command = [sys.executable, "-m", "oteval", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)

    def verified(self, *sessions: str) -> tuple[int, list[Any]]:
        """Verify sessions; return the exit status and the rows."""
        done = self.oteval("replay", "verify", "--json", "--target", "agent:ask", *sessions)
        assert done.stdout, done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def effects(self) -> list[str]:
        """Return the orders for which a tool has run for real, and forget them."""
        acted = self.folder / "acted"
        orders = acted.read_text().split() if acted.exists() else []
        acted.unlink(missing_ok=True)
        return orders


class Verified(NamedTuple):
    """The agents after they were recorded and verified unchanged.

    Attributes:
        shop: The folder.
        rows: The rows of the verification, by the names of the cases.
        effects: The effects of the verification.
    """

    shop: Shop
    rows: dict[str, Any]
    effects: list[str]


def refund_once(body: Body, _number: int) -> Reply:
    """Ask for a refund, then answer."""
    if body["messages"][-1]["role"] == "tool":
        return completion("done")
    name = body["tools"][0]["function"]["name"]
    return tool_request((name, '{"order": 17}'), call_id=name)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Verified:
    """All agents, recorded by one command and verified by another; the server has ended."""
    shop = Shop(tmp_path_factory.mktemp("shop"))
    shop.write("")
    questions = [f"Refund 17 by {number}" for number in NUMBERS.values()]
    with serving(refund_once) as server:
        (shop.folder / "url").write_text(server.url)
        done = shop.oteval("run", "--quiet", "--", sys.executable, "agent.py", *questions)
    assert done.returncode == 0, done.stderr
    assert "the agent goes on" not in done.stderr
    assert shop.effects() == ["17"] * len(CASES)
    _, rows = shop.verified()
    return Verified(shop, dict(zip(CASES, rows, strict=True)), shop.effects())


@pytest.mark.parametrize("name", CASES)
def test_an_unchanged_loop_gets_the_values_of_its_functions(verified: Verified, name: str) -> None:
    """Whatever the loop makes of a result or an exception, the replay passes."""
    row = verified.rows[name]

    assert row["status"] == "passed", row
    assert row["tools"][f"refund_{NUMBERS[name]}"].endswith(", answered")


def test_no_function_acts_in_a_replay(verified: Verified) -> None:
    """The functions are answered, and none of them runs."""
    assert verified.effects == []


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_a_changed_loop_is_reported(verified: Verified, change: tuple[str, str, str]) -> None:
    """The recorded values hide no change of the agent."""
    verified.shop.write(*change)

    status, rows = verified.shop.verified(verified.rows["JSON of a wrapper"]["session"])

    assert (status, rows[0]["status"]) == (1, "diverged"), rows
    assert verified.shop.effects() == []


@pytest.mark.parametrize(
    ("call", "status"), [("", 0), ("refund(17)", 1), ("refund(18)", 3), ("T['refund'](17)", 1)]
)
def test_a_program_does_not_act_before_its_first_model_call(
    tmp_path: Path, call: str, status: int
) -> None:
    """The functions of a program are taken over before it calls any of them."""
    shop = Shop(tmp_path)
    loop = LOOP.replace(
        'case = importlib.import_module(f"case_{number}")', "case = sys.modules[__name__]"
    )
    code = (
        HEAD
        + CASES["JSON of a wrapper"]
        + "T = {'refund': refund}\n"
        + loop.replace("refund_{number}", "refund")
    )
    (tmp_path / "agent.py").write_text(code)
    command = (sys.executable, "agent.py", "Refund 17")
    with serving(refund_once) as server:
        (tmp_path / "url").write_text(server.url)
        assert shop.oteval("run", "--quiet", "--", *command).returncode == 0
    assert shop.effects() == ["17"]

    (tmp_path / "agent.py").write_text(
        code.replace("    while True:", f"    {call}\n    while True:")
    )
    done = shop.oteval("replay", "verify", "--json", "--", *command)

    assert done.returncode == status, done.stdout + done.stderr
    assert shop.effects() == []
