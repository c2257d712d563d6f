"""The functions of an agent's own code that run its tools, and how a replay takes them over.

A hand-written loop calls plain functions: nothing wraps them. A replay finds the function of a tool
among the agent's own code, and exchanges its code object. So every reference to it, in a table, a
closure or a partial, gives the recorded answer from then on. The parameters, their defaults and the
signature stay.

A function is that of a tool if it has the tool's name, or if a dict has it under that name, as the
tables do from which loops call their tools. Functions of Python's library, of installed packages
and of oteval are never taken over.
"""

from __future__ import annotations

import dis
import functools
import gc
import importlib
import inspect
import itertools
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType, MethodType
from typing import Any, Final
from weakref import WeakSet

from ..errors import ConfigError
from ..instrumentation.agent_files import is_agent_file, shown_file
from ..instrumentation.parameters import Parameters

__all__ = [
    "RUN",
    "CallHandler",
    "ToolFunction",
    "answer_call",
    "answer_coroutine_call",
    "functions_of_tools",
    "named_function",
    "nested_codes",
]

RUN: Final = object()
"""The return value with which a handler lets the function run."""

CallHandler = Callable[[Callable[..., Any], Mapping[str, Any]], Any]
"""Answers a call of a function, or returns `RUN`.

It is called with the function as it was, and with the arguments by name.
"""

_scanning = threading.Lock()
# How often it is looked for a function that is the only one of its tool.
_SEARCHES = 3
# Instructions of every function, and those of a call.
_NO_EFFECT = frozenset({"RESUME", "NOP", "CACHE", "RETURN_GENERATOR", "POP_TOP", "COPY_FREE_VARS"})
_CALLS = ("PUSH_NULL", "PRECALL", "CALL")
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@dataclass(eq=False)
class ToolFunction:
    """A function of the agent's own code that runs a tool.

    Attributes:
        code: Its code.
        instances: The function objects with that code, such as those of several closures.
        owners: The functions that make such an object each time they run.
    """

    code: CodeType
    instances: list[FunctionType] = field(default_factory=list)
    owners: list[FunctionType] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, str]:
        """Its identity: the place and the name of its definition."""
        return self.code.co_filename, self.code.co_firstlineno, self.code.co_qualname

    @property
    def line(self) -> str:
        """Where it is defined, as ``shop.py:41``; of a decorated function, where that is."""
        inner = inspect.unwrap(self.instances[0]) if self.instances else None
        code = getattr(inner, "__code__", self.code)
        return f"{shown_file(code.co_filename)}:{code.co_firstlineno}"

    @property
    def path(self) -> str:
        """Its import path, as ``shop:Desk.refund``."""
        module = self.instances[0].__module__ if self.instances else self.owners[0].__module__
        return f"{module}:{self.code.co_qualname.replace('.<locals>', '')}"

    @property
    def takes_arguments(self) -> bool:
        """Whether a call can give it arguments; a property has none, nor has a getter."""
        code = self.code
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return True
        is_method = code.co_varnames[:1] in (("self",), ("cls",)) and code.co_argcount > 0
        return code.co_argcount + code.co_kwonlyargcount > is_method

    @property
    def is_declaration(self) -> bool:
        """Whether it does nothing, as abstract methods, overloads and protocols do."""
        body = [each for each in dis.get_instructions(self.code) if each.opname not in _NO_EFFECT]
        names = {each.argval for each in body if each.opname == "LOAD_GLOBAL"}
        if names:
            opnames = {each.opname for each in body} - {"LOAD_CONST", "LOAD_GLOBAL", *_CALLS}
            return names == {"NotImplementedError"} and opnames == {"RAISE_VARARGS"}
        return all(
            each.argval is None and each.opname in ("LOAD_CONST", "RETURN_CONST")
            for each in body
            if each.opname != "RETURN_VALUE"
        )

    @property
    def problem(self) -> str:
        """Why it cannot be taken over, or ""."""
        if self.code.co_flags & _GENERATORS:
            return f"{self.line} is a generator: decorate it with @oteval.tool"
        if any(_will_define(frame, self.code) for frame in _running_frames(self.owners)):
            return (
                f"{self.line} is defined anew while the agent runs: move it out of "
                f"{self.owners[0].__name__}, or decorate it with @oteval.tool"
            )
        return ""

    def take_over(self, handler: CallHandler) -> Callable[[], None]:
        """Let a handler answer the calls of this function.

        Args:
            handler: Called in place of the function.

        Returns:
            A function that gives the function its own code back.
        """
        with ExitStack() as undo:
            for function in self.instances:
                if function.__code__ not in _own_codes:
                    undo.callback(_exchange_code(function, handler))
            for owner in self.owners:
                if self.code in nested_codes(owner.__code__):
                    undo.callback(_exchange_nested(owner, self.code, handler))
            return undo.pop_all().close


