"""Decorated functions of every kind: they stay what they are, and their spans cover their work."""

import asyncio
import contextvars
import functools
import gc
import inspect
import types
from typing import get_type_hints

import pytest
from opentelemetry import trace

import oteval
from oteval.record.hooks import ToolAnswer, tool_hook

from .conftest import story


def current() -> str:
    """Return the name of the current span, or "" outside of any."""
    return getattr(trace.get_current_span(), "name", "")


def parents(run):
    """Return the name of each span's parent, by the span's name."""
    names = {span.span_id: span.name for span in run.spans}
    return {span.name: names.get(span.parent_id, "") for span in run.spans}


@oteval.tool
def plain(value: int, /, *, twice: bool = False) -> int:
    """A function."""
    assert current() == "execute_tool plain"
    return value * 2 if twice else value


@oteval.tool
async def waits(value: int) -> int:
    """A coroutine function."""
    await asyncio.sleep(0)
    assert current() == "execute_tool waits"
    return value


@oteval.tool
def counts(until: int):
    """A generator function."""
    received = []
    for number in range(until):
        assert current() == "execute_tool counts"
        received.append((yield str(number)))
    return received


@oteval.tool
async def streams(until: int):
    """An async generator function."""
    for number in range(until):
        await asyncio.sleep(0)
        assert current() == "execute_tool streams"
        yield str(number)


def test_each_kind_of_function_stays_one():
    """Frameworks that inspect a function see no difference."""
    assert inspect.iscoroutinefunction(waits)
    assert inspect.isgeneratorfunction(counts)
    assert inspect.isasyncgenfunction(streams)
    assert str(inspect.signature(plain)) == "(value: int, /, *, twice: bool = False) -> int"
    assert get_type_hints(plain) == {"value": int, "twice": bool, "return": int}
    assert (plain.__name__, plain.__doc__, plain.__module__) == (
        "plain",
        "A function.",
        __name__,
    )


@oteval.tool
@types.coroutine
def awaitable():
    """A coroutine of the kind before ``async def``."""
    yield from asyncio.sleep(0).__await__()
    return 3


async def test_generator_based_coroutines_can_be_awaited(run):
    """`types.coroutine` makes a generator function that is awaited."""
    assert await awaitable() == 3
    assert [span.name for span in run.spans] == ["execute_tool awaitable"]


def test_a_failed_deep_recursion_is_recorded_fast_and_small(run):
    """Each of its spans has the innermost frames of the traceback only."""

    @oteval.tool
    def dive(depth: int) -> int:
        return dive(depth - 1) if depth else 1 // 0

    with pytest.raises(ZeroDivisionError):
        dive(100)

    assert len(run.spans) == 101
    stacks = [span.events[0].attributes["exception.stacktrace"] for span in run.spans]
    assert all("ZeroDivisionError" in stack for stack in stacks)
    assert max(map(len, stacks)) < 20_000


def test_classes_and_other_values_are_refused():
    """Decorating a class is an error when the program starts, with the remedy."""
    with pytest.raises(TypeError, match="decorate the method"):
        oteval.agent(Shop)
    with pytest.raises(TypeError, match="is not a function"):
        oteval.tool(7)


class Shop:
    """An agent with methods of each kind."""

    @oteval.agent
    def ask(self, question: str) -> str:
        """Answer."""
        return f"{self.price(3)} {self.made(4)} {self.fixed(5)}: {question}"

    @oteval.tool
    def price(self, order: int) -> int:
        """Look a price up."""
        return order

    @oteval.tool
    @classmethod
    def made(cls, order: int) -> str:
        """Name the class."""
        return f"{cls.__name__} {order}"

    @staticmethod
    @oteval.tool
    def fixed(order: int) -> int:
        """Do nothing."""
        return order

    @oteval.tool
    def __call__(self, order: int) -> int:
        """Be a callable object."""
        return order


def test_methods_of_each_kind(run):
    """`self` and `cls` are no arguments of the tools."""
    assert Shop().ask("prices?") == "3 Shop 4 5: prices?"

    assert story(run.trajectory) == [
        ("user", "prices?"),
        ("calls", ("price", {"order": 3})),
        ("result", "3"),
        ("calls", ("made", {"order": 4})),
        ("result", "Shop 4"),
        ("calls", ("fixed", {"order": 5})),
        ("result", "5"),
        ("assistant", "3 Shop 4 5: prices?"),
    ]


