"""The functions of an agent's own code that run its tools.

A hand-written loop calls plain functions. A recording finds the function of a tool among the
agent's own code and watches it, and a replay answers it, see `exchanged_code`.

A function runs a tool if it has the tool's name, or if a dict contains it under that name, such as
a table that a loop calls its tools from. Functions of Python's library, of installed packages and
of oteval are left alone.

The search must not disturb other threads. ``gc.get_objects`` also returns tuples that another
thread is still making. While anyone else has a reference to such a tuple, it cannot grow, and
``tuple(...)`` raises `SystemError` in that thread. So no other thread may run from the moment the
list of all objects exists until it is gone: both happen inside one call of C code, which does not
release the interpreter lock.
"""

from __future__ import annotations

import dis
import functools
import gc
import importlib
import inspect
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain, repeat, starmap
from types import CodeType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any

from ..base.errors import ConfigError
from .agent_files import is_agent_file, is_agent_module, shown_file
from .class_kinds import main_module
from .exchanged_code import (
    GENERATORS,
    CallHandler,
    CallObserver,
    CodeExchange,
    exchange_function,
    exchange_lock,
    exchange_nested,
    is_copy,
    nested_codes,
    own_code,
)

__all__ = [
    "ToolFunction",
    "functions_of_tools",
    "has_function_of",
    "live_objects",
    "named_function",
]

_scanning = threading.Lock()
# The most searches for a function that is the only one of its tool.
_SEARCHES = 3
# Instructions of every function, and instructions of a call.
_NO_EFFECT = frozenset({"RESUME", "NOP", "CACHE", "RETURN_GENERATOR", "POP_TOP", "COPY_FREE_VARS"})
_CALLS = ("PUSH_NULL", "PRECALL", "CALL")


@dataclass(eq=False)
class ToolFunction:
    """A function of the agent's own code that runs a tool.

    Attributes:
        code: Its code.
        instances: The function objects with that code, such as several closures.
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
        """Where it is defined, as ``shop.py:41``; of a decorated function, its own definition."""
        inner = inspect.unwrap(self.instances[0]) if self.instances else None
        code = getattr(inner, "__code__", self.code)
        return f"{shown_file(code.co_filename)}:{code.co_firstlineno}"

    @property
    def path(self) -> str:
        """Its import path, as ``shop:Desk.refund``."""
        module = self.instances[0].__module__ if self.instances else self.owners[0].__module__
        if module == "__main__":
            module = main_module()
        return f"{module}:{self.code.co_qualname.replace('.<locals>', '')}"

    @property
    def takes_arguments(self) -> bool:
        """Whether a call can pass it arguments; properties and getters take none."""
        code = self.code
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            return True
        is_method = code.co_varnames[:1] in (("self",), ("cls",)) and code.co_argcount > 0
        return code.co_argcount + code.co_kwonlyargcount > is_method

    @property
    def is_generator(self) -> bool:
        """Whether it yields; the code of such functions is not exchanged."""
        return bool(self.code.co_flags & GENERATORS)

    @property
    def is_declaration(self) -> bool:
        """Whether it does nothing, as abstract methods, overloads and protocols do."""
        body = [
            instruction
            for instruction in dis.get_instructions(self.code)
            if instruction.opname not in _NO_EFFECT
        ]
        names = {instruction.argval for instruction in body if instruction.opname == "LOAD_GLOBAL"}
        if names:
            opnames = {instruction.opname for instruction in body} - {
                "LOAD_CONST",
                "LOAD_GLOBAL",
                *_CALLS,
            }
            return names == {"NotImplementedError"} and opnames == {"RAISE_VARARGS"}
        return all(
            instruction.argval is None and instruction.opname in ("LOAD_CONST", "RETURN_CONST")
            for instruction in body
            if instruction.opname != "RETURN_VALUE"
        )

    @property
    def problem(self) -> str:
        """Why it cannot be taken over, or ""."""
        if self.is_generator:
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
            A function that undoes it.
        """
        return self._for_exchanges(lambda exchange: exchange.answered_by(handler))

    def observe(self, observer: CallObserver) -> Callable[[], None]:
        """Let an observer watch the calls of this function.

        Args:
            observer: Called before the function.

        Returns:
            A function that undoes it.
        """
        return self._for_exchanges(lambda exchange: exchange.observed_by(observer))

    def _for_exchanges(
        self, begin: Callable[[CodeExchange], Callable[[], None]]
    ) -> Callable[[], None]:
        with exchange_lock, ExitStack() as undo:
            for function in self.instances:
                undo.callback(begin(exchange_function(function)))
            for owner in self.owners:
                if self.code in map(own_code, nested_codes(owner.__code__)):
                    undo.callback(begin(exchange_nested(owner, self.code)))
            return undo.pop_all().close


