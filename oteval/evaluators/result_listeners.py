"""Listeners for the results of evaluators, such as tests that log them.

An evaluator passes its result to `observed` before it returns. Without listeners, that costs one
check of a list. With listeners, the caller still gets the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["listen", "observed", "unheard"]

Result = TypeVar("Result")
Listener = Callable[[Mapping[str, Any]], None]

_LISTENERS: list[Listener] = []
_UNHEARD: ContextVar[bool] = ContextVar("oteval_unheard", default=False)
_LANGSMITH = "langsmith.testing._internal"


def observed(result: Result) -> Result:
    """An evaluator's result, after the listeners have been called.

    Args:
        result: ``key``, ``score``, ``comment`` and ``metadata``; results without a key, such as
            a judge's answer in the user's own form, are not reported.
    """
    if not _LISTENERS and _LANGSMITH not in sys.modules:
        return result
    if isinstance(result, Mapping) and "key" in result and not _UNHEARD.get():
        for listener in tuple(_LISTENERS):
            listener(result)
        _tell_langsmith(result)
    return result


def listen(listener: Listener) -> Callable[[], None]:
    """Have a function called with every result.

    Returns:
        A function that ends it.
    """
    _LISTENERS.append(listener)
    return lambda: _LISTENERS.remove(listener)


@contextmanager
def unheard() -> Iterator[None]:
    """Hide results from the listeners, such as the results of one judge of a jury."""
    token = _UNHEARD.set(True)
    try:
        yield
    finally:
        _UNHEARD.reset(token)


def _tell_langsmith(result: Mapping[str, Any]) -> None:
    """Log a result as feedback of the LangSmith test that is running, if one is.

    It is never imported here: if it is not loaded, no such test can be running. LangChain's own
    evaluators look at the same variable.
    """
    internal = sys.modules.get(_LANGSMITH)
    case = getattr(internal, "_TEST_CASE", None)
    if case is None or case.get() is None:
        return
    from langsmith import get_current_run_tree, testing

    if get_current_run_tree() is None:  # tracing is off, and LangSmith would raise
        return
    key = str(result["key"])
    with testing.trace_feedback(name=key):
        score, comment = result.get("score"), result.get("comment")
        testing.log_feedback(key=key, score=score, comment=comment)