class Lookup:
    """A callable object with a coroutine method."""

    async def __call__(self, order: int) -> int:
        """Look an order up."""
        return order


async def test_partials_and_callable_objects(run):
    """They are named for the function or the class, and keep their kind."""
    half = oteval.tool(functools.partial(max, 5))
    lookup = oteval.tool(name="lookup")(Lookup())
    slow = oteval.tool(functools.partial(asyncio.sleep, 0))

    assert half(7) == 7
    assert await lookup(4) == 4
    assert await slow("done") == "done"

    names = [span.attributes["gen_ai.tool.name"] for span in run.spans]
    assert names == ["max", "lookup", "sleep"]


def test_a_cached_function_keeps_the_methods_of_its_cache(run):
    calls = []

    @oteval.tool
    @functools.lru_cache(maxsize=8)
    def cached(number):
        calls.append(number)
        return number * 2

    assert [cached(2), cached(2)] == [4, 4]
    assert (cached.cache_info().hits, cached.cache_parameters()["maxsize"]) == (1, 8)
    cached.cache_clear()
    assert cached(2) == 4
    assert calls == [2, 2]


async def test_a_function_that_hands_on_a_coroutine_or_generator(run):
    """The span lasts until the work is done, although the function returns at once."""

    @oteval.tool(name="outer")
    def hands_on(work: object) -> object:
        return work

    async def slow() -> str:
        await waits(1)
        return "slow"

    def chunks():
        assert current() == "execute_tool outer"
        yield "a"
        yield "b"

    async def async_chunks():
        yield "c"

    assert await hands_on(slow()) == "slow"
    assert list(hands_on(chunks())) == ["a", "b"]
    assert [chunk async for chunk in hands_on(async_chunks())] == ["c"]

    assert parents(run)["execute_tool waits"] == "execute_tool outer"
    results = [s.attributes["gen_ai.tool.call.result"] for s in run.spans if "outer" in s.name]
    assert results == ["slow", "ab", "c"]


def test_a_generator_does_not_leak_its_span(run):
    """The consumer's code between two chunks runs outside of the span; the body inside of it."""
    seen = [current() for _ in counts(3)]

    assert seen == ["", "", ""]
    (span,) = run.spans
    assert span.attributes["gen_ai.tool.call.result"] == "[null,null,null]"


def test_spans_inside_a_generator_survive_its_yields(run):
    """A span opened before a yield is still the parent after it, and never the consumer's."""
    tracer = trace.get_tracer("test")

    @oteval.agent
    def clerk(question: str):
        with tracer.start_as_current_span("inner"):
            yield "a"
            yield str(plain(1))

    with tracer.start_as_current_span("outer"):
        for _ in clerk("hi"):
            assert current() == "outer"

    assert parents(run)["execute_tool plain"] == "inner"
    assert parents(run)["inner"] == "invoke_agent clerk"
    assert parents(run)["invoke_agent clerk"] == "outer"
    assert story(run.trajectory)[-1] == ("assistant", "a1")


def test_send_throw_return_and_close_pass_through(run):
    """The whole protocol of generators works as without the decorator."""
    works = counts(2)
    assert (next(works), works.send("x")) == ("0", "1")
    with pytest.raises(StopIteration) as stopped:
        works.send("y")
    assert stopped.value.value == ["x", "y"]

    @oteval.tool
    def recovers():
        try:
            yield 1
        except KeyError:
            yield "recovered"

    works = recovers()
    next(works)
    assert works.throw(KeyError("k")) == "recovered"
    works.close()

    works = counts(3)
    next(works)
    with pytest.raises(ZeroDivisionError):
        works.throw(ZeroDivisionError())

    spans = {span.name: span for span in run.spans}
    assert spans["execute_tool counts"].attributes["error.type"] == "ZeroDivisionError"
    assert spans["execute_tool recovers"].attributes["gen_ai.tool.call.result"] == '[1,"recovered"]'
    assert not spans["execute_tool recovers"].is_error