def functions_of_tools(
    names: Collection[str], *, collects: bool = True
) -> dict[str, list[ToolFunction]]:
    """Find the functions of the agent's own code that run tools, by the tools' names.

    Args:
        names: The names of the tools.
        collects: Whether to collect garbage first, so that only functions in use are left. That
            takes time in a large process; without it, more functions may be returned.
    """
    functions: dict[str, list[ToolFunction]] = {}
    with _scanning:  # the objects of one search would be alive in another
        for _ in range(_SEARCHES):
            # Modules and closures that are gone leave functions behind until they are collected.
            # Collecting does nothing while another thread collects.
            functions.clear()
            if collects:
                gc.collect()
            items = live_objects(FunctionType, dict)
            functions = _candidates(
                frozenset(names), items if collects else chain(items, _frozen_objects())
            )
            if not collects or all(len(candidates) < 2 for candidates in functions.values()):
                break
    return functions


def has_function_of(names: Collection[str], code: CodeType) -> bool:
    """Whether a module's code may define the function of a tool, or a table with it.

    Args:
        names: The names of the tools.
        code: The code.
    """
    if not is_agent_file(code.co_filename):
        return False
    return any(
        part.co_name in names
        or any(type(text) is str and text in names for text in _texts_of(part))
        for part in (code, *nested_codes(code))
    )


def _texts_of(code: CodeType) -> Iterator[object]:
    """Yield the constants of code, also from its tuples, where the keys of a table are."""
    for constant in code.co_consts:
        if type(constant) is tuple:
            yield from constant
        else:
            yield constant


def _candidates(names: frozenset[str], items: Iterable[Any]) -> dict[str, list[ToolFunction]]:
    candidates = _Candidates(names)
    for item in items:
        if type(item) is FunctionType:
            candidates.add_function(item)
        elif issubclass(type(item), dict) and type(item).__getitem__ is dict.__getitem__:
            candidates.add_table(item)
    return {name: candidates.of(name) for name in names}


def _frozen_objects() -> Iterator[object]:
    """Yield functions and tables of modules that the garbage collector has forgotten.

    A server may have called ``gc.freeze`` before it forked its workers.
    """
    if not gc.get_freeze_count():
        return
    for name, module in list(sys.modules.items()):
        if not is_agent_module(name):
            continue
        for value in (vars(module), *list(vars(module).values())):
            yield value
            if isinstance(value, type):
                yield from filter(None, map(_function_in, list(vars(value).values())))


