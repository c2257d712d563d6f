"""Functions whose code object is exchanged, so that oteval sees all their calls.

A hand-written loop calls plain functions: nothing wraps them. If the code object of a function is
exchanged, every reference to it, in a table, a closure or a partial, leads to the new code. The
parameters, their defaults and the signature stay. A replay answers such calls with a handler, and
a recording watches them with an observer; both may do so for one function.

The new code has the own code of the function among its constants. The function therefore still runs
where nobody knows of the exchange, such as in another process that got the function by value.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import CellType, CodeType, FunctionType
from typing import Any, Final
from uuid import uuid4
from weakref import WeakSet

from .faults import guarded
from .hooks import ToolAnswer
from .parameters import Parameters

__all__ = [
    "GENERATORS",
    "RUN",
    "CallHandler",
    "CallObserver",
    "CodeExchange",
    "LateResult",
    "answer_call",
    "answer_coroutine_call",
    "exchange_function",
    "exchange_lock",
    "exchange_nested",
    "is_copy",
    "nested_codes",
    "own_code",
]

RUN: Final = object()
"""The value that a handler returns to let the function run."""


@dataclass(frozen=True, slots=True)
class LateResult:
    """The value that a handler returns for a coroutine function with a result that takes time.

    Attributes:
        answer: The answer, which is waited for.
        result: Returns the result, or raises the error.
    """

    answer: ToolAnswer
    result: Callable[[], Any]

    async def awaited(self) -> Any:
        """Wait, and return the result or raise the error."""
        await self.answer.wait_async()
        return self.result()


CallHandler = Callable[[Callable[..., Any], Mapping[str, Any]], Any]
"""Answers a call of a function, or returns `RUN`.

It is called with the function as it was, and with the arguments by name.
"""

CallObserver = Callable[[FunctionType, Mapping[str, Any]], "Callable[..., Any] | None"]
"""Returns the function to call instead, with the same arguments; None for the function itself."""

GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""The flags of functions whose code is not exchanged."""

# A function that calls itself more often than this gets its own code back: each of its calls takes
# two more frames of the stack.
_DEEPEST = 50


