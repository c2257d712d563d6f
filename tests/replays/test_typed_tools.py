"""Generators, cancelled tools, limits, redaction, and recorded values that are not restored."""

from __future__ import annotations

import asyncio
import enum
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, make_dataclass, replace
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest

import oteval
from oteval.base.errors import ReplayDiverged
from oteval.base.redaction import RedactionRule
from oteval.base.redaction.secrets import SecretRedactor
from oteval.model import RecordedToolCall, Recording
from oteval.record import content
from oteval.record.typed_values import UnrestorableValue, restored
from oteval.replays.redacted_recordings import redacted_recording
from oteval.replays.typed_answers import agent_class

from .recorded_tools import recorded_agent
from .typed_tools import Color, ShopError


def recording_of_tool(use: Callable[[], Any]) -> Recording:
    """Return the recording of an agent that uses a tool; the last exception is ignored."""

    @oteval.agent
    def agent(question: str) -> str:
        use()
        return "done"

    return recorded_agent(lambda: agent("Look up"))


# Generators and coroutines


class Counted:
    """Counts how often the body of a tool has run."""

    def __init__(self) -> None:
        self.runs = 0


def streaming(form: str, counted: Counted, end: Callable[[], object] = lambda: None) -> Any:
    """Return a tool that yields, and ends with the result of a function."""

    def chunks() -> Any:
        counted.runs += 1
        yield Decimal("1.5")
        yield (1, "b")
        return end()

    async def async_chunks() -> AsyncIterator[Any]:
        counted.runs += 1
        yield Decimal("1.5")
        yield (1, "b")
        end()

    def hands_on() -> Any:
        return chunks()

    def hands_on_async() -> Any:
        return async_chunks()

    function = {
        "generator": chunks,
        "async generator": async_chunks,
        "function with a generator": hands_on,
        "function with an async generator": hands_on_async,
    }[form]
    return oteval.tool(name="stream")(function)


async def _read_async(stream: Any, chunks: list[Any]) -> None:
    async for chunk in stream:
        chunks.append(chunk)


def read(stream: Any) -> tuple[list[Any], Any]:
    """Return the chunks of a generator, and its value or the exception that ended it."""
    chunks: list[Any] = []
    try:
        if hasattr(stream, "__aiter__"):
            return chunks, asyncio.run(_read_async(stream, chunks))
        while True:
            chunks.append(next(stream))
    except StopIteration as stop:
        return chunks, stop.value
    except ShopError as error:
        return chunks, (str(error), error.status)


FORMS = (
    "generator",
    "async generator",
    "function with a generator",
    "function with an async generator",
)


def fails() -> None:
    """Raise in the middle of a stream."""
    raise ShopError("closed", 503)


@pytest.mark.parametrize("end", [lambda: None, lambda: {"sum": (1, 2)}, fails])
@pytest.mark.parametrize("form", FORMS)
def test_a_stream_comes_back_chunk_by_chunk(form: str, end: Callable[[], Any]) -> None:
    """Its chunks, the value that it returned and the exception that ended it are the recorded."""
    counted = Counted()
    original = read(streaming(form, Counted(), end)())
    recording = recording_of_tool(lambda: read(streaming(form, Counted(), end)()))

    with oteval.replay(recording):
        replayed = read(streaming(form, counted, end)())

    assert replayed == original
    assert len(replayed[0]) == 2
    assert counted.runs == 0


@pytest.mark.parametrize("end", [lambda: (1, Decimal(2)), fails])
def test_a_coroutine_that_a_function_hands_on_is_awaited_again(end: Callable[[], Any]) -> None:
    """The caller of a plain function that returns a coroutine gets one in a replay, too."""

    def tool_of(act: Callable[[], Any]) -> Any:
        async def work() -> Any:
            return act()

        return oteval.tool(name="look_up")(lambda: work())

    def use(tool: Any) -> Any:
        async def gathered() -> Any:
            return await asyncio.gather(tool(), return_exceptions=True)

        return asyncio.run(gathered())

    (original,) = use(tool_of(end))
    recording = recording_of_tool(lambda: use(tool_of(end)))

    with oteval.replay(recording):
        (replayed,) = use(tool_of(never))

    assert type(replayed) is type(original)
    assert str(replayed) == str(original)


def never() -> Any:
    """Fail: a tool ran in a replay."""
    raise AssertionError("the tool ran")


def test_a_tool_that_was_cancelled_waits_until_it_is_cancelled_again() -> None:
    """The caller, who gave the tool a time limit, must see the end of the limit, as recorded."""

    async def use(tool: Any) -> str:
        task = asyncio.create_task(tool())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_waiting = not task.done()
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return f"cancelled {is_waiting}"
        return "ended"

    @oteval.tool
    async def wait() -> str:
        await asyncio.Event().wait()
        return "never"

    recording = recording_of_tool(lambda: asyncio.run(use(wait)))

    with oteval.replay(recording):
        assert asyncio.run(use(wait)) == "cancelled True"


