"""A replay runs no tool: tools of hand-written loops are answered, or the replay stops."""

from __future__ import annotations

import functools
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

import oteval
from oteval.base.errors import ReplayDiverged, ReplayUnguarded
from oteval.model import Recording
from oteval.replays.player import Miss

from ..commands import Run, oteval as oteval_command
from .recorded import recording_of
from .shop import recording_file, shop_recording, write_shop

__all__ = ["oteval_command"]

URL = "http://models.example/v1/chat/completions"

# Each way to reach the function of the tool `refund`, as agents do it.
WAYS = {
    "by its name": """
def refund(order):
    return act(order)
def run(a): return refund(**a)
""",
    "in a table": """
def do_it(order):
    return act(order)
TOOLS = {"refund": do_it}
def run(a): return TOOLS["refund"](**a)
""",
    "in a table with an order": """
from collections import OrderedDict
def do_it(order):
    return act(order)
TOOLS = OrderedDict(refund=do_it)
def run(a): return TOOLS["refund"](**a)
""",
    "in a table of a class of its own": """
class Registry(dict):
    def add(self, function):
        self["refund"] = function
TOOLS = Registry()
@TOOLS.add
def do_it(order):
    return act(order)
def run(a): return TOOLS["refund"](**a)
""",
    "a lambda": """
TOOLS = {"refund": lambda order: act(order)}
def run(a): return TOOLS["refund"](**a)
""",
    "a partial": """
from functools import partial
def do_it(log, order):
    return act(order)
TOOLS = {"refund": partial(do_it, "log")}
def run(a): return TOOLS["refund"](**a)
""",
    "a method": """
class Desk:
    def refund(self, order):
        return act(order)
desk = Desk()
def run(a): return getattr(desk, "refund")(**a)
""",
    "a static method": """
class Desk:
    @staticmethod
    def refund(order):
        return act(order)
def run(a): return Desk.refund(**a)
""",
    "a bound method in a table": """
class Desk:
    def pay(self, order):
        return act(order)
TOOLS = {"refund": Desk().pay}
def run(a): return TOOLS["refund"](**a)
""",
    "a closure": """
def make(shop):
    def refund(order):
        return act(order)
    return refund
REFUND = make("x")
def run(a): return REFUND(**a)
""",
    "a closure of the call": """
def make():
    shop = 1
    def refund(order):
        return act(order)
    return refund
def run(a): return make()(**a)
""",
    "a decorated function": """
import functools
def log(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner
@log
def refund(order):
    return act(order)
def run(a): return refund(**a)
""",
    "one argument": """
def refund(arguments):
    return act(arguments["order"])
def run(a): return refund(a)
""",
    "JSON": """
def refund(text):
    return act(json.loads(text)["order"])
def run(a): return refund(json.dumps(a))
""",
    "more arguments": """
def refund(order, *, user="Ada", **more):
    return act(order)
def run(a): return refund(**a, token="t")
""",
    "positional": """
def refund(order, /, *rest):
    return act(order)
def run(a): return refund(a["order"])
""",
    "a coroutine": """
import asyncio
async def refund(order):
    return act(order)
def run(a): return asyncio.run(refund(**a))
""",
    "a thread": """
from concurrent.futures import ThreadPoolExecutor
def refund(order):
    return act(order)
def run(a):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(refund, **a).result()
""",
    "an implementation of an abstract method": """
import abc
class Base(abc.ABC):
    @abc.abstractmethod
    def refund(self, order):
        '''Refund an order.'''
class Desk(Base):
    def refund(self, order):
        return act(order)
def run(a): return Desk().refund(**a)
""",
    "an implementation of a protocol": """
import typing
class Refunds(typing.Protocol):
    async def refund(self, order): ...
class Desk:
    def refund(self, order):
        return act(order)
def run(a): return Desk().refund(**a)
""",
    "a method that a base class lacks": """
class Base:
    def refund(self, order):
        raise NotImplementedError("refund")
class Desk(Base):
    def refund(self, order):
        return act(order)
def run(a): return Desk().refund(**a)
""",
    "beside a function without parameters": """
class Order:
    def refund(self):
        return 1
def refund(order):
    return act(order)
def run(a): return refund(**a)
""",
    "a name that is imported": """
from tools_of_shop import issue_refund as refund
def run(a): return refund(**a)
""",
}
HEAD = """import json
from pathlib import Path
import httpx2

acted = []
client = httpx2.Client(verify=False)

def act(order):
    acted.append(order)
    return "refunded"
"""
LOOP = """
def ask(question):
    system = {"role": "system", "content": "You refund orders."}
    messages = [system, {"role": "user", "content": question}]
    while True:
        body = {"model": "m", "messages": messages}
        reply = client.post("http://models.example/v1/chat/completions", json=body)
        message = reply.json()["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            content = run(json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import the code of an agent, as a module of the user's."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tools_of_shop.py").write_text(
        "acted = []\ndef issue_refund(order):\n    acted.append(order)\n    return 'refunded'\n"
    )

    def imported(code: str) -> Any:
        (tmp_path / "gate_agent.py").write_text(code)
        importlib.invalidate_caches()
        return importlib.import_module("gate_agent")

    yield imported
    for name in ("gate_agent", "tools_of_shop"):
        sys.modules.pop(name, None)


def effects(agent: Any) -> list[int]:
    """Return the orders that the tool refunded."""
    module = sys.modules.get("tools_of_shop")
    return [*agent.acted, *(module.acted if module is not None else [])]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_plain_function_is_answered_however_it_is_reached(
    module: Callable[[str], Any], way: str
) -> None:
    """No tool runs, the agent continues with the recorded result, and the function is named."""
    agent = module(HEAD + way + LOOP)

    with oteval.replay(shop_recording("Refund 17")) as replay:
        assert agent.ask("Refund 17") == "Refund 17: done"

    assert effects(agent) == []
    assert replay.result.passed
    assert replay.result.tools["refund"].endswith(", answered")
    assert ".py:" in replay.result.tools["refund"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_the_function_is_its_own_again_after_the_replay(
    module: Callable[[str], Any], way: str
) -> None:
    """The replaced functions are restored exactly."""
    agent = module(HEAD + way + LOOP)
    with oteval.replay(shop_recording("Refund 17")):
        agent.ask("Refund 17")

    assert agent.run({"order": 5}) == "refunded"
    assert effects(agent) == [5]


# Ways that a replay cannot answer, each with the expected message.
REFUSED = {
    "inline": (
        """
