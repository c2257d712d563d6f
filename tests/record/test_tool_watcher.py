"""Plain functions that run a model's tools: which of their calls are recorded, and how."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import pytest

import oteval
from oteval.record import exchanged_code
from oteval.record.conventions import TOOL_FUNCTION, TOOL_RAISED, TOOL_RETURNED
from oteval.record.faults import fault_counts
from oteval.record.span_capture import Capture
from oteval.record.tool_watcher import ToolWatcher

URL = "http://models.example/v1/chat/completions"


@dataclass
class Exchange:
    """An exchange with a model, as the recorder shows it to a watcher."""

    request: bytes
    response: bytes = b""
    method: str = "POST"
    url: str = URL
    status: int = 200
    error: str = ""
    parts: list[bytes] = field(default_factory=list)

    def sent_body(self) -> bytes:
        """Return the request."""
        return self.request

    def received_body(self) -> bytes:
        """Return the response, as far as it has arrived."""
        return self.response


def offering(*names: str) -> bytes:
    """Return a request that offers tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return json.dumps({"model": "m", "messages": [], "tools": tools}).encode()


def asking(*calls: tuple[str, Any]) -> bytes:
    """Return an answer that asks for calls of tools."""
    asked = [
        {
            "id": f"call-{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": asked}
    return json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()


@pytest.fixture
def watcher() -> Iterator[ToolWatcher]:
    """A watcher, which gives all functions their own code back at the end."""
    made = ToolWatcher()
    yield made
    made.close()


def ask(watcher: ToolWatcher, *calls: tuple[str, Any], offers: bool = True) -> None:
    """Let a model ask for calls."""
    names = [name for name, _ in calls] if offers else []
    exchange: Any = Exchange(offering(*names), asking(*calls))
    watcher.requested(exchange)
    watcher.answered(exchange)


def tools(run: Capture) -> list[Any]:
    """Return the spans of tools."""
    return [s for s in run.spans if s.attributes.get("gen_ai.operation.name") == "execute_tool"]


class OrderError(Exception):
    """An error of the shop."""


def sell_order(order: int, *, count: int = 1) -> tuple[int, int]:
    """Sell an order."""
    if order < 0:
        raise OrderError(order)
    return order, count


async def sell_order_later(order: int) -> int:
    """Sell an order a little later."""
    await asyncio.sleep(0)
    return order


@pytest.mark.parametrize("offers", [True, False], ids=["offered", "only asked for"])
def test_a_call_that_was_asked_for_has_a_span(
    run: Capture, watcher: ToolWatcher, *, offers: bool
) -> None:
    """The span has the call's id, its value with type, and the function's import path."""
    ask(watcher, ("sell_order", {"order": 17}), offers=offers)

    assert sell_order(17) == (17, 1)

    (span,) = tools(run)
    assert span.attributes["gen_ai.tool.name"] == "sell_order"
    assert span.attributes["gen_ai.tool.call.id"] == "call-0"
    assert span.attributes[TOOL_RETURNED] == '{"$tuple":[17,1]}'
    assert span.attributes[TOOL_FUNCTION] == f"{__name__}:sell_order"


def test_of_functions_with_one_name_the_one_that_ran_is_recorded(
    run: Capture, watcher: ToolWatcher
) -> None:
    """A method that overrides another and calls it is the tool, not the one that it calls."""

    class Desk:
        def rent_order(self, order: int) -> int:
            return order

    class LateDesk(Desk):
        def rent_order(self, order: int) -> int:
            return super().rent_order(order)

    ask(watcher, ("rent_order", {"order": 17}), ("rent_order", {"order": 18}))

    LateDesk().rent_order(17)
    Desk().rent_order(18)

    paths = [str(span.attributes[TOOL_FUNCTION]).split(".")[-2:] for span in tools(run)]
    assert paths == [["LateDesk", "rent_order"], ["Desk", "rent_order"]]


# How an agent calls a function by itself: each with the call that a model has asked for.
UNASKED: dict[str, tuple[Any, Callable[[], Any]]] = {
    "other arguments": ({"order": 17}, lambda: sell_order(18)),
    "another tool": ({"order": 17}, lambda: None),
}


@pytest.mark.parametrize("case", UNASKED.values(), ids=UNASKED)
def test_a_call_that_nobody_asked_for_has_no_span(
    run: Capture, watcher: ToolWatcher, case: tuple[Any, Callable[[], Any]]
) -> None:
    """The agent may use the function of a tool for other work."""
    arguments, call = case
    ask(watcher, ("sell_order", arguments))

    call()

    assert tools(run) == []


def test_each_request_of_a_model_is_recorded_once(run: Capture, watcher: ToolWatcher) -> None:
    """A second call with the same arguments is the agent's own."""
    ask(watcher, ("sell_order", {"order": 17}), ("sell_order", {"order": 17}))

    for _ in range(3):
        sell_order(17)

    assert [s.attributes["gen_ai.tool.call.id"] for s in tools(run)] == ["call-0", "call-1"]


def test_an_exception_passes_unchanged(run: Capture, watcher: ToolWatcher) -> None:
    """The agent catches the very exception, and its traceback leads to the function."""
    ask(watcher, ("sell_order", {"order": -1}))

    with pytest.raises(OrderError) as caught:
        sell_order(-1)

    assert caught.value.args == (-1,)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "sell_order"
    (span,) = tools(run)
    assert json.loads(span.attributes[TOOL_RAISED])["$exception"]["args"] == [-1]


@pytest.mark.parametrize("how", ["task", "thread", "partial", "gather"])
def test_a_call_from_elsewhere_is_recorded(run: Capture, watcher: ToolWatcher, how: str) -> None:
    """Tasks, threads and partials lead to the function."""

    async def gathered() -> None:
        await asyncio.gather(sell_order_later(1), asyncio.to_thread(sell_order, 1))

    def threaded() -> None:
        thread = threading.Thread(target=sell_order, args=(1,))
        thread.start()
        thread.join()

    ways: dict[str, Callable[[], Any]] = {
        "task": lambda: asyncio.run(sell_order_later(1)),
        "thread": threaded,
        "partial": lambda: functools.partial(sell_order, count=2)(1),
        "gather": lambda: asyncio.run(gathered()),
    }
    ask(watcher, ("sell_order", {"order": 1}), ("sell_order_later", {"order": 1}))

    ways[how]()

    names = sorted(s.attributes["gen_ai.tool.name"] for s in tools(run))
    both = ["sell_order", "sell_order_later"]
    expected = {"task": both[1:], "thread": both[:1], "partial": both[:1], "gather": both}
    assert names == expected[how]


def test_a_decorated_tool_is_recorded_once(run: Capture, watcher: ToolWatcher) -> None:
    """The function that `@oteval.tool` wraps is not recorded beside it."""

    @oteval.tool
    def lend_order(order: int) -> int:
        return order

    ask(watcher, ("lend_order", {"order": 17}))

    assert lend_order(17) == 17
    assert [TOOL_FUNCTION in span.attributes for span in tools(run)] == [False]


def test_a_function_that_a_framework_calls_is_left_to_it(
    run: Capture, watcher: ToolWatcher
) -> None:
    """What installed packages run as tools, their instrumentations record."""
    code = compile("def call(function): return function(17)", "/v/site-packages/fw/run.py", "exec")
    framework: dict[str, Any] = {}
    exec(code, framework)
    ask(watcher, ("sell_order", {"order": 17}))

    assert framework["call"](sell_order) == (17, 1)
    assert tools(run) == []


def test_a_stream_that_is_left_early_is_read(run: Capture, watcher: ToolWatcher) -> None:
    """A loop may call a tool before the answer that asks for it has ended."""
    exchange: Any = Exchange(offering("sell_order"), status=0)
    watcher.requested(exchange)
    function = {"name": "sell_order", "arguments": '{"order": 17}'}
    delta = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    events = [{"choices": [{"index": 0, "delta": delta}]}]
    exchange.response = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    exchange.status = 200

    sell_order(17)
    watcher.answered(exchange)
    sell_order(17)

    assert [span.attributes["gen_ai.tool.call.id"] for span in tools(run)] == ["c"]


def count_orders(order: int) -> int:
    """Count down, in as many frames."""
    return order and 1 + count_orders(order - 1)


def test_a_deep_recursion_ends_as_without_a_watcher(run: Capture, watcher: ToolWatcher) -> None:
    """A function that calls itself gets its own code back in time."""
    depth = sys.getrecursionlimit() - len(traceback.extract_stack()) - 200
    ask(watcher, ("count_orders", {"order": depth}))

    assert count_orders(depth) == depth
    assert len(tools(run)) == 1


def test_a_function_that_comes_by_value_runs(run: Capture, watcher: ToolWatcher) -> None:
    """Another process, which knows nothing of the exchange, runs the function's own code."""
    total = 5

    def add_order(order: int, *rest: int, tip: int = 1, **more: int) -> int:
        nonlocal total
        total += order + sum(rest) + tip + sum(more.values())
        return total

    ask(watcher, ("add_order", {"order": 1}))
    code = add_order.__code__
    copy = FunctionType(code, globals(), "add_order", None, add_order.__closure__)
    copy.__kwdefaults__ = {"tip": 1}
    known = exchanged_code._exchanges.copy()
    exchanged_code._exchanges.clear()
    try:
        assert copy(1, 2, tip=3, more=4) == 15
    finally:
        exchanged_code._exchanges.update(known)
    assert total == 15


def test_a_closed_watcher_gives_the_code_back(watcher: ToolWatcher) -> None:
    """The functions have exactly the code that they had before."""
    own = sell_order.__code__
    ask(watcher, ("sell_order", {"order": 17}))
    assert sell_order.__code__ is not own

    watcher.close()

    assert sell_order.__code__ is own


def test_a_fault_of_the_watcher_is_counted(
    run: Capture, watcher: ToolWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's call runs as ever, without a span."""
    before = fault_counts().get("watching a function of the agent", 0)
    ask(watcher, ("sell_order", {"order": 17}))
    monkeypatch.setattr(watcher, "_take", lambda *_arguments: 1 // 0)

    assert sell_order(17) == (17, 1)

    assert tools(run) == []
    assert fault_counts()["watching a function of the agent"] == before + 1


BROKEN = [b"", b"\xff", b"{", b'"tools"', b'{"tools": 5}', b'{"choices": [{"tool_calls": 1}]}']


@pytest.mark.parametrize("body", BROKEN)
def test_broken_bodies_are_no_calls(watcher: ToolWatcher, body: bytes) -> None:
    """A body that is not what an API sends asks for nothing."""
    exchange: Any = Exchange(body + b'"tools"', body + b'"tool_calls"')

    watcher.requested(exchange)
    watcher.answered(exchange)

    assert not watcher._requested


def test_a_call_of_an_answer_that_broke_off_is_not_taken_for_the_repeated_one(
    run: Capture, watcher: ToolWatcher
) -> None:
    """The agent asks again, and the tool runs for the answer to that."""
    body = offering("sell_order")
    broken: Any = Exchange(body, asking(("other", {}), ("sell_order", {"order": 1})))
    broken.error = "RemoteProtocolError: the stream was cut"
    watcher.requested(broken)
    watcher.answered(broken)
    ask(watcher, ("sell_order", {"order": 1}))

    sell_order(1)

    (span,) = tools(run)
    assert span.attributes["gen_ai.tool.call.id"] == "call-0"
