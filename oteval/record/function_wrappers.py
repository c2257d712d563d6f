"""Functions of any kind with an invocation around each call: begun, and ended exactly once.

A coroutine function stays one, and so do generators and async generators. A generator runs in a
separate context, step by step: a span that it opens before a yield is still current after the
yield, and the consumer never sees the span. Values sent in, exceptions thrown in, return values and
an early close pass through.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any

from .hooks import ToolAnswer, give_answer
from .span_scope import SpanScope
from .value_kinds import Awaited, Generated

__all__ = ["Begin", "Invocation", "function_name", "with_invocation", "wrap"]

# The most chunks of a generator that its span stores.
_MAX_CHUNKS = 100_000


class Invocation(ABC):
    """One call of a decorated function.

    Attributes:
        scope: The span, or None if nothing records.
    """

    __slots__ = ("_chunks", "_is_open", "scope")

    def __init__(self, scope: SpanScope | None) -> None:
        self.scope = scope
        self._chunks: list[Any] = []
        self._is_open = False

    def answer(self) -> ToolAnswer | None:
        """The answer to return instead of calling the function, or None; read once."""
        return None

    def replayed(self, answer: ToolAnswer, function: Callable[..., Any]) -> Any:
        """Record an answer of a function like any other result, and return it or raise its error.

        The result of a generator or of a coroutine is recorded at its end.
        """
        result = give_answer(answer, function)
        if not isinstance(result, (Awaited, Generated)):
            self.returned(result)
        return result

    @abstractmethod
    def returned(self, result: Any, delivered: Any = None) -> None:
        """Record the result.

        Args:
            result: The result.
            delivered: The generator or coroutine that the caller received in its place, or None.
        """

    def raised(self, error: BaseException, delivered: Any = None) -> None:  # noqa: ARG002
        """Record an exception.

        Args:
            error: The exception.
            delivered: The generator or coroutine that the caller received before it, or None.
        """
        if self.scope is not None:
            self.scope.fail(error)

    def yielded(self, chunk: Any) -> None:
        """Keep a chunk of a generator for the span."""
        if self.scope is not None and len(self._chunks) < _MAX_CHUNKS:
            self._chunks.append(chunk)

    def finished(self, value: Any = None, *, is_async: bool = False) -> None:
        """Record the result of a generator: its return value, else its chunks."""
        chunks, delivered = self._chunks, Generated(tuple(self._chunks), value, is_async=is_async)
        if value is None and chunks:
            is_text = all(isinstance(chunk, str) for chunk in chunks)
            value = "".join(chunks) if is_text else chunks
        self.returned(value, delivered)

    def closed(self, *, is_async: bool = False) -> None:
        """Record a generator that its consumer did not read to its end."""
        self.finished(is_async=is_async)

    def failed(self, error: BaseException, *, is_async: bool = False) -> None:
        """Record the exception of a generator."""
        self.raised(error, Generated(tuple(self._chunks), None, error, is_async=is_async))

    def separate_context(self) -> Context:
        """The context for the steps of a generator."""
        return copy_context() if self.scope is None else self.scope.separate_context()

    def keep_open(self) -> None:
        """Leave the span open at the end of the ``with`` block."""
        self._is_open = True

    def end(self) -> None:
        """End the span."""
        if self.scope is not None:
            self.scope.end()

    def __enter__(self) -> None:
        """Make the span current."""
        if self.scope is not None:
            self.scope.attach()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Record an exception, restore the context and end the span."""
        try:
            if error is not None:
                self.raised(error)
        finally:
            if self.scope is not None:
                self.scope.detach(is_closed=kind is GeneratorExit)
            if not self._is_open or error is not None:
                self.end()


Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], Invocation | None]
"""Begins the invocation of a call from its arguments; None if nobody is interested in it."""


def function_name(function: Callable[..., Any]) -> str:
    """The name of a function, a partial, or a callable object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def with_invocation(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Wrap a function of any kind, without its name, in an invocation of each call.

    Args:
        function: A function, method, partial or callable object.
        begin: Begins the invocation of each call.
    """
    called = function
    if not (inspect.isroutine(called) or isinstance(called, functools.partial)):
        called = type(called).__call__
    if inspect.isasyncgenfunction(called):
        return _async_generator(function, begin)
    if inspect.iscoroutinefunction(called):
        return _coroutine(function, begin)
    if inspect.isgeneratorfunction(called):
        wrapper = _generator(function, begin)
        return types.coroutine(wrapper) if _is_awaitable_generator(called) else wrapper
    return _plain_function(function, begin)