def run(a): return act(a["order"])
""",
        "no function of the agent's code has that name",
    ),
    "two functions": (
        """
def refund(order):
    return act(order)
class Other:
    def refund(self, order):
        return 1
def run(a): return refund(**a)
""",
        "2 functions fit",
    ),
    "a property": (
        """
class Desk:
    @property
    def refund(self):
        return lambda order: act(order)
def run(a): return Desk().refund(**a)
""",
        "no function of the agent's code has that name",
    ),
    "a function that returns the tool": (
        """
def refund():
    return lambda order: act(order)
def run(a): return refund()(**a)
""",
        "no function of the agent's code has that name",
    ),
    "a generator": (
        """
def refund(order):
    yield act(order)
def run(a): return "".join(refund(**a))
""",
        "is a generator",
    ),
    "a callable object": (
        """
class Tool:
    def __call__(self, order):
        return act(order)
TOOLS = {"refund": Tool()}
def run(a): return TOOLS["refund"](**a)
""",
        "no function of the agent's code has that name",
    ),
    "another name": (
        """
def do_refund(order):
    return act(order)
def run(a): return do_refund(**a)
""",
        "--tool refund=MODULE:FUNCTION",
    ),
    "a function without a body": (
        """
def refund(order): return None
def run(a): return act(a["order"])
""",
        "only declares it",
    ),
}


@pytest.mark.parametrize("miss", ["strict", "error", "ordinal"])
@pytest.mark.parametrize(("way", "message"), REFUSED.values(), ids=REFUSED)
def test_a_replay_stops_before_a_tool_that_would_run(
    module: Callable[[str], Any], way: str, message: str, miss: Miss
) -> None:
    """The tool is not answered, whatever the policy for misses; the message names the remedy."""
    agent = module(HEAD + way + LOOP)

    with (
        pytest.raises(ReplayUnguarded, match="the model asks for refund"),
        oteval.replay(shop_recording("Refund 17"), miss=miss) as replay,
    ):
        agent.ask("Refund 17")

    assert effects(agent) == []
    assert not replay.result.passed
    assert message in replay.result.unguarded[0]


def test_an_agent_that_hides_the_stop_is_not_passed(module: Callable[[str], Any]) -> None:
    """A bare except changes nothing: the block ends with the reason."""
    code = LOOP.replace("def ask(", "def loop(") + (
        "\ndef ask(question):\n    try:\n        return loop(question)\n"
        "    except BaseException:\n        return 'Refund 17: done'\n"
    )
    agent = module(HEAD + REFUSED["inline"][0] + code)

    with (
        pytest.raises(ReplayUnguarded),
        oteval.replay(shop_recording("Refund 17")),
    ):
        agent.ask("Refund 17")

    assert effects(agent) == []


@pytest.mark.parametrize("name", ["another name", "two functions"])
def test_the_user_names_the_function(module: Callable[[str], Any], name: str) -> None:
    """A mapping in the call says which function runs the tool."""
    agent = module(HEAD + REFUSED[name][0] + LOOP)
    function = "do_refund" if name == "another name" else "refund"

    with oteval.replay(
        shop_recording("Refund 17"), tools={"refund": f"gate_agent:{function}"}
    ) as replay:
        agent.ask("Refund 17")

    assert effects(agent) == []
    assert replay.result.passed


def test_a_result_from_elsewhere_is_no_pass(module: Callable[[str], Any]) -> None:
    """The replay stops when the loop does the work of the tool in other code."""
    code = "def refund(order):\n    return act(order)\ndef run(a): return act(a['order'])\n"
    agent = module(HEAD + code + LOOP)

    with (
        pytest.raises(ReplayUnguarded, match=r"gave a result, but .* was not called"),
        oteval.replay(shop_recording("Refund 17")),
        pytest.raises(ReplayUnguarded),  # the next answer is withheld
    ):
        agent.ask("Refund 17")


def test_one_function_for_all_tools(module: Callable[[str], Any]) -> None:
    """A dispatcher that gets the tool's name and its arguments is named for each tool."""
    code = "def call_tool(name, arguments):\n    return act(arguments['order'])\n"
    agent = module(HEAD + code + "def run(a): return call_tool('refund', a)\n" + LOOP)
    functions = {"refund": "gate_agent:call_tool", "lookup": "gate_agent:call_tool"}

    with oteval.replay(shop_recording("Refund 17"), tools=functions) as replay:
        agent.ask("Refund 17")

    assert effects(agent) == []
    assert replay.result.passed