def _exchange_code(function: FunctionType, handler: CallHandler) -> Callable[[], None]:
    """Let a handler answer the calls of a function; return the function that undoes it."""
    code, key = function.__code__, next(_keys)
    _exchanged[key] = _Exchanged(handler, _copy_of(function), can_run=True)
    stub = _stub_code(code, key)
    _set_code(function, stub)

    def give_back() -> None:
        _set_code(function, code)
        del _exchanged[key], _own_codes[stub]

    return give_back


def _exchange_nested(
    owner: FunctionType, code: CodeType, handler: CallHandler
) -> Callable[[], None]:
    """Let a handler answer functions that another makes; return the function that undoes it."""
    key = next(_keys)
    # A function that is made with the stub outlives the replay, and so does the entry.
    _exchanged[key] = _Exchanged(handler, _unbound(code), can_run=False)
    stub = _stub_code(code, key)
    _set_code(owner, _with_nested(owner.__code__, code, stub))
    # Others may have exchanged further functions of this owner meanwhile.
    return lambda: _set_code(owner, _with_nested(owner.__code__, stub, code))


def _set_code(function: FunctionType, code: CodeType) -> None:
    own = _own_code(function.__code__)
    function.__code__ = code
    if code != own:
        _own_codes[code] = own


def functions_of_tools(names: Collection[str]) -> dict[str, list[ToolFunction]]:
    """Return the functions of the agent's own code that run tools, by the tools' names.

    Args:
        names: The names of the tools.
    """
    functions: dict[str, list[ToolFunction]] = {}
    with _scanning:  # the objects of one search would be alive in another
        for _ in range(_SEARCHES):
            # Modules and closures that are gone leave functions behind until they are collected,
            # which does nothing while another thread collects.
            functions.clear()
            gc.collect()
            functions = _candidates(frozenset(names))
            if all(len(candidates) < 2 for candidates in functions.values()):
                break
    return functions


def _candidates(names: frozenset[str]) -> dict[str, list[ToolFunction]]:
    candidates = _Candidates(names)
    for item in gc.get_objects():
        if type(item) is FunctionType:
            candidates.add_function(item)
        elif issubclass(type(item), dict) and type(item).__getitem__ is dict.__getitem__:
            candidates.add_table(item)
    return {name: candidates.of(name) for name in names}