def wrap(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    """Wrap a function of any kind in an invocation of each call; its name and kind stay.

    Args:
        function: A function, method, partial or callable object.
        begin: Begins the invocation of each call.
    """
    wrapper = with_invocation(function, begin)
    wrapper.__name__ = wrapper.__qualname__ = function_name(function)
    # A callable object does not have the attributes of a function.
    if not inspect.isroutine(function):
        return functools.update_wrapper(wrapper, function, updated=())
    functools.update_wrapper(wrapper, function)
    # Attributes of a function's kind, such as `cache_clear` of `functools.lru_cache`.
    for name in dir(function):
        if not name.startswith("__") and not hasattr(wrapper, name):
            setattr(wrapper, name, getattr(function, name))
    return wrapper


def _is_awaitable_generator(function: Any) -> bool:
    """Whether a generator function was made with `types.coroutine`."""
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return bool(flags & inspect.CO_ITERABLE_COROUTINE)


def _plain_function(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        run = begin(args, kwargs)
        if run is None:
            return function(*args, **kwargs)
        with run:
            answer = run.answer()
            if answer is None:
                result = function(*args, **kwargs)
            else:
                answer.wait()
                result = run.replayed(answer, function)
                if not isinstance(result, (Awaited, Generated)):
                    return result
                result = result.work()
            # A function may hand on the work of another one that has not begun yet.
            if isinstance(result, (CoroutineType, GeneratorType, AsyncGeneratorType)):
                run.keep_open()
                return _continued(run, result)
            run.returned(result)
            return result

    return call


def _continued(run: Invocation, work: Any) -> Any:
    """Wrap work that a function has handed on, so that its span lasts as long."""

    def begin(_args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Invocation:
        return run

    if isinstance(work, CoroutineType):
        return _awaited(run, work)
    if isinstance(work, GeneratorType):
        return _generator(lambda: work, begin)()
    return _async_generator(lambda: work, begin)()


async def _awaited(run: Invocation, work: CoroutineType[Any, Any, Any]) -> Any:
    try:
        result = await _StepsInContext(run.separate_context(), work)
        run.returned(result, Awaited(result))
        return result
    except BaseException as error:
        run.raised(error, Awaited(error=error))
        raise
    finally:
        run.end()


def _coroutine(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        run = begin(args, kwargs)
        if run is None:
            return await function(*args, **kwargs)
        with run:
            answer = run.answer()
            if answer is not None:
                if answer.is_cancelled:
                    await _until_cancelled()
                await answer.wait_async()
                return run.replayed(answer, function)
            result = await function(*args, **kwargs)
            run.returned(result)
            return result

    return call


def _generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        run = begin(args, kwargs)
        if run is None:
            return (yield from function(*args, **kwargs))
        context = run.separate_context()
        is_open = True
        try:
            answer = run.answer()
            if answer is None:
                work = function(*args, **kwargs)
            else:
                answer.wait()
                result = run.replayed(answer, function)
                work = _generated(result, is_async=False).work()
                # If an answer has no chunks, its result is recorded already.
                is_open = isinstance(result, Generated)
            chunk = context.run(next, work)
            while True:
                run.yielded(chunk)
                try:
                    sent = yield chunk
                except GeneratorExit:
                    context.run(work.close)
                    raise
                except BaseException as error:
                    chunk = context.run(work.throw, error)
                else:
                    chunk = context.run(work.send, sent)
        except StopIteration as stop:
            if is_open:
                run.finished(stop.value)
            return stop.value
        except GeneratorExit:
            if is_open:
                run.closed()
            raise
        except BaseException as error:
            run.failed(error)
            raise
        finally:
            run.end()

    return call


def _async_generator(function: Callable[..., Any], begin: Begin) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = begin(args, kwargs)
        step = _unchanged if run is None else partial(_StepsInContext, run.separate_context())
        is_open = run is not None
        try:
            answer = None if run is None else run.answer()
            if run is None or answer is None:
                work = function(*args, **kwargs)
            else:
                await answer.wait_async()
                result = run.replayed(answer, function)
                work = _generated(result, is_async=True).work()
                is_open = isinstance(result, Generated)
            chunk = await step(work.__anext__())
            while True:
                if run is not None:
                    run.yielded(chunk)
                try:
                    sent = yield chunk
                except GeneratorExit:
                    await step(work.aclose())
                    raise
                except BaseException as error:
                    chunk = await step(work.athrow(error))
                else:
                    chunk = await step(work.asend(sent))
        except StopAsyncIteration:
            if run is not None and is_open:
                run.finished(is_async=True)
        except GeneratorExit:
            if run is not None and is_open:
                run.closed(is_async=True)
            raise
        except BaseException as error:
            if run is not None:
                run.failed(error, is_async=True)
            raise
        finally:
            if run is not None:
                run.end()

    return call


def _unchanged(work: Awaitable[Any]) -> Awaitable[Any]:
    return work


def _generated(result: Any, *, is_async: bool) -> Generated:
    """The generator behind a recorded result, with its chunks if it has them."""
    if isinstance(result, Generated):
        return replace(result, is_async=is_async)
    chunks = tuple(result) if isinstance(result, (list, tuple)) else (result,)
    return Generated(chunks, is_async=is_async)


async def _until_cancelled() -> None:
    """Wait like a tool that its caller cancelled, for example because it took too long."""
    await asyncio.get_running_loop().create_future()


class _StepsInContext:
    """An awaitable whose steps run in a context, whichever task drives them.

    Args:
        context: The context.
        work: The awaitable.
    """

    __slots__ = ("_context", "_work")

    def __init__(self, context: Context, work: Awaitable[Any]) -> None:
        self._context = context
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        """Drive the awaitable step by step."""
        run = self._context.run
        steps: Any = run(self._work.__await__)
        step, argument = steps.send, None
        while True:
            try:
                waiting = run(step, argument)
            except StopIteration as stop:
                return stop.value
            try:
                argument = yield waiting
                step = steps.send
            except GeneratorExit:
                run(steps.close)
                raise
            except BaseException as error:
                step, argument = steps.throw, error