def test_a_tool_that_may_run_runs(module: Callable[[str], Any]) -> None:
    """Only tools that the user names may run."""
    agent = module(HEAD + REFUSED["inline"][0] + LOOP)

    with oteval.replay(shop_recording("Refund 17"), run_tools=["refund"]) as replay:
        agent.ask("Refund 17")

    assert effects(agent) == [17]
    assert replay.result.tools == {"refund": "runs, as you said"}


def test_a_function_of_an_installed_package_is_not_taken_over() -> None:
    """`httpx2.get` is not the tool ``get`` of an agent, although it has its name."""
    recording = shop_recording("Refund 17")
    text = recording.model_calls[0].exchange.chunks[0].data  # type: ignore[union-attr]
    assert b'"refund"' in text

    with pytest.raises(ReplayUnguarded), oteval.replay(renamed(recording, "get")):
        httpx2.post(URL, json=first_body(recording))


def renamed(recording: Recording, tool: str) -> Recording:
    """Return a recording whose model asks for another tool."""
    call = recording.model_calls[0]
    assert call.answer is not None
    renamed_calls = tuple(replace(tool_call, name=tool) for tool_call in call.answer.tool_calls)
    answer = replace(call.answer, tool_calls=renamed_calls)
    calls = (replace(call, answer=answer), *recording.model_calls[1:])
    return replace(recording, model_calls=calls)


def first_body(recording: Recording) -> Any:
    """Return the body of the first recorded request."""
    exchange = recording.model_calls[0].exchange
    assert exchange is not None
    return json.loads(exchange.request_body)


# The returned value of a function, and the text that the loop sends; only the text is recorded.
RESULTS = {
    "a dict, dumped": ("{'order': 17, 'paid': 30.5}", "json.dumps(value)"),
    "a dict, as str": ("{'order': 17, 'ok': True, 'none': None}", "str(value)"),
    "a text": ("'refunded: 17'", "value"),
    "a text of JSON": ("json.dumps({'order': 17})", "value"),
    "a text, dumped": ("'refunded'", "json.dumps(value)"),
    "an f-string": ("f'order {order}'", "value"),
    "a number": ("41", "str(value)"),
    "a list, indented": ("[1, {'a': 2}]", "json.dumps(value, indent=2)"),
    "None, dumped": ("None", "json.dumps(value)"),
    "through another function": ("helper(order)", "json.dumps(value)"),
    "a variable": ("result", "value"),
}