# Recordings without types, limits and redaction


def test_recordings_without_types_replay_as_before() -> None:
    """A value is read by the declared type, an exception that is not builtin is a RuntimeError."""

    @oteval.tool
    def total() -> int:
        raise AssertionError

    @oteval.tool
    def refund() -> str:
        raise AssertionError

    calls = (
        RecordedToolCall("total", {}, "7"),
        RecordedToolCall("refund", {}, "ShopError: closed", is_error=True),
    )
    with oteval.replay(Recording("session-1", "wire", tool_calls=calls)):
        assert total() == 7
        with pytest.raises(RuntimeError, match="closed"):
            refund()


def test_a_result_above_the_limit_has_no_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut, and replayed as before."""
    monkeypatch.setattr(content, "MAX_TEXT", 100)
    monkeypatch.setattr("oteval.record.conventions.MAX_TEXT", 100)

    @oteval.tool
    def look_up() -> Any:
        return tuple(range(1000))

    recording = recording_of_tool(look_up)

    assert [call.returned for call in recording.tool_calls] == [None]


SECRET = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"
PASSWORD = "correct-horse-7"


@dataclass
class Login:
    """A result with a secret."""

    user: str
    password: str


class LoginError(Exception):
    """An exception with a secret."""

    def __init__(self, key: bytes) -> None:
        """Keep the key."""
        super().__init__("login failed")
        self.key = key


def test_types_keep_no_secrets() -> None:
    """What redaction removes from a result, it removes from the value with its types."""

    @oteval.tool
    def login() -> Any:
        return {1: Login("ada", PASSWORD)}, f"key {SECRET}".encode()

    @oteval.tool
    def log_out() -> Any:
        raise LoginError(f"key {SECRET}".encode())

    def use() -> None:
        login()
        with pytest.raises(LoginError):
            log_out()

    recording = redacted_recording(recording_of_tool(use), SecretRedactor([]))

    assert [bool(call.returned) for call in recording.tool_calls] == [True, False]
    assert PASSWORD not in str(recording)
    typed = [text for call in recording.tool_calls for text in (call.returned, call.raised) if text]
    assert not [text for text in typed if SECRET in text]
    with oteval.replay(recording):
        logins, key = login()
        assert logins == {1: Login("ada", "[redacted]")}
        assert b"redacted" in key
        with pytest.raises(LoginError, match="login failed") as raised:
            log_out()
        assert b"redacted" in raised.value.key


def test_rules_for_keys_apply_to_values_with_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields of a dataclass and the keys of a dictionary are names, as in plain results."""
    monkeypatch.setattr(content, "_rules", ())
    monkeypatch.setattr(content, "_redactor", None)
    content.redact_content([RedactionRule(("user",), None, "***")])

    @oteval.tool
    def login() -> Any:
        return (Login("lovelace", "x"), {"user": "lovelace", 1: 2})

    recording = recording_of_tool(login)

    assert "lovelace" not in str(recording.tool_calls)


# What is not restored


class Shelf:
    """A class that acts when its instances end."""

    def __del__(self) -> None:
        """Act."""


@dataclass
class Closing:
    """A dataclass that acts when its instances end."""

    number: int = 1

    def __del__(self) -> None:
        """Act."""


def local_instance() -> Any:
    """Return an instance of a class that has no name in its module."""

    @dataclass
    class Local:
        number: int = 1

    return Local()


OPAQUE: dict[str, tuple[Callable[[], Any], str]] = {
    "function": (lambda: never, "builtins:function"),
    "lock": (threading.Lock, "_thread:lock"),
    "object in a list": (lambda: [1, object()], "builtins:object"),
    "library's object": (asyncio.Event, "asyncio.locks:Event"),
    "class of a function": (local_instance, "local_instance.<locals>.Local"),
    "class that acts": (Closing, "Closing"),
    "library's class": (lambda: threading.Thread, "threading:Thread"),
}


@pytest.mark.parametrize("is_error", [True, False], ids=["argument", "result"])
@pytest.mark.parametrize("name", OPAQUE)
def test_a_value_that_cannot_be_restored_stops_the_replay(name: str, is_error: bool) -> None:
    """The divergence names its type; a text in its place would be a silent difference."""
    make, type_name = OPAQUE[name]

    @oteval.tool
    def look_up() -> Any:
        if is_error:
            raise ValueError("no", make())
        return make()

    def use() -> None:
        with suppress(ValueError):
            look_up()

    recording = recording_of_tool(use)

    with pytest.raises(ReplayDiverged) as caught, oteval.replay(recording):
        use()

    assert caught.value.divergence.kind == "tool_call"
    assert "the tool look_up cannot be restored: " in caught.value.divergence.summary
    assert type_name in caught.value.divergence.summary


