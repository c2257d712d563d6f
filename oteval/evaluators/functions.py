"""Functions of the user as evaluators: found by name, and called with the arguments they take.

A function returns a bool, a number, a text, or a dict with ``score`` and optionally ``comment``,
``label`` and ``metadata``.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from ..base.errors import ConfigError
from ..base.jsontext import dumps, restore
from ..base.runner import call
from ..model import EvaluationResult
from .evaluator import EvaluationContext, Evaluator, ReferenceOption, Resources
from .messages import to_messages
from .options import PYTHON_ONLY, FunctionName, Seconds

__all__ = [
    "FunctionEvaluator",
    "call_with",
    "code_version",
    "load_function",
    "load_target",
    "result_of",
]


@dataclass(frozen=True, kw_only=True)
class FunctionEvaluator(Evaluator):
    """Calls a function of yours.

    Attributes:
        call: ``package.module:function``, importable from the folder of oteval.yaml. It is called
            with the arguments that it takes, out of ``outputs``, ``reference_outputs``, ``inputs``
            and ``trajectory``.
        timeout: How long to wait for a call: seconds, or a text such as ``5s``.
        function: The function itself.
    """

    type: ClassVar[str] = "python"
    reference: ClassVar[ReferenceOption | None] = ReferenceOption(
        "The reference, which the function gets as reference_outputs."
    )
    is_slow: ClassVar[bool] = True

    call: FunctionName
    timeout: Seconds | None = None
    function: Annotated[Any, PYTHON_ONLY] = None

    @property
    def time_limit(self) -> float | None:
        """The seconds after which a call is given up; None for no limit."""
        return self.timeout

    def prepare(self, resources: Resources) -> Self:
        """The evaluator with its function imported."""
        return replace(self, function=resources.load_function(self.call))

    def evaluate(self, context: EvaluationContext) -> EvaluationResult:
        """The function's result for a run."""
        expected = context.reference_outputs
        reference = None if expected is None else to_messages(expected)
        available = {
            "outputs": [message.as_dict() for message in context.messages],
            "reference_outputs": reference and [message.as_dict() for message in reference],
            "inputs": context.question,
            "trajectory": context.trajectory,
        }
        return result_of(call_with(self.function, available, self.timeout))

    def describe(self) -> dict[str, Any]:
        """The options as JSON values, to hash into the evaluator's version."""
        return {"type": self.type, "call": self.call, "code": code_version(self.function)}


def result_of(value: Any) -> EvaluationResult:
    """The result that a function's return value describes.

    Raises:
        TypeError: The value is not a result.
    """
    if isinstance(value, Mapping):
        if "score" not in value:
            raise TypeError(f"returned a dict without 'score': {_short(value)}")
        inner = result_of(value["score"])
        metadata = restore(dumps(value.get("metadata") or {}))
        if not isinstance(metadata, dict):
            raise TypeError(f"returned metadata that is not a dict: {_short(metadata)}")
        return replace(
            inner,
            label=str(value.get("label") or inner.label),
            comment=str(value.get("comment") or ""),
            metadata=metadata,
        )
    if isinstance(value, bool):
        return EvaluationResult.of_verdict(value)
    if isinstance(value, (int, float)):
        if not math.isfinite(value):
            raise TypeError(f"returned {value}, which is not a score")
        return EvaluationResult(score=float(value))
    if isinstance(value, str):
        return EvaluationResult(label=value)
    raise TypeError(f"returned {_short(value)}, which is not a score")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def load_function(reference: str) -> Callable[..., Any]:
    """Import the function with a name such as ``package.module:function``.

    Raises:
        ConfigError: The module cannot be imported, or has no such function.
    """
    function = _load(reference)
    if not callable(function):
        module_name, _, path = reference.partition(":")
        raise ConfigError(f"call {reference!r}: {module_name} has no function {path!r}")
    loaded: Callable[..., Any] = function
    return loaded


def load_target(reference: str) -> Any:
    """Import the target of an experiment: a function, or an object with a method `invoke`.

    Raises:
        ConfigError: The module cannot be imported, or has no such target.
    """
    target = _load(reference)
    if not callable(target) and not callable(getattr(target, "invoke", None)):
        module_name, _, path = reference.partition(":")
        raise ConfigError(
            f"target {reference!r}: {module_name} has no function {path!r}, and no object of that "
            "name with invoke(), such as a graph of LangGraph"
        )
    return target


def _load(reference: str) -> Any:
    """The object with a name such as ``package.module:name``; None if the module lacks it."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        raise ConfigError(f"call {reference!r}: write MODULE:FUNCTION")
    try:
        target: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"call {reference!r}: cannot import {module_name}: {reason}") from error
    for name in path.split("."):
        target = getattr(target, name, None)
    return target


def code_version(function: Callable[..., Any]) -> str:
    """A hash of a function's source, so that changed code is a new version.

    For a callable object, it is the hash of its class. Without source, it is the hash of its name.
    """
    for source in (function, type(function)):
        with suppress(OSError, TypeError):
            return _digest(inspect.getsource(source))
    return _digest(getattr(function, "__qualname__", type(function).__qualname__))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def call_with(
    function: Callable[..., Any], available: Mapping[str, Any], timeout: float | None = None
) -> Any:
    """Call a function with the available keyword arguments that it takes.

    Args:
        function: The function, synchronous or not.
        available: The arguments by keyword.
        timeout: Seconds that the call may take; None for no limit.

    Raises:
        TimeoutError: The call took longer.
        Exception: Whatever the function raises.
    """
    return call(partial(function, **_accepted(function, available)), timeout)


def _accepted(function: Callable[..., Any], available: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(available)
    return {p.name: available[p.name] for p in parameters if p.name in available}