@pytest.mark.parametrize(("returned", "sent"), RESULTS.values(), ids=RESULTS)
def test_a_function_without_annotations_gives_what_it_gave(
    module: Callable[[str], Any], returned: str, sent: str
) -> None:
    """An unchanged loop makes the same text from the replayed value."""
    code = (
        "def helper(order):\n    return {'order': order, 'state': 'refunded'}\n"
        "def refund(order):\n    act(order)\n    result = f'{order} refunded'\n"
        f"    return {returned}\n"
        f"def run(a):\n    value = refund(**a)\n    return {sent}\n"
    )
    agent = module(HEAD + code + LOOP)
    text = agent.run({"order": 17})
    agent.acted.clear()

    with oteval.replay(with_result(shop_recording("Refund 17"), text)) as replay:
        agent.ask("Refund 17")

    assert effects(agent) == []
    assert replay.result.passed


def with_result(recording: Recording, text: str) -> Recording:
    """Return a recording with another text as the tool's result."""
    exchanges = []
    for call in recording.model_calls:
        exchange = call.exchange
        assert exchange is not None
        body = json.loads(exchange.request_body)
        for message in body["messages"]:
            if message["role"] == "tool":
                message["content"] = text
        exchanges.append(replace(exchange, request_body=json.dumps(body).encode()))
    return recording_of(exchanges)