def module_with(name: str, **members: Any) -> ModuleType:
    """Return a module of the agent's with classes."""
    module = ModuleType(name)
    for key, member in members.items():
        member.__module__, member.__qualname__ = name, key
        setattr(module, key, member)
    return module


def color_enum(members: dict[str, str]) -> type[enum.Enum]:
    """Return an enum of colors."""
    return enum.Enum("Color", members)  # type: ignore[return-value]


NEW_FIELDS = make_dataclass("Order", ["number", "total"])
OTHER = color_enum({"GREEN": "g"})


@pytest.mark.parametrize(
    ("before", "after", "value", "reason"),
    [
        (make_dataclass("Order", ["number"]), NEW_FIELDS, lambda cls: cls(17), "other fields"),
        (make_dataclass("Order", ["number"]), OTHER, lambda cls: cls(17), "no such class"),
        (color_enum({"RED": "r"}), OTHER, lambda cls: cls.RED, "no member RED"),
        (
            color_enum({"RED": "r"}),
            color_enum({"RED": "x"}),
            lambda cls: cls.RED,
            "RED has another value",
        ),
        (
            type("Color", (Exception,), {}),
            color_enum({"RED": "x"}),
            lambda cls: cls("x"),
            "is not an exception any more",
        ),
    ],
)
def test_a_class_that_has_changed_stops_the_replay(
    before: type,
    after: type,
    value: Callable[[Any], Any],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value is restored only if its class is what it was."""
    returned = value(before)
    monkeypatch.setitem(
        sys.modules, "shop_of_test", module_with("shop_of_test", **{before.__name__: before})
    )

    @oteval.tool
    def look_up() -> Any:
        return returned

    recording = recording_of_tool(look_up)
    monkeypatch.setitem(
        sys.modules, "shop_of_test", module_with("shop_of_test", **{after.__name__: after})
    )

    with pytest.raises(ReplayDiverged, match=reason), oteval.replay(recording):
        look_up()


FORGED = [
    {"$dataclass": {"class": "subprocess:Popen", "fields": {}}},
    {"$instance": {"class": "subprocess:Popen", "state": {}}},
    {"$instance": {"class": "tempfile:_TemporaryFileCloser", "state": {"name": "/etc/passwd"}}},
    {"$exception": {"class": "os:system", "args": ["true"]}},
    {"$exception": {"class": "builtins:int", "args": []}},
    {"$enum": {"class": "builtins:print", "name": "x"}},
    {"$enum": {"class": "builtins:dict", "name": "x"}},
    {"$model": {"class": "builtins:dict", "fields": {}, "extra": None, "private": None, "set": []}},
    {"$named_tuple": {"class": "builtins:tuple", "fields": {"a": 1}}},
    {"$class": "subprocess:Popen"},
    {"$class": "antigravity:geohash"},
    {"$dataclass": {"class": "antigravity:Order", "fields": {}}},
    {"$path": ["Path.home", "x"]},
    {"$defaultdict": ["eval", []]},
    {"$constant": "exit"},
    {"$float": "1"},
    {"$decimal": "[redacted]"},
    {"$date": 7},
    {"$unknown": 1},
    {"$dataclass": None},
    {"$exception": {"class": "tests.replays.typed_tools:ShopError"}},
]


@pytest.mark.parametrize("forged", FORGED, ids=json.dumps)
def test_a_forged_recording_builds_nothing_else(forged: Any) -> None:
    """Tags and classes outside the table are refused, and nothing is imported or called."""
    before = set(sys.modules)

    with pytest.raises(UnrestorableValue):
        restored(json.dumps({"a": [forged]}), "", agent_class)

    assert "antigravity" not in set(sys.modules) - before


@pytest.mark.parametrize("form", ["", "{", "[" * 100_000, '{"$tuple":' * 500])
def test_a_damaged_value_is_one_error(form: str) -> None:
    """Whatever stands in the file."""
    with pytest.raises(UnrestorableValue):
        restored(form, "", agent_class)


def test_a_module_of_the_agent_is_imported_for_its_classes(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay may need a class before the agent's code has imported it."""
    (tmp_path / "late_shop.py").write_text("class LateError(Exception):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    form = '{"$exception":{"class":"late_shop:LateError","args":["late"]}}'

    error = restored(form, "", agent_class)

    assert type(error).__name__ == "LateError"
    assert error.args == ("late",)
    sys.modules.pop("late_shop")


def test_answers_of_other_tools_stay_apart() -> None:
    """Each call gets a value of its own: changing one does not change the next."""

    @oteval.tool
    def look_up() -> Any:
        return {"items": [Color.RED]}

    def use() -> list[Any]:
        first = look_up()
        first["items"].append(1)
        return [first, look_up()]

    recording = recording_of_tool(use)
    twice = replace(recording, tool_calls=recording.tool_calls)

    with oteval.replay(twice):
        assert use() == [{"items": [Color.RED, 1]}, {"items": [Color.RED]}]
