"""Decorators and wrappers for the functions that users import: ``create_*``, async variants."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, Protocol, TypeVar

from .evaluator import Evaluator

__all__ = [
    "AsyncEvaluator",
    "as_async",
    "async_variant",
    "fixed",
    "named_partial",
    "with_options_of",
]

P = ParamSpec("P")
R = TypeVar("R")
E_co = TypeVar("E_co", covariant=True)
E = TypeVar("E", bound=Evaluator)


class AsyncEvaluator(Protocol[E_co]):
    """A coroutine function that evaluates as an `Evaluator` does, made by `named_partial`."""

    @property
    def evaluator(self) -> E_co:
        """The evaluator, with its options and `describe()`."""

    def __call__(
        self, *, outputs: Any, reference_outputs: Any = None, inputs: Any = None, **extra: Any
    ) -> Awaitable[dict[str, Any]]:
        """Evaluate a trajectory."""
        ...


def as_async(evaluator: E) -> AsyncEvaluator[E]:
    """A coroutine function that evaluates as an evaluator does."""
    evaluate = named_partial(_evaluate_async, evaluator.key, evaluator)
    evaluate.evaluator = evaluator
    return evaluate  # type: ignore[no-any-return]


def named_partial(function: Callable[..., Any], name: str, *args: Any) -> Any:
    """A function with its first arguments filled in, under a name; it can be pickled.

    Frameworks ask `inspect.iscoroutinefunction`, which sees through a partial of a coroutine
    function, and use the function's name as the name of the score.
    """
    partial: Any = functools.partial(function, *args)
    partial.__name__ = partial.__qualname__ = name
    partial.__doc__ = function.__doc__
    return partial


async def _evaluate_async(
    evaluator: Evaluator,
    *,
    outputs: Any,
    reference_outputs: Any = None,
    inputs: Any = None,
    **extra: Any,
) -> dict[str, Any]:
    return await evaluator.acall(
        outputs=outputs, reference_outputs=reference_outputs, inputs=inputs, **extra
    )


def async_variant(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """A coroutine function that calls a function."""

    @functools.wraps(function)
    async def variant(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    variant.__name__ = variant.__qualname__ = f"{function.__name__}_async"
    return variant


def fixed(evaluator: Evaluator) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Attach to a function the evaluator that it calls, so that callers see its configuration."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        function.evaluator = evaluator  # type: ignore[attr-defined]
        return function

    return decorate


def with_options_of(
    evaluator: Callable[P, Any],
) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Show the options of an evaluator's class as the signature of a function that takes them."""

    def decorate(function: Callable[..., R]) -> Callable[P, R]:
        # `inspect.signature` looks here.
        function.__wrapped__ = evaluator  # type: ignore[attr-defined]
        return function

    return decorate