def test_two_replays_at_once_answer_the_same_function(module: Callable[[str], Any]) -> None:
    """Each call goes to the replay of its thread."""
    agent = module(HEAD + WAYS["by its name"] + LOOP)
    both_are_open = threading.Barrier(2)
    answers = {}

    def replayed(question: str) -> None:
        with oteval.replay(shop_recording(question)):
            both_are_open.wait()
            answers[question] = agent.ask(question)

    threads = [threading.Thread(target=replayed, args=(q,)) for q in ("Refund 17", "Refund 18")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {"Refund 17": "Refund 17: done", "Refund 18": "Refund 18: done"}
    assert effects(agent) == []
    assert agent.run({"order": 5}) == "refunded"


@pytest.mark.parametrize("where", ["option", "configuration"])
def test_the_command_names_the_function(oteval_command: Run, tmp_path: Path, where: str) -> None:
    """``--tool``, or ``tools:`` in oteval.yaml; the result names the function."""
    write_shop(tmp_path)
    path = tmp_path / "shop.py"
    path.write_text(path.read_text().replace("refund(", "pay_back("))
    file = recording_file(tmp_path, "Refund 17")
    options = ["--tool", "refund=shop:pay_back"] if where == "option" else []
    if where == "configuration":
        (tmp_path / "oteval.yaml").write_text("tools: {refund: 'shop:pay_back'}\n")
    verify = ("replay", "verify", file, "--json")

    done = oteval_command(*verify, *options, "--", sys.executable, "shop.py", "{input}")

    assert done.status == 0, done
    assert done.rows[0]["tools"]["refund"].startswith("shop.py:")
    assert not (tmp_path / "refunds").exists()


def test_an_unverified_session_exits_with_3(oteval_command: Run, tmp_path: Path) -> None:
    """The status, the row and the line on standard error explain the missing verdict."""
    write_shop(tmp_path)
    path = tmp_path / "shop.py"
    path.write_text(path.read_text().replace("refund(", "pay_back("))
    file = recording_file(tmp_path, "Refund 17")

    done = oteval_command("replay", "verify", file, "--json", "--target", "shop:target")

    assert done.status == 3
    assert done.rows[0]["status"] == "unverified"
    assert "--tool refund=MODULE:FUNCTION" in done.rows[0]["detail"]
    assert "is not verified: the model asks for refund" in done.err
    assert not (tmp_path / "refunds").exists()


def test_what_outlives_a_replay_does_not_act(module: Callable[[str], Any]) -> None:
    """A thread started in the block still has no tools, functions or network after it."""
    agent = module(HEAD + WAYS["by its name"] + LOOP)
    go_on, attempts = threading.Event(), []

    @oteval.tool
    def pay(order: int) -> str:
        agent.act(order)
        return "paid"

    def later() -> None:
        go_on.wait()
        for attempt in (
            functools.partial(pay, 17),
            functools.partial(agent.refund, 17),
            functools.partial(httpx2.post, "http://127.0.0.1:9/refund"),
        ):
            try:
                attempt()
            except BaseException as error:
                attempts.append(type(error))

    thread = threading.Thread(target=later, daemon=True)
    with oteval.replay(shop_recording("Refund 17")) as replay:
        agent.ask("Refund 17")
        thread.start()
    assert replay.result.passed
    go_on.set()
    thread.join()

    assert attempts == [ReplayDiverged] * 3
    assert effects(agent) == []
    assert {divergence.kind for divergence in replay.result.divergences} == {"late"}
    assert not replay.result.passed
    assert agent.refund(5) == "refunded"


def test_a_tool_before_the_model_asks_for_it_does_not_run(module: Callable[[str], Any]) -> None:
    """After a first model call, the functions of all later tools are answered too."""
    ask = "content = client.post(URL, json=first).json()['choices'][0]['message']['content']"
    code = f"""{HEAD}
URL = {URL!r}
def refund(order): return act(order)
def run(a): return refund(**a)
{LOOP}
def changed(question):
    messages = [{{"role": "system", "content": "You refund orders."}}]
    first = {{"model": "m", "messages": [*messages, {{"role": "user", "content": "Hello"}}]}}
    {ask}
    refund(17)
    return content
"""
    agent = module(code)
    refunded = shop_recording("Refund 17")
    first_exchange, last_exchange = (call.exchange for call in refunded.model_calls)
    assert first_exchange is not None
    assert last_exchange is not None
    body = json.loads(first_exchange.request_body)
    body["messages"][-1]["content"] = "Hello"
    greeted = replace(last_exchange, request_body=json.dumps(body).encode(), start_ns=1, end_ns=2)
    recording = recording_of([greeted, first_exchange, last_exchange])

    with (
        pytest.raises(ReplayDiverged, match="refund ran before the model asked for it"),
        oteval.replay(recording),
    ):
        agent.changed("Hello")

    assert effects(agent) == []


def test_a_tool_before_the_first_model_call_does_not_run(module: Callable[[str], Any]) -> None:
    """Functions that exist when a replay begins are answered from its start."""
    agent = module(HEAD + WAYS["by its name"] + LOOP)

    with (
        pytest.raises(ReplayDiverged, match="refund ran before the model asked for it"),
        oteval.replay(shop_recording("Refund 17")),
    ):
        agent.run({"order": 17})

    assert effects(agent) == []


def test_a_tool_that_the_agent_calls_by_itself_does_not_run(module: Callable[[str], Any]) -> None:
    """A tool with unrecorded arguments does not run before a model asked for it."""
    agent = module(HEAD + WAYS["by its name"] + LOOP)

    with (
        pytest.raises(ReplayUnguarded, match=r"called before a model asks.*--run-tool refund"),
        oteval.replay(shop_recording("Refund 17")),
    ):
        agent.run({"order": 18})

    assert effects(agent) == []


def test_a_module_that_is_imported_in_a_replay_does_not_act(
    module: Callable[[str], Any], tmp_path: Path
) -> None:
    """The functions of its tools are replaced once the module is imported."""
    (tmp_path / "gate_late.py").write_text(HEAD + WAYS["in a table"] + LOOP)
    agent = module(
        "import importlib\ndef late():\n    return importlib.import_module('gate_late')\n"
    )

    with (
        pytest.raises(ReplayDiverged, match="refund ran before the model asked for it"),
        oteval.replay(shop_recording("Refund 17")),
    ):
        agent.late().run({"order": 17})

    assert sys.modules.pop("gate_late").acted == []


# Ways to define another function of a tool while the agent runs.
DEFINED_LATE = {
    "exec": """
def run(a):
    names = {"act": act}
    exec("def refund(order): return act(order)", names)
    return names["refund"](**a)
""",
    "a class in exec": """
def run(a):
    names = {"act": act}
    exec("class Desk:\\n    def refund(self, order): return act(order)", names)
    return names["Desk"]().refund(**a)
""",
    "a module": """
Path(__file__).with_name("late_tools.py").write_text("def refund(order, act): return act(order)")
def run(a):
    import late_tools
    return late_tools.refund(act=act, **a)
""",
}


@pytest.mark.parametrize("way", DEFINED_LATE.values(), ids=DEFINED_LATE)
def test_a_tool_that_is_defined_late_does_not_run(module: Callable[[str], Any], way: str) -> None:
    """The replay stops at a function that was defined after the model's answer."""
    agent = module(f"{HEAD}def refund(order): return act(order)\n{way}{LOOP}")

    with (
        pytest.raises(ReplayUnguarded, match="defines refund while the agent runs"),
        oteval.replay(shop_recording("Refund 17")),
    ):
        agent.ask("Refund 17")

    assert effects(agent) == []


# Code that makes another text of a tool's result, and that text.
TRANSFORMED = {
    "an object around it": ("json.dumps({'result': refund(**a)})", '{"result": "refunded"}'),
    "a text around it": ("f'Result: {refund(**a)}'", "Result: refunded"),
    "a choice": ("'paid' if refund(**a) == 'refunded' else 'failed'", "paid"),
}


@pytest.mark.parametrize(("code", "text"), TRANSFORMED.values(), ids=TRANSFORMED)
def test_a_result_that_the_loop_transforms_says_how_to_record_it(
    module: Callable[[str], Any], code: str, text: str
) -> None:
    """The recording lacks the returned value; the divergence says so, with the remedy."""
    agent = module(f"{HEAD}def refund(order): return act(order)\ndef run(a): return {code}\n{LOOP}")

    with (
        pytest.raises(ReplayDiverged, match="decorate the functions with @oteval"),
        oteval.replay(with_result(shop_recording("Refund 17"), text)),
    ):
        agent.ask("Refund 17")

    assert effects(agent) == []


def test_an_agent_that_cannot_use_a_result_says_how_to_record_it(
    oteval_command: Run, tmp_path: Path
) -> None:
    """The agent takes a field of the result, but the recording has only that field's text."""
    write_shop(tmp_path)
    path = tmp_path / "shop.py"
    code = path.read_text().replace(
        'call["function"]["arguments"]))', 'call["function"]["arguments"]))["state"]'
    )
    path.write_text(code)
    file = recording_file(tmp_path, "Refund 17")

    done = oteval_command("replay", "verify", file, "--json", "--target", "shop:target")

    assert done.status == 1
    assert "decorate the functions with @oteval.tool" in done.rows[0]["detail"]


def test_a_child_process_takes_all_tools_over(module: Callable[[str], Any]) -> None:
    """A child process answers a tool that the model asked its parent for."""
    agent = module(HEAD + WAYS["by its name"] + LOOP)

    results = []

    def child() -> None:
        with oteval.replay(shop_recording("Refund 17")) as replay:
            replay.player.serve_child_process()
            results.append(agent.run({"order": 17}))

    with pytest.raises(ReplayDiverged, match="did not make model call"):
        child()

    assert results == ["refunded"]
    assert effects(agent) == []


PROCESSES = """
import multiprocessing
from pathlib import Path
import httpx

client = httpx.Client(verify=False)

def act(order):
    with Path("refunds").open("a") as file:
        file.write(f"{order}\\n")
    return "refunded"

def refund(order):
    return act(order)

def run(arguments):
    with multiprocessing.get_context(%r).Pool(1) as pool:
        return pool.apply(refund, (arguments["order"],))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_tool_in_a_pool_of_processes_does_not_act(
    oteval_command: Run, tmp_path: Path, method: str
) -> None:
    """However the processes of a pool begin, the tool does not run, and nothing is verified."""
    code = "import json\n" + PROCESSES % method + LOOP
    agent = tmp_path / "pool_agent.py"
    agent.write_text(code + "\nif __name__ == '__main__':\n    ask('Refund 17')\n")
    file = recording_file(tmp_path, "Refund 17")

    done = oteval_command("replay", "verify", file, "--", sys.executable, str(agent))

    assert done.status == 3
    assert "run it in this one" in done.err
    assert not (tmp_path / "refunds").exists()


def test_a_generic_function_is_not_the_one_that_runs(module: Callable[[str], Any]) -> None:
    """A function that dispatches by type is refused, since its implementations would run."""
    generic = """
import functools
@functools.singledispatch
def pay(order): return "nothing"
@pay.register
def pay_number(order: int): return act(order)
def run(a): return pay(a["order"])
"""
    agent = module(HEAD + generic + LOOP)

    with (
        pytest.raises(ReplayUnguarded, match="name the function that it calls"),
        oteval.replay(shop_recording("Refund 17"), tools={"refund": "gate_agent:pay"}),
    ):
        agent.ask("Refund 17")

    assert effects(agent) == []
