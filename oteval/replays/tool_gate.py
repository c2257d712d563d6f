"""The gate of a replay: an answer that requests a tool is returned only if the tool cannot run.

A recorded answer that requests ``refund`` makes the agent refund. So the gate first determines who
would run the tool, in this order:

1. The user lets it run (``--run-tool refund``, ``--tools run``).
2. The user has named its function (``--tool refund=shop:do_refund``).
3. An interceptor answers it: `@oteval.tool`, or the tools of a framework.
4. Exactly one function of the agent's own code belongs to the tool.

The functions of 2 and 4 are taken over. Otherwise the replay stops before the answer is returned,
and names the functions that it found and the option to add.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from types import CodeType
from typing import Any, ClassVar

from ..base.errors import ConfigError
from ..record import (
    RUN,
    LateResult,
    ToolAnswer,
    ToolFunction,
    argument_forms,
    current_tool_hook,
    functions_of_tools,
    is_agent_file,
    named_function,
    nested_codes,
    shown_file,
)
from .function_results import give_result

__all__ = ["Interceptors", "ToolGate", "tool_functions"]

Interceptors = Callable[[Collection[str]], Mapping[str, str]]
"""Returns the descriptions of tools' interceptors, by the names of the intercepted tools."""


class ToolGate:
    """Decides whether the tools that a model requests can run.

    Args:
        interceptors: Returns the tools that are intercepted in this process.
        run_tools: The tools that the user lets run.
        functions: The functions that the user has named, by tool, as ``module:function``.
        runs_all: Whether all tools may run.

    Attributes:
        tools: How each requested tool is answered, such as ``shop.py:41, answered``.

    Raises:
        ConfigError: A function that the user has named does not exist.
    """

    def __init__(
        self,
        interceptors: Interceptors,
        *,
        run_tools: Collection[str] = (),
        functions: Mapping[str, str] | None = None,
        runs_all: bool = False,
    ) -> None:
        self._interceptors = interceptors
        self._run_tools = frozenset(run_tools)
        self._functions = dict(functions or {})
        self._runs_all = runs_all
        self._with_arguments: frozenset[str] = frozenset()
        self._recorded_functions: dict[str, str] = {}
        self._lock = threading.RLock()
        self._taken: list[_TakenFunction] = []
        self._taken_names: set[str] = set()
        self.tools: dict[str, str] = {}

    def expect_arguments(self, names: Iterable[str]) -> None:
        """Set the tools that are called with arguments: they need a function with parameters."""
        self._with_arguments = frozenset(names)

    def expect_functions(self, functions: Mapping[str, str]) -> None:
        """Set the functions that ran the tools in the recording, as ``module:function`` by tool."""
        self._recorded_functions = dict(functions)

    def runs(self, name: str) -> bool:
        """Whether the user lets a tool run."""
        return self._runs_all or name in self._run_tools

    def open_to(self, names: Iterable[str], *, is_asked: bool = True) -> str:
        """Take over the tools that an answer requests; return a problem, or "".

        Args:
            names: The names of the tools.
            is_asked: Whether an answer requests them now. Before an answer does, the agent may not
                have imported or run the module with a function.
        """
        with self._lock:
            unknown = [name for name in dict.fromkeys(names) if name not in self.tools]
            for name in unknown:
                if self.runs(name):
                    self.tools[name] = "runs, as you said"
            unknown = [name for name in unknown if name not in self.tools]
            with_function = [name for name in unknown if name in self._functions]
            problems = [self._take_named(name) for name in with_function]
            unknown = [name for name in unknown if name not in with_function]
            if unknown:
                intercepted = self._interceptors(unknown)
                self.tools.update(intercepted)
                unknown = [name for name in unknown if name not in intercepted]
            problems += self._take_found(unknown, is_asked=is_asked) if unknown else []
            return next(filter(None, problems), "")

    def ambiguity_of(self, names: Iterable[str]) -> str:
        """The problem of the first tool that several functions may run; "" if there is none."""
        with self._lock:
            answered = self.tools.keys() | self._functions.keys()
            unknown = [name for name in names if name not in answered and not self.runs(name)]
            functions = functions_of_tools(unknown) if unknown else {}
            for name in unknown:
                candidates = self._candidates(name, functions[name])
                if len(candidates) > 1:
                    return _refusal(name, candidates)
        return ""

    def is_taken_over(self, name: str) -> bool:
        """Whether a function of the agent's own code was taken over for a tool."""
        return name in self._taken_names

    def tool_of(self, code: CodeType) -> str:
        """The tool that this code was taken over for, or ""."""
        return next((name for function in self._taken if (name := function.tool_of(code))), "")

    def definition_in(self, code: CodeType) -> str:
        """The problem if code defines a function again that was taken over; else "".

        Args:
            code: The code of a module, or of an ``exec``.
        """
        if not self._taken_names or not is_agent_file(code.co_filename):
            return ""
        for nested in nested_codes(code):
            if nested.co_name in self._taken_names:
                line = f"{shown_file(code.co_filename)}:{nested.co_firstlineno}"
                return (
                    f"{line} defines {nested.co_name} while the agent runs, beside the function "
                    "that is answered: define it once, before the first model call"
                )
        return ""

    def close(self) -> None:
        """Restore the code of the functions that were taken over."""
        with self._lock:
            functions, self._taken = self._taken, []
            for function in functions:
                function.release()

    def _take_named(self, name: str) -> str:
        path = self._functions[name]
        try:
            return self._take(name, named_function(path))
        except ConfigError as error:
            return str(error)

    def _take_found(self, names: Collection[str], *, is_asked: bool) -> list[str]:
        functions = functions_of_tools(names)
        problems: list[str] = []
        for name in names:
            candidates = self._candidates(name, functions[name])
            candidates = self._as_recorded(name, candidates, is_asked=is_asked)
            # Functions that do not exist yet are taken over in addition to the existing function.
            existing = [function for function in candidates if function.instances]
            if len(candidates) == 1 or len(existing) == 1:
                problems += [self._take(name, function) for function in candidates]
                if existing and not any(problems):
                    self.tools[name] = f"{existing[0].line}, answered"
            elif not candidates and (line := _data_type(name)):
                self.tools[name] = f"{line}, a type of data"
            else:
                declarations = [item for item in functions[name] if item.is_declaration]
                problems.append(_refusal(name, candidates or declarations))
        return problems

    def _candidates(self, name: str, functions: Iterable[ToolFunction]) -> list[ToolFunction]:
        return [
            function
            for function in functions
            if not function.is_declaration
            and (function.takes_arguments or name not in self._with_arguments)
        ]

    def _as_recorded(
        self, name: str, candidates: list[ToolFunction], *, is_asked: bool
    ) -> list[ToolFunction]:
        """The function that ran a tool in the recording, or all if that is not known."""
        path = self._recorded_functions.get(name)
        if path is None:
            return candidates
        same = [function for function in candidates if function.path == path]
        if same or not is_asked:
            return same
        if candidates:  # such as a program in another file: importing the recorded one runs it
            return candidates
        try:  # its module may be imported only for the call
            return [named_function(path)]
        except ConfigError:
            return candidates

    def _take(self, name: str, function: ToolFunction) -> str:
        """Take over a function for a tool; return the reason if that is not possible, else ""."""
        if function.problem:
            return f"the model asks for {name}, and {function.problem}"
        self._taken.append(_TakenFunction.shared(function, name))
        self._taken_names.add(name)
        self.tools[name] = f"{function.line}, answered"
        return ""