def test_a_generator_that_is_left_early_ends_its_span(run):
    """`break` closes the generator: the span has the chunks so far, and is not an error."""
    for _ in counts(100):
        break
    gc.collect()

    (span,) = run.spans
    assert span.attributes["gen_ai.tool.call.result"] == "0"
    assert not span.is_error


def test_an_exception_in_the_middle_of_a_generator(run):
    """It reaches the consumer unchanged, and is recorded."""

    @oteval.tool
    def breaks():
        yield "a"
        raise LookupError("gone")

    works = breaks()
    next(works)
    with pytest.raises(LookupError, match="gone"):
        next(works)

    assert run.spans[0].attributes["error.type"] == "LookupError"


async def test_async_generators(run):
    """Chunks, values sent and thrown in, and an early close, without a leak."""
    seen = [(chunk, current()) async for chunk in streams(2)]
    assert seen == [("0", ""), ("1", "")]

    @oteval.tool
    async def echoes():
        sent = None
        try:
            while True:
                sent = yield sent
        except KeyError:
            yield "recovered"

    works = echoes()
    await anext(works)
    assert await works.asend("x") == "x"
    assert await works.athrow(KeyError("k")) == "recovered"
    await works.aclose()

    works = streams(3)
    async for _ in works:
        break
    await works.aclose()

    results = [span.attributes["gen_ai.tool.call.result"] for span in run.spans]
    assert results == ["01", '[null,"x","recovered"]', "0"]


async def test_spans_and_tasks_inside_an_async_generator(run):
    """Tools called between chunks, also in tasks and with timeouts, are below its span."""

    @oteval.agent
    async def clerk(question: str):
        async with asyncio.timeout(30):
            yield str(await waits(1))
            async with asyncio.TaskGroup() as group:
                group.create_task(waits(2))
                group.create_task(waits(3))
        yield "!"

    assert [chunk async for chunk in clerk("hi")] == ["1", "!"]

    assert story(run.trajectory) == [
        ("user", "hi"),
        ("calls", ("waits", {"value": 1})),
        ("result", "1"),
        ("calls", ("waits", {"value": 2}), ("waits", {"value": 3})),
        ("result", "2"),
        ("result", "3"),
        ("assistant", "1!"),
    ]


async def test_a_cancelled_tool_is_an_error(run):
    """Cancellation goes on, and the span has its type; parallel tools are not affected."""
    started = asyncio.Event()

    @oteval.tool
    async def hangs() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(hangs())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert run.spans[0].attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_a_coroutine_that_is_closed_elsewhere_ends_its_span(run, caplog):
    """A coroutine that its event loop drops is closed in another context, without a complaint."""

    @oteval.tool
    async def hangs() -> None:
        await Pause()

    work = hangs()
    contextvars.copy_context().run(work.send, None)
    work.close()

    assert run.spans[0].attributes["error.type"] == "GeneratorExit"
    assert caplog.records == []


async def test_recorded_answers_of_every_kind():
    """A replay answers coroutines and both kinds of generators without running them."""

    class Fixed:
        """A hook with one answer."""

        def answer(self, *_):
            """Answer."""
            return ToolAnswer("7")

        def observe(self, *_):
            """Fail."""
            raise AssertionError("nothing runs")

    with tool_hook(Fixed()):
        assert plain(1) == 7
        assert await waits(1) == 7
        assert list(counts(3)) == ["7"]
        assert [chunk async for chunk in streams(3)] == ["7"]


async def test_without_an_sdk_the_functions_just_run(monkeypatch):
    """All kinds work where nothing records, as in a program that never calls `instrument`."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(f"{__name__}.current", lambda: "")
    bare = oteval.tool(lambda value: value)

    assert bare(1) == 1
    assert list(oteval.tool(name="g")(iter_of)(2)) == [0, 1]
    assert await oteval.tool(pass_on)(3) == 3
    works = oteval.tool(name="a")(async_iter_of)(2)
    assert await anext(works) == 0
    await works.aclose()


class Pause:
    """An awaitable that never ends."""

    def __await__(self):
        """Wait."""
        yield


def iter_of(until):
    """Yield numbers."""
    yield from range(until)


async def pass_on(value):
    """Return the value."""
    return value


async def async_iter_of(until):
    """Yield numbers."""
    for number in range(until):
        yield number