@dataclass(eq=False)
class CodeExchange:
    """An exchanged code object.

    Attributes:
        code: The own code of the functions.
        function: The function as it was; None if a function makes new ones with the code.
        give_back: Restores the own code of the function, or of the function that makes it.
        handlers: Answer the calls.
        observers: Watch the calls that no handler answers.
    """

    code: CodeType
    function: FunctionType | None
    give_back: Callable[[], None]
    handlers: list[CallHandler] = field(default_factory=list)
    observers: list[CallObserver] = field(default_factory=list)

    def answered_by(self, handler: CallHandler) -> Callable[[], None]:
        """Let a handler answer the calls; return the function that undoes it."""
        return self._with(self.handlers, handler)

    def observed_by(self, observer: CallObserver) -> Callable[[], None]:
        """Let an observer watch the calls; return the function that undoes it."""
        return self._with(self.observers, observer)

    def _with(self, listeners: list[Any], listener: Any) -> Callable[[], None]:
        with exchange_lock:
            if listener in listeners:
                return lambda: None
            listeners.append(listener)
        return partial(self._without, listeners, listener)

    def _without(self, listeners: list[Any], listener: Any) -> None:
        with exchange_lock:
            if listener in listeners:
                listeners.remove(listener)
                if not self.handlers and not self.observers:
                    give_back, self.give_back = self.give_back, lambda: None
                    give_back()

    def stop_observing(self) -> None:
        """Let nobody watch the calls any more."""
        for observer in tuple(self.observers):
            self._without(self.observers, observer)

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters of the function."""
        return Parameters(self.function or _function_of(self.code, {}, None))

    @cached_property
    def depth(self) -> threading.local:
        """How many calls are running in each thread, in the attribute ``value``."""
        return threading.local()


exchange_lock = threading.RLock()
"""Held from an exchange until it has a handler or an observer: without one, it is undone."""

# Keys of this process: a function from another process, sent by value, has a key of that process.
_prefix = uuid4().hex
_numbers = itertools.count()
_exchanges: dict[str, CodeExchange] = {}
_keys: dict[CodeType, str] = {}
_own_codes: dict[CodeType, CodeType] = {}
# Functions of oteval that have the own code of other functions.
_copies: WeakSet[FunctionType] = WeakSet()


def own_code(code: CodeType) -> CodeType:
    """The code of a function without an exchange."""
    return _own_codes.get(code, code)


def is_copy(function: FunctionType) -> bool:
    """Whether oteval made the function to run the own code of another function."""
    return function in _copies


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions and classes that code defines, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested_codes(constant)


def exchange_function(function: FunctionType) -> CodeExchange:
    """Exchange the code of a function, unless that is done already.

    Args:
        function: The function.

    Returns:
        The exchange, to which handlers and observers are added.
    """
    with exchange_lock:
        code = function.__code__
        if code in _keys:
            return _exchanges[_keys[code]]
        key = f"{_prefix}-{next(_numbers)}"
        stub = _stub_code(code, key)

        def give_back() -> None:
            _set_code(function, code)
            del _exchanges[key], _keys[stub], _own_codes[stub]

        exchange = CodeExchange(code, _copy_of(function), give_back)
        _exchanges[key], _keys[stub] = exchange, key
        _set_code(function, stub)
        return exchange


def exchange_nested(owner: FunctionType, code: CodeType) -> CodeExchange:
    """Exchange the code of functions that another function makes each time it runs.

    Args:
        owner: The function that makes them.
        code: Their own code, which is among the constants of the owner.

    Returns:
        The exchange.
    """
    with exchange_lock:
        for nested in nested_codes(owner.__code__):
            if nested in _keys and own_code(nested) == code:
                return _exchanges[_keys[nested]]
        key = f"{_prefix}-{next(_numbers)}"
        stub = _stub_code(code, key)
        # A function that is made with the stub outlives the exchange, and so does the entry. The
        # function that made it does not.
        exchange = CodeExchange(
            code,
            None,
            # The code of further functions of this owner may have been exchanged meanwhile.
            lambda: _set_code(owner, _with_nested(owner.__code__, target=stub, replacement=code)),
        )
        _exchanges[key], _keys[stub] = exchange, key
        _own_codes[stub] = code
        _set_code(owner, _with_nested(owner.__code__, target=code, replacement=stub))
        return exchange


def _set_code(function: FunctionType, code: CodeType) -> None:
    own = own_code(function.__code__)
    function.__code__ = code
    if code != own:
        _own_codes[code] = own


def _with_nested(code: CodeType, *, target: CodeType, replacement: CodeType) -> CodeType:
    """Replace the code of a nested function."""
    constants = tuple(
        (
            replacement
            if constant == target
            else _with_nested(constant, target=target, replacement=replacement)
        )
        if isinstance(constant, CodeType)
        else constant
        for constant in code.co_consts
    )
    return code.replace(co_consts=constants)


def _copy_of(function: FunctionType) -> FunctionType:
    """Copy a function before its code is exchanged."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    copy.__dict__.update(function.__dict__)
    _copies.add(copy)
    return copy


def _function_of(
    code: CodeType, global_names: dict[str, Any], cells: tuple[CellType, ...] | None
) -> FunctionType:
    """Make a function that runs the own code of a nested function."""
    if cells is None:
        cells = tuple(CellType() for _ in code.co_freevars)
    function = FunctionType(code, global_names, code.co_name, None, cells)
    function.__qualname__ = code.co_qualname
    _copies.add(function)
    return function