class _TakenFunction:
    """A function with calls that replays answer, and the names of its tools.

    Replays in several threads share it: the replay of a call's thread or task answers the call.
    """

    _all: ClassVar[dict[tuple[str, int, str], _TakenFunction]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, key: tuple[str, int, str]) -> None:
        self._names: Counter[str] = Counter()
        self._uses = 0
        self._key = key
        self._undo = ExitStack()

    def _take(self, function: ToolFunction) -> None:
        """Take over the objects of the function that are not taken over yet."""
        self._undo.callback(function.take_over(self._answer))

    def tool_of(self, code: CodeType) -> str:
        """The tool that a code runs, if it is the code of the function; otherwise ""."""
        is_same = self._key == (code.co_filename, code.co_firstlineno, code.co_qualname)
        return next(iter(self._names), "") if is_same else ""

    @classmethod
    def shared(cls, function: ToolFunction, name: str) -> _TakenFunction:
        """Take over a function for a tool, or use it again if it was taken over before."""
        with cls._lock:
            shared_function = cls._all.get(function.key)
            if shared_function is None:
                shared_function = cls._all[function.key] = cls(function.key)
            shared_function._take(function)
            shared_function._uses += 1
            shared_function._names[name] += 1
            return shared_function

    def release(self) -> None:
        """Restore the code of the function if no other replay needs it."""
        with self._lock:
            self._uses -= 1
            if not self._uses:
                del self._all[self._key]
                self._undo.close()

    def _answer(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """The recorded result of a call, or `RUN` outside of a replay."""
        hook: Any = current_tool_hook()
        if hook is None:
            return RUN
        name, plain = self._tool_call(hook, arguments)
        if not hook.has_asked_for(name) and not hook.expects(name, plain):
            # The agent's code calls the function itself. The recording does not show such calls,
            # even if the recorded agent made them.
            hook.refuse_unasked(name)
            return RUN
        answer: ToolAnswer | None = hook.answer(name, plain)
        if answer is None:
            return RUN
        if answer.delay is not None and inspect.iscoroutinefunction(function):
            return LateResult(answer, partial(give_result, answer, function))
        answer.wait()
        return give_result(answer, function)

    def _tool_call(self, hook: Any, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The tool and the arguments of a call of the function.

        Args:
            hook: The hook of a replay, see `oteval.replays.tool_hook`.
            arguments: The arguments of the call.
        """
        forms = list(argument_forms(arguments))
        texts = [value for value in arguments.values() if isinstance(value, str)]
        names = [text for text in texts if text in self._names] or list(self._names)
        for form in forms:
            for name in names:
                if hook.expects(name, form):
                    return name, form
        return names[0], forms[0]


def _data_type(name: str) -> str:
    """The path of a class of that name that contains only data, or "".

    If structured output is requested, a model calls such a class as if it were a tool.
    """
    pydantic = sys.modules.get("pydantic")
    if pydantic is None:
        return ""
    for module in list(sys.modules.values()):
        value = getattr(module, "__dict__", {}).get(name)
        if not (isinstance(value, type) and issubclass(value, pydantic.BaseModel)):
            continue
        file = getattr(sys.modules.get(value.__module__), "__file__", None) or ""
        if is_agent_file(file) and "__call__" not in vars(value):
            return f"{value.__module__}.{value.__qualname__}"
    return ""


def _refusal(name: str, candidates: Collection[ToolFunction]) -> str:
    """The message for a tool that cannot be answered, with the option to add."""
    if not candidates:
        return (
            f"the model asks for {name}, and no function of the agent's code has that name: name "
            f"it with --tool {name}=MODULE:FUNCTION, decorate it with @oteval.tool, or let it run "
            f"with --run-tool {name}"
        )
    lines = " and ".join(sorted(function.line for function in candidates))
    if all(function.is_declaration for function in candidates):
        return (
            f"the model asks for {name}, and {lines} only declares it: name the function that runs "
            f"it: --tool {name}=MODULE:FUNCTION"
        )
    first = min(candidates, key=lambda function: function.line)
    return (
        f"the model asks for {name}, and {len(candidates)} functions fit: {lines}; name the one "
        f"that runs it: --tool {name}={first.path}"
    )


def tool_functions(entries: Iterable[str]) -> dict[str, str]:
    """Parse options that name the functions of tools.

    Args:
        entries: The options, as ``TOOL=MODULE:FUNCTION``.

    Raises:
        ConfigError: An entry has another form.
    """
    functions = {}
    for entry in entries:
        name, _, path = entry.partition("=")
        if not name.strip() or ":" not in path:
            raise ConfigError(f"--tool {entry}: write --tool TOOL=MODULE:FUNCTION")
        functions[name.strip()] = path.strip()
    return functions