class _Candidates:
    """Collects the functions of tools from the objects of the process."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._by_code: dict[str, dict[CodeType, ToolFunction]] = {name: {} for name in names}
        # The functions in tables: these objects only, since others may share their code.
        self._in_tables: dict[str, dict[int, ToolFunction]] = {name: {} for name in names}

    def add_function(self, function: FunctionType) -> None:
        """Take note of a function, and of those that it defines when it runs."""
        code = _own_code(function.__code__)
        if not is_agent_file(code.co_filename) or function in _copies:
            return
        if code.co_name in self._names:
            self._named(code).instances.append(function)
        for nested in nested_codes(code):
            if nested.co_name in self._names:
                self._named(nested).owners.append(function)

    def _named(self, code: CodeType) -> ToolFunction:
        return self._by_code[code.co_name].setdefault(code, ToolFunction(code))

    def add_table(self, table: dict[Any, Any]) -> None:
        """Take note of functions in a dict under the name of a tool."""
        for name in self._names:
            function = _function_in(dict.get(table, name))
            if function is None or not is_agent_file(function.__code__.co_filename):
                continue
            if function.__code__.co_name != name:
                instance = ToolFunction(_own_code(function.__code__), [function])
                self._in_tables[name].setdefault(id(function), instance)

    def of(self, name: str) -> list[ToolFunction]:
        """Return the functions of a tool, without those that another of them wraps."""
        functions = [*self._by_code[name].values(), *self._in_tables[name].values()]
        wrapped = {
            id(inner)
            for function in functions
            for instance in function.instances
            for inner in _wrapped_by(instance)
        }
        return [
            function
            for function in functions
            if not function.instances
            or any(id(instance) not in wrapped for instance in function.instances)
        ]


def named_function(path: str) -> ToolFunction:
    """Return a function by its import path.

    Args:
        path: The path as ``module:function`` or ``module:Class.method``.

    Raises:
        ConfigError: The function does not exist, or belongs to an installed package.
    """
    module_name, separator, qualname = path.partition(":")
    if not separator or not module_name or not qualname:
        raise ConfigError(f"tool {path!r}: name a function as module:function")
    try:
        value: Any = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"tool {path!r}: {module_name} cannot be imported: {error}") from error
    for part in qualname.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise ConfigError(f"tool {path!r}: {error}") from error
    if hasattr(value, "dispatch") and hasattr(value, "registry"):
        raise ConfigError(f"tool {path!r}: dispatches to others: name the function that it calls")
    function = _function_in(inspect.unwrap(value) if callable(value) else value)
    if function is None or not is_agent_file(function.__code__.co_filename):
        raise ConfigError(f"tool {path!r}: is not a function of your own code")
    instances = [
        item
        for item in gc.get_objects()
        if type(item) is FunctionType and item.__code__ == function.__code__
        if item not in _copies
    ]
    return ToolFunction(_own_code(function.__code__), instances or [function])


def _function_in(value: Any) -> FunctionType | None:
    """Return the function behind a bound method, a partial or a descriptor; None if it is none."""
    for _ in range(8):
        if isinstance(value, FunctionType):
            return value
        if isinstance(value, (MethodType, staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, functools.partial):
            value = value.func
        else:
            return None
    return None


def _wrapped_by(function: FunctionType) -> Iterator[FunctionType]:
    """Yield the functions that a decorator's function calls: its wrapped one, and its variables."""
    inner = getattr(function, "__wrapped__", None)
    if isinstance(inner, FunctionType):
        yield inner
    for cell in function.__closure__ or ():
        try:
            value = _function_in(cell.cell_contents)
        except ValueError:  # the variable is not set
            continue
        if value is not None and value is not function:
            yield value


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions and classes that code defines, at any depth."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from nested_codes(constant)


def _with_nested(code: CodeType, target: CodeType, stub: CodeType) -> CodeType:
    """Return code in which a nested function has other code."""
    constants = tuple(
        (stub if each == target else _with_nested(each, target, stub))
        if isinstance(each, CodeType)
        else each
        for each in code.co_consts
    )
    return code.replace(co_consts=constants)


def _running_frames(functions: Collection[FunctionType]) -> Iterator[FrameType]:
    """Yield the frames, running or suspended, of functions."""
    codes = {function.__code__ for function in functions}
    if not codes:
        return
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code in codes:
                yield frame
            frame = frame.f_back
    for item in gc.get_objects():
        suspended = getattr(item, "cr_frame", None) if inspect.iscoroutine(item) else None
        if suspended is not None and suspended.f_code in codes:
            yield suspended


def _will_define(frame: FrameType, nested: CodeType) -> bool:
    """Return whether a frame can still come to the definition of a nested function."""
    instructions = list(dis.get_instructions(frame.f_code))
    index_at = {each.offset: index for index, each in enumerate(instructions)}
    # The frame may point behind an instruction, at its inline caches; it goes on with the next one.
    waiting = [bisect_right(list(index_at), frame.f_lasti)]
    seen: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in seen or index >= len(instructions):
            continue
        seen.add(index)
        each = instructions[index]
        if isinstance(each.argval, CodeType) and (
            each.argval == nested or nested in nested_codes(each.argval)
        ):
            return True
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            waiting.append(index_at[each.argval])
        if each.opname not in _NEVER_CONTINUES:
            waiting.append(index + 1)
    return False