class _Candidates:
    """Collects the functions of tools from the objects of the process."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._seen: set[int] = set()
        self._by_code: dict[str, dict[CodeType, ToolFunction]] = {name: {} for name in names}
        # The functions in tables: these objects only, since others may share their code.
        self._in_tables: dict[str, dict[int, ToolFunction]] = {name: {} for name in names}

    def add_function(self, function: FunctionType) -> None:
        """Take note of a function, and of the functions that it defines when it runs."""
        code = own_code(function.__code__)
        if id(function) in self._seen or not is_agent_file(code.co_filename) or is_copy(function):
            return
        self._seen.add(id(function))
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
                instance = ToolFunction(own_code(function.__code__), [function])
                self._in_tables[name].setdefault(id(function), instance)

    def of(self, name: str) -> list[ToolFunction]:
        """The functions of a tool, except functions that another of them wraps."""
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
    """Find a function by its import path.

    Args:
        path: The path as ``module:function`` or ``module:Class.method``.

    Raises:
        ConfigError: The function does not exist, or belongs to an installed package.
    """
    module_name, separator, qualname = path.partition(":")
    if not separator or not module_name or not qualname:
        raise ConfigError(f"tool {path!r}: name a function as module:function")
    try:
        value: Any = (
            sys.modules["__main__"]
            if module_name == main_module()
            else importlib.import_module(module_name)
        )
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
        for item in live_objects(FunctionType)
        if item.__code__ == function.__code__ and not is_copy(item)
    ]
    return ToolFunction(own_code(function.__code__), instances or [function])


def _function_in(value: Any) -> FunctionType | None:
    """The function behind a bound method, a partial or a descriptor; None without one."""
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
    """Yield the functions that a decorator's function calls: the wrapped one, and its variables."""
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


def _running_frames(functions: Collection[FunctionType]) -> Iterator[FrameType]:
    """Yield the running and suspended frames of functions."""
    codes = {function.__code__ for function in functions}
    if not codes:
        return
    for innermost in sys._current_frames().values():
        frame: FrameType | None = innermost
        while frame is not None:
            if frame.f_code in codes:
                yield frame
            frame = frame.f_back
    for item in live_objects(CoroutineType):
        suspended = item.cr_frame
        if suspended is not None and suspended.f_code in codes:
            yield suspended


def _will_define(frame: FrameType, nested: CodeType) -> bool:
    """Whether a frame can still reach the definition of a nested function."""
    instructions = list(dis.get_instructions(frame.f_code))
    index_at = {instruction.offset: index for index, instruction in enumerate(instructions)}
    # The frame may point behind an instruction, at its inline caches; it goes on with the next one.
    waiting = [bisect_right(list(index_at), frame.f_lasti)]
    visited: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in visited or index >= len(instructions):
            continue
        visited.add(index)
        instruction = instructions[index]
        if isinstance(instruction.argval, CodeType) and (
            instruction.argval == nested or nested in nested_codes(instruction.argval)
        ):
            return True
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            waiting.append(index_at[instruction.argval])
        if instruction.opname not in _NEVER_CONTINUES:
            waiting.append(index + 1)
    return False


_NEVER_CONTINUES = frozenset(
    {
        *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"),
    }
)


def live_objects(*types: type) -> list[Any]:
    """Find the objects of these types, and of types derived from them.

    Only types are looked at. No object runs code for it.

    Args:
        types: The types, which must be known to the garbage collector.
    """
    # A collection in between would run finalizers, and with them other threads.
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _objects_of(frozenset(types))
    finally:
        if is_collecting:
            gc.enable()


def _objects_of(types: frozenset[type]) -> list[Any]:
    # The list of all objects exists only inside two calls of C code: `set` here, and `list` below.
    kinds = set(map(type, _everything()))
    unrelated = {kind: None for kind in kinds if types.isdisjoint(kind.__mro__)}
    # Each object is passed twice: its type is looked up, and the object itself is the default.
    # `zip` keeps the last pair.
    twice = chain.from_iterable(map(repeat, chain(_everything(), (None,)), repeat(2)))
    chosen = list(starmap(unrelated.get, zip(map(type, twice), twice, strict=False)))
    return [
        item for item in chosen if item is not None and not types.isdisjoint(type(item).__mro__)
    ]


def _everything() -> Iterator[Any]:
    """Iterate over all objects; their list is made when the first is requested."""
    return chain.from_iterable(map(gc.get_objects, (None,)))