def _stub_code(code: CodeType, key: str) -> CodeType:
    """Compile code that has the parameters of other code, and calls `answer_call`."""
    names = list(code.co_varnames)
    count = code.co_argcount
    positional, keyword_only = names[:count], names[count : count + code.co_kwonlyargcount]
    star_names = iter(names[count + code.co_kwonlyargcount :])
    star = next(star_names) if code.co_flags & inspect.CO_VARARGS else ""
    double_star = next(star_names) if code.co_flags & inspect.CO_VARKEYWORDS else ""
    parameters = [*positional[: code.co_posonlyargcount]]
    parameters += ["/"] if code.co_posonlyargcount else []
    parameters += positional[code.co_posonlyargcount :]
    parameters += [f"*{star}"] if star else ["*"] if keyword_only else []
    parameters += keyword_only + ([f"**{double_star}"] if double_star else [])
    values = ", ".join(f"{name!r}: {name}" for name in [*positional, *keyword_only])
    is_async = bool(code.co_flags & inspect.CO_COROUTINE)
    define, answer, wait = (
        ("async def", answer_coroutine_call, "await ") if is_async else ("def", answer_call, "")
    )
    # A function with the same variables has their cells, in the same order.
    variables = ", ".join(code.co_freevars)
    cells = f"(lambda: ({variables},)).__closure__" if variables else "()"
    arguments = f"({{{values}}}, {star or '()'}, {double_star or '{}'}, {cells})"
    call = f"__oteval_answer({key!r}, {arguments})"
    lines = [
        f"    {define} stub({', '.join(parameters)}):",
        f"        from {__name__} import {answer.__name__} as __oteval_answer",
        f"        return {wait}{call}",
    ]
    if variables:
        lines.insert(0, f"    {' = '.join(code.co_freevars)} = None")
    module = compile("def enclosing():\n" + "\n".join(lines), code.co_filename, "exec")
    stub = next(nested for nested in nested_codes(module) if nested.co_name == "stub")
    return stub.replace(
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_consts=(*stub.co_consts, code),
    )


_Call = tuple[dict[str, Any], tuple[Any, ...], dict[str, Any], tuple[CellType, ...]]
"""A call: the values of the named parameters in their order, further positional and further keyword
arguments, and the variables of enclosing functions."""


def answer_call(key: str, call: _Call) -> Any:
    """Answer a call of a function whose code was exchanged; its new code calls this.

    Args:
        key: The exchange.
        call: The arguments.
    """
    exchange = _exchanges.get(key)
    if exchange is None:
        return _call_unknown(call)()
    answer, run = _answered(exchange, call)
    if answer is not RUN:
        return answer
    if exchange.handlers or not exchange.observers:
        return run()
    depth = exchange.depth
    depth.value = getattr(depth, "value", 0) + 1
    if depth.value > _DEEPEST:
        exchange.stop_observing()
    try:
        return run()
    finally:
        depth.value -= 1


async def answer_coroutine_call(key: str, call: _Call) -> Any:
    """Answer a call of a coroutine function whose code was exchanged; see `answer_call`."""
    exchange = _exchanges.get(key)
    if exchange is None:
        return await _call_unknown(call)()
    answer, run = _answered(exchange, call)
    if isinstance(answer, LateResult):
        return await answer.awaited()
    return await run() if answer is RUN else answer


def _answered(exchange: CodeExchange, call: _Call) -> tuple[Any, Callable[[], Any]]:
    """Call the handlers; return their answer or `RUN`, and a function that runs the original."""
    function = exchange.function
    if function is None:
        function = _function_of(exchange.code, sys._getframe(2).f_globals, call[3])
    positional, keywords = _passed(exchange.code, call)
    handlers, observers = tuple(exchange.handlers), tuple(exchange.observers)
    arguments = exchange.parameters.bind(positional, keywords) if handlers or observers else {}
    for handler in handlers:
        answer = handler(function, arguments)
        if answer is not RUN:
            return answer, function
    target: Callable[..., Any] = function
    for observer in observers:
        with guarded("watching a function of the agent"):
            target = observer(function, arguments) or target
    return RUN, partial(target, *positional, **keywords)


def _passed(code: CodeType, call: _Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Divide the arguments of a call into positional and keyword arguments."""
    values, args, kwargs, _ = call
    items = list(values.items())
    count = code.co_argcount
    positional = (*(value for _, value in items[:count]), *args)
    return positional, {**dict(items[count:]), **kwargs}


def _call_unknown(call: _Call) -> Callable[[], Any]:
    """Prepare a call of the own code of a function that came from another process."""
    frame = sys._getframe(2)
    code: CodeType = frame.f_code.co_consts[-1]
    positional, keywords = _passed(code, call)
    return partial(_function_of(code, frame.f_globals, call[3]), *positional, **keywords)