_NEVER_CONTINUES = frozenset(
    {
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"),
    }
)


def _copy_of(function: FunctionType) -> FunctionType:
    """Return a copy of a function, before its code is exchanged."""
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


def _unbound(code: CodeType) -> FunctionType:
    """Return a function that stands for those that are yet to be made of a code."""
    cells = tuple(CellType() for _ in code.co_freevars)
    copy = FunctionType(code, {}, code.co_name, None, cells)
    _copies.add(copy)
    return copy


@dataclass(frozen=True)
class _Exchanged:
    """The function and the handler of an exchanged code object.

    Attributes:
        handler: Answers the calls.
        function: The function as it was.
        can_run: Whether the function can run; one that was made during a replay cannot.
    """

    handler: CallHandler
    function: FunctionType
    can_run: bool


_exchanged: dict[int, _Exchanged] = {}
_own_codes: dict[CodeType, CodeType] = {}
_keys = itertools.count()
# Functions with the own code of others, which belong to oteval.
_copies: WeakSet[FunctionType] = WeakSet()


def _own_code(code: CodeType) -> CodeType:
    """Return the code that a function has when it is not taken over."""
    return _own_codes.get(code, code)


def _stub_code(code: CodeType, key: int) -> CodeType:
    """Return code with the parameters of other code, which calls `answer_call`."""
    names = list(code.co_varnames)
    count = code.co_argcount
    positional, keyword_only = names[:count], names[count : count + code.co_kwonlyargcount]
    rest = iter(names[count + code.co_kwonlyargcount :])
    star = next(rest) if code.co_flags & inspect.CO_VARARGS else ""
    double_star = next(rest) if code.co_flags & inspect.CO_VARKEYWORDS else ""
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
    call = f"__oteval_answer({key}, {{{values}}}, {star or '()'}, {double_star or '{}'})"
    lines = [
        f"    {define} stub({', '.join(parameters)}):",
        f"        from {__name__} import {answer.__name__} as __oteval_answer",
        f"        return {wait}{call}",
    ]
    if code.co_freevars:
        # The code has to have as many variables of the enclosing function as the other.
        lines.insert(0, f"    {' = '.join(code.co_freevars)} = None")
        lines.append(f"        ({', '.join(code.co_freevars)},)")
    module = compile("def enclosing():\n" + "\n".join(lines), code.co_filename, "exec")
    stub = next(each for each in nested_codes(module) if each.co_name == "stub")
    return stub.replace(
        co_name=code.co_name, co_qualname=code.co_qualname, co_firstlineno=code.co_firstlineno
    )


def answer_call(
    key: int, values: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Answer a call of a function that was taken over; its code calls this.

    Args:
        key: The function.
        values: The values of its named parameters, in their order.
        args: Further positional arguments.
        kwargs: Further keyword arguments.
    """
    answer, run = _answered(key, values, args, kwargs)
    return run() if answer is RUN else answer


async def answer_coroutine_call(
    key: int, values: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Answer a call of a coroutine function that was taken over; see `answer_call`."""
    answer, run = _answered(key, values, args, kwargs)
    return await run() if answer is RUN else answer


def _answered(
    key: int, values: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, Callable[[], Any]]:
    """Return the handler's answer, and a function that runs the original."""
    exchanged = _exchanged[key]
    function = exchanged.function
    items = list(values.items())
    count = function.__code__.co_argcount
    positional = [*(value for _, value in items[:count]), *args]
    keywords = {**dict(items[count:]), **kwargs}
    named = Parameters(function).bind(tuple(positional), keywords)
    answer = exchanged.handler(function, named)
    if answer is RUN and not exchanged.can_run:
        raise ConfigError(f"{function.__qualname__} was made during a replay: make it again")
    return answer, functools.partial(function, *positional, **keywords)
