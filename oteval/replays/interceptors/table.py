"""Entries of the table of interceptors, and how they are applied.

An entry names a method that a framework uses to run its tools. It converts an invocation of the
method to a call of a tool, and a result to the form that the framework expects. The method is
wrapped in its class, and in all subclasses that override it, whenever they are defined.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...base.errors import ConfigError
from ...record import ToolAnswer
from .calls import InterceptedCall, call_of, text_of

__all__ = [
    "Bound",
    "ToolInterceptor",
    "is_intercepted",
    "marked",
    "require",
]

Bound = Mapping[str, Any]
"""The arguments of a method by the names of its parameters, ``self`` among them."""

_MARK = "__oteval_intercepts__"


@dataclass(frozen=True)
class ToolInterceptor:
    """One entry: a method that a framework uses to run its tools.

    Attributes:
        framework: The framework's name.
        module: The module of the class.
        owner: The class; "" for a function of the module.
        methods: The names of the methods: blocking, coroutine functions or async generators.
        call: Returns the name and the arguments of the tool; None if the method must run.
        give: Returns the result of the method for a recorded answer, or raises its error. For an
            async generator, it returns the items.
        result_of: Returns the tool's result from the result of the method, for a tool that runs.
        is_flow: Returns whether a class runs tools by another intercepted method, and is not
            wrapped.
        is_optional: Whether versions without the method are supported.
    """

    framework: str
    module: str
    owner: str
    methods: tuple[str, ...]
    call: Callable[[Bound], tuple[str, Any] | None]
    give: Callable[[ToolAnswer, Bound], Any] = lambda answer, _bound: text_of(answer)
    result_of: Callable[[Any], Any] = lambda result: result
    is_flow: Callable[[type], bool] = lambda _class: False
    is_optional: bool = False

    def apply(self, module: ModuleType) -> None:
        """Wrap the methods.

        Raises:
            ConfigError: The framework's version lacks one.
        """
        for method in self.methods:
            path = f"{self.owner}.{method}" if self.owner else method
            if self.is_optional and _attribute(module, path) is None:
                return
            function = require(module, path, self.framework)
            if not self.owner:
                setattr(module, method, _wrapped(self, function))
        if self.owner:
            self._wrap_classes(getattr(module, self.owner))

    def _wrap_classes(self, base: Any) -> None:
        """Wrap the methods of a class and its subclasses, including later subclasses."""
        for owner in (base, *_subclasses(base)):
            self._wrap_methods(owner)
        before = vars(base).get("__init_subclass__")

        def wrapped_too(cls: Any, /, **options: Any) -> None:
            if before is None:
                super(base, cls).__init_subclass__(**options)
            else:
                before.__get__(None, cls)(**options)
            self._wrap_methods(cls)

        base.__init_subclass__ = classmethod(wrapped_too)

    def _wrap_methods(self, owner: type) -> None:
        if self.is_flow(owner):
            return
        for name in self.methods:
            function = vars(owner).get(name)
            is_abstract = getattr(function, "__isabstractmethod__", False)
            if inspect.isfunction(function) and not is_abstract and not _is_wrapped(function):
                setattr(owner, name, _wrapped(self, function))

    def intercepted(
        self, signature: inspect.Signature, args: Any, kwargs: Any
    ) -> tuple[Bound, InterceptedCall | None]:
        """Bind the arguments of an invocation, and find the tool call that it makes."""
        bound = signature.bind(*args, **kwargs).arguments
        tool_call = self.call(bound)
        return bound, None if tool_call is None else call_of(*tool_call)


def _subclasses(base: type) -> Iterator[type]:
    subclasses: list[type] = type.__subclasses__(base)
    for subclass in subclasses:
        yield subclass
        yield from _subclasses(subclass)


def marked(wrapper: Any) -> Any:
    """Mark a method that asks the hook, for `is_intercepted`."""
    setattr(wrapper, _MARK, True)
    return wrapper


def _is_wrapped(function: Any) -> bool:
    return getattr(function, _MARK, False) is True


def is_intercepted(tool: Any, *methods: str) -> bool:
    """Whether all of these methods of a tool are wrapped."""
    own = getattr(tool, "__dict__", {})
    return all(name not in own and _is_wrapped(getattr(type(tool), name, None)) for name in methods)


def _wrapped(entry: ToolInterceptor, method: Any) -> Any:
    """Wrap a method so that a replay answers it; the wrapper is of the same kind."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def answered(*args: Any, **kwargs: Any) -> Any:
        bound, call = entry.intercepted(signature, args, kwargs)
        if call is None:
            return method(*args, **kwargs)
        if (answer := call.answer()) is not None:
            return entry.give(answer, bound)
        with call.observed() as report:
            result = method(*args, **kwargs)
            report(entry.result_of(result))
        return result

    @functools.wraps(method)
    async def answered_coroutine(*args: Any, **kwargs: Any) -> Any:
        bound, call = entry.intercepted(signature, args, kwargs)
        if call is None:
            return await method(*args, **kwargs)
        if (answer := await call.answer_async()) is not None:
            return entry.give(answer, bound)
        with call.observed() as report:
            result = await method(*args, **kwargs)
            report(entry.result_of(result))
        return result

    @functools.wraps(method)
    async def answered_stream(*args: Any, **kwargs: Any) -> Any:
        bound, call = entry.intercepted(signature, args, kwargs)
        if call is None:
            async for item in method(*args, **kwargs):
                yield item
        elif (answer := await call.answer_async()) is not None:
            for item in entry.give(answer, bound):
                yield item
        else:
            with call.observed() as report:
                async for item in method(*args, **kwargs):
                    report(entry.result_of(item))
                    yield item

    if inspect.isasyncgenfunction(method):
        wrapper: Any = answered_stream
    elif inspect.iscoroutinefunction(method):
        wrapper = answered_coroutine
    else:
        wrapper = answered
    return marked(wrapper)


def _attribute(module: ModuleType, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def require(module: ModuleType, path: str, framework: str) -> Any:
    """Get an attribute of a module, such as ``Class.method``.

    Raises:
        ConfigError: The framework's version has none.
    """
    value = _attribute(module, path)
    if value is None:
        raise ConfigError(
            f"{framework}: {module.__name__} has no {path}, so that a replay cannot answer its "
            f"tools; install a version of {framework} that oteval supports, or replay with "
            "tools='run'"
        )
    return value
